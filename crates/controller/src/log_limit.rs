//! A rate limit for log messages that a client or a server can cause many times.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time between two messages.
const INTERVAL: Duration = Duration::from_secs(10);

/// Allows one message in 10 s, and counts the suppressed ones.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// The number of messages that were suppressed since the last one; `None` if this message is
    /// suppressed too.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < INTERVAL)
        {
            state.suppressed = state.suppressed.saturating_add(1);
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_allowed_per_interval() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        assert_eq!(limit.allow(start), Some(0));
        for _ in 0..1000 {
            assert_eq!(limit.allow(start + INTERVAL / 2), None);
        }
        assert_eq!(limit.allow(start + INTERVAL), Some(1000));
        assert_eq!(limit.allow(start + INTERVAL), None);
        assert_eq!(limit.allow(start + INTERVAL * 3), Some(1));
    }
}
