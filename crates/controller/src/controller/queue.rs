//! The work queue: which object is reconciled next, and when.
//!
//! Objects of normal priority come before those of low priority. Within a priority, namespaces are
//! served in turn, so that thousands of objects in one namespace do not delay those of another.
//! Within a namespace the order is first in, first out. An object that is being reconciled is not
//! returned again before it is finished.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use super::Cause;
use crate::namespaced_name::NamespacedName;
use crate::priority::Priority;

#[derive(Default)]
pub(super) struct Queue {
    states: HashMap<NamespacedName, State>,
    normal: Lane,
    /// May contain objects whose priority has become normal since.
    low: Lane,
    /// Number of due objects of low priority.
    low_due: usize,
    later: BTreeSet<(Instant, NamespacedName)>,
}

/// The due objects of one priority.
#[derive(Default)]
struct Lane {
    /// The due objects by namespace.
    objects: HashMap<Box<str>, VecDeque<NamespacedName>>,
    /// The namespaces with due objects, in the order in which they are served.
    turns: VecDeque<Box<str>>,
}

impl Lane {
    fn push(&mut self, object: NamespacedName) {
        let namespace = object.namespace();
        if let Some(objects) = self.objects.get_mut(namespace) {
            objects.push_back(object);
            return;
        }
        self.turns.push_back(namespace.into());
        self.objects
            .insert(namespace.into(), VecDeque::from([object]));
    }

    fn pop(&mut self) -> Option<NamespacedName> {
        let namespace = self.turns.pop_front()?;
        let objects = self.objects.get_mut(&namespace)?;
        let object = objects.pop_front()?;
        if objects.is_empty() {
            self.objects.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        Some(object)
    }
}

/// Why an object is in the queue. Of several reasons the greatest cause and the highest priority
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) cause: Cause,
    pub(super) priority: Priority,
}

impl Reason {
    /// Nothing has been added yet.
    const NONE: Self = Self {
        cause: Cause::Requeued,
        priority: Priority::Low,
    };

    fn with(self, other: Self) -> Self {
        Self {
            cause: self.cause.max(other.cause),
            priority: self.priority.max(other.priority),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Due(Reason),
    Later(Instant, Reason),
    /// Being reconciled, and due again at that time.
    Running {
        requeue_at: Option<Instant>,
        reason: Reason,
    },
}

impl Queue {
    /// Enqueues an object for the given time. The earliest of several times counts.
    pub(super) fn add(
        &mut self,
        key: NamespacedName,
        at: Instant,
        now: Instant,
        mut reason: Reason,
    ) {
        match self.states.get_mut(&key) {
            Some(State::Due(known)) => {
                let raised = known.with(reason);
                let before = std::mem::replace(known, raised);
                if raised.priority > before.priority {
                    self.low_due = self.low_due.saturating_sub(1);
                    self.normal.push(key);
                }
                return;
            }
            Some(State::Running {
                requeue_at,
                reason: known,
            }) => {
                *requeue_at = Some(requeue_at.map_or(at, |before| before.min(at)));
                *known = known.with(reason);
                return;
            }
            Some(State::Later(before, known)) if *before <= at => {
                *known = known.with(reason);
                return;
            }
            Some(State::Later(before, known)) => {
                reason = reason.with(*known);
                let before = *before;
                self.later.remove(&(before, key.clone()));
            }
            None => {}
        }
        if at > now {
            self.states.insert(key.clone(), State::Later(at, reason));
            self.later.insert((at, key));
        } else {
            self.push_due(key, reason);
        }
    }

    fn push_due(&mut self, key: NamespacedName, reason: Reason) {
        self.states.insert(key.clone(), State::Due(reason));
        match reason.priority {
            Priority::Normal => self.normal.push(key),
            Priority::Low => {
                self.low_due = self.low_due.saturating_add(1);
                self.low.push(key);
            }
        }
    }

    /// The next due object, and why it was enqueued; one of low priority only if `allow_low`. The
    /// caller calls [`Queue::finished`] after its reconcile.
    pub(super) fn next(
        &mut self,
        now: Instant,
        allow_low: bool,
    ) -> Option<(NamespacedName, Reason)> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.later.pop_first() else {
                break;
            };
            if let Some(State::Later(_, reason)) = self.states.get(&key).copied() {
                self.push_due(key, reason);
            }
        }
        if let Some(key) = self.normal.pop() {
            return Some(self.start(key));
        }
        if !allow_low {
            return None;
        }
        loop {
            let key = self.low.pop()?;
            if matches!(self.states.get(&key), Some(State::Due(reason)) if reason.priority == Priority::Low)
            {
                self.low_due = self.low_due.saturating_sub(1);
                return Some(self.start(key));
            }
        }
    }

