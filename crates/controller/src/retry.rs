//! When to try again after a failure.

use std::sync::Arc;
use std::time::Duration;

/// How long to wait before the next attempt, by the number of attempts that have failed.
#[derive(Clone)]
pub enum RetryPolicy {
    /// The wait doubles with each failure, from `first` up to `longest`, each shortened at random by up to a half so
    /// that many objects do not come back at once.
    Exponential {
        /// Wait after the first failure.
        first: Duration,
        /// No wait is longer.
        longest: Duration,
    },
    /// The wait is always the same.
    Fixed(Duration),
    /// The wait after so many failures (1 or more) is computed.
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Default for RetryPolicy {
    /// From 50 ms to 5 minutes.
    fn default() -> Self {
        Self::Exponential { first: Duration::from_millis(50), longest: Duration::from_mins(5) }
    }
}

impl std::fmt::Debug for RetryPolicy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exponential { first, longest } => write!(formatter, "Exponential({first:?}..{longest:?})"),
            Self::Fixed(wait) => write!(formatter, "Fixed({wait:?})"),
            Self::Custom(_) => formatter.write_str("Custom"),
        }
    }
}

impl RetryPolicy {
    /// The wait after the given number of failures, 1 or more.
    pub fn wait(&self, failures: u32) -> Duration {
        match self {
            Self::Exponential { first, longest } => {
                let doubled = first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
                doubled.min(*longest).mul_f64(rand::random_range(0.5..=1.0))
            }
            Self::Fixed(wait) => *wait,
            Self::Custom(compute) => compute(failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_up_to_its_bound() {
        let policy = RetryPolicy::Exponential { first: Duration::from_millis(100), longest: Duration::from_secs(2) };
        for (failures, least, most) in [(1, 50, 100), (3, 200, 400), (10, 1000, 2000), (u32::MAX, 1000, 2000)] {
            let wait = policy.wait(failures).as_millis();
            assert!((least..=most).contains(&wait), "{failures} failures: {wait} ms");
        }
        assert_eq!(RetryPolicy::Fixed(Duration::from_secs(3)).wait(9), Duration::from_secs(3));
        assert_eq!(RetryPolicy::Custom(Arc::new(|n| Duration::from_secs(n.into()))).wait(4), Duration::from_secs(4));
    }
}
