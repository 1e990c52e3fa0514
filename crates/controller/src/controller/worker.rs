//! The task of a controller: puts watch events and triggers into the queue, and reconciles what is due.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::runtime::watcher::Event;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::backoff::{Backoffs, Start};
use super::queue::Queue;
use super::store::{Cached, Store, key_of};
use super::{Action, Attempt, Reconciler};
use crate::client::error_chain;
use crate::health::ReadinessGate;
use crate::object_map::ObjectKey;
use crate::watch::{EventHandler, display_name};

/// Limit for one reconcile, after which it is cancelled and counts as a failure. Requests have shorter timeouts, so
/// this is a safety net.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// Time until an object that could not be fetched is fetched again.
const INVALID_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Time until an object is retried after a panic outside of the reconciler.
const PANIC_RETRY_DELAY: Duration = Duration::from_secs(30);

struct Context<R: Reconciler> {
    name: String,
    reconciler: Arc<R>,
    backoffs: Backoffs<R::State>,
}

/// A running controller.
pub(super) struct Worker<R: Reconciler> {
    context: Arc<Context<R>>,
    handler: Arc<dyn EventHandler<R::Object>>,
    store: Store<R::Object, R::Compact>,
    /// Becomes ready when the initial list is in the store.
    synced: ReadinessGate,
    queue: Queue,
    /// The initial list has begun. Objects are reconciled as soon as they are listed: of a hundred thousand most need
    /// no reconcile, and the others do not wait for the end of the list.
    started: bool,
    concurrency: usize,
}

impl<R: Reconciler> Worker<R> {
    pub(super) fn new(
        name: String,
        reconciler: Arc<R>,
        handler: Arc<dyn EventHandler<R::Object>>,
        store: Store<R::Object, R::Compact>,
        synced: ReadinessGate,
        concurrency: usize,
    ) -> Self {
        let context = Arc::new(Context { name, reconciler, backoffs: Backoffs::default() });
        let queue = Queue::default();
        Self { context, handler, store, synced, queue, started: false, concurrency: concurrency.max(1) }
    }

