//! When the IPSlices of networks that share blocks were last listed, see `blocks::check`.

use std::time::{Duration, Instant};

use capi_ipam_controller::clock;
use jiff::Timestamp;
use parking_lot::Mutex;

/// The share of the time between mark and return for which a list of the IPSlices counts.
const FRESH_SHARE: u32 = 2;

/// When the IPSlices of networks were last listed.
#[derive(Debug)]
pub(super) struct SlicesListed {
    /// When the request of the last list was sent.
    at: Mutex<Option<Moment>>,
    fresh_for: Duration,
}

/// A moment, by the monotonic clock of this machine and by the clock of the API server. The first
/// one does not count the time for which the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    monotonic: Instant,
    server: Timestamp,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self {
            monotonic: Instant::now(),
            server: clock::timestamp(),
        }
    }

    /// Whether less than this time has passed since an earlier moment, by both clocks.
    fn is_within(self, time: Duration, earlier: Self) -> bool {
        let by_server = self.server.duration_since(earlier.server).unsigned_abs();
        let by_monotonic = self.monotonic.saturating_duration_since(earlier.monotonic);
        by_monotonic < time && by_server < time
    }
}

impl SlicesListed {
    /// `drain` is the time between the mark of an empty slice and its return.
    pub(super) fn new(drain: Duration) -> Self {
        let fresh_for = drain.checked_div(FRESH_SHARE).unwrap_or_default();
        Self {
            at: Mutex::default(),
            fresh_for,
        }
    }

    /// Whether the last list counts for a reservation whose creation was answered now.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        match *self.at.lock() {
            Some(at) => now.is_within(self.fresh_for, at),
            None => false,
        }
    }

    /// How long a list counts.
    pub(super) fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    /// Records a complete list whose request was sent at `started`.
    pub(super) fn listed(&self, started: Moment) {
        *self.at.lock() = Some(started);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_counts_by_both_clocks() {
        let listed = SlicesListed::new(Duration::from_mins(1));
        let start = Moment::now();
        assert!(!listed.is_fresh(start));
        listed.listed(start);
        let later = |monotonic: u64, server: i64| Moment {
            monotonic: start.monotonic + Duration::from_secs(monotonic),
            server: Timestamp::from_second(start.server.as_second() + server).unwrap(),
        };
        assert!(listed.is_fresh(later(20, 20)));
        assert!(!listed.is_fresh(later(31, 20)));
        assert!(!listed.is_fresh(later(20, 31)), "the machine was suspended");
        assert!(!listed.is_fresh(later(20, -40)), "the clock was set back");
    }
}
