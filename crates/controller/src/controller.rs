//! The reconcile loop of one kind.
//!
//! - Objects come from a [`Source`]: a watch, or anything else that lists objects. Every watch has
//!   its own backoff ([`watch`](super::watch)). The reconciled kind is listed last, after the kinds
//!   that its reconciler needs. An object is reconciled as soon as the initial list returns it.
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
//! - [`reconcile_fn`] and [`watch_fn`] make a reconciler from a closure. What a reconciler is and
//!   how it fails is the trait; [`Reconciler::then`], [`Reconciler::finalizer`] and
//!   [`Reconciler::with_retry`] combine and change reconcilers of any kind. What else a controller
//!   does with its objects are settings of the [`ControllerBuilder`].

mod backoff;
mod closure;
mod compaction;
mod failure;
mod finalized;
mod policy;
mod progress;
mod queue;
mod rejection;
mod settings;
mod store;
#[cfg(test)]
mod tests;
mod then;
mod watcher;
mod worker;

use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::closure::{ReconcileFn, reconcile_fn};
pub use self::compaction::Compaction;
use self::compaction::NoCompaction;
pub use self::failure::Failure;
pub use self::finalized::{
    CONFLICT_DELAY, CleanUp, Finalized, IN_USE_DELAY, Protect, Protection, low_with_finalizer,
};
pub use self::policy::Policy;
pub use self::rejection::retry_write;
use self::settings::{OnSourceError, Settings};
pub use self::store::{Cached, Store};
pub use self::then::{Then, ThenError};
pub use self::watcher::{Changed, WatchFn, watch_fn};
use self::worker::Worker;
use crate::client::{ApiObject, CallError, ResourceClient};
use crate::health::ReadinessGate;
use crate::namespaced_name::NamespacedName;
use crate::ready::NotReady;
use crate::retry::{Retry, RetryPolicy};
use crate::watch::{Change, Keyed, Opened, Source, read};