    /// Runs until `stop` is cancelled, then waits for the reconciles in progress.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event<R::Object>>,
        mut triggered: mpsc::UnboundedReceiver<ObjectKey>,
        stop: CancellationToken,
    ) {
        let controller = &self.context.name.clone();
        info!(controller, "the controller starts");
        // Created once: this loop iterates several times for every write of an object.
        let mut cancelled = std::pin::pin!(stop.cancelled());
        let mut timer = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut timer_at = None;
        let mut running = JoinSet::new();
        loop {
            self.start_due(&mut running);
            // At full concurrency only the end of a reconcile matters: objects that are already due would make the loop
            // spin.
            let next_due = self.queue.next_due().filter(|_| running.len() < self.concurrency);
            if let Some(at) = next_due.filter(|_| next_due != timer_at) {
                timer.as_mut().reset(at.into());
            }
            timer_at = next_due;
            tokio::select! {
                () = &mut cancelled => break,
                Some(event) = events.recv() => self.handle_event(event),
                Some(key) = triggered.recv() => self.handle_trigger(key),
                Some(ended) = running.join_next(), if !running.is_empty() => self.handle_end(ended),
                () = &mut timer, if timer_at.is_some() => timer_at = None,
            }
            while let Ok(event) = events.try_recv() {
                self.handle_event(event);
            }
            while let Ok(key) = triggered.try_recv() {
                self.handle_trigger(key);
            }
            while let Some(ended) = running.try_join_next() {
                self.handle_end(ended);
            }
        }
        while running.join_next().await.is_some() {}
        debug!(controller, "the controller has stopped");
    }

    /// Starts reconciles of due objects, up to the concurrency.
    fn start_due(&mut self, running: &mut JoinSet<(ObjectKey, Option<Duration>)>) {
        while running.len() < self.concurrency {
            let now = Instant::now();
            let Some(key) = self.queue.next(now) else { return };
            match self.store.get(key.0.as_deref(), &key.1) {
                // Triggered or requeued before it was deleted.
                None => self.context.backoffs.forget(&key),
                Some(cached) if self.needs_reconcile(key.0.as_deref(), &key.1, &cached) => {
                    running.spawn(catch_panic(Arc::clone(&self.context), key, cached));
                    continue;
                }
                Some(_) => {}
            }
            self.queue.finished(key, None, now);
        }
    }

    fn needs_reconcile(&self, namespace: Option<&str>, name: &str, cached: &Cached<R::Object, R::Compact>) -> bool {
        match cached {
            Cached::Full(_) => true,
            Cached::Compact(compact) => self.context.reconciler.needs_reconcile(namespace, name, compact),
        }
    }

    fn handle_trigger(&mut self, key: ObjectKey) {
        // Before the initial list nothing is cached, and all listed objects are enqueued anyway.
        if self.started {
            self.context.backoffs.trigger(&key);
            let now = Instant::now();
            self.queue.add(key, now, now);
        }
    }

    fn handle_end(&mut self, ended: Result<(ObjectKey, Option<Duration>), JoinError>) {
        match ended {
            Ok((key, requeue_after)) => {
                let now = Instant::now();
                self.queue.finished(key, requeue_after.and_then(|delay| now.checked_add(delay)), now);
            }
            // The task catches panics, so the runtime is shutting down.
            Err(error) => {
                error!(controller = self.context.name, error = error_chain(&error), "a reconcile was cancelled");
            }
        }
    }

    fn handle_event(&mut self, event: Event<R::Object>) {
        self.started = true;
        match event {
            Event::Init => self.store.write().init(),
            Event::InitApply(mut object) | Event::Apply(mut object) => {
                let key = key_of(&object);
                let cached = match self.context.reconciler.compact(&object) {
                    Some(compact) => Cached::Compact(compact),
                    None => {
                        R::trim_stored(&mut object);
                        Cached::Full(Arc::new(object))
                    }
                };
                let namespace = key.0.as_deref();
                self.store.write().insert(namespace.unwrap_or_default(), &key.1, cached.clone());
                if self.needs_reconcile(namespace, &key.1, &cached) {
                    let now = Instant::now();
                    self.queue.add(key, now, now);
                } else {
                    self.context.backoffs.forget(&key);
                }
            }
            Event::InitDone => {
                let removed = self.store.write().init_done();
                for (key, cached) in removed {
                    self.context.backoffs.forget(&key);
                    let object = match cached {
                        Cached::Full(object) => Some(object),
                        Cached::Compact(compact) => self.context.reconciler.expand(&key, &compact).map(Arc::new),
                    };
                    if let Some(object) = object {
                        self.handler.delete(&object);
                    }
                }
                self.synced.ready();
            }
            Event::Delete(object) => {
                let key = key_of(&object);
                self.store.write().remove(key.0.as_deref().unwrap_or_default(), &key.1);
                self.context.backoffs.forget(&key);
            }
        }
    }
}

