//! When a step is sent again for a block: plain values, no I/O.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_protocol::block::Step;

/// The delays of steps for which claims of this cluster or of another one wait: a claim is served
/// soon after the cause of the failures is gone.
const AWAITED: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(250),
    max: Duration::from_secs(1),
};
/// The delays of steps that return a block. They list all reservations.
const RETURN: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(250),
    max: Duration::from_secs(30),
};
/// The delays of a write that the registry refuses although it can be reached. It decides on its limits and
/// permissions, and both can change.
const REFUSED: RetryPolicy = RetryPolicy {
    initial: Duration::from_secs(1),
    max: Duration::from_mins(1),
};
/// How long after its delay a failed step is remembered: longer than a pass.
const FAILURE_TTL: Duration = Duration::from_mins(1);
/// The same of a step that was done: longer than the interval of passes.
const SUCCESS_TTL: Duration = Duration::from_secs(2);

/// The steps that were sent for a block not long ago. The same step is sent again after a delay, also
/// if it was done: then it had no effect, or another one undoes it. The delay doubles each time.
/// Other steps are not delayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff(BTreeMap<Step, Sent>);

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    Failed,
    /// The registry refuses the record. This concerns one network or one block: the others go on.
    Refused,
}

/// A step that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    at: Instant,
    outcome: Outcome,
    /// How often it was sent with this result.
    count: u32,
    delay: Duration,
}

impl Backoff {
    /// A step was sent. Returns whether it has had another outcome before.
    pub(super) fn sent(&mut self, step: Step, outcome: Outcome, now: Instant) -> bool {
        if outcome == Outcome::Done && step.is_of_registry() {
            self.end_refusals();
        }
        let count = match self.0.get(&step) {
            Some(sent) if sent.outcome == outcome => sent.count.saturating_add(1),
            _ => 1,
        };
        let policy = match outcome {
            Outcome::Refused => REFUSED,
            _ if step.is_of_return() => RETURN,
            _ => AWAITED,
        };
        let sent = Sent {
            at: now,
            outcome,
            count,
            delay: policy.delay(count),
        };
        self.0.insert(step, sent);
        count == 1
    }

    /// The time until a step may be sent again; `None` if it may be sent now.
    pub(super) fn wait_time(&self, step: Step, now: Instant) -> Option<Duration> {
        let sent = self.0.get(&step)?;
        let wait = sent.delay.saturating_sub(sent.age(now));
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// Whether the registry has refused the last write of a step.
    pub(super) fn is_refused(&self) -> bool {
        let mut all = self.0.values();
        all.any(|sent| sent.outcome == Outcome::Refused)
    }

    /// The registry has accepted the record, or it has not to be written any more.
    pub(super) fn end_refusals(&mut self) {
        self.0.retain(|_, sent| sent.outcome != Outcome::Refused);
    }

    /// Removes the steps that were sent long ago.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.0.retain(|_, sent| {
            let ttl = match sent.outcome {
                Outcome::Done => SUCCESS_TTL,
                Outcome::Failed | Outcome::Refused => FAILURE_TTL,
            };
            sent.age(now) < sent.delay.saturating_add(ttl.max(sent.delay))
        });
    }
}

impl Sent {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a step is sent in some seconds if it is decided again and again.
    fn count(step: Step, outcome: Outcome, seconds: u64) -> usize {
        let (mut backoff, start) = (Backoff::default(), Instant::now());
        let mut count = 0;
        for millis in (0..seconds * 1000).step_by(10) {
            let now = start + Duration::from_millis(millis);
            backoff.forget_old(now);
            if backoff.wait_time(step, now).is_none() {
                let is_first = backoff.sent(step, outcome, now);
                assert!(is_first || count > 0);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn repeated_return_is_sent_less_and_less_often() {
        for outcome in [Outcome::Done, Outcome::Failed] {
            let sent = count(Step::DeleteSlice, outcome, 600);
            assert!((20..60).contains(&sent), "{sent}");
        }
    }

    #[test]
    fn claims_wait_at_most_a_second_for_the_next_attempt() {
        for outcome in [Outcome::Done, Outcome::Failed] {
            let sent = count(Step::ConfirmRecord, outcome, 600);
            assert!((600..1300).contains(&sent), "{sent}");
        }
    }

    #[test]
    fn refused_record_is_written_each_minute() {
        let sent = count(Step::CreateRecord, Outcome::Refused, 600);
        assert!((14..30).contains(&sent), "{sent}");
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        assert!(backoff.sent(Step::CreateRecord, Outcome::Refused, now));
        assert!(backoff.is_refused());
        backoff.sent(Step::ConfirmRecord, Outcome::Done, now);
        assert!(!backoff.is_refused());
        assert_eq!(backoff.wait_time(Step::CreateRecord, now), None);
    }

    #[test]
    fn other_steps_are_not_delayed() {
        let (mut backoff, now) = (Backoff::default(), Instant::now());
        backoff.sent(Step::DeleteSlice, Outcome::Failed, now);
        assert!(backoff.wait_time(Step::DeleteSlice, now).is_some());
        assert_eq!(backoff.wait_time(Step::ClearMark, now), None);
    }

    #[test]
    fn block_that_is_returned_once_in_a_while_is_not_delayed() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            backoff.forget_old(now);
            assert_eq!(backoff.wait_time(Step::DeleteSlice, now), None);
            backoff.sent(Step::DeleteSlice, Outcome::Done, now);
            now += Duration::from_secs(4);
        }
        backoff.forget_old(now);
        assert_eq!(backoff, Backoff::default());
    }
}
