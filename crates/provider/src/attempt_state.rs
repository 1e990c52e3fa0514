//! What is known from earlier attempts at a claim.

use std::time::{Duration, Instant};

use crate::message_debounce::MessageDebounce;

/// How many consecutive attempts fail before the claim reports it. Fewer are common and transient.
pub(super) const MAX_UNREPORTED_FAILURES: u32 = 2;
/// How long an attempt that fails may take before the claim reports it at once.
pub(super) const MAX_UNREPORTED_ATTEMPT: Duration = Duration::from_secs(30);
/// How long a provider may be not ready before the claim reports it.
const MAX_UNREPORTED_DELAY: Duration = Duration::from_secs(5);
/// How many consecutive attempts may end with a conflict before the claim reports it. An admission
/// webhook can reject a write with the code of a conflict, each time.
pub(super) const MAX_UNREPORTED_CONFLICTS: u32 = 10;

/// State that is passed from one attempt at a claim to the next.
#[derive(Debug, Default)]
pub struct AttemptState {
    pub(super) messages: MessageDebounce,
    /// Since when the provider has not been ready.
    not_ready_since: Option<Instant>,
}

impl AttemptState {
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
}