/// Number of changes that are buffered for the worker.
const CHANGE_BUFFER: usize = 64;

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

    /// Whether the object, which is gone, is reconciled once more with [`Cause::Deleted`] and its
    /// last known state, before another object of its key. This is retried until it succeeds, also
    /// after [`Retry::GiveUp`]. By default only one whose source keeps a [marker](Keyed::HAS_MARKERS)
    /// of it is.
    ///
    /// A process does not learn of Kubernetes objects that were deleted while it did not run: what
    /// must not be missed needs a finalizer. Sources with [markers](Keyed::HAS_MARKERS) show each
    /// marker in every list, and only what has a marker is reconciled as deleted.
    fn wants_deleted(&self, _object: &Self::Object) -> bool {
        Self::Object::HAS_MARKERS
    }

    /// Decides what happens after a failed attempt. `failures` is the number of consecutive failed
    /// attempts, one or more. By default the delay doubles with each failure, from 50 ms to 5
    /// minutes.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
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
        Then {
            first: self,
            second: next,
        }
    }

    /// This reconciler with another rule for what happens after a failed attempt, in place of
    /// [`Self::retry`].
    ///
    /// ```
    /// use std::fmt::Error;
    /// use std::sync::Arc;
    /// use std::time::{Duration, Instant};
    ///
    /// use capi_ipam_controller::controller::{Action, Reconciler, reconcile_fn};
    /// use capi_ipam_controller::retry::Retry;
    /// use k8s_openapi::api::core::v1::Node;
    ///
    /// let reconciler = reconcile_fn(async |_: Arc<Node>| Err::<Action, _>(Error))
    ///     .with_retry(|_, failures| if failures < 3 { Retry::After(Duration::from_secs(9)) } else { Retry::GiveUp })
    ///     .with_on_error(|node, _, failure| tracing::warn!(node = node.metadata.name, %failure, "not labelled"));
    /// # let _ = reconciler;
    /// ```
    fn with_retry(
        self,
        retry: impl Fn(&Self::Error, u32) -> Retry + Send + Sync + 'static,
    ) -> Policy<Self>
    where
        Self: Sized,
    {
        let mut policy = Policy::new(self);
        policy.retry = Some(Box::new(retry));
        policy
    }

    /// This reconciler with a closure that is called after each failed attempt, in place of
    /// [`Self::on_error`].
    fn with_on_error(
        self,
        on_error: impl Fn(&Self::Object, &Attempt<()>, &Failure<'_, Self::Error>)
        + Send
        + Sync
        + 'static,
    ) -> Policy<Self>
    where
        Self: Sized,
    {
        let mut policy = Policy::new(self);
        policy.on_error = Some(Box::new(on_error));
        policy
    }

    /// Adds a finalizer to each object before this reconciler gets it, as [`Finalized`] does.
    /// `clean_up` gets an object that is being deleted, until it returns [`Action::AwaitChange`]:
    /// then the finalizer is removed. `objects` is the client that reads and writes an object.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use capi_ipam_controller::client::{CallError, ResourceClient};
    /// use capi_ipam_controller::controller::{Action, Reconciler, reconcile_fn};
    /// use k8s_openapi::api::core::v1::Node;
    ///
    /// fn racks(nodes: ResourceClient<Node>) -> impl Reconciler<Object = Node> {
    ///     let place = reconcile_fn(async |node: Arc<Node>| {
    ///         tracing::info!(node = node.metadata.name, "it has a place in a rack");
    ///         Ok::<_, CallError>(Action::AwaitChange)
    ///     });
    ///     let of_node = move |_: &Node| nodes.clone();
    ///     place.finalizer("racks.example.com/place", of_node, async |node: Arc<Node>| {
    ///         tracing::info!(node = node.metadata.name, "its place in the rack is free");
    ///         Ok(Action::AwaitChange)
    ///     })
    /// }
    /// ```
    fn finalizer<O, C, F>(
        self,
        finalizer: impl Into<Arc<str>>,
        objects: O,
        clean_up: C,
    ) -> Finalized<CleanUp<Self, O, C>>
    where
        Self: Reconciler<Object: ApiObject, Error: From<CallError>> + Sized,
        O: Fn(&Self::Object) -> ResourceClient<Self::Object> + Send + Sync + 'static,
        C: Fn(Arc<Self::Object>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Action, Self::Error>> + Send,
    {
        Finalized::new(CleanUp::new(self, objects, clean_up), finalizer)
    }
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
    /// Whether the next attempt has the cause of this one although this one does not fail: it has
    /// done nothing yet. Set it together with [`Action::Requeue`].
    pub keeps_cause: bool,
    /// What this attempt waits for, see [`Self::wait`].
    pub waits_for: Option<Waiting>,
    /// Number of consecutive attempts before this one that ended with a conflict.
    pub conflicts: u32,
    /// Whether this attempt ends with a conflict: the object has changed since it was read.
    pub has_conflict: bool,
    /// Whether the cause is that of an earlier attempt, which has not handled it.
    pub(crate) is_carried: bool,
}

impl<S> Attempt<S> {
    /// Reconciles the object again after `delay` at the latest, and says why: it waits for
    /// something else, which is no failure. `reason` is that of a condition.
    pub fn wait(
        &mut self,
        reason: &'static str,
        message: impl Into<String>,
        delay: Duration,
    ) -> Action {
        let message = message.into();
        self.waits_for = Some(Waiting { reason, message });
        Action::Requeue(delay)
    }

    /// Waits for a dependency, see [`ready::require`](crate::ready::require).
    pub fn wait_for(&mut self, dependency: &NotReady) -> Action {
        let (message, delay) = (dependency.to_string(), dependency.delay());
        self.wait("DependencyNotReady", message, delay)
    }

    /// Adds what another reconciler has done in a part of this attempt, which was made by
    /// [`Self::with_state`]. Returns the state of the part.
    pub fn join<T>(&mut self, part: Attempt<T>) -> T {
        self.keeps_cause |= part.keeps_cause;
        self.has_conflict |= part.has_conflict;
        self.waits_for = self.waits_for.take().or(part.waits_for);
        part.state
    }

    /// This attempt with another state: for a reconciler that calls another one.
    pub fn with_state<T>(&self, state: T) -> Attempt<T> {
        Attempt {
            cause: self.cause,
            failures: self.failures,
            state,
            keeps_cause: self.keeps_cause,
            waits_for: None,
            conflicts: self.conflicts,
            has_conflict: self.has_conflict,
            is_carried: self.is_carried,
        }
    }

    /// What the next attempt knows of this one.
    fn next(self) -> Self {
        let conflicts = if self.has_conflict {
            self.conflicts.saturating_add(1)
        } else if self.keeps_cause {
            self.conflicts
        } else {
            0
        };
        Self {
            conflicts,
            keeps_cause: false,
            has_conflict: false,
            waits_for: None,
            ..self
        }
    }
}

/// What an attempt waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The reason of a condition.
    pub reason: &'static str,
    /// What it waits for, and what an operator can do.
    pub message: String,
}

/// Why an object is reconciled. If there are several causes, the greatest one. The causes of a failed
/// attempt are also those of the next one: an object is [`Cause::Created`] until an attempt has
/// succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The delay of a retry or of [`Action::Requeue`] is over.
    #[default]
    Requeued,
    /// A [`Trigger`] enqueued the object.
    Triggered,
    /// The object has changed.
    Changed,
    /// The first list of this process contains the object. An earlier process has probably
    /// reconciled it, and did not if it was created while no process ran, or if all attempts
    /// failed: only a finalizer shows that one has begun.
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
    /// The action after two reconcilers: the earlier one of two requeues.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::Requeue(first), Self::Requeue(second)) => Self::Requeue(first.min(second)),
            (Self::AwaitChange, action) | (action, Self::AwaitChange) => action,
        }
    }

    /// The value of the attribute `outcome` of the span of a reconcile: `done`, `retry` or `error`.
    pub fn outcome<E>(result: &Result<Self, E>) -> &'static str {
        match result {
            Ok(Self::AwaitChange) => "done",
            Ok(Self::Requeue(_)) => "retry",
            Err(_) => "error",
        }
    }
}

