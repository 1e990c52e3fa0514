//! The delay between a failure and the next attempt.

use std::sync::Arc;
use std::time::Duration;

/// The delay before the next attempt, as a function of the number of failed attempts.
#[derive(Clone)]
pub enum RetryPolicy {
    /// The delay doubles with each failure, from `initial` up to `max`. Each is shortened at random by up to a half, so
    /// that objects which fail together are not retried together.
    Exponential {
        /// Delay after the first failure.
        initial: Duration,
        /// Longest delay.
        max: Duration,
    },
    /// A constant delay.
    Fixed(Duration),
    /// A function of the number of failures, which is 1 or more.
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Default for RetryPolicy {
    /// From 50 ms to 5 minutes.
    fn default() -> Self {
        Self::Exponential { initial: Duration::from_millis(50), max: Duration::from_mins(5) }
    }
}

impl std::fmt::Debug for RetryPolicy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exponential { initial, max } => write!(formatter, "Exponential({initial:?}..{max:?})"),
            Self::Fixed(delay) => write!(formatter, "Fixed({delay:?})"),
            Self::Custom(_) => formatter.write_str("Custom"),
        }
    }
}

impl RetryPolicy {
    /// The delay after the given number of failures, 1 or more.
    pub fn delay(&self, failures: u32) -> Duration {
        match self {
            Self::Exponential { initial, max } => {
                let doubled = initial.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
                doubled.min(*max).mul_f64(rand::random_range(0.5..=1.0))
            }
            Self::Fixed(delay) => *delay,
            Self::Custom(compute) => compute(failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_grows_up_to_its_maximum() {
        let policy = RetryPolicy::Exponential { initial: Duration::from_millis(100), max: Duration::from_secs(2) };
        for (failures, min, max) in [(1, 50, 100), (3, 200, 400), (10, 1000, 2000), (u32::MAX, 1000, 2000)] {
            let delay = policy.delay(failures).as_millis();
            assert!((min..=max).contains(&delay), "{failures} failures: {delay} ms");
        }
        assert_eq!(RetryPolicy::Fixed(Duration::from_secs(3)).delay(9), Duration::from_secs(3));
        assert_eq!(RetryPolicy::Custom(Arc::new(|n| Duration::from_secs(n.into()))).delay(4), Duration::from_secs(4));
    }
}
