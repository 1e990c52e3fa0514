//! When the status of a pool is to be written.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{Pool, Uid};

/// The status of one pool is written at most this often.
pub(super) const STATUS_PAUSE: Duration = Duration::from_millis(250);
/// Counts are written this long after they began to change, when the claim that changed them has its address: one write
/// tells of the whole change, and none competes with those that the claim waits for.
const SETTLING: Duration = Duration::from_millis(100);

/// When the status of each pool was last written, and since when it differs.
#[derive(Default)]
pub(super) struct StatusTurns {
    turns: Mutex<HashMap<Uid, (Instant, Turn)>>,
}

#[derive(PartialEq)]
enum Turn {
    Written,
    Differs,
}

impl StatusTurns {
    /// How long the status has to wait; `None` when it is to be written now. News are written at once, counts once they
    /// have settled, and neither sooner than [`STATUS_PAUSE`] after the last write.
    pub(super) fn wait<P: Pool>(&self, pool: &P, news: bool, now: Instant) -> Option<Duration> {
        let uid = Uid::of(pool.meta().uid.as_deref().unwrap_or_default());
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, (since, _)| now.saturating_duration_since(*since) < STATUS_PAUSE * 4);
        let (since, turn) = turns.entry(uid).or_insert((now, Turn::Differs));
        let waited = now.saturating_duration_since(*since);
        if *turn == Turn::Written && waited >= STATUS_PAUSE {
            (*since, *turn) = (now, Turn::Differs);
        }
        let pause = match turn {
            Turn::Written => STATUS_PAUSE,
            Turn::Differs if news => Duration::ZERO,
            Turn::Differs => SETTLING,
        };
        let wait = pause.saturating_sub(now.saturating_duration_since(*since));
        if wait.is_zero() {
            (*since, *turn) = (now, Turn::Written);
        }
        Some(wait).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::InClusterIPPool;

    #[test]
    fn counts_settle_news_do_not_wait_and_no_write_follows_another_at_once() {
        let (turns, pool, start) = (StatusTurns::default(), InClusterIPPool::default(), Instant::now());
        assert_eq!(turns.wait(&pool, false, start), Some(SETTLING));
        assert_eq!(turns.wait(&pool, false, start + SETTLING), None);
        assert_eq!(turns.wait(&pool, true, start + SETTLING), Some(STATUS_PAUSE));
        assert_eq!(turns.wait(&pool, false, start + SETTLING + STATUS_PAUSE), Some(SETTLING));
        assert_eq!(turns.wait(&pool, true, start + SETTLING + STATUS_PAUSE), None);
        let fresh = StatusTurns::default();
        assert_eq!(fresh.wait(&pool, true, start), None);
    }
}
