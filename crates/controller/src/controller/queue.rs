//! The work queue: which object is reconciled next, and when.
//!
//! Namespaces are served in turn, so that thousands of objects in one namespace do not delay those of another. Within a
//! namespace the order is first in, first out. An object that is being reconciled is not returned again before it
//! is finished.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use super::Cause;
use crate::object_map::ObjectKey;

#[derive(Debug, Default)]
pub(super) struct Queue {
    states: HashMap<ObjectKey, State>,
    /// The names of due objects by namespace.
    due: HashMap<Option<String>, VecDeque<String>>,
    /// The namespaces with due objects, in the order in which they are served.
    turns: VecDeque<Option<String>>,
    later: BTreeSet<(Instant, ObjectKey)>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Due(Cause),
    Later(Instant, Cause),
    /// Being reconciled, and due again at that time.
    Running {
        requeue_at: Option<Instant>,
        cause: Cause,
    },
}

impl Queue {
    /// Enqueues an object for the given time. The earliest of several times counts, and the greatest of several causes.
    pub(super) fn add(&mut self, key: ObjectKey, at: Instant, now: Instant, mut cause: Cause) {
        match self.states.get_mut(&key) {
            Some(State::Due(known)) => {
                *known = cause.max(*known);
                return;
            }
            Some(State::Running { requeue_at, cause: known }) => {
                *requeue_at = Some(requeue_at.map_or(at, |before| before.min(at)));
                *known = cause.max(*known);
                return;
            }
            Some(State::Later(before, known)) if *before <= at => {
                *known = cause.max(*known);
                return;
            }
            Some(State::Later(before, known)) => {
                cause = cause.max(*known);
                let before = *before;
                self.later.remove(&(before, key.clone()));
            }
            None => {}
        }
        if at > now {
            self.states.insert(key.clone(), State::Later(at, cause));
            self.later.insert((at, key));
        } else {
            self.states.insert(key.clone(), State::Due(cause));
            self.push_due(key);
        }
    }

    fn push_due(&mut self, (namespace, name): ObjectKey) {
        match self.due.entry(namespace) {
            Entry::Occupied(mut names) => names.get_mut().push_back(name),
            Entry::Vacant(vacant) => {
                self.turns.push_back(vacant.key().clone());
                vacant.insert(VecDeque::from([name]));
            }
        }
    }

    /// The next due object, and why it was enqueued. The caller calls [`Queue::finished`] after its reconcile.
    pub(super) fn next(&mut self, now: Instant) -> Option<(ObjectKey, Cause)> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.later.pop_first() else { break };
            if let Some(state) = self.states.get_mut(&key)
                && let State::Later(_, cause) = *state
            {
                *state = State::Due(cause);
            }
            self.push_due(key);
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
        let running = State::Running { requeue_at: None, cause: Cause::Requeued };
        let cause = match self.states.insert(key.clone(), running) {
            Some(State::Due(cause)) => cause,
            _ => Cause::Requeued,
        };
        Some((key, cause))
    }

    /// Marks an object as reconciled, and enqueues it for `requeue_at` or for the time that was added meanwhile.
    pub(super) fn finished(&mut self, key: ObjectKey, requeue_at: Option<Instant>, now: Instant) {
        let Some(State::Running { requeue_at: added, cause }) = self.states.remove(&key) else { return };
        if let Some(at) = requeue_at.into_iter().chain(added).min() {
            self.add(key, at, now, cause);
        }
    }

    /// The number of due objects, while `running` objects are being reconciled.
    pub(super) fn due(&self, running: usize) -> usize {
        self.states.len().saturating_sub(self.later.len()).saturating_sub(running)
    }

    /// The number of objects that become due later.
    pub(super) fn delayed(&self) -> usize {
        self.later.len()
    }

    /// When the next object becomes due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        (Some(namespace.to_owned()), name.to_owned())
    }

    fn next(queue: &mut Queue, now: Instant) -> Option<ObjectKey> {
        queue.next(now).map(|(key, _)| key)
    }

    #[test]
    fn greatest_cause_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for cause in [Cause::Changed, Cause::Deleting, Cause::Triggered] {
            queue.add(key("n", "due"), now, now, cause);
        }
        for (at, cause) in [(later, Cause::Triggered), (now, Cause::Requeued)] {
            queue.add(key("n", "later"), at, now, cause);
        }
        queue.add(key("n", "late"), later, now, Cause::Created);
        assert_eq!(queue.next(now), Some((key("n", "due"), Cause::Deleting)));
        assert_eq!(queue.next(now), Some((key("n", "later"), Cause::Triggered)));
        assert_eq!(queue.next(later), Some((key("n", "late"), Cause::Created)));
        queue.add(key("n", "late"), later, later, Cause::Triggered);
        queue.finished(key("n", "due"), Some(later), later);
        queue.finished(key("n", "late"), Some(later), later);
        assert_eq!(queue.next(later), Some((key("n", "due"), Cause::Requeued)));
        assert_eq!(queue.next(later), Some((key("n", "late"), Cause::Triggered)));
    }

    #[test]
    fn namespaces_are_served_in_turn() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2", "3"] {
            queue.add(key("many", name), now, now, Cause::Changed);
        }
        queue.add(key("few", "1"), now, now, Cause::Changed);
        queue.add((None, "1".to_owned()), now, now, Cause::Changed);
        let order: Vec<ObjectKey> = std::iter::from_fn(|| next(&mut queue, now)).collect();
        let expected = [key("many", "1"), key("few", "1"), (None, "1".to_owned()), key("many", "2"), key("many", "3")];
        assert_eq!(order, expected);
    }

    #[test]
    fn object_added_while_running_is_returned_after_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("n", "a"), now, now, Cause::Changed);
        queue.add(key("n", "a"), now, now, Cause::Changed);
        assert_eq!(next(&mut queue, now), Some(key("n", "a")));
        queue.add(key("n", "a"), now, now, Cause::Changed);
        assert_eq!(next(&mut queue, now), None);
        queue.finished(key("n", "a"), None, now);
        assert_eq!(next(&mut queue, now), Some(key("n", "a")));
        queue.finished(key("n", "a"), None, now);
        assert_eq!(next(&mut queue, now), None);
    }

    #[test]
    fn earliest_time_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        queue.add(key("n", "a"), after(20), now, Cause::Changed);
        queue.add(key("n", "a"), after(10), now, Cause::Changed);
        queue.add(key("n", "a"), after(30), now, Cause::Changed);
        assert_eq!((next(&mut queue, now), queue.next_due()), (None, Some(after(10))));
        assert_eq!((next(&mut queue, after(10)), queue.next_due()), (Some(key("n", "a")), None));
        queue.add(key("n", "a"), after(15), after(10), Cause::Changed);
        queue.finished(key("n", "a"), Some(after(60)), after(10));
        assert_eq!(queue.next_due(), Some(after(15)));
        queue.add(key("n", "a"), after(11), after(11), Cause::Changed);
        assert_eq!((next(&mut queue, after(11)), queue.next_due()), (Some(key("n", "a")), None));
    }

    #[test]
    fn delayed_object_becomes_due() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let soon = now + Duration::from_secs(1);
        queue.add(key("n", "a"), soon, now, Cause::Changed);
        queue.add(key("n", "b"), now, now, Cause::Changed);
        assert_eq!(
            [next(&mut queue, soon), next(&mut queue, soon), next(&mut queue, soon)],
            [Some(key("n", "b")), Some(key("n", "a")), None]
        );
    }
}
