//! Which of the objects that a pass has found are released or reported.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// What a pass has found in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// Objects that seem abandoned.
    pub abandoned: Vec<T>,
    /// Objects that are never released. Those that two passes find are reported.
    pub kept: Vec<T>,
}

/// What a pass does.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due<T> {
    /// The objects to release, if live reads confirm that they are abandoned.
    pub(super) release: Vec<T>,
    /// The objects to report.
    pub(super) report: Vec<T>,
}

/// The findings of the last passes.
///
/// An object is released when it has seemed abandoned in two passes, and in every pass for the
/// grace period: what is being written at the moment of a pass is not abandoned. With `report_only`
/// it is reported instead. Each object is reported once.
pub(super) struct Findings<T> {
    grace: Duration,
    report_only: bool,
    /// What seemed abandoned in the last pass: when each object was first found or postponed, and
    /// for how long.
    suspects: HashMap<T, (Instant, Duration)>,
    /// What the last pass would report, and whether each object was reported.
    reported: HashMap<T, bool>,
}

impl<T: Clone + Eq + Hash> Findings<T> {
    pub(super) fn new(grace: Duration, report_only: bool) -> Self {
        Self {
            grace,
            report_only,
            suspects: HashMap::new(),
            reported: HashMap::new(),
        }
    }

    /// Takes what a pass has found at the time `now`.
    pub(super) fn update(&mut self, found: Found<T>, now: Instant) -> Due<T> {
        let mut release = self.confirm(found.abandoned, now);
        let mut kept = found.kept;
        if self.report_only {
            kept.append(&mut release);
        }
        let report = self.confirm_once(kept);
        Due { release, report }
    }

    /// Those that an earlier pass found too, and every pass for the grace period.
    fn confirm(&mut self, found: Vec<T>, now: Instant) -> Vec<T> {
        let before = std::mem::take(&mut self.suspects);
        let mut confirmed = Vec::new();
        for object in found {
            let known = before.get(&object).copied();
            let (since, delay) = known.unwrap_or((now, self.grace));
            if since < now && now.saturating_duration_since(since) >= delay {
                confirmed.push(object.clone());
            }
            self.suspects.insert(object, (since, delay));
        }
        confirmed
    }

    /// Those that the pass before found too, and that were not returned since.
    fn confirm_once(&mut self, found: Vec<T>) -> Vec<T> {
        let before = std::mem::take(&mut self.reported);
        let mut confirmed = Vec::new();
        for object in found {
            let known = before.get(&object);
            if known == Some(&false) {
                confirmed.push(object.clone());
            }
            self.reported.insert(object, known.is_some());
        }
        confirmed
    }

    /// Does not release an object for this long, also if every pass finds it.
    pub(super) fn postpone(&mut self, object: T, now: Instant, delay: Duration) {
        self.suspects.insert(object, (now, delay));
    }

    /// Forgets that an object has seemed abandoned: if it is found again, its grace period starts
    /// again.
    pub(super) fn forget(&mut self, object: &T) {
        self.suspects.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    /// What each pass releases and reports, if all find one abandoned and one kept object. The
    /// passes are a grace period apart.
    fn passes(report_only: bool) -> Vec<Due<&'static str>> {
        let (mut findings, start) = (Findings::new(GRACE, report_only), Instant::now());
        let found = Found {
            abandoned: vec!["abandoned"],
            kept: vec!["manual"],
        };
        (0..4)
            .map(|pass| findings.update(found.clone(), start + GRACE * pass))
            .collect()
    }

    fn due(release: &[&'static str], report: &[&'static str]) -> Due<&'static str> {
        Due {
            release: release.to_vec(),
            report: report.to_vec(),
        }
    }

    #[test]
    fn abandoned_object_is_released_after_the_grace_period() {
        let release = due(&["abandoned"], &[]);
        let second = due(&["abandoned"], &["manual"]);
        let expected = [due(&[], &[]), second, due(&["abandoned"], &[]), release];
        assert_eq!(passes(false), expected);
    }

    #[test]
    fn report_only_reports_once_what_would_be_released() {
        let expected = [
            due(&[], &[]),
            due(&[], &["manual"]),
            due(&[], &["abandoned"]),
            due(&[], &[]),
        ];
        assert_eq!(passes(true), expected);
    }

    #[test]
    fn object_is_confirmed_after_two_passes_and_the_grace_period() {
        let (mut findings, start) = (Findings::new(GRACE, false), Instant::now());
        let mut confirm = |found: &[&'static str], second| {
            findings.confirm(found.to_vec(), start + Duration::from_secs(second))
        };
        assert!(confirm(&["a", "b"], 0).is_empty());
        assert!(confirm(&["a", "b"], 9).is_empty());
        assert_eq!(confirm(&["a"], 10), ["a"]);
        assert!(confirm(&["a", "b"], 20).contains(&"a"));
        assert!(
            !confirm(&["b"], 21).contains(&"b"),
            "it was not found by the pass before"
        );
    }

    #[test]
    fn one_pass_confirms_nothing() {
        let (mut findings, now) = (Findings::new(Duration::ZERO, false), Instant::now());
        let mut confirm =
            |milliseconds| findings.confirm(vec!["a"], now + Duration::from_millis(milliseconds));
        assert!(confirm(0).is_empty());
        assert_eq!(confirm(1), ["a"]);
        findings.forget(&"a");
        assert!(
            findings
                .confirm(vec!["a"], now + Duration::from_millis(2))
                .is_empty()
        );
    }

    #[test]
    fn finding_of_two_passes_is_reported_once() {
        let mut findings = Findings::new(GRACE, false);
        assert!(findings.confirm_once(vec!["a", "b"]).is_empty());
        assert_eq!(findings.confirm_once(vec!["a", "c"]), ["a"]);
        assert_eq!(findings.confirm_once(vec!["a", "c"]), ["c"]);
        assert!(findings.confirm_once(vec!["a", "c"]).is_empty());
        assert!(findings.confirm_once(vec![]).is_empty());
        assert!(
            findings.confirm_once(vec!["a"]).is_empty(),
            "it is a new finding"
        );
    }

    #[test]
    fn postponed_object_is_released_after_its_time() {
        let (mut findings, start) = (Findings::new(GRACE, false), Instant::now());
        let mut pass = |number: u32| {
            let found = Found {
                abandoned: vec!["a"],
                kept: Vec::new(),
            };
            let due = findings.update(found, start + GRACE * number);
            if number == 1 {
                findings.postpone("a", start + GRACE, GRACE * 3);
            }
            due.release.len()
        };
        let counts: Vec<_> = (0..6).map(&mut pass).collect();
        assert_eq!(counts, [0, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn forgotten_object_waits_for_another_grace_period() {
        let (mut findings, start) = (Findings::new(GRACE, false), Instant::now());
        let found = || Found {
            abandoned: vec!["a"],
            kept: Vec::new(),
        };
        let mut pass = |second| {
            let now = start + Duration::from_secs(second);
            let due = findings.update(found(), now);
            due.release
                .iter()
                .for_each(|object| findings.forget(object));
            due.release.len()
        };
        let counts: Vec<_> = [0, 10, 19, 20, 29].map(&mut pass).into();
        assert_eq!(counts, [0, 1, 0, 0, 1]);
    }
}
