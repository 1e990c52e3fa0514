//! Rate limit of status updates of pools.

use std::time::{Duration, Instant};

use capi_ipam_controller::expiring_map::ExpiringMap;
use parking_lot::Mutex;

use crate::api::Uid;

/// The minimum interval between two status updates of one pool.
pub const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// The interval between count updates of two pools, as a multiple of the latency of the last write:
/// the counts of a hundred pools must not slow down a burst of claims.
const WRITE_COST_FACTOR: u32 = 10;
/// The minimum interval between count updates of two pools.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// The maximum interval between count updates of two pools: with a busy API server counts are
/// delayed, not dropped.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// The delay between a change of counts and its status update. A claim that is being bound changes
/// the counts several times: one update then covers all changes, and does not compete with the
/// writes for the claim.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long a scheduled update is remembered that is not written.
const EXPIRY: Duration = Duration::from_secs(10);
/// How long a failed update is remembered: longer than the longest backoff of a pool.
const RETRY_EXPIRY: Duration = Duration::from_mins(5);

/// Schedules status updates: of each pool, and of all pools together.
pub(crate) struct StatusLimiter {
    /// The minimum interval between two updates of one pool.
    interval: Duration,
    schedule: Mutex<Schedule>,
}

#[derive(Default)]
struct Schedule {
    pools: ExpiringMap<Uid, Scheduled>,
    /// The earliest time of the next count update of any pool.
    next_count_update: Option<Instant>,
    /// The latency of the last write.
    latency: Duration,
}

struct Scheduled {
    /// The earliest time of the next update of the pool.
    earliest: Instant,
    /// When an update is due that was not written yet.
    due: Option<Instant>,
}

impl StatusLimiter {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            schedule: Mutex::default(),
        }
    }

    /// Returns the remaining delay of a status update; `None` if the status can be written now.
    /// Updates with a condition transition are written immediately, updates of counts alone after
    /// a short delay and the interval between pools; none sooner than the interval after the
    /// last update of the pool.
    pub(crate) fn delay(&self, pool: Uid, has_transition: bool, now: Instant) -> Option<Duration> {
        let mut schedule = self.schedule.lock();
        let Schedule {
            pools,
            next_count_update,
            latency,
        } = &mut *schedule;
        let (mut due, earliest) = match pools.get(&pool, now) {
            Some(Scheduled {
                earliest,
                due: Some(due),
            }) => (*due, *earliest),
            other => {
                let earliest = other.map_or(now, |written| written.earliest.max(now));
                let due = if has_transition {
                    earliest
                } else {
                    earliest
                        .max(now + DEBOUNCE)
                        .max(next_count_update.unwrap_or(now))
                };
                if !has_transition {
                    let between = latency.saturating_mul(WRITE_COST_FACTOR);
                    *next_count_update = Some(due + between.clamp(MIN_INTERVAL, MAX_INTERVAL));
                }
                (due, earliest)
            }
        };
        if has_transition {
            due = due.min(earliest).max(now);
        }
        let wait = due.saturating_duration_since(now);
        if wait.is_zero() {
            let written = Scheduled {
                earliest: now + self.interval,
                due: None,
            };
            pools.insert(pool, written, self.interval, now);
            return None;
        }
        let due = Some(due);
        pools.insert(pool, Scheduled { earliest, due }, wait + EXPIRY, now);
        Some(wait)
    }

    /// The last update of a pool has failed. Its next attempt, whose delay is that of its backoff,
    /// writes at once.
    pub(crate) fn retry(&self, pool: Uid, now: Instant) {
        let due = Scheduled {
            earliest: now,
            due: Some(now),
        };
        let pools = &mut self.schedule.lock().pools;
        pools.insert(pool, due, RETRY_EXPIRY, now);
    }

    /// Records the latency of a write, as a measure of the load of the API server.
    pub(crate) fn record_latency(&self, latency: Duration) {
        self.schedule.lock().latency = latency;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_are_written_first_and_writes_keep_the_interval() {
        let (limiter, pool, start) = (StatusLimiter::new(STATUS_INTERVAL), pool(0), Instant::now());
        assert_eq!(limiter.delay(pool, false, start), Some(DEBOUNCE));
        assert_eq!(limiter.delay(pool, false, start + DEBOUNCE), None);
        assert_eq!(
            limiter.delay(pool, true, start + DEBOUNCE),
            Some(STATUS_INTERVAL)
        );
        assert_eq!(
            limiter.delay(pool, true, start + DEBOUNCE + STATUS_INTERVAL),
            None
        );
        let later = start + STATUS_INTERVAL * 4;
        assert_eq!(limiter.delay(pool, false, later), Some(DEBOUNCE));
        assert_eq!(
            limiter.delay(pool, true, later),
            None,
            "a transition does not wait for the scheduled count update"
        );
        let fresh = StatusLimiter::new(STATUS_INTERVAL);
        assert_eq!(fresh.delay(pool, true, start), None);
    }

    #[test]
    fn failed_count_update_is_retried_without_another_delay() {
        let (limiter, pool, start) = (StatusLimiter::new(STATUS_INTERVAL), pool(0), Instant::now());
        let mut now = start;
        assert_eq!(limiter.delay(pool, false, now), Some(DEBOUNCE));
        now += DEBOUNCE;
        // The longest backoff.
        for backoff in [Duration::from_millis(50), Duration::from_mins(1)] {
            assert_eq!(limiter.delay(pool, false, now), None, "{backoff:?}");
            limiter.retry(pool, now);
            now += backoff;
        }
        assert_eq!(limiter.delay(pool, false, now), None);
        assert_eq!(limiter.delay(pool, false, now), Some(STATUS_INTERVAL));
    }

    #[test]
    fn count_updates_of_many_pools_are_spread() {
        assert_eq!(updates_per_second(Duration::from_millis(2)), 20);
        assert_eq!(
            updates_per_second(Duration::from_millis(10)),
            10,
            "a slow API server gets fewer writes"
        );
        assert_eq!(
            updates_per_second(Duration::from_secs(10)),
            4,
            "the interval has a maximum"
        );
    }

    /// The status updates a second of a hundred pools that change all the time.
    fn updates_per_second(latency: Duration) -> usize {
        let (limiter, start, half) = (
            StatusLimiter::new(STATUS_INTERVAL),
            Instant::now(),
            Duration::from_secs(30),
        );
        limiter.record_latency(latency);
        let pools: Vec<Uid> = (0..100).map(pool).collect();
        let step = Duration::from_millis(10);
        let mut written = 0;
        for number in 0..6000 {
            let now = start + step * number;
            let count = pools
                .iter()
                .filter(|pool| limiter.delay(**pool, false, now).is_none())
                .count();
            written += if now >= start + half { count } else { 0 };
        }
        let each = |pool: &Uid| {
            limiter
                .delay(*pool, true, start + half * 2 + STATUS_INTERVAL)
                .is_none()
        };
        assert!(pools.iter().all(each), "transitions do not wait");
        // A single pool is written as often as before.
        let late = start + half * 3;
        assert_eq!(limiter.delay(pools[0], false, late), Some(DEBOUNCE));
        assert_eq!(limiter.delay(pools[0], false, late + DEBOUNCE), None);
        assert_eq!(
            limiter.delay(pools[0], false, late + DEBOUNCE),
            Some(STATUS_INTERVAL)
        );
        written / 30
    }

    fn pool(number: u32) -> Uid {
        Uid::of(&format!("uid-{number}"))
    }
}
