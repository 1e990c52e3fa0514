//! A limit for log messages that a client or a server can cause many times, or that repeat a problem
//! that lasts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time until the message of a problem that lasts is repeated. It doubles with each repetition.
const FIRST_REPETITION: Duration = Duration::from_mins(1);

/// Maximum time between two repetitions.
const MAX_REPETITION: Duration = Duration::from_hours(1);

/// Maximum number of problems that are remembered.
const MAX_PROBLEMS: usize = 256;

/// Allows the first message about each problem, and repeats it at a growing interval: after a
/// minute, two minutes, and so on, up to an hour.
#[derive(Debug, Default)]
pub struct RepetitionLimit(Mutex<HashMap<String, Problem>>);

/// A problem that was reported.
#[derive(Clone, Copy, Debug)]
struct Problem {
    /// The time of the next message, at the earliest.
    next: Instant,
    /// Time between the last message and the next one.
    interval: Duration,
    suppressed: u64,
}

impl Problem {
    /// Whether the problem has not occurred for so long that it is a new one.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.next) > self.interval
    }
}

impl RepetitionLimit {
    /// The number of messages about a problem that were suppressed since the last one; `None` if
    /// this message is suppressed too. `problem` is what tells problems apart, such as the text.
    pub fn allow(&self, problem: &str, now: Instant) -> Option<u64> {
        let mut problems = self.0.lock();
        let Some(known) = problems.get_mut(problem) else {
            if problems.len() >= MAX_PROBLEMS {
                problems.retain(|_, known| !known.is_over(now));
            }
            if problems.len() >= MAX_PROBLEMS {
                problems.clear();
            }
            let first = Problem {
                next: later(now, FIRST_REPETITION),
                interval: FIRST_REPETITION,
                suppressed: 0,
            };
            problems.insert(problem.to_owned(), first);
            return Some(0);
        };
        if now < known.next {
            known.suppressed = known.suppressed.saturating_add(1);
            return None;
        }
        known.interval = if known.is_over(now) {
            FIRST_REPETITION
        } else {
            known.interval.saturating_mul(2).min(MAX_REPETITION)
        };
        known.next = later(now, known.interval);
        Some(std::mem::take(&mut known.suppressed))
    }

    /// Forgets all problems after a success. Returns whether there was one.
    pub fn end(&self) -> bool {
        let mut problems = self.0.lock();
        let had_problem = !problems.is_empty();
        problems.clear();
        had_problem
    }
}

fn later(now: Instant, delay: Duration) -> Instant {
    now.checked_add(delay).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_problem_is_repeated_at_a_growing_interval() {
        let (limit, start) = (RepetitionLimit::default(), Instant::now());
        let mut logged = Vec::new();
        for second in 0..3 * 3600 {
            if limit
                .allow("forbidden", start + Duration::from_secs(second))
                .is_some()
            {
                logged.push(second / 60);
            }
        }
        assert_eq!(logged, [0, 1, 3, 7, 15, 31, 63, 123]);
    }

    #[test]
    fn another_problem_is_reported_at_once() {
        let (limit, start) = (RepetitionLimit::default(), Instant::now());
        assert_eq!(limit.allow("list", start), Some(0));
        assert_eq!(limit.allow("watch", start), Some(0));
        assert_eq!(limit.allow("list", start), None);
        assert!(limit.end() && !limit.end());
        assert_eq!(limit.allow("list", start), Some(0), "it is a new one");
    }

    #[test]
    fn problem_after_a_long_pause_is_a_new_one() {
        let (limit, start) = (RepetitionLimit::default(), Instant::now());
        let at = |minutes| start + Duration::from_mins(minutes);
        assert_eq!(limit.allow("full", at(0)), Some(0));
        assert_eq!(limit.allow("full", at(1)), Some(0));
        assert_eq!(
            limit.allow("full", at(2)),
            None,
            "the interval is 2 minutes"
        );
        assert_eq!(limit.allow("full", at(30)), Some(1));
        assert_eq!(limit.allow("full", at(31)), Some(0), "it begins again");
    }

    #[test]
    fn problems_do_not_fill_the_memory() {
        let (limit, start) = (RepetitionLimit::default(), Instant::now());
        for number in 0..10_000 {
            limit.allow(&number.to_string(), start);
        }
        assert!(limit.0.lock().len() <= MAX_PROBLEMS);
    }
}
