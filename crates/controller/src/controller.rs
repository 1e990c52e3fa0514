//! The reconcile loop of one kind.
//!
//! - Objects come from a [`Source`]: a watch, or anything else that lists objects. Every watch has
//!   its own backoff ([`watch`](super::watch)). The reconciled kind is listed last, after the kinds
//!   that its reconciler needs. An object is reconciled as soon as the initial list returns it.
//! - Sources and handlers can be added and removed while the controller runs ([`Controller`]).
//! - The work queue serves namespaces in turn, and an object is never reconciled by two tasks at
//!   the same time. Objects of low [priority](crate::priority) come last, and their requests yield
//!   to others.
//! - Objects that need no reconcile can be cached in a compact form ([`Compaction`]), so memory and
//!   start-up time depend on the pending work more than on the number of objects. This and the fair
//!   queue are what kube-runtime's controller lacks.
//! - Failures are retried with a backoff for each object, or given up ([`Reconciler::retry`]). The
//!   watch event of the controller's own write does not end a backoff. A reconciler can requeue an
//!   object after a fixed time, which is no failure. State is passed between the attempts of one
//!   object. A panic or a hang fails one reconcile only.
//! - Reconcilers are combined: [`Finalized`] adds a finalizer, [`Reconciler::then`] runs two in
//!   order. [`reconcile_fn`] and [`watch_fn`] make one from a closure.

mod backoff;
mod closure;
mod compaction;
mod deleted;
mod failure;
mod finalized;
mod progress;
mod queue;
mod rejection;
mod sources;
mod store;
#[cfg(test)]
mod tests;
mod then;
mod watcher;
mod worker;

use std::any::Any;
use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::core::ObjectMeta;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Span, field};

use self::backoff::Fingerprint;
pub use self::closure::{ReconcileFn, reconcile_fn};
pub use self::compaction::Compaction;
use self::compaction::NoCompaction;
pub use self::failure::Failure;
pub use self::finalized::{Finalized, Protect, Protection};
pub use self::rejection::Conflicts;
pub use self::sources::{AddedHandler, AddedSource, ChangeHandler, Controller, SourceId};
use self::sources::{Receivers, Task, TaskEnd};
pub use self::store::{Cached, Store};
pub use self::then::{Then, ThenError};
pub use self::watcher::{Changed, WatchFn, watch_fn};
use self::worker::{Worker, WorkerOptions};
use crate::health::ReadinessGate;
use crate::metrics::{ControllerMetrics, Metrics};
use crate::namespaced_name::NamespacedName;
use crate::priority::{Priorities, Priority};
use crate::ready::NotReady;
use crate::retry::{Retry, RetryPolicy};
use crate::trace_span;
use crate::watch::{Keyed, Opened, Source, read};

