//! The delay between a failure and the next attempt.

use std::time::Duration;

/// The delay before the next attempt, as a function of the number of failed attempts. It doubles
/// with each failure, from `initial` up to `max`. Each delay is shortened at random by up to a
/// half, so that objects which fail together are not retried together.
///
/// Backoff iterators of other crates keep their state in themselves. The number of failures is a
/// part of the [`Attempt`](crate::controller::Attempt) here, and the longest delay can change
/// between two attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl Default for RetryPolicy {
    /// From 50 ms to 5 minutes.
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(50),
            max: Duration::from_mins(5),
        }
    }
}

impl RetryPolicy {
    /// The delay after the given number of failures, 1 or more.
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = self
            .initial
            .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.max).mul_f64(rand::random_range(0.5..=1.0))
    }
}

/// What happens after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The object is reconciled again after this delay, or earlier if a change [ends
    /// it](crate::controller::ControllerBuilder::dequeues) or if it is triggered. By default a change of
    /// more than the status does.
    After(Duration),
    /// The object is not reconciled again before such a change, or before it is triggered.
    /// Conditions that the reconciler has written stay.
    GiveUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_up_to_its_maximum() {
        let policy = RetryPolicy {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(2),
        };
        for (failures, min, max) in [
            (1, 50, 100),
            (3, 200, 400),
            (10, 1000, 2000),
            (u32::MAX, 1000, 2000),
        ] {
            let delay = policy.delay(failures).as_millis();
            assert!(
                (min..=max).contains(&delay),
                "{failures} failures: {delay} ms"
            );
        }
    }
}
