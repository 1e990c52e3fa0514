//! Keeps what anybody can cause from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often such a line is written at most.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets one line pass in a while, and counts those that do not.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Whether a line is to be written now: then how many were left out since the last one.
    pub(super) fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            state.left_out = state.left_out.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_in_each_interval() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.pass(start), Some(0));
        for _ in 0..1000 {
            assert_eq!(limit.pass(start + INTERVAL / 2), None);
        }
        assert_eq!(limit.pass(start + INTERVAL), Some(1000));
        assert_eq!(limit.pass(start + INTERVAL), None);
        assert_eq!(limit.pass(start + INTERVAL * 3), Some(1));
    }
}