/// Reconciles the objects of one kind.
pub trait Reconciler: Send + Sync + 'static {
    /// The reconciled kind: one of Kubernetes, or that of another [`Source`].
    type Object: Keyed;
    /// State that is passed from one attempt at an object to the next. Dropped after
    /// [`Action::AwaitChange`], and when the [fingerprint](Keyed::fingerprint) of the object
    /// changes.
    type State: Default + Send + 'static;
    /// The error of a failed reconcile.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Reconciles an object in the state that the watch last returned. Never runs concurrently for
    /// one object.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        attempt: &mut Attempt<Self::State>,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Called before each reconcile, in the order in which reconciles start: first in, first out
    /// for the objects of a namespace. The returned value is dropped when the reconcile has ended,
    /// also by a panic. It must be fast. Not called for an object in compact form.
    fn starting(&self, _object: &Self::Object) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// The priority of an object: low if nobody waits for its reconcile. An object in the queue
    /// keeps the highest priority with which it was enqueued. Called for every event and every
    /// trigger, so it must be fast.
    fn priority(&self, _object: &Self::Object, _cause: Cause) -> Priority {
        Priority::Normal
    }

    /// Whether a change of a cached object is reconciled, for example not if it is a write of the
    /// reconciler itself. Not asked for a new object, for the begin of a deletion, and while the
    /// object waits for a reconcile or is being reconciled: it may wait for this change. By default
    /// every change is reconciled. It must be fast.
    fn wants(&self, _before: &Self::Object, _after: &Self::Object) -> bool {
        true
    }

    /// Whether a change ends the pause after a failed attempt, or after [`Retry::GiveUp`].
    /// `waiting` is the object as it was at that attempt, `newer` as it is now. The retry and its
    /// state are dropped then, and the next attempt is a first one. By default a change of the
    /// [fingerprint](Keyed::fingerprint) ends it, such as a new generation, and a change of the
    /// status does not. Not asked for the begin of a deletion, or for another object of the same
    /// name: these always end it. Called before each attempt, so it must be fast.
    fn dequeues(&self, waiting: &Self::Object, newer: &Self::Object) -> bool {
        Fingerprint::of(waiting) != Fingerprint::of(newer)
    }

    /// Whether the object, which is gone, is reconciled once more with [`Cause::Deleted`] and its
    /// last known state, before another object of its key. This is retried until it succeeds, also
    /// after [`Retry::GiveUp`]. By default no deleted object is.
    ///
    /// A process does not learn of Kubernetes objects that were deleted while it did not run: what
    /// must not be missed needs a finalizer. Sources with [markers](Keyed::HAS_MARKERS) show each
    /// marker in every list, and only what has a marker is reconciled as deleted.
    fn wants_deleted(&self, _object: &Self::Object) -> bool {
        false
    }

    /// What is reconciled in place of an object that is being deleted and cannot be decoded, if
    /// this process has decoded no earlier state of it: what is known of an object with this
    /// metadata, so that what it holds is released. Otherwise the last known state is reconciled,
    /// with the metadata of the later one. By default nothing is.
    fn undecodable(&self, _metadata: &ObjectMeta) -> Option<Self::Object> {
        None
    }

    /// Decides what happens after a failed attempt. `failures` is the number of consecutive failed
    /// attempts, one or more. By default the delay doubles with each failure, from 50 ms to 5
    /// minutes.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use capi_ipam_controller::client::CallError;
    /// use capi_ipam_controller::retry::{Retry, RetryPolicy};
    ///
    /// fn retry(error: &CallError, failures: u32) -> Retry {
    ///     match error {
    ///         // Only a change of the object can help.
    ///         error if error.is_invalid() && failures >= 3 => Retry::GiveUp,
    ///         error if error.is_forbidden() => Retry::After(Duration::from_secs(60)),
    ///         _ => Retry::After(RetryPolicy::default().delay(failures)),
    ///     }
    /// }
    /// # let bug = CallError::TimedOut { operation: String::new() };
    /// # assert!(matches!(retry(&bug, 1), Retry::After(_)));
    /// ```
    fn retry(&self, _error: &Self::Error, failures: u32) -> Retry {
        Retry::After(RetryPolicy::default().delay(failures))
    }

    /// Called after each failed attempt: an error, a panic or a timeout. `attempt` is the attempt
    /// without its state. The controller logs and counts failures itself. It must be fast.
    fn on_error(
        &self,
        _object: &Self::Object,
        _attempt: &Attempt<()>,
        _failure: &Failure<'_, Self::Error>,
    ) {
    }

    /// Called when a source of reconciled objects fails, before it is opened again. The watches of
    /// Kubernetes kinds log their failures themselves. It must be fast.
    fn on_source_error(&self, _source: SourceId, _error: &str) {}

    /// The span of a reconcile in a trace, which gets the attributes `controller` and `outcome` if
    /// it declares them. Return [`Span::none`] for none.
    fn span(&self, object: &Self::Object, attempt: &Attempt<Self::State>) -> Span {
        trace_span!(
            "reconcile",
            controller = field::Empty,
            object = %object.key(),
            cause = ?attempt.cause,
            attempt = attempt.failures.saturating_add(1),
            outcome = field::Empty,
        )
    }

    /// Reconciles each object with this reconciler first, and then with another one, unless an
    /// error ends the attempt. If both requeue the object, the earlier time counts. A retry begins
    /// with the first one again.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::sync::Arc;
    ///
    /// use capi_ipam_controller::controller::{Action, Reconciler, reconcile_fn};
    /// use k8s_openapi::api::core::v1::Node;
    ///
    /// let label = reconcile_fn(async |_: Arc<Node>| Ok::<_, Infallible>(Action::AwaitChange));
    /// let report = reconcile_fn(async |_: Arc<Node>| Ok::<_, Infallible>(Action::AwaitChange));
    /// let both = label.then(report);
    /// # let _ = both;
    /// ```
    fn then<B: Reconciler<Object = Self::Object>>(self, next: B) -> Then<Self, B>
    where
        Self: Sized,
    {
        Then::new(self, next)
    }

    /// Removes fields of an object before it is cached, after the handler of the watch has seen it.
    /// The result is what [`Store`] returns, what is reconciled, and what the handler gets as
    /// deleted when a new list does not contain the object. It must keep the metadata that
    /// identifies the object.
    fn transform(_object: &mut Self::Object) {}
}