/// An object that a [`Trigger`] enqueues.
#[derive(Debug)]
struct Triggered {
    object: NamespacedName,
    cause: Cause,
}

/// Enqueues objects of a controller because of something other than a change of the object. Cheap
/// to clone.
#[derive(Debug)]
pub struct Trigger<K> {
    queue: mpsc::UnboundedSender<Triggered>,
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

impl<K> Trigger<K> {
    /// Enqueues an object, and ends its backoff. An object that does not exist is ignored.
    pub fn enqueue(&self, object: NamespacedName) {
        send(&self.queue, object, Cause::Triggered);
    }

    /// Enqueues an object after a delay, with the cause [`Cause::Requeued`] and not during its
    /// backoff, as [`Action::Requeue`] does. What enqueues it earlier does not cancel this, and it can
    /// be called before the object is listed. A delay needs a runtime of tokio.
    pub fn enqueue_after(&self, object: NamespacedName, delay: Duration) {
        if delay.is_zero() {
            send(&self.queue, object, Cause::Requeued);
            return;
        }
        let queue = self.queue.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            send(&queue, object, Cause::Requeued);
        });
    }
}

fn send(queue: &mpsc::UnboundedSender<Triggered>, object: NamespacedName, cause: Cause) {
    // The receiver is dropped when the controller stops.
    let _ = queue.send(Triggered { object, cause });
}

/// Forwards the changes of the main source, which is opened when all of `gates` are ready: a source
/// is requested at its first poll, so it is not listed before. Ends with the source, or with the
/// controller.
async fn forward<K>(
    mut changes: BoxStream<'static, Change<K>>,
    gates: Vec<ReadinessGate>,
    sender: mpsc::Sender<Change<K>>,
) {
    join_all(gates.iter().map(ReadinessGate::wait)).await;
    while let Some(change) = changes.next().await {
        if sender.send(change).await.is_err() {
            return;
        }
    }
}

/// Reads a watch of another kind until it ends. Calls a function with each of its failures.
type Watching = dyn FnOnce(Arc<OnSourceError>) -> BoxFuture<'static, ()> + Send;

/// Builds a controller from its watches and runs it. `S` is the compact form of objects in its
/// cache; by default there is none.
pub struct ControllerBuilder<K, S = Infallible> {
    store: Store<K, S>,
    trigger: Trigger<K>,
    triggered: mpsc::UnboundedReceiver<Triggered>,
    gates: Vec<ReadinessGate>,
    watches: Vec<Box<Watching>>,
    pub(crate) settings: Settings<K>,
}

impl<K, S> ControllerBuilder<K, S>
where
    K: Keyed,
    S: Clone + Debug + Send + Sync + 'static,
{
    /// A controller with a name for logs.
    pub fn new(name: &str) -> Self {
        let (queue, triggered) = mpsc::unbounded_channel();
        Self {
            store: Store::default(),
            trigger: Trigger {
                queue,
                kind: PhantomData,
            },
            triggered,
            gates: Vec::new(),
            watches: Vec::new(),
            settings: Settings::new(name),
        }
    }

    /// Enqueues objects of this controller.
    pub fn trigger(&self) -> Trigger<K> {
        self.trigger.clone()
    }

    /// The cache of the reconciled objects. Empty until the controller runs.
    pub fn store(&self) -> Store<K, S> {
        self.store.clone()
    }

    /// Watches another kind. Nothing is reconciled before the initial list is complete and the
    /// handler has seen every object; the gate becomes ready then.
    pub fn watch(&mut self, source: impl Source) {
        let opened = source.open();
        self.gates.push(opened.synced.clone());
        self.watches.push(Box::new(move |failed| {
            let changes = read(opened, move |error| failed(error));
            changes.for_each(|()| std::future::ready(())).boxed()
        }));
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
        let failed = &self.settings.on_source_error;
        let watches = self.watches.into_iter();
        let watches = watches.map(|watching| watching(Arc::clone(failed)));
        // One task for each source: a single future would poll all of them whenever one wakes up.
        let mut tasks: JoinSet<()> = watches.collect();
        let worker = Worker::new(
            self.settings,
            reconciler,
            compaction,
            handler,
            self.store,
            synced,
        );
        let (sender, received) = mpsc::channel(CHANGE_BUFFER);
        tasks.spawn(forward(changes, self.gates, sender));
        tokio::select! {
            () = worker.run(received, self.triggered, stop) => {}
            // A watch ends if its kind is no longer served, or by a panic. Either ends the
            // controller.
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended
                    && let Ok(panic) = error.try_into_panic()
                {
                    std::panic::resume_unwind(panic);
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
        stop: CancellationToken,
        reconciler: Arc<R>,
    ) {
        let compaction = Arc::new(NoCompaction);
        self.run_with_compaction(main, stop, reconciler, compaction)
            .await;
    }
}
