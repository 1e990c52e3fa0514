//! Why a registry cannot be used now: plain values, no I/O.
//!
//! Several tasks send requests to a registry. Each of them knows only about its own requests: that
//! one succeeds does not end the problem of another one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a registry is asked that cannot be reached.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// Who sends requests to a registry, in the order in which their problems are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requester {
    /// The sign of life of this management cluster.
    Heartbeat,
    /// The watch of the records.
    Watch,
    /// The driver of the blocks.
    Driver,
    /// The identity of the registry.
    Identity,
}

/// The last failure of a requester.
#[derive(Debug)]
struct Problem {
    text: String,
    at: Instant,
}

/// The problems of all requesters of one registry.
#[derive(Debug, Default)]
pub(super) struct Problems {
    by_requester: BTreeMap<Requester, Problem>,
    needs_probe: bool,
}

impl Problems {
    /// A request has failed, for this reason.
    pub(super) fn failed(&mut self, requester: Requester, text: String, at: Instant) {
        self.by_requester.insert(requester, Problem { text, at });
        self.needs_probe = true;
    }

    /// A request has succeeded, or the requester has nothing to send any more.
    pub(super) fn ended(&mut self, requester: Requester) {
        self.by_requester.remove(&requester);
        if requester == Requester::Heartbeat {
            self.needs_probe = false;
        }
    }

    /// Asks for a sign of life soon: it finds out whether a failure concerns the whole registry.
    pub(super) fn request_probe(&mut self) {
        self.needs_probe = true;
    }

    /// Whether something has failed since the last sign of life.
    pub(super) fn needs_probe(&self) -> bool {
        self.needs_probe
    }

    /// The problem to report.
    pub(super) fn first(&self) -> Option<&str> {
        let problem = self.by_requester.values().next()?;
        Some(&problem.text)
    }

    /// Whether the watch has failed, and has shown nothing since.
    pub(super) fn is_watch_failing(&self) -> bool {
        self.by_requester.contains_key(&Requester::Watch)
    }

    /// Whether the driver may send a request: each could take its whole deadline, so a registry that
    /// cannot be reached is not asked for each block.
    pub(super) fn allows_requests(&self, now: Instant) -> bool {
        let is_recent = match self.by_requester.get(&Requester::Driver) {
            Some(problem) => now.saturating_duration_since(problem.at) < PROBE_INTERVAL,
            None => false,
        };
        !is_recent && !self.by_requester.contains_key(&Requester::Heartbeat)
    }
}

#[cfg(test)]
mod tests {
    use super::Requester::{Driver, Heartbeat, Watch};
    use super::*;

    #[test]
    fn success_of_one_requester_ends_no_problem_of_another_one() {
        let now = Instant::now();
        let mut problems = Problems::default();
        for requester in [Driver, Watch, Heartbeat] {
            problems.failed(requester, format!("{requester:?}"), now);
        }
        assert_eq!(problems.first(), Some("Heartbeat"));
        problems.ended(Heartbeat);
        assert_eq!(problems.first(), Some("Watch"));
        assert!(!problems.needs_probe());
        problems.ended(Watch);
        assert_eq!(problems.first(), Some("Driver"));
        problems.ended(Driver);
        assert_eq!(problems.first(), None);
    }

    #[test]
    fn driver_tries_again_after_an_interval() {
        let now = Instant::now();
        let mut problems = Problems::default();
        problems.failed(Watch, String::new(), now);
        assert!(
            problems.allows_requests(now),
            "the watch is another connection"
        );
        problems.failed(Driver, String::new(), now);
        assert!(!problems.allows_requests(now));
        assert!(problems.allows_requests(now + PROBE_INTERVAL));
        problems.failed(Heartbeat, String::new(), now);
        assert!(!problems.allows_requests(now + PROBE_INTERVAL));
    }
}
