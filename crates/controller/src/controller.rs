//! The loop that reconciles the objects of one kind.
//!
//! - Each watch has its own backoff ([`watch`](super::watch)). The kind itself is listed last, when all that has to be known
//!   for it is, and each object is worked on as soon as the listing names it.
//! - Objects wait in a queue in which namespaces take turns, and no object is worked on twice at the same time.
//! - Of an object that nothing has to be done for only so much is kept as it takes to know that ([`Kept`]): memory, and
//!   the time that a restart takes, go by what has to be done and not by how many objects there are. That, and the turns,
//!   are what kube-runtime's controller does not have.
//! - Failures are retried by a [`RetryPolicy`] counted for each object, which a mere echo of our own write does not cut
//!   short; a reconciler can yield, that is ask to look again after a fixed time without that counting as a failure;
//!   state is carried from attempt to attempt of one object; a panic or a hang fails one reconcile only.

mod backoff;
mod queue;
mod worker;
mod store;

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::Resource;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::store::Key;
use self::worker::{feed, Running};
pub use self::store::{Kept, Store};
use crate::health::ReadinessGate;
use crate::retry::RetryPolicy;
use crate::watch::{guarded, WatchApi, observed, Observer};

/// Brings one object of a kind to where it should be.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Resource + Clone + Debug + Send + Sync + 'static;
    /// What is kept of an object that nothing has to be done for; [`Infallible`](std::convert::Infallible) where all are
    /// kept whole.
    type Settled: Clone + Debug + Send + Sync + 'static;
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

    /// What to keep of an object for which, by what it says itself, nothing has to be done; `None` to keep it whole.
    fn settle(&self, _object: &Self::Object) -> Option<Self::Settled> {
        None
    }

    /// Whether nothing has to be done for an object either by all else that is known. Asked each time it is seen or
    /// woken; where it is not so, the object is read and reconciled. Has to be quick.
    fn is_settled(&self, _namespace: Option<&str>, _name: &str, _settled: &Self::Settled) -> bool {
        true
    }

    /// Reads an object that is not kept whole.
    fn read(
        &self,
        _namespace: Option<&str>,
        _name: &str,
    ) -> impl Future<Output = Result<Option<Self::Object>, Self::Error>> + Send {
        std::future::ready(Ok(None))
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
pub struct Trigger<K> {
    queue: mpsc::UnboundedSender<Key>,
    kind: PhantomData<fn(K)>,
}

impl<K> Clone for Trigger<K> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), kind: PhantomData }
    }
}

impl<K> Debug for Trigger<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Trigger")
    }
}

impl<K> Trigger<K> {
    /// Has the object reconciled soon, also when it waits for a retry. An object that does not exist is passed over.
    pub fn wake(&self, namespace: Option<&str>, name: &str) {
        // Nobody listens any more once the controller has stopped.
        let _ = self.queue.send((namespace.map(str::to_owned), name.to_owned()));
    }
}

/// How many events of the main watch are taken in before the controller has seen the first of them.
const BUFFERED: usize = 64;

/// A controller being put together: what it watches, and how it runs.
pub struct ControllerBuilder<K: Resource, S> {
    name: String,
    version: K::DynamicType,
    store: Store<K, S>,
    waker: Trigger<K>,
    woken: mpsc::UnboundedReceiver<Key>,
    awaited: Vec<ReadinessGate>,
    watches: Vec<BoxFuture<'static, ()>>,
}

impl<K, S> ControllerBuilder<K, S>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Unpin + Send + Sync,
    S: Clone + Debug + Send + Sync + 'static,
{
    /// A controller of that name for a kind in the given version.
    pub fn new(name: &str, version: K::DynamicType) -> Self {
        let (queue, woken) = mpsc::unbounded_channel();
        Self {
            name: name.to_owned(),
            version,
            store: Store::default(),
            waker: Trigger { queue, kind: PhantomData },
            woken,
            awaited: Vec::new(),
            watches: Vec::new(),
        }
    }

    /// Wakes objects of this controller.
    pub fn waker(&self) -> Trigger<K> {
        self.waker.clone()
    }

    /// The objects of this controller as its watch last saw them. Empty until it runs.
    pub fn store(&self) -> Store<K, S> {
        self.store.clone()
    }

    /// Watches another kind. Nothing is reconciled before its first listing is complete and the observer has heard of
    /// every object; `synced` says when.
    pub fn watch<O>(
        &mut self,
        synced: ReadinessGate,
        api: WatchApi<O>,
        config: watcher::Config,
        version: &O::DynamicType,
        trim: fn(&mut O),
        observer: Arc<dyn Observer<O>>,
    ) where
        O: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        O::DynamicType: Clone + Debug + Send + Sync,
    {
        self.awaited.push(synced.clone());
        let events = observed(api, config, version, observer, trim, synced);
        self.watches.push(events.for_each(|()| std::future::ready(())).boxed());
    }

    /// Waits for something else than a watch of this controller before anything is reconciled.
    pub fn wait_for(&mut self, synced: ReadinessGate) {
        self.awaited.push(synced);
    }

    /// Runs until `stop` is cancelled; then no reconcile is begun, and those under way are waited for.
    pub async fn run<R>(self, main: MainWatch<K>, concurrency: u16, stop: CancellationToken, reconciler: Arc<R>)
    where
        R: Reconciler<Object = K, Settled = S>,
    {
        let observer = Arc::clone(&main.observer);
        let events = guarded(main.api, main.config, &self.version, main.observer, main.trim, main.synced.clone());
        let concurrency = usize::from(concurrency);
        let running = Running::new(self.name, reconciler, observer, self.store, main.compact, main.synced, concurrency);
        // Tasks of their own: where one future polls them all, whatever wakes one has all of them polled.
        let mut watches: JoinSet<()> = self.watches.into_iter().collect();
        let (sender, events_in_turn) = mpsc::channel(BUFFERED);
        watches.spawn(feed(events.boxed(), self.awaited, sender));
        tokio::select! {
            () = running.run(events_in_turn, self.woken, stop) => {}
            // They end when they cannot go on, and by a panic. Either ends this too.
            Some(ended) = watches.join_next() => {
                if let Err(error) = ended && let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

/// The watch of the kind that a controller reconciles.
pub struct MainWatch<K: Resource> {
    /// What to watch.
    pub api: WatchApi<K>,
    /// Selectors and paging.
    pub config: watcher::Config,
    /// Hears of every object first.
    pub observer: Arc<dyn Observer<K>>,
    /// Makes objects smaller before the observer sees them.
    pub trim: fn(&mut K),
    /// Makes an object that is kept whole smaller, after the observer has seen it and [`Reconciler::settle`] has declined
    /// it. This copy is what [`Store`] has, what is reconciled, and what [`Observer::deleted`] gets when a new listing
    /// does not name the object. It has to keep namespace, name, uid and the rest of the identity. `|_| {}` keeps all.
    pub compact: fn(&mut K),
    /// Is told when the first listing is complete and in the [`Store`].
    pub synced: ReadinessGate,
}
