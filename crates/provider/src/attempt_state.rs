//! What is known from earlier attempts at a claim.
//!
//! Several managers may report on the same claim. Their caches, and therefore the counts in their
//! messages, lag differently, so each would overwrite the message of the other. A condition of
//! which only the message differs is therefore written only if the difference persists.

use std::time::{Duration, Instant};

/// How long a message must differ before it is written.
pub(super) const MESSAGE_DEBOUNCE: Duration = Duration::from_secs(5);

/// How many consecutive attempts fail before the claim reports it. Fewer are common and transient.
pub(super) const MAX_UNREPORTED_FAILURES: u32 = 2;
/// How long an attempt that fails may take before the claim reports it at once.
pub(super) const MAX_UNREPORTED_ATTEMPT: Duration = Duration::from_secs(30);
/// How long a provider may be not ready before the claim reports it.
const MAX_UNREPORTED_DELAY: Duration = Duration::from_secs(5);
/// How many consecutive attempts may end with a conflict before the claim reports it. An admission
/// webhook can reject a write with the code of a conflict, each time.
pub(super) const MAX_UNREPORTED_CONFLICTS: u32 = 10;

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

/// State that is passed from one attempt at a claim to the next.
#[derive(Debug, Default)]
pub struct AttemptState {
    /// Since when the message of the claim differs from the desired one.
    message_differs_since: Option<Instant>,
    /// Since when the provider has not been ready.
    not_ready_since: Option<Instant>,
}

impl AttemptState {
    /// How long conditions with this difference are not written; `None` if they are written now.
    pub(super) fn message_delay(&mut self, diff: StatusDiff, now: Instant) -> Option<Duration> {
        if diff == StatusDiff::Message {
            let since = *self.message_differs_since.get_or_insert(now);
            let left = MESSAGE_DEBOUNCE.saturating_sub(now.saturating_duration_since(since));
            if !left.is_zero() {
                return Some(left);
            }
        }
        self.message_differs_since = None;
        (diff == StatusDiff::None).then_some(Duration::MAX)
    }

    /// Records that the provider is not ready, and asks to be called again after a delay. Returns
    /// whether the claim has to report it.
    pub(super) fn record_not_ready(&mut self, after: Duration, now: Instant) -> bool {
        let since = *self.not_ready_since.get_or_insert(now);
        after > MAX_UNREPORTED_DELAY || now.saturating_duration_since(since) >= MAX_UNREPORTED_DELAY
    }

    /// Records that the provider is ready.
    pub(super) fn record_ready(&mut self) {
        self.not_ready_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_that_stays_not_ready_is_reported() {
        let (mut state, start) = (AttemptState::default(), Instant::now());
        let mut record =
            |after, second| state.record_not_ready(after, start + Duration::from_secs(second));
        let second = Duration::from_secs(1);
        assert_eq!(
            [0, 4, 5, 9].map(|at| record(second, at)),
            [false, false, true, true]
        );
        state.record_ready();
        assert!(!state.record_not_ready(second, start + Duration::from_secs(10)));
        assert!(AttemptState::default().record_not_ready(Duration::from_mins(1), start));
    }

    #[test]
    fn new_state_is_written_immediately() {
        let (mut state, now) = (AttemptState::default(), Instant::now());
        assert_eq!(state.message_delay(StatusDiff::State, now), None);
        assert_eq!(
            state.message_delay(StatusDiff::None, now),
            Some(Duration::MAX)
        );
        assert_eq!(
            state.message_delay(StatusDiff::Message, now),
            Some(MESSAGE_DEBOUNCE)
        );
        assert_eq!(state.message_delay(StatusDiff::State, now), None);
    }

    #[test]
    fn message_is_written_after_the_debounce_time() {
        let (mut state, start) = (AttemptState::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(
            state.message_delay(StatusDiff::Message, start),
            Some(MESSAGE_DEBOUNCE)
        );
        assert_eq!(
            state.message_delay(StatusDiff::Message, after(3)),
            Some(Duration::from_secs(2))
        );
        assert_eq!(state.message_delay(StatusDiff::Message, after(5)), None);
        assert_eq!(
            state.message_delay(StatusDiff::Message, after(5)),
            Some(MESSAGE_DEBOUNCE)
        );
    }

    #[test]
    fn debounce_restarts_after_a_matching_message() {
        let (mut state, start) = (AttemptState::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        state.message_delay(StatusDiff::Message, start);
        assert_eq!(
            state.message_delay(StatusDiff::None, after(4)),
            Some(Duration::MAX)
        );
        assert_eq!(
            state.message_delay(StatusDiff::Message, after(6)),
            Some(MESSAGE_DEBOUNCE)
        );
    }
}
