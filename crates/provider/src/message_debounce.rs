//! Debouncing of condition messages.
//!
//! Several managers may report on the same claim. Their caches, and therefore the counts in their
//! messages, lag differently, so each would overwrite the message of the other. A condition of
//! which only the message differs is therefore written only if the difference persists.

use std::time::{Duration, Instant};

/// How long a message must differ before it is written.
pub(super) const MESSAGE_DEBOUNCE: Duration = Duration::from_secs(5);

/// The difference between the conditions of a claim and the desired ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusDiff {
    /// None, apart from times.
    None,
    /// Only a message differs.
    Message,
    /// A status, a reason, or a condition differs.
    State,
}

/// Whether to write the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusWrite {
    /// The conditions are up to date.
    Skip,
    /// Write the conditions.
    Now,
    /// Compare them again after this time.
    After(Duration),
}

/// Tracks since when the message of a claim differs from the desired one. Kept across the
/// reconciles of the claim.
#[derive(Debug, Default)]
pub(super) struct MessageDebounce {
    differs_since: Option<Instant>,
}

impl MessageDebounce {
    /// Decides whether to write conditions with this difference.
    pub(super) fn decide(&mut self, diff: StatusDiff, now: Instant) -> StatusWrite {
        if diff == StatusDiff::Message {
            let since = *self.differs_since.get_or_insert(now);
            let left = MESSAGE_DEBOUNCE.saturating_sub(now.saturating_duration_since(since));
            if !left.is_zero() {
                return StatusWrite::After(left);
            }
        }
        self.differs_since = None;
        if diff == StatusDiff::None {
            StatusWrite::Skip
        } else {
            StatusWrite::Now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_state_is_written_immediately() {
        let (mut debounce, now) = (MessageDebounce::default(), Instant::now());
        assert_eq!(debounce.decide(StatusDiff::State, now), StatusWrite::Now);
        assert_eq!(debounce.decide(StatusDiff::None, now), StatusWrite::Skip);
        assert_eq!(
            debounce.decide(StatusDiff::Message, now),
            StatusWrite::After(MESSAGE_DEBOUNCE)
        );
        assert_eq!(debounce.decide(StatusDiff::State, now), StatusWrite::Now);
    }

    #[test]
    fn message_is_written_after_the_debounce_time() {
        let (mut debounce, start) = (MessageDebounce::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(
            debounce.decide(StatusDiff::Message, start),
            StatusWrite::After(MESSAGE_DEBOUNCE)
        );
        assert_eq!(
            debounce.decide(StatusDiff::Message, after(3)),
            StatusWrite::After(Duration::from_secs(2))
        );
        assert_eq!(
            debounce.decide(StatusDiff::Message, after(5)),
            StatusWrite::Now
        );
        assert_eq!(
            debounce.decide(StatusDiff::Message, after(5)),
            StatusWrite::After(MESSAGE_DEBOUNCE)
        );
    }

    #[test]
    fn debounce_restarts_after_a_matching_message() {
        let (mut debounce, start) = (MessageDebounce::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        debounce.decide(StatusDiff::Message, start);
        assert_eq!(
            debounce.decide(StatusDiff::None, after(4)),
            StatusWrite::Skip
        );
        assert_eq!(
            debounce.decide(StatusDiff::Message, after(6)),
            StatusWrite::After(MESSAGE_DEBOUNCE)
        );
    }
}