/// One attempt to reconcile an object.
#[derive(Debug, Default)]
pub struct Attempt<S> {
    /// Why the object is reconciled.
    pub cause: Cause,
    /// Number of consecutive failed attempts before this one.
    pub failures: u32,
    /// State of the previous attempt. Changes are passed to the next one.
    pub state: S,
}

/// Why an object is reconciled. If there are several causes, the greatest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The delay of a retry or of [`Action::Requeue`] is over.
    #[default]
    Requeued,
    /// A [`Trigger`] enqueued the object.
    Triggered,
    /// The object has changed.
    Changed,
    /// The first list of this process contains the object: it is probably known to earlier
    /// processes.
    Resumed,
    /// The object was created while this process runs.
    Created,
    /// The object is being deleted, and waits for its finalizers.
    Deleting,
    /// The object is gone, see [`Reconciler::wants_deleted`].
    Deleted,
}

/// What the controller does with an object after a successful reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wait until the object changes or is triggered.
    AwaitChange,
    /// Reconcile again after this time at the latest. This is no failure, and the state is kept.
    Requeue(Duration),
}

impl Action {
    /// The value of the attribute `outcome` of the span of a reconcile: `done`, `retry` or `error`.
    pub fn outcome<E>(result: &Result<Self, E>) -> &'static str {
        match result {
            Ok(Self::AwaitChange) => "done",
            Ok(Self::Requeue(_)) => "retry",
            Err(_) => "error",
        }
    }
}

impl From<NotReady> for Action {
    /// Waits for a dependency, which is no failure.
    fn from(dependency: NotReady) -> Self {
        Self::Requeue(dependency.delay())
    }
}

/// Enqueues objects of a controller because of something other than a change of the object. Cheap
/// to clone.
pub struct Trigger<K> {
    queue: mpsc::UnboundedSender<(NamespacedName, Cause)>,
    kind: PhantomData<fn(K)>,
}

impl<K> Clone for Trigger<K> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> Debug for Trigger<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Trigger")
    }
}

impl<K> Trigger<K> {
    /// Enqueues an object, and ends its backoff. An object that does not exist is ignored.
    pub fn enqueue(&self, object: NamespacedName) {
        self.send(object, Cause::Triggered);
    }

    /// Enqueues an object as if its delay ([`Action::Requeue`]) were over: with the cause
    /// [`Cause::Requeued`], and not during its backoff.
    pub fn recheck(&self, object: NamespacedName) {
        self.send(object, Cause::Requeued);
    }

    fn send(&self, object: NamespacedName, cause: Cause) {
        // The receiver is dropped when the controller stops.
        let _ = self.queue.send((object, cause));
    }
}

/// Builds a controller from its watches and runs it. `S` is the compact form of objects in its
/// cache; by default there is none.
pub struct ControllerBuilder<K, S = Infallible> {
    name: String,
    store: Store<K, S>,
    trigger: Trigger<K>,
    triggered: mpsc::UnboundedReceiver<(NamespacedName, Cause)>,
    gates: Vec<ReadinessGate>,
    watches: Vec<Task>,
    controller: Controller<K>,
    receivers: Receivers<K>,
    metrics: ControllerMetrics,
    priorities: Priorities,
}