/// Forwards the events of the main watch once all of `gates` are ready. The watch starts at its first poll, so the kind
/// is not listed before.
pub(super) async fn forward_events<K>(
    mut events: BoxStream<'static, Event<K>>,
    gates: Vec<ReadinessGate>,
    sender: mpsc::Sender<Event<K>>,
) {
    join_all(gates.iter().map(ReadinessGate::wait)).await;
    while let Some(event) = events.next().await {
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

/// Processes one object, and returns its key even after a panic: the queue never starts a key that is not returned.
async fn catch_panic<R: Reconciler>(
    context: Arc<Context<R>>,
    key: ObjectKey,
    cached: Cached<R::Object, R::Compact>,
) -> (ObjectKey, Option<Duration>) {
    let requeue_after = AssertUnwindSafe(process(&context, &key, cached)).catch_unwind().await;
    let requeue_after = requeue_after.unwrap_or_else(|_| {
        error!(controller = context.name, object = key.1, "a reconcile panicked; this is a bug");
        Some(PANIC_RETRY_DELAY)
    });
    (key, requeue_after)
}

/// Fetches the object if necessary and reconciles it. Returns when to requeue it.
async fn process<R: Reconciler>(
    context: &Context<R>,
    key: &ObjectKey,
    cached: Cached<R::Object, R::Compact>,
) -> Option<Duration> {
    let object = match cached {
        Cached::Full(object) => object,
        Cached::Compact(_) => match context.reconciler.fetch(key.0.as_deref(), &key.1).await {
            Ok(Some(object)) => Arc::new(object),
            Ok(None) => return None,
            Err(error) => {
                let (controller, object) = (&context.name, &key.1);
                debug!(controller, object, error = error_chain(&error), "cannot read an object, retrying");
                return Some(INVALID_RETRY_DELAY);
            }
        },
    };
    reconcile(context, key, &object).await
}

async fn reconcile<R: Reconciler>(context: &Context<R>, key: &ObjectKey, object: &Arc<R::Object>) -> Option<Duration> {
    let mut attempt = match context.backoffs.begin(object.as_ref(), Instant::now()) {
        Start::Now(attempt) => attempt,
        Start::Backoff(left) => return Some(left),
    };
    let run = AssertUnwindSafe(context.reconciler.reconcile(Arc::clone(object), &mut attempt)).catch_unwind();
    let failed = match tokio::time::timeout(RECONCILE_TIMEOUT, run).await {
        Ok(Ok(Ok(Action::AwaitChange))) => {
            context.backoffs.forget(key);
            return None;
        }
        Ok(Ok(Ok(Action::Requeue(delay)))) => return Some(context.backoffs.requeued(key, attempt.state, delay)),
        Ok(Ok(Err(error))) => error_chain(&error),
        Ok(Err(_)) => "the reconcile panicked; this is a bug".to_owned(),
        Err(_) => format!("the reconcile took longer than {} s", RECONCILE_TIMEOUT.as_secs()),
    };
    let failures = attempt.failures.saturating_add(1);
    let retry_after = context.reconciler.retry_policy().delay(failures);
    let controller = &context.name;
    let object_name = display_name(object.as_ref());
    if failures <= 3 || !failures.is_power_of_two() {
        debug!(controller, object = object_name, failures, error = failed, "reconcile failed, retrying");
    } else {
        warn!(controller, object = object_name, failures, ?retry_after, error = failed, "reconcile keeps failing");
    }
    Some(context.backoffs.failed(key, Attempt { failures, state: attempt.state }, Instant::now(), retry_after))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::task::Poll;

    use futures::stream::poll_fn;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::health::Health;

    /// Records the names of the reconciled objects.
    #[derive(Default)]
    struct Recorder {
        names: Mutex<Vec<String>>,
    }

    impl Reconciler for Recorder {
        type Object = ConfigMap;
        type Compact = Infallible;
        type State = ();
        type Error = Infallible;

        fn trim_stored(object: &mut ConfigMap) {
            object.data = None;
        }

        async fn reconcile(&self, object: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Action, Infallible> {
            self.names.lock().unwrap().push(object.metadata.name.clone().unwrap_or_default());
            Ok(Action::AwaitChange)
        }
    }

    fn named(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    fn synced() -> ReadinessGate {
        Health::default().register_watch("the kind")
    }

    #[tokio::test]
    async fn main_kind_is_listed_last_and_reconciled_while_listed() {
        let (reconciler, polled) = (Arc::new(Recorder::default()), Arc::new(Mutex::new(false)));
        let (sender, mut list) = mpsc::unbounded_channel();
        let events = poll_fn({
            let polled = Arc::clone(&polled);
            move |context| {
                *polled.lock().unwrap() = true;
                match list.poll_recv(context) {
                    Poll::Ready(None) => Poll::Pending,
                    event => event,
                }
            }
        });
        sender.send(Event::Init).unwrap();
        sender.send(Event::InitApply(named("a"))).unwrap();
        let (other, stop) = (Health::default().register_watch("another kind"), CancellationToken::new());
        let (_trigger, triggered) = mpsc::unbounded_channel();
        let worker = Worker::new("test".into(), Arc::clone(&reconciler), Arc::new(()), Store::default(), synced(), 2);
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(forward_events(events.boxed(), vec![other.clone()], sender));
        let worker = tokio::spawn(worker.run(receiver, triggered, stop.clone()));
        tokio::task::yield_now().await;
        assert!(!*polled.lock().unwrap(), "it is listed before another kind is synced");

        other.ready();
        // The list never completes.
        while reconciler.names.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*reconciler.names.lock().unwrap(), ["a"]);
        stop.cancel();
        worker.await.unwrap();
    }

    #[tokio::test]
    async fn gate_is_ready_when_the_store_has_the_list() {
        let (synced, store, stop) = (synced(), Store::default(), CancellationToken::new());
        let (sender, events) = mpsc::channel(8);
        for event in [Event::Init, Event::InitApply(named("a")), Event::InitApply(named("b"))] {
            sender.send(event).await.unwrap();
        }
        let (_trigger, triggered) = mpsc::unbounded_channel();
        let reconciler = Arc::new(Recorder::default());
        let worker =
            Worker::new("test".into(), Arc::clone(&reconciler), Arc::new(()), store.clone(), synced.clone(), 2);
        let worker = tokio::spawn(worker.run(events, triggered, stop.clone()));
        while reconciler.names.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!synced.is_ready(), "the list is not complete");

        sender.send(Event::InitApply(named("c"))).await.unwrap();
        sender.send(Event::InitDone).await.unwrap();
        assert!(!synced.is_ready(), "the event is not handled yet");
        synced.wait().await;
        assert!(store.get(None, "c").is_some());
        stop.cancel();
        worker.await.unwrap();
    }

    /// Records the number of labels of each deleted object.
    #[derive(Default)]
    struct Deletions(Mutex<Vec<Option<usize>>>);

    impl EventHandler<ConfigMap> for Deletions {
        fn apply(&self, _: &ConfigMap) {}
        fn delete(&self, object: &ConfigMap) {
            self.0.lock().unwrap().push(object.metadata.labels.as_ref().map(std::collections::BTreeMap::len));
        }
    }

    #[tokio::test]
    async fn stored_object_is_trimmed() {
        let (store, handler) = (Store::default(), Arc::new(Deletions::default()));
        let recorder = Arc::new(Recorder::default());
        let mut worker = Worker::new("test".into(), recorder, Arc::clone(&handler) as _, store.clone(), synced(), 1);
        let mut full = named("a");
        full.data = Some([("k".to_owned(), "long".to_owned())].into());
        full.metadata.labels = Some([("l".to_owned(), "v".to_owned())].into());
        for event in [Event::Init, Event::InitApply(full.clone()), Event::InitDone, Event::Apply(full)] {
            worker.handle_event(event);
            if let Some(cached) = store.get(None, "a") {
                let Cached::Full(object) = cached;
                assert_eq!((object.data.as_ref(), object.metadata.labels.is_some()), (None, true));
            }
        }
        assert!(store.get(None, "a").is_some());
        worker.handle_event(Event::Init);
        worker.handle_event(Event::InitDone);
        assert_eq!(*handler.0.lock().unwrap(), [Some(1)]);
    }

    /// Caches all objects in compact form.
    struct Compacts;

    impl Reconciler for Compacts {
        type Object = ConfigMap;
        type Compact = ();
        type State = ();
        type Error = Infallible;

        async fn reconcile(&self, _: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Action, Infallible> {
            Ok(Action::AwaitChange)
        }

        fn compact(&self, _: &ConfigMap) -> Option<()> {
            Some(())
        }

        fn expand(&self, (_, name): &ObjectKey, (): &()) -> Option<ConfigMap> {
            Some(named(name))
        }
    }

    #[tokio::test]
    async fn compact_object_missing_in_a_new_list_is_reported() {
        let (store, handler) = (Store::default(), Arc::new(Deletions::default()));
        let mut worker = Worker::new("test".into(), Arc::new(Compacts), Arc::clone(&handler) as _, store, synced(), 1);
        let list = |names: &[&str]| {
            let listed = names.iter().map(|name| Event::InitApply(named(name)));
            let mut events: Vec<_> = std::iter::once(Event::Init).chain(listed).collect();
            events.push(Event::InitDone);
            events
        };
        list(&["a", "b"]).into_iter().for_each(|event| worker.handle_event(event));
        worker.handle_event(Event::Init);
        assert!(handler.0.lock().unwrap().is_empty(), "the list is not complete");
        list(&["b"]).into_iter().for_each(|event| worker.handle_event(event));
        assert_eq!(handler.0.lock().unwrap().len(), 1);
        assert!(worker.store.get(None, "a").is_none() && worker.store.get(None, "b").is_some());
    }

    /// Panics when an object is fetched.
    struct Panics;

    impl Reconciler for Panics {
        type Object = ConfigMap;
        type Compact = ();
        type State = ();
        type Error = Infallible;

        async fn reconcile(&self, _: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Action, Infallible> {
            Ok(Action::AwaitChange)
        }

        fn compact(&self, _: &ConfigMap) -> Option<()> {
            Some(())
        }

        fn needs_reconcile(&self, _: Option<&str>, _: &str, (): &()) -> bool {
            true
        }

        async fn fetch(&self, _: Option<&str>, _: &str) -> Result<Option<ConfigMap>, Infallible> {
            panic!("a bug")
        }
    }

    #[tokio::test]
    async fn object_whose_fetch_panicked_is_retried() {
        let (store, events) = (Store::default(), [Event::Init, Event::InitApply(named("a")), Event::InitDone]);
        let mut worker = Worker::new("test".into(), Arc::new(Panics), Arc::new(()), store, synced(), 1);
        events.into_iter().for_each(|event| worker.handle_event(event));
        let mut running = JoinSet::new();
        worker.start_due(&mut running);
        let ended = running.join_next().await.unwrap();
        worker.handle_end(ended);
        let due = worker.queue.next_due().expect("it is in the queue");
        assert!(due.saturating_duration_since(Instant::now()) <= PANIC_RETRY_DELAY);
        assert_eq!(worker.queue.next(due), Some((None, "a".to_owned())));
    }

    /// Takes [`DELAY`] for "slow", and requeues all other objects soon.
    struct Slow;

    const DELAY: Duration = Duration::from_millis(300);

    impl Reconciler for Slow {
        type Object = ConfigMap;
        type Compact = Infallible;
        type State = ();
        type Error = Infallible;

        async fn reconcile(&self, object: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Action, Infallible> {
            if object.metadata.name.as_deref() != Some("slow") {
                return Ok(Action::Requeue(DELAY / 30));
            }
            tokio::time::sleep(DELAY).await;
            Ok(Action::AwaitChange)
        }
    }

    #[tokio::test]
    async fn loop_sleeps_at_full_concurrency() {
        let (sender, events) = mpsc::channel(8);
        for event in [Event::Init, Event::InitApply(named("soon")), Event::InitApply(named("slow"))] {
            sender.send(event).await.unwrap();
        }
        let (_trigger, triggered) = mpsc::unbounded_channel();
        let worker = Worker::new("test".into(), Arc::new(Slow), Arc::new(()), Store::default(), synced(), 1);
        tokio::spawn(worker.run(events, triggered, CancellationToken::new()));
        tokio::time::sleep(DELAY).await;
        // The object that is due and has to wait must not keep the loop busy.
        let busy = tokio::runtime::Handle::current().metrics().worker_total_busy_duration(0);
        assert!(busy < DELAY / 2, "{busy:?}");
    }
}
