//! When the IPSlices of networks that share blocks were last listed, see `blocks::check`.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The share of the time between mark and return for which a list of the IPSlices counts.
const FRESH_SHARE: u32 = 2;

/// When the IPSlices of networks were last listed.
#[derive(Debug)]
pub(super) struct SlicesListed {
    /// When the request of the last list was sent.
    at: Mutex<Option<Instant>>,
    fresh_for: Duration,
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
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        match *self.at.lock() {
            Some(at) => now.saturating_duration_since(at) < self.fresh_for,
            None => false,
        }
    }

    /// How long a list counts.
    pub(super) fn fresh_for(&self) -> Duration {
        self.fresh_for
    }

    /// Records a complete list whose request was sent at `started`.
    pub(super) fn listed(&self, started: Instant) {
        *self.at.lock() = Some(started);
    }
}
