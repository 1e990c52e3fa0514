//! The objects that have to be worked on: which is next, and when.
//!
//! Namespaces take turns, so that thousands of objects of one do not hold up the one of another; within a namespace who
//! came first is first. An object is never handed out again while it is being worked on.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use super::store::Key;

#[derive(Debug, Default)]
pub(super) struct Queue {
    places: HashMap<Key, Place>,
    /// What is due, by namespace.
    due: HashMap<Option<String>, VecDeque<String>>,
    /// The namespaces that have something due, in the order of their turns.
    turns: VecDeque<Option<String>>,
    later: BTreeSet<(Instant, Key)>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Due,
    Later(Instant),
    /// Being worked on, and due again at that time.
    Taken {
        again: Option<Instant>,
    },
}

impl Queue {
    /// The object has to be worked on at that time. The earliest of several times counts.
    pub(super) fn add(&mut self, key: Key, at: Instant, now: Instant) {
        match self.places.get_mut(&key) {
            Some(Place::Due) => return,
            Some(Place::Taken { again }) => {
                *again = Some(again.map_or(at, |before| before.min(at)));
                return;
            }
            Some(Place::Later(before)) if *before <= at => return,
            Some(Place::Later(before)) => {
                let before = *before;
                self.later.remove(&(before, key.clone()));
            }
            None => {}
        }
        if at > now {
            self.places.insert(key.clone(), Place::Later(at));
            self.later.insert((at, key));
        } else {
            self.places.insert(key.clone(), Place::Due);
            self.line_up(key);
        }
    }

    fn line_up(&mut self, (namespace, name): Key) {
        match self.due.entry(namespace) {
            Entry::Occupied(mut names) => names.get_mut().push_back(name),
            Entry::Vacant(vacant) => {
                self.turns.push_back(vacant.key().clone());
                vacant.insert(VecDeque::from([name]));
            }
        }
    }

    /// The object that is to be worked on now. [`Queue::finished`] has to be told when that is over.
    pub(super) fn next(&mut self, now: Instant) -> Option<Key> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.later.pop_first() else { break };
            self.places.insert(key.clone(), Place::Due);
            self.line_up(key);
        }
        let namespace = self.turns.pop_front()?;
        let names = self.due.get_mut(&namespace)?;
        let name = names.pop_front()?;
        if names.is_empty() {
            self.due.remove(&namespace);
        } else {
            self.turns.push_back(namespace.clone());
        }
        let key = (namespace, name);
        self.places.insert(key.clone(), Place::Taken { again: None });
        Some(key)
    }

    /// The object has been worked on, and is to be again at that time, if at all.
    pub(super) fn finished(&mut self, key: Key, again: Option<Instant>, now: Instant) {
        let Some(Place::Taken { again: asked }) = self.places.remove(&key) else { return };
        if let Some(at) = again.into_iter().chain(asked).min() {
            self.add(key, at, now);
        }
    }

    /// When the first object is due of those that are not yet.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        (Some(namespace.to_owned()), name.to_owned())
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2", "3"] {
            queue.add(key("many", name), now, now);
        }
        queue.add(key("few", "1"), now, now);
        queue.add((None, "1".to_owned()), now, now);
        let order: Vec<Key> = std::iter::from_fn(|| queue.next(now)).collect();
        let expected = [key("many", "1"), key("few", "1"), (None, "1".to_owned()), key("many", "2"), key("many", "3")];
        assert_eq!(order, expected);
    }

    #[test]
    fn nothing_is_handed_out_twice_at_a_time_and_nothing_is_lost() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("n", "a"), now, now);
        queue.add(key("n", "a"), now, now);
        assert_eq!(queue.next(now), Some(key("n", "a")));
        queue.add(key("n", "a"), now, now);
        assert_eq!(queue.next(now), None);
        queue.finished(key("n", "a"), None, now);
        assert_eq!(queue.next(now), Some(key("n", "a")));
        queue.finished(key("n", "a"), None, now);
        assert_eq!(queue.next(now), None);
    }

    #[test]
    fn the_earliest_time_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        queue.add(key("n", "a"), after(20), now);
        queue.add(key("n", "a"), after(10), now);
        queue.add(key("n", "a"), after(30), now);
        assert_eq!((queue.next(now), queue.next_due()), (None, Some(after(10))));
        assert_eq!((queue.next(after(10)), queue.next_due()), (Some(key("n", "a")), None));
        queue.add(key("n", "a"), after(15), after(10));
        queue.finished(key("n", "a"), Some(after(60)), after(10));
        assert_eq!(queue.next_due(), Some(after(15)));
        queue.add(key("n", "a"), after(11), after(11));
        assert_eq!((queue.next(after(11)), queue.next_due()), (Some(key("n", "a")), None));
    }

    #[test]
    fn what_is_due_later_joins_in_when_it_is() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let soon = now + Duration::from_secs(1);
        queue.add(key("n", "a"), soon, now);
        queue.add(key("n", "b"), now, now);
        assert_eq!(
            [queue.next(soon), queue.next(soon), queue.next(soon)],
            [Some(key("n", "b")), Some(key("n", "a")), None]
        );
    }
}