    fn start(&mut self, key: NamespacedName) -> (NamespacedName, Reason) {
        let running = State::Running {
            requeue_at: None,
            reason: Reason::NONE,
        };
        let reason = match self.states.insert(key.clone(), running) {
            Some(State::Due(reason)) => reason,
            _ => Reason::NONE,
        };
        (key, reason)
    }

    /// Marks an object as reconciled, and enqueues it for `requeue_at` with its priority, or for
    /// the time that was added meanwhile.
    pub(super) fn finished(
        &mut self,
        key: NamespacedName,
        requeue: Option<(Instant, Priority)>,
        now: Instant,
    ) {
        let Some(State::Running {
            requeue_at: added,
            reason,
        }) = self.states.remove(&key)
        else {
            return;
        };
        let reason = requeue.map_or(reason, |(_, priority)| {
            reason.with(Reason {
                priority,
                ..Reason::NONE
            })
        });
        if let Some(at) = requeue.map(|(at, _)| at).into_iter().chain(added).min() {
            self.add(key, at, now, reason);
        }
    }

    /// Whether an object is due, becomes due later, or is being reconciled.
    pub(super) fn contains(&self, key: &NamespacedName) -> bool {
        self.states.contains_key(key)
    }

    /// The number of due objects, while `running` objects are being reconciled.
    pub(super) fn due(&self, running: usize) -> usize {
        self.states
            .len()
            .saturating_sub(self.later.len())
            .saturating_sub(running)
    }

