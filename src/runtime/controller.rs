//! The loop that reconciles the objects of one kind, on top of kube-runtime's.
//!
//! What it adds: each watch has its own backoff ([`watch`](super::watch)); nothing is reconciled before all watches
//! are complete; failures are retried by a [`RetryPolicy`] counted for each object, which a mere echo of our own write
//! does not cut short; a reconciler can yield, that is ask to look again after a fixed time without that counting as a
//! failure; state is carried from attempt to attempt of one object; a panic or a hang fails one reconcile only.

mod attempts;

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt};
use kube::Resource;
use kube::runtime::controller::{Action, Config, Error as LoopError};
use kube::runtime::reflector::{ObjectRef, Store, reflector, store::Writer};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::attempts::{Attempts, Turn};
use super::client::chain;
use super::health::Synced;
use super::retry::RetryPolicy;
use super::watch::{GuardedApi, Observer, display_name, guarded};

/// How long one reconcile may take before it is broken off and counted as a failure. Single calls have shorter
/// deadlines; this is for what nobody thought of.
const LONGEST_RECONCILE: Duration = Duration::from_mins(2);

/// Brings one object of a kind to where it should be.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Resource + Clone + Debug + Send + Sync + 'static;
    /// What is carried from one attempt to the next of the same object. Dropped when a reconcile is done, and when the
    /// object has changed since in more than its status.
    type State: Default + Send + 'static;
    /// Why a reconcile failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Looks at the object as the watch last saw it, and acts. Never runs twice at the same time for one object.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        attempt: &mut Attempt<Self::State>,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;

    /// When to try again after a failure.
    fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy::default()
    }
}

/// Which attempt at an object this is.
#[derive(Debug, Default)]
pub struct Attempt<S> {
    /// How many attempts in a row have failed before this one.
    pub failures: u32,
    /// What the last attempt left behind.
    pub state: S,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is nothing to do until the object changes or is woken.
    Done,
    /// Look again after this time at the latest. No failure, and the state is kept.
    Yield(Duration),
}

/// Makes a controller look at objects that did not change themselves. Cheap to clone.
pub struct Waker<K: Resource> {
    queue: mpsc::UnboundedSender<ObjectRef<K>>,
    version: K::DynamicType,
}

impl<K: Resource> Clone for Waker<K>
where
    K::DynamicType: Clone,
{
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), version: self.version.clone() }
    }
}

impl<K: Resource> Debug for Waker<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Waker")
    }
}

impl<K: Resource> Waker<K>
where
    K::DynamicType: Clone,
{
    /// Has the object reconciled soon, also when it waits for a retry. An object that does not exist is passed over.
    pub fn wake(&self, namespace: Option<&str>, name: &str) {
        let mut object = ObjectRef::new_with(name, self.version.clone());
        object.namespace = namespace.map(str::to_owned);
        // Nobody listens any more once the controller has stopped.
        let _ = self.queue.send(object);
    }
}

/// A controller being put together: what it watches, and how it runs.
pub struct ControllerBuilder<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    name: String,
    version: K::DynamicType,
    writer: Writer<K>,
    waker: Waker<K>,
    woken: mpsc::UnboundedReceiver<ObjectRef<K>>,
    awaited: Vec<Synced>,
    watches: Vec<BoxFuture<'static, ()>>,
}

impl<K> ControllerBuilder<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Unpin + Send + Sync,
{
    /// A controller of that name for a kind in the given version.
    pub fn new(name: &str, version: K::DynamicType) -> Self {
        let (queue, woken) = mpsc::unbounded_channel();
        Self {
            name: name.to_owned(),
            writer: Writer::new(version.clone()),
            waker: Waker { queue, version: version.clone() },
            version,
            woken,
            awaited: Vec::new(),
            watches: Vec::new(),
        }
    }

    /// Wakes objects of this controller.
    pub fn waker(&self) -> Waker<K> {
        self.waker.clone()
    }

    /// The objects of this controller as its watch last saw them. Empty until it runs.
    pub fn store(&self) -> Store<K> {
        self.writer.as_reader()
    }

    /// Watches another kind. Nothing is reconciled before its first listing is complete and the observer has heard of
    /// every object; `synced` says when.
    pub fn watch<O>(
        &mut self,
        synced: Synced,
        api: GuardedApi<O>,
        config: watcher::Config,
        version: &O::DynamicType,
        trim: fn(&mut O),
        observer: Arc<dyn Observer<O>>,
    ) where
        O: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        O::DynamicType: Clone + Debug + Send + Sync,
    {
        self.awaited.push(synced.clone());
        let events = guarded(api, config, version, observer, trim, synced);
        self.watches.push(events.for_each(|_| std::future::ready(())).boxed());
    }

