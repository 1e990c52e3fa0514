//! The results of the checks.

use std::fmt::{Display, Formatter};
use std::time::Duration;

use super::check::Check;

/// The result of one check.
#[derive(Clone, Debug)]
pub struct CheckResult {
    /// The check.
    pub check: Check,
    /// How long it took.
    pub took: Duration,
    /// What was done, such as the number of kills; empty if there is nothing to say.
    pub note: String,
    /// What went wrong, in several lines. `None` for a passed check.
    pub failure: Option<String>,
}

/// The results of all checks, in their order.
#[derive(Clone, Debug)]
pub struct Report {
    /// The results.
    pub results: Vec<CheckResult>,
    /// How long everything took, including the start of the control plane.
    pub took: Duration,
}

impl Report {
    /// The results of the checks that failed.
    pub fn failed(&self) -> impl Iterator<Item = &CheckResult> {
        self.results
            .iter()
            .filter(|result| result.failure.is_some())
    }

    /// Fails the test with the report if a check failed.
    ///
    /// # Panics
    /// When a check failed.
    pub fn assert_passed(&self) {
        assert!(
            self.failed().next().is_none(),
            "the provider does not conform:\n{self}"
        );
    }
}

impl Display for Report {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        for CheckResult {
            check,
            took,
            note,
            failure,
        } in &self.results
        {
            let outcome = if failure.is_some() { "FAILED" } else { "ok" };
            let note = if note.is_empty() {
                String::new()
            } else {
                format!("  {note}")
            };
            writeln!(
                formatter,
                "{:<18} {outcome:<6} {:>5.1} s{note}",
                check.name(),
                took.as_secs_f32()
            )?;
            for line in failure.iter().flat_map(|failure| failure.lines()) {
                writeln!(formatter, "    {line}")?;
            }
        }
        let (failed, all) = (self.failed().count(), self.results.len());
        write!(
            formatter,
            "{} of {all} checks passed in {:.1} s",
            all - failed,
            self.took.as_secs_f32()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_lists_every_check_and_its_failure() {
        let result = |check, failure: Option<&str>| CheckResult {
            check,
            took: Duration::from_millis(1250),
            note: if check == Check::Bind {
                "3 claims".to_owned()
            } else {
                String::new()
            },
            failure: failure.map(str::to_owned),
        };
        let results = vec![
            result(Check::Bind, None),
            result(Check::Release, Some("expected: a\nseen:     b")),
        ];
        let report = Report {
            results,
            took: Duration::from_secs(3),
        };
        let expected = "bind               ok       1.2 s  3 claims\nrelease            FAILED   1.2 s\n    expected: a\n    seen:     b\n\
                        1 of 2 checks passed in 3.0 s";
        assert_eq!(report.to_string(), expected);
        assert_eq!(report.failed().count(), 1);
    }
}
