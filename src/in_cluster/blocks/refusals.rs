//! The records that a registry refuses to write although it can be reached: plain values, no I/O.
//!
//! Such a refusal concerns one network or one block: the others go on. The registry decides on its
//! limits and permissions, and both can change, so the write is repeated with a growing delay.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use capi_ipam_registry::Key;

/// The delay after the first refusal. It doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(1);

#[derive(Debug)]
struct Refusal {
    delay: Duration,
    until: Instant,
}

/// The refused records of one registry.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_key: HashMap<Key, Refusal>,
}

impl Refusals {
    /// The registry has refused to write a record. Returns whether it is the first refusal in a row.
    pub(super) fn refused(&mut self, key: &Key, now: Instant) -> bool {
        let before = self.by_key.get(key).map(|refusal| refusal.delay);
        let delay = match before {
            Some(delay) => delay.saturating_mul(2).min(MAX_DELAY),
            None => FIRST_DELAY,
        };
        let until = now.checked_add(delay).unwrap_or(now);
        self.by_key.insert(key.clone(), Refusal { delay, until });
        before.is_none()
    }

    /// The record was written, or has not to be written any more.
    pub(super) fn ended(&mut self, key: &Key) {
        self.by_key.remove(key);
    }

    /// Whether the last write of a record was refused.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// Whether a record may be written now.
    pub(super) fn is_due(&self, key: &Key, now: Instant) -> bool {
        match self.by_key.get(key) {
            Some(refusal) => now >= refusal.until,
            None => true,
        }
    }

    /// Forgets the records that were not written again when they were due.
    pub(super) fn expire(&mut self, now: Instant) {
        self.by_key
            .retain(|_, refusal| now.saturating_duration_since(refusal.until) < MAX_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::Network { name: name.into() }
    }

    #[test]
    fn refused_record_does_not_delay_another_one() {
        let now = Instant::now();
        let mut refusals = Refusals::default();
        assert!(refusals.refused(&key("a"), now));
        assert!(!refusals.is_due(&key("a"), now));
        assert!(refusals.is_due(&key("b"), now));
        refusals.ended(&key("a"));
        assert!(refusals.is_due(&key("a"), now));
    }

    #[test]
    fn delay_grows_up_to_a_limit() {
        let mut now = Instant::now();
        let mut refusals = Refusals::default();
        for (number, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            assert_eq!(refusals.refused(&key("a"), now), number == 0);
            now += Duration::from_secs(seconds - 1);
            assert!(!refusals.is_due(&key("a"), now), "{seconds}");
            now += Duration::from_secs(1);
            assert!(refusals.is_due(&key("a"), now), "{seconds}");
        }
        refusals.expire(now);
        assert!(refusals.contains(&key("a")));
        refusals.expire(now + MAX_DELAY);
        assert!(!refusals.contains(&key("a")));
    }
}