    /// Waits for something else than a watch of this controller before anything is reconciled.
    pub fn wait_for(&mut self, synced: Synced) {
        self.awaited.push(synced);
    }

    /// Runs until `stop` is cancelled; then no reconcile is begun, and those under way are waited for.
    pub async fn run<R>(self, main: MainWatch<K>, concurrency: u16, stop: CancellationToken, reconciler: Arc<R>)
    where
        R: Reconciler<Object = K>,
    {
        let reader = self.writer.as_reader();
        let events = guarded(main.api, main.config, &self.version, main.observer, main.trim, main.synced);
        let objects = reflector(self.writer, events.map(Ok::<Event<K>, watcher::Error>)).applied_objects();

        let attempts = Arc::new(Attempts::default());
        let wakes = {
            let attempts = Arc::clone(&attempts);
            let woken = self.woken;
            futures::stream::unfold(woken, |mut woken| async { Some((woken.recv().await?, woken)) })
                .inspect(move |object| attempts.wake(object.namespace.as_deref(), &object.name))
        };
        let context = Arc::new(Context { name: self.name, reconciler, attempts, awaited: self.awaited });
        let watches = async {
            join_all(self.watches).await;
            // They never end by themselves, but there may be none.
            std::future::pending::<()>().await;
        };
        let results = Controller::for_stream_with(objects, reader, self.version)
            .with_config(Config::default().concurrency(concurrency))
            .reconcile_on(wakes)
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(reconcile::<R>, |_, _, _| Action::await_change(), Arc::clone(&context))
            .for_each(|result| {
                match result {
                    // Woken or retried after it went: ordinary.
                    Ok(_) | Err(LoopError::ObjectNotFound(_)) => {}
                    Err(error) => error!(controller = context.name, error = chain(&error), "the controller failed"),
                }
                std::future::ready(())
            });
        info!(controller = context.name, "the controller starts");
        tokio::select! {
            () = results => {}
            () = watches => {}
        }
        debug!(controller = context.name, "the controller has stopped");
    }
}

/// The watch of the kind that a controller reconciles.
pub struct MainWatch<K: Resource> {
    /// What to watch.
    pub api: GuardedApi<K>,
    /// Selectors and paging.
    pub config: watcher::Config,
    /// Hears of every object first.
    pub observer: Arc<dyn Observer<K>>,
    /// Makes objects smaller before they are kept.
    pub trim: fn(&mut K),
    /// Is told when the first listing is complete.
    pub synced: Synced,
}

struct Context<R: Reconciler> {
    name: String,
    reconciler: Arc<R>,
    attempts: Arc<Attempts<R::State>>,
    awaited: Vec<Synced>,
}

async fn reconcile<R: Reconciler>(
    object: Arc<R::Object>,
    context: Arc<Context<R>>,
) -> Result<Action, std::convert::Infallible> {
    for synced in &context.awaited {
        synced.wait().await;
    }
    let mut attempt = match context.attempts.begin(object.as_ref(), Instant::now()) {
        Turn::Now(attempt) => attempt,
        Turn::Later(wait) => return Ok(Action::requeue(wait)),
    };
    let run = AssertUnwindSafe(context.reconciler.reconcile(Arc::clone(&object), &mut attempt)).catch_unwind();
    let failed = match tokio::time::timeout(LONGEST_RECONCILE, run).await {
        Ok(Ok(Ok(Outcome::Done))) => {
            return Ok(context.attempts.done(object.as_ref()));
        }
        Ok(Ok(Ok(Outcome::Yield(wait)))) => {
            return Ok(context.attempts.yielded(object.as_ref(), attempt.state, wait));
        }
        Ok(Ok(Err(error))) => chain(&error),
        Ok(Err(_)) => "it panicked; this is a mistake in the program".to_owned(),
        Err(_) => format!("it took longer than {} s", LONGEST_RECONCILE.as_secs()),
    };
    let failures = attempt.failures.saturating_add(1);
    let wait = context.reconciler.retry_policy().wait(failures);
    let controller = &context.name;
    let object_name = display_name(object.as_ref());
    if failures <= 3 {
        debug!(controller, object = object_name, failures, error = failed, "failed, will be tried again");
    } else {
        warn!(controller, object = object_name, failures, ?wait, error = failed, "keeps failing");
    }
    Ok(context.attempts.failed(object.as_ref(), Attempt { failures, state: attempt.state }, Instant::now(), wait))
}
