//! Which of the objects that a pass has found are released or reported.

use std::hash::Hash;
use std::time::{Duration, Instant};

use super::lasting::Lasting;
use super::suspects::Suspects;

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
#[derive(Debug)]
pub(super) struct Findings<T> {
    grace: Duration,
    report_only: bool,
    suspects: Suspects<T>,
    reported: Lasting<T>,
}

impl<T: Clone + Eq + Hash> Findings<T> {
    pub(super) fn new(grace: Duration, report_only: bool) -> Self {
        Self {
            grace,
            report_only,
            suspects: Suspects::default(),
            reported: Lasting::default(),
        }
    }

    /// Takes what a pass has found at the time `now`.
    pub(super) fn update(&mut self, found: Found<T>, now: Instant) -> Due<T> {
        let mut release = self.suspects.update(found.abandoned, self.grace, now);
        let mut kept = found.kept;
        if self.report_only {
            kept.append(&mut release);
        }
        let report = self.reported.update(kept);
        Due { release, report }
    }

    /// Does not release an object for this long, also if every pass finds it.
    pub(super) fn postpone(&mut self, object: T, now: Instant, delay: Duration) {
        self.suspects.postpone(object, now, delay);
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
