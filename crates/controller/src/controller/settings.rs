//! What a controller can be told about its objects, besides how each is reconciled.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use kube::core::ObjectMeta;
use tracing::{Span, field};

use super::{Attempt, Cause, ControllerBuilder};
use crate::metrics::{ControllerMetrics, WorkerMetrics};
use crate::priority::{Priorities, Priority};
use crate::trace_span;
use crate::watch::Keyed;

type Starting<K> = dyn Fn(&K) -> Option<Box<dyn Any + Send>> + Send + Sync;
type PriorityOf<K> = dyn Fn(&K, Cause) -> Priority + Send + Sync;
type IsChange<K> = dyn Fn(&K, &K) -> bool + Send + Sync;
type Undecodable<K> = dyn Fn(&ObjectMeta) -> Option<K> + Send + Sync;
pub(super) type OnSourceError = dyn Fn(&str) + Send + Sync;
type SpanOf<K> = dyn Fn(&K, &Attempt<()>) -> Span + Send + Sync;

/// The settings of a controller. Each but the name has a default.
pub(crate) struct Settings<K> {
    pub(crate) name: String,
    pub(crate) concurrency: u16,
    pub(crate) metrics: WorkerMetrics,
    pub(crate) priorities: Priorities,
    pub(super) starting: Box<Starting<K>>,
    pub(super) priority: Box<PriorityOf<K>>,
    pub(super) wants: Box<IsChange<K>>,
    pub(super) dequeues: Box<IsChange<K>>,
    pub(super) undecodable: Box<Undecodable<K>>,
    pub(super) on_source_error: Arc<OnSourceError>,
    pub(super) span: Box<SpanOf<K>>,
    pub(super) transform: fn(&mut K),
}

impl<K: Keyed> Settings<K> {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            concurrency: 1,
            metrics: ControllerMetrics::default().of(name),
            priorities: Priorities::default(),
            starting: Box::new(|_| None),
            priority: Box::new(|_, _| Priority::Normal),
            wants: Box::new(|_, _| true),
            dequeues: Box::new(|waiting, newer: &K| newer.has_changed_since(waiting)),
            undecodable: Box::new(|_| None),
            on_source_error: Arc::new(|_| {}),
            span: Box::new(span),
            transform: |_| {},
        }
    }
}

fn span<K: Keyed>(object: &K, attempt: &Attempt<()>) -> Span {
    trace_span!(
        "reconcile",
        controller = field::Empty,
        object = %object.key(),
        cause = ?attempt.cause,
        attempt = attempt.failures.saturating_add(1),
        outcome = field::Empty,
    )
}

impl<K, S> ControllerBuilder<K, S>
where
    K: Keyed,
    S: Clone + Debug + Send + Sync + 'static,
{
    /// How many objects are reconciled at the same time. By default as many as `--concurrency`
    /// says, or one without a manager.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Called before each reconcile, in the order in which reconciles start: first in, first out
    /// for the objects of a namespace. The returned value is dropped when the reconcile has ended,
    /// also by a panic. It must be fast. Not called for an object in compact form.
    #[must_use]
    pub fn starting(
        mut self,
        starting: impl Fn(&K) -> Option<Box<dyn Any + Send>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.starting = Box::new(starting);
        self
    }

    /// The priority of an object: low if nobody waits for its reconcile. An object in the queue
    /// keeps the highest priority with which it was enqueued. By default it is normal. Called for
    /// every event and every trigger, so it must be fast.
    #[must_use]
    pub fn priority(
        mut self,
        priority: impl Fn(&K, Cause) -> Priority + Send + Sync + 'static,
    ) -> Self {
        self.settings.priority = Box::new(priority);
        self
    }

    /// Whether a change of a cached object, of which both states are given, is reconciled: for
    /// example not if it is a write of the reconciler itself. Not asked for a new object, for the
    /// begin of a deletion, and while the object waits for a reconcile or is being reconciled: it
    /// may wait for this change. By default every change is reconciled. It must be fast.
    #[must_use]
    pub fn wants(mut self, wants: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        self.settings.wants = Box::new(wants);
        self
    }

    /// Whether a change ends the pause after a failed attempt, or after
    /// [`Retry::GiveUp`](crate::retry::Retry::GiveUp). The object is given as it was at that
    /// attempt, and as it is now. The retry and its state are dropped then, and the next attempt is
    /// a first one. By default a change of the [fingerprint](Keyed::fingerprint) ends it, such as a
    /// new generation, and a change of the status does not. Not asked for the begin of a deletion,
    /// or for another object of the same name: these always end it. Called before each attempt, so
    /// it must be fast.
    #[must_use]
    pub fn dequeues(mut self, dequeues: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        self.settings.dequeues = Box::new(dequeues);
        self
    }

    /// What is reconciled in place of an object that is being deleted and cannot be decoded, if
    /// this process has decoded no earlier state of it: what is known of an object with this
    /// metadata, so that what it holds is released. Otherwise the last known state is reconciled,
    /// with the metadata of the later one. By default nothing is, and a finalizer stays until
    /// somebody corrects the object.
    #[must_use]
    pub fn undecodable(
        mut self,
        undecodable: impl Fn(&ObjectMeta) -> Option<K> + Send + Sync + 'static,
    ) -> Self {
        self.settings.undecodable = Box::new(undecodable);
        self
    }

    /// Called when the source of reconciled objects fails, or that of another
    /// [watch](Self::watch), before it is opened again. The watches of Kubernetes kinds log their
    /// failures themselves. It must be fast.
    #[must_use]
    pub fn on_source_error(
        mut self,
        on_source_error: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        self.settings.on_source_error = Arc::new(on_source_error);
        self
    }

    /// The span of a reconcile in a trace, which gets the attributes `controller` and `outcome` if
    /// it declares them. Return [`Span::none`] for none. The attempt is given without its state.
    #[must_use]
    pub fn span(mut self, span: impl Fn(&K, &Attempt<()>) -> Span + Send + Sync + 'static) -> Self {
        self.settings.span = Box::new(span);
        self
    }

    /// Removes fields of an object before it is cached, after the handler of the watch has seen it.
    /// The result is what the [`Store`](super::Store) returns, what is reconciled, and what the
    /// handler gets as deleted when a new list does not contain the object. It must keep the
    /// metadata that identifies the object.
    #[must_use]
    pub fn transform(mut self, transform: fn(&mut K)) -> Self {
        self.settings.transform = transform;
        self
    }
}
