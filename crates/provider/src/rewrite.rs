//! When the condition of a claim is rewritten.
//!
//! Several managers may report on one claim. Their caches lag differently, and so do the counts in their messages: each
//! would correct what another has just written. So a message that differs alone has to differ for a while.

use std::time::{Duration, Instant};

/// How long a message has to differ before it is rewritten.
pub(super) const MESSAGE_DELAY: Duration = Duration::from_secs(5);

/// How the conditions of a claim differ from those that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// They are the same, apart from times.
    None,
    /// Only messages differ.
    Message,
    /// A status, a reason, or a condition differs.
    State,
}

/// Whether to rewrite the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// They are as wanted.
    NotNeeded,
    /// Rewrite them.
    Now,
    /// Compare them again after this time.
    After(Duration),
}

/// Since when the message of a claim differs from the wanted one; kept from one attempt to the next.
#[derive(Debug, Default)]
pub struct MessageDelay {
    differs_since: Option<Instant>,
}

impl MessageDelay {
    /// Decides whether conditions that differ so are rewritten.
    pub(super) fn decide(&mut self, difference: Difference, now: Instant) -> Rewrite {
        if difference == Difference::Message {
            let since = *self.differs_since.get_or_insert(now);
            let left = MESSAGE_DELAY.saturating_sub(now.saturating_duration_since(since));
            if !left.is_zero() {
                return Rewrite::After(left);
            }
        }
        self.differs_since = None;
        if difference == Difference::None { Rewrite::NotNeeded } else { Rewrite::Now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_state_is_written_at_once() {
        let (mut delay, now) = (MessageDelay::default(), Instant::now());
        assert_eq!(delay.decide(Difference::State, now), Rewrite::Now);
        assert_eq!(delay.decide(Difference::None, now), Rewrite::NotNeeded);
        assert_eq!(delay.decide(Difference::Message, now), Rewrite::After(MESSAGE_DELAY));
        assert_eq!(delay.decide(Difference::State, now), Rewrite::Now);
    }

    #[test]
    fn a_message_is_rewritten_when_it_has_differed_for_a_while() {
        let (mut delay, start) = (MessageDelay::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(delay.decide(Difference::Message, start), Rewrite::After(MESSAGE_DELAY));
        assert_eq!(delay.decide(Difference::Message, after(3)), Rewrite::After(Duration::from_secs(2)));
        assert_eq!(delay.decide(Difference::Message, after(5)), Rewrite::Now);
        assert_eq!(delay.decide(Difference::Message, after(5)), Rewrite::After(MESSAGE_DELAY));
    }

    #[test]
    fn the_delay_restarts_when_the_message_was_right_meanwhile() {
        let (mut delay, start) = (MessageDelay::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        delay.decide(Difference::Message, start);
        assert_eq!(delay.decide(Difference::None, after(4)), Rewrite::NotNeeded);
        assert_eq!(delay.decide(Difference::Message, after(6)), Rewrite::After(MESSAGE_DELAY));
    }
}