impl<K, S> ControllerBuilder<K, S>
where
    K: Keyed,
    S: Clone + Debug + Send + Sync + 'static,
{
    /// A controller with a name for logs.
    pub fn new(name: &str) -> Self {
        let (queue, triggered) = mpsc::unbounded_channel();
        let (controller, receivers) = Controller::new();
        Self {
            name: name.to_owned(),
            store: Store::default(),
            trigger: Trigger {
                queue,
                kind: PhantomData,
            },
            triggered,
            gates: Vec::new(),
            watches: Vec::new(),
            controller,
            receivers,
            metrics: ControllerMetrics::default(),
            priorities: Priorities::default(),
        }
    }

    /// Records the metrics of the controller.
    /// [`Manager::controller`](crate::manager::Manager::controller) calls it.
    #[must_use]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.controllers.clone();
        self
    }

    /// Shares priorities with other work of the process.
    /// [`Manager::controller`](crate::manager::Manager::controller) calls it.
    #[must_use]
    pub fn priorities(mut self, priorities: &Priorities) -> Self {
        self.priorities = priorities.clone();
        self
    }

    /// Enqueues objects of this controller.
    pub fn trigger(&self) -> Trigger<K> {
        self.trigger.clone()
    }

    /// The cache of the reconciled objects. Empty until the controller runs.
    pub fn store(&self) -> Store<K, S> {
        self.store.clone()
    }

    /// Adds and removes sources and handlers while the controller runs.
    pub fn controller(&self) -> Controller<K> {
        self.controller.clone()
    }

    /// Watches another kind. Nothing is reconciled before the initial list is complete and the
    /// handler has seen every object; the gate becomes ready then.
    pub fn watch(&mut self, source: impl Source) {
        let opened = source.open();
        self.gates.push(opened.synced.clone());
        let ended = read(opened).for_each(|()| std::future::ready(()));
        self.watches.push(ended.map(|()| TaskEnd::Ended).boxed());
    }

    /// Reconciles nothing before `synced` is ready, for example the watch of another controller.
    pub fn wait_for(&mut self, synced: ReadinessGate) {
        self.gates.push(synced);
    }

    /// [Runs](ControllerBuilder::run) the controller with a cache that contains some objects in
    /// compact form.
    pub async fn run_with_compaction<R, C>(
        self,
        main: impl Source<Object = K>,
        concurrency: u16,
        stop: CancellationToken,
        reconciler: Arc<R>,
        compaction: Arc<C>,
    ) where
        R: Reconciler<Object = K>,
        C: Compaction<K, Compact = S>,
    {
        let Opened {
            changes,
            handler,
            synced,
        } = main.open();
        let metrics = self.metrics.of(&self.name);
        let (name, concurrency, priorities) =
            (self.name, usize::from(concurrency), self.priorities);
        let options = WorkerOptions {
            name,
            concurrency,
            metrics,
            priorities,
        };
        let worker = Worker::new(options, reconciler, compaction, handler, self.store, synced);
        let Receivers {
            tasks: mut added,
            messages,
        } = self.receivers;
        // One task for each source: a single future would poll all of them whenever one wakes up.
        let mut tasks: JoinSet<TaskEnd> = self.watches.into_iter().collect();
        tasks.spawn(self.controller.main_task(changes, self.gates));
        let mut work = std::pin::pin!(worker.run(messages, self.triggered, stop));
        loop {
            tokio::select! {
                () = &mut work => return,
                Some(task) = added.recv() => {
                    tasks.spawn(task);
                }
                Some(ended) = tasks.join_next() => match ended {
                    Ok(TaskEnd::Removed) => {}
                    // A watch ends if its kind is no longer served, or by a panic. Either ends the
                    // controller.
                    Ok(TaskEnd::Ended) => return,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_) => return,
                    },
                }
            }
        }
    }
}

impl<K> ControllerBuilder<K>
where
    K: Keyed,
{
    /// Reconciles the objects of `main` until `stop` is cancelled. Then starts no reconcile, and
    /// returns when those in progress are done. The gate of `main` becomes ready when the initial
    /// list is in the [`Store`].
    pub async fn run<R: Reconciler<Object = K>>(
        self,
        main: impl Source<Object = K>,
        concurrency: u16,
        stop: CancellationToken,
        reconciler: Arc<R>,
    ) {
        let compaction = Arc::new(NoCompaction);
        self.run_with_compaction(main, concurrency, stop, reconciler, compaction)
            .await;
    }
}
