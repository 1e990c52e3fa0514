//! How long a test waits. On a busy machine everything takes longer, so a limit counts the time in
//! which the machine could have done the work, not the time of the wall clock.
//!
//! A thread samples how many programs want a processor. With `n` runnable programs for each
//! processor the clock of this module advances `n` times slower. On a machine that is not busy it
//! is the wall clock.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

/// Interval of the samples.
const INTERVAL: Duration = Duration::from_millis(200);

/// The clock is never slower than this: a program that hangs is detected on any machine.
const MAX_SLOWDOWN: f64 = 20.0;

/// Longest wait by the wall clock, unless the limit itself is longer.
const MAX_WAIT: Duration = Duration::from_mins(10);

/// Microseconds of the clock since the first use.
static ELAPSED_MICROS: AtomicU64 = AtomicU64::new(0);

/// A wait with a limit.
///
/// ```
/// use std::time::Duration;
///
/// use capi_ipam_testing::patience::Patience;
///
/// let patience = Patience::new(Duration::from_mins(1));
/// while !patience.is_over() {
///     // Poll, and return when it has happened.
/// #   break;
/// }
/// assert!(patience.elapsed() < Duration::from_mins(1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    limit: Duration,
    /// The time of the clock at the start.
    start: Duration,
    started: Instant,
}

impl Patience {
    /// Starts to wait for something that takes less than `limit` on a machine that is not busy.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            start: now(),
            started: Instant::now(),
        }
    }

    /// Whether the limit is over.
    pub fn is_over(&self) -> bool {
        self.elapsed() >= self.limit || self.started.elapsed() >= self.limit.max(MAX_WAIT)
    }

    /// The time since the start; on a busy machine less than that of the wall clock.
    pub fn elapsed(&self) -> Duration {
        now().saturating_sub(self.start).min(self.started.elapsed())
    }
}

/// The time of the clock.
fn now() -> Duration {
    static SAMPLER: OnceLock<()> = OnceLock::new();
    SAMPLER.get_or_init(|| {
        std::thread::spawn(sample);
    });
    Duration::from_micros(ELAPSED_MICROS.load(Ordering::Relaxed))
}

/// Advances the clock.
fn sample() {
    let processors = available_parallelism().map_or(1, std::num::NonZero::get);
    let mut last = Instant::now();
    loop {
        sleep(INTERVAL);
        let passed = last.elapsed();
        last += passed;
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let advance = passed.div_f64(slowdown(&load, processors));
        let micros = u64::try_from(advance.as_micros()).unwrap_or_default();
        ELAPSED_MICROS.fetch_add(micros, Ordering::Relaxed);
    }
}

/// How much slower a program runs than on a machine that is not busy. `load` is the content of
/// `/proc/loadavg`, such as `13.52 9.01 4.00 15/731 4711`: the average of the last minute, which
/// includes programs that wait for a disk, and the number of programs that are runnable at the
/// moment.
fn slowdown(load: &str, processors: usize) -> f64 {
    let mut fields = load.split(' ');
    let average: f64 = fields
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    let runnable: f64 = fields
        .nth(2)
        .and_then(|text| text.split_once('/'))
        .and_then(|(runnable, _)| runnable.parse().ok())
        .unwrap_or_default();
    let processors = f64::from(u32::try_from(processors).unwrap_or(u32::MAX));
    (average.max(runnable) / processors).clamp(1.0, MAX_SLOWDOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_slower_on_a_busy_machine() {
        let is = |load, processors, expected: f64| {
            let found = slowdown(load, processors);
            assert!((found - expected).abs() < 0.01, "{load}: {found}");
        };
        is("0.52 9.01 4.00 1/731 4711\n", 2, 1.0);
        is("2.00 9.01 4.00 2/731 4711\n", 2, 1.0);
        is("8.00 9.01 4.00 2/731 4711\n", 2, 4.0);
        is("0.52 9.01 4.00 12/731 4711\n", 2, 6.0);
        is("0.52 9.01 4.00 12/731 4711\n", 16, 1.0);
        is("900.0 9.01 4.00 12/731 4711\n", 2, MAX_SLOWDOWN);
        is("", 2, 1.0);
    }

    #[test]
    fn patience_ends() {
        let patience = Patience::new(Duration::from_millis(1));
        let started = Instant::now();
        while !patience.is_over() {
            sleep(Duration::from_millis(5));
        }
        assert!(patience.elapsed() <= started.elapsed());
        assert!(!Patience::new(Duration::from_hours(1)).is_over());
    }
}
