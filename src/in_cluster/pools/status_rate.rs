//! When the status of a pool is to be written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capi_ipam_provider::api::Uid;

use crate::api::Pool;

/// The status of one pool is written at most this often.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// Between the counts of two pools lies so many times the time that the last write took: a burst of claims over a hundred
/// pools is not to be slowed down by their counts.
const WRITE_COST_FACTOR: u32 = 10;
/// The least time between the counts of two pools.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// The most time between them: the counts of a busy API server are late, not forgotten.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// Counts are written this long after they began to change, when the claim that changed them has its address: one write
/// tells of the whole change, and none competes with those that the claim waits for.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// How long a turn that nobody takes is kept.
const EXPIRY: Duration = Duration::from_secs(10);

/// When the status of each pool was last written, or is to be.
#[derive(Default)]
pub(super) struct StatusLimiter {
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    of_pools: HashMap<Uid, Turn>,
    /// When the next counts may be written, if nothing else speaks against it.
    next: Option<Instant>,
    /// How long the last write took.
    took: Duration,
}

enum Turn {
    Expectations { at: Instant },
    Due { at: Instant, earliest: Instant },
}

impl Turn {
    fn is_over(&self, now: Instant) -> bool {
        let (at, kept) = match self {
            Self::Expectations { at } => (at, STATUS_INTERVAL),
            Self::Due { at, .. } => (at, EXPIRY),
        };
        now.saturating_duration_since(*at) >= kept
    }
}

impl StatusLimiter {
    /// How long the status has to wait; `None` when it is to be written now. News are written at once, counts once they
    /// have settled and it is the pool's turn, and neither sooner than [`STATUS_INTERVAL`] after the last write.
    pub(super) fn wait<P: Pool>(&self, pool: &P, news: bool, now: Instant) -> Option<Duration> {
        let uid = Uid::of(pool.meta().uid.as_deref().unwrap_or_default());
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let Turns { of_pools, next, took } = &mut *turns;
        let (mut due, earliest) = match of_pools.get(&uid) {
            Some(Turn::Due { at, earliest }) => (*at, *earliest),
            other => {
                let earliest = match other {
                    Some(Turn::Expectations { at }) => now.max(*at + STATUS_INTERVAL),
                    _ => now,
                };
                let due = if news { earliest } else { earliest.max(now + DEBOUNCE).max(next.unwrap_or(now)) };
                if !news {
                    let between = took.saturating_mul(WRITE_COST_FACTOR);
                    *next = Some(due + between.clamp(MIN_INTERVAL, MAX_INTERVAL));
                }
                (due, earliest)
            }
        };
        if news {
            due = due.min(earliest).max(now);
        }
        of_pools.retain(|_, turn| !turn.is_over(now));
        let wait = due.saturating_duration_since(now);
        let turn = if wait.is_zero() { Turn::Expectations { at: now } } else { Turn::Due { at: due, earliest } };
        of_pools.insert(uid, turn);
        Some(wait).filter(|wait| !wait.is_zero())
    }

    /// Notes how long a write took, which says how busy the API server is.
    pub(super) fn took(&self, took: Duration) {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).took = took;
    }
}

#[cfg(test)]
mod tests {
    use crate::api::InClusterIPPool;
    use super::*;

    #[test]
    fn counts_settle_news_do_not_wait_and_no_write_follows_another_at_once() {
        let (turns, pool, start) = (StatusLimiter::default(), InClusterIPPool::default(), Instant::now());
        assert_eq!(turns.wait(&pool, false, start), Some(DEBOUNCE));
        assert_eq!(turns.wait(&pool, false, start + DEBOUNCE), None);
        assert_eq!(turns.wait(&pool, true, start + DEBOUNCE), Some(STATUS_INTERVAL));
        assert_eq!(turns.wait(&pool, true, start + DEBOUNCE + STATUS_INTERVAL), None);
        let later = start + STATUS_INTERVAL * 4;
        assert_eq!(turns.wait(&pool, false, later), Some(DEBOUNCE));
        assert_eq!(turns.wait(&pool, true, later), None, "what has become news does not wait on");
        let fresh = StatusLimiter::default();
        assert_eq!(fresh.wait(&pool, true, start), None);
    }

    #[test]
    fn the_counts_of_many_pools_are_written_one_after_the_other() {
        assert_eq!(written_each_second(Duration::from_millis(2)), 20);
        assert_eq!(written_each_second(Duration::from_millis(10)), 10, "a busy API server is asked less often");
        assert_eq!(written_each_second(Duration::from_secs(10)), 4, "and not forgotten");
    }

    /// How often one of a hundred pools, which change all the time, is written in a second.
    fn written_each_second(took: Duration) -> usize {
        let (turns, start, half) = (StatusLimiter::default(), Instant::now(), Duration::from_secs(30));
        turns.took(took);
        let pools: Vec<InClusterIPPool> = (0..100).map(pool).collect();
        let step = Duration::from_millis(10);
        let mut written = 0;
        for number in 0..6000 {
            let now = start + step * number;
            let count = pools.iter().filter(|pool| turns.wait(*pool, false, now).is_none()).count();
            written += if now >= start + half { count } else { 0 };
        }
        let each = |pool: &InClusterIPPool| turns.wait(pool, true, start + half * 2 + STATUS_INTERVAL).is_none();
        assert!(pools.iter().all(each), "news do not wait");
        // Alone again, one is written as often as before.
        let late = start + half * 3;
        assert_eq!(turns.wait(&pools[0], false, late), Some(DEBOUNCE));
        assert_eq!(turns.wait(&pools[0], false, late + DEBOUNCE), None);
        assert_eq!(turns.wait(&pools[0], false, late + DEBOUNCE), Some(STATUS_INTERVAL));
        written / 30
    }

    fn pool(number: u32) -> InClusterIPPool {
        let mut pool = InClusterIPPool::default();
        pool.metadata.uid = Some(format!("uid-{number}"));
        pool
    }
}