    /// The number of due objects of low priority.
    pub(super) fn low_due(&self) -> usize {
        self.low_due
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

    fn key(namespace: &str, name: &str) -> NamespacedName {
        NamespacedName::new(namespace, name)
    }

    fn next(queue: &mut Queue, now: Instant) -> Option<NamespacedName> {
        queue.next(now, true).map(|(key, _)| key)
    }

    fn next_with_cause(queue: &mut Queue, now: Instant) -> Option<(NamespacedName, Cause)> {
        queue
            .next(now, true)
            .map(|(key, reason)| (key, reason.cause))
    }

    fn normal(cause: Cause) -> Reason {
        Reason {
            cause,
            priority: Priority::Normal,
        }
    }

    const LOW: Reason = Reason {
        cause: Cause::Changed,
        priority: Priority::Low,
    };

    #[test]
    fn low_priority_comes_last() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2"] {
            queue.add(key("low", name), now, now, LOW);
        }
        queue.add(key("normal", "1"), now, now, normal(Cause::Changed));
        assert_eq!((queue.low_due(), queue.due(0)), (2, 3));
        assert_eq!(next(&mut queue, now), Some(key("normal", "1")));
        assert_eq!(queue.next(now, false), None);
        let order: Vec<NamespacedName> = std::iter::from_fn(|| next(&mut queue, now)).collect();
        assert_eq!(
            (order, queue.low_due()),
            (vec![key("low", "1"), key("low", "2")], 0)
        );
    }

    #[test]
    fn priority_is_raised_and_never_lowered_in_the_queue() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2"] {
            queue.add(key("n", name), now, now, LOW);
        }
        queue.add(key("n", "2"), now, now, normal(Cause::Triggered));
        queue.add(key("n", "2"), now, now, LOW);
        assert_eq!((queue.low_due(), queue.due(0)), (1, 2));
        assert_eq!(
            queue.next(now, false),
            Some((key("n", "2"), normal(Cause::Changed)))
        );
        // Its first entry of low priority is left over.
        queue.finished(key("n", "2"), Some((now, Priority::Low)), now);
        assert_eq!(queue.low_due(), 2);
        assert_eq!(
            [next(&mut queue, now), next(&mut queue, now)],
            [Some(key("n", "1")), Some(key("n", "2"))]
        );
        assert_eq!((next(&mut queue, now), queue.low_due()), (None, 0));
    }

    #[test]
    fn object_added_while_running_keeps_the_highest_priority() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("n", "a"), now, now, LOW);
        assert_eq!(next(&mut queue, now), Some(key("n", "a")));
        queue.add(key("n", "a"), now, now, normal(Cause::Deleting));
        queue.finished(key("n", "a"), Some((now, Priority::Low)), now);
        assert_eq!(
            queue.next(now, false),
            Some((key("n", "a"), normal(Cause::Deleting)))
        );
    }

    #[test]
    fn greatest_cause_counts() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for cause in [Cause::Changed, Cause::Deleting, Cause::Triggered] {
            queue.add(key("n", "due"), now, now, normal(cause));
        }
        for (at, cause) in [(later, Cause::Triggered), (now, Cause::Requeued)] {
            queue.add(key("n", "later"), at, now, normal(cause));
        }
        queue.add(key("n", "late"), later, now, normal(Cause::Created));
        assert_eq!(
            next_with_cause(&mut queue, now),
            Some((key("n", "due"), Cause::Deleting))
        );
        assert_eq!(
            next_with_cause(&mut queue, now),
            Some((key("n", "later"), Cause::Triggered))
        );
        assert_eq!(
            next_with_cause(&mut queue, later),
            Some((key("n", "late"), Cause::Created))
        );
        queue.add(key("n", "late"), later, later, normal(Cause::Triggered));
        queue.finished(key("n", "due"), Some((later, Priority::Normal)), later);
        queue.finished(key("n", "late"), Some((later, Priority::Normal)), later);
        assert_eq!(
            next_with_cause(&mut queue, later),
            Some((key("n", "due"), Cause::Requeued))
        );
        assert_eq!(
            next_with_cause(&mut queue, later),
            Some((key("n", "late"), Cause::Triggered))
        );
    }

    #[test]
    fn namespaces_are_served_in_turn() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2", "3"] {
            queue.add(key("many", name), now, now, normal(Cause::Changed));
        }
        queue.add(key("few", "1"), now, now, normal(Cause::Changed));
        queue.add(key("", "1"), now, now, normal(Cause::Changed));
        let order: Vec<NamespacedName> = std::iter::from_fn(|| next(&mut queue, now)).collect();
        let expected = [
            key("many", "1"),
            key("few", "1"),
            key("", "1"),
            key("many", "2"),
            key("many", "3"),
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn object_added_while_running_is_returned_after_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(key("n", "a"), now, now, normal(Cause::Changed));
        queue.add(key("n", "a"), now, now, normal(Cause::Changed));
        assert_eq!(next(&mut queue, now), Some(key("n", "a")));
        queue.add(key("n", "a"), now, now, normal(Cause::Changed));
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
        queue.add(key("n", "a"), after(20), now, normal(Cause::Changed));
        queue.add(key("n", "a"), after(10), now, normal(Cause::Changed));
        queue.add(key("n", "a"), after(30), now, normal(Cause::Changed));
        assert_eq!(
            (next(&mut queue, now), queue.next_due()),
            (None, Some(after(10)))
        );
        assert_eq!(
            (next(&mut queue, after(10)), queue.next_due()),
            (Some(key("n", "a")), None)
        );
        queue.add(key("n", "a"), after(15), after(10), normal(Cause::Changed));
        queue.finished(
            key("n", "a"),
            Some((after(60), Priority::Normal)),
            after(10),
        );
        assert_eq!(queue.next_due(), Some(after(15)));
        queue.add(key("n", "a"), after(11), after(11), normal(Cause::Changed));
        assert_eq!(
            (next(&mut queue, after(11)), queue.next_due()),
            (Some(key("n", "a")), None)
        );
    }

    #[test]
    fn delayed_object_becomes_due() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let soon = now + Duration::from_secs(1);
        queue.add(key("n", "a"), soon, now, normal(Cause::Changed));
        queue.add(key("n", "b"), now, now, normal(Cause::Changed));
        assert_eq!(
            [
                next(&mut queue, soon),
                next(&mut queue, soon),
                next(&mut queue, soon)
            ],
            [Some(key("n", "b")), Some(key("n", "a")), None]
        );
    }
}
