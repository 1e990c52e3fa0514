//! A map whose entries expire.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A map whose entries expire: an expired entry is absent for all methods that take the current
/// time.
///
/// An insertion removes all expired entries once half of the longest remaining time to live has
/// passed since the last removal. So an entry is examined a few times in its life, and an insertion
/// takes constant time on average.
#[derive(Clone, Debug)]
pub struct ExpiringMap<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// When the next insertion removes expired entries.
    purge_at: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    expires_at: Instant,
}

impl<V> Entry<V> {
    fn is_live(&self, now: Instant) -> bool {
        now < self.expires_at
    }
}

impl<K, V> Default for ExpiringMap<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            purge_at: None,
        }
    }
}

impl<K: Eq + Hash, V> ExpiringMap<K, V> {
    /// Returns the value of a key.
    pub fn get<Q>(&self, key: &Q, now: Instant) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries
            .get(key)
            .filter(|entry| entry.is_live(now))
            .map(|entry| &entry.value)
    }

    /// Sets the value of a key for the time `ttl`. Returns the previous value.
    pub fn insert(&mut self, key: K, value: V, ttl: Duration, now: Instant) -> Option<V> {
        let expires_at = now + ttl;
        let previous = self.entries.insert(key, Entry { value, expires_at });
        if self.purge_at.is_none_or(|purge_at| purge_at <= now) {
            self.purge(now);
        }
        previous
            .filter(|entry| entry.is_live(now))
            .map(|entry| entry.value)
    }

    /// Returns the values of all entries, in no particular order.
    pub fn values(&self, now: Instant) -> impl Iterator<Item = &V> {
        let live = self
            .entries
            .values()
            .filter(move |entry| entry.is_live(now));
        live.map(|entry| &entry.value)
    }

    /// Removes a key.
    pub fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.entries.remove(key);
    }

    /// Removes all expired entries now. Returns the number of the others.
    pub fn purge(&mut self, now: Instant) -> usize {
        self.entries.retain(|_, entry| entry.is_live(now));
        // After a burst its memory is released.
        self.entries.shrink_to(self.entries.len().saturating_mul(2));
        let last = self.entries.values().map(|entry| entry.expires_at).max();
        self.purge_at = last.map(|last| now + last.saturating_duration_since(now) / 2);
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn expired_entry_is_absent() {
        let (mut map, start) = (ExpiringMap::default(), Instant::now());
        assert_eq!(map.insert("a".to_owned(), 1, TTL, start), None);
        assert_eq!(map.get("a", start + TTL / 2), Some(&1));
        assert_eq!(map.get("a", start + TTL), None);
        assert_eq!(map.insert("a".to_owned(), 2, TTL, start + TTL), None);
        assert_eq!(map.insert("a".to_owned(), 3, TTL, start + TTL), Some(2));
        map.remove("a");
        assert_eq!(map.get("a", start + TTL), None);
    }

    #[test]
    fn entries_have_different_times_to_live() {
        let (mut map, start) = (ExpiringMap::default(), Instant::now());
        map.insert("long", (), TTL, start);
        map.insert("short", (), TTL / 10, start);
        let now = start + TTL / 2;
        assert!(map.get("long", now).is_some() && map.get("short", now).is_none());
        assert_eq!(map.entries.len(), 2);
        assert_eq!(map.purge(now), 1);
        assert!(map.get("long", now).is_some());
    }

    #[test]
    fn expired_entries_are_removed_by_insertions() {
        let (mut map, start) = (ExpiringMap::default(), Instant::now());
        let step = TTL / 1000;
        for number in 0..20_000 {
            map.insert(number, (), TTL, start + step * number);
            assert!(
                map.entries.len() <= 1_501,
                "{number}: {}",
                map.entries.len()
            );
        }
        map.insert(20_000, (), TTL, start + step * 40_000);
        assert!(map.entries.len() == 1 && map.entries.capacity() < 100);
    }
}
