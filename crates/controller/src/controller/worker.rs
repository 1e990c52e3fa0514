//! A controller at work: what is seen and woken goes into the queue, what is due is worked on.

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

use crate::client::chain;
use crate::health::ReadinessGate;
use crate::watch::{display_name, Observer};
use super::backoff::{Attempts, Turn};
use super::queue::Queue;
use super::store::{Kept, Key, key_of, Store};
use super::{Attempt, Outcome, Reconciler};

/// How long one reconcile may take before it is broken off and counted as a failure. Single calls have shorter
/// deadlines; this is for what nobody thought of.
const RECONCILE_TIMEOUT: Duration = Duration::from_mins(2);

/// When an object is read again that could not be read.
const INVALID_RETRY_DELAY: Duration = Duration::from_secs(2);

/// When an object is worked on again whose work panicked outside of the reconciler.
const PANIC_RETRY_DELAY: Duration = Duration::from_secs(30);

struct Context<R: Reconciler> {
    name: String,
    reconciler: Arc<R>,
    attempts: Attempts<R::State>,
}

/// A controller at work.
pub(super) struct Running<R: Reconciler> {
    context: Arc<Context<R>>,
    observer: Arc<dyn Observer<R::Object>>,
    store: Store<R::Object, R::Settled>,
    /// Makes an object smaller before it is kept whole.
    compact: fn(&mut R::Object),
    /// Told once the store has all that the first listing named.
    synced: ReadinessGate,
    queue: Queue,
    /// The kind is being listed, or has been. Each object is worked on as soon as the listing names it: of a hundred
    /// thousand, most are settled, and the few that are not need not wait.
    started: bool,
    concurrency: usize,
}

impl<R: Reconciler> Running<R> {
    pub(super) fn new(
        name: String,
        reconciler: Arc<R>,
        observer: Arc<dyn Observer<R::Object>>,
        store: Store<R::Object, R::Settled>,
        compact: fn(&mut R::Object),
        synced: ReadinessGate,
        concurrency: usize,
    ) -> Self {
        let context = Arc::new(Context { name, reconciler, attempts: Attempts::default() });
        let queue = Queue::default();
        Self { context, observer, store, compact, synced, queue, started: false, concurrency: concurrency.max(1) }
    }

    /// Runs until `stop` is cancelled; then waits for what is under way.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Event<R::Object>>,
        mut woken: mpsc::UnboundedReceiver<Key>,
        stop: CancellationToken,
    ) {
        let controller = &self.context.name.clone();
        info!(controller, "the controller starts");
        // Made once: this loop goes round several times for every write of an object.
        let mut stopped = std::pin::pin!(stop.cancelled());
        let mut pause = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
        let mut paused_until = None;
        let mut at_work = JoinSet::new();
        loop {
            self.begin(&mut at_work);
            // With all hands full the end of a work is what matters: what is due already would have the loop spin.
            let next_due = self.queue.next_due().filter(|_| at_work.len() < self.concurrency);
            if let Some(at) = next_due.filter(|_| next_due != paused_until) {
                pause.as_mut().reset(at.into());
            }
            paused_until = next_due;
            tokio::select! {
                () = &mut stopped => break,
                Some(event) = events.recv() => self.seen(event),
                Some(key) = woken.recv() => self.wake(key),
                Some(ended) = at_work.join_next(), if !at_work.is_empty() => self.ended(ended),
                () = &mut pause, if paused_until.is_some() => paused_until = None,
            }
            while let Ok(event) = events.try_recv() {
                self.seen(event);
            }
            while let Ok(key) = woken.try_recv() {
                self.wake(key);
            }
            while let Some(ended) = at_work.try_join_next() {
                self.ended(ended);
            }
        }
        while at_work.join_next().await.is_some() {}
        debug!(controller, "the controller has stopped");
    }

    /// Begins to work on what is due, as far as there are hands.
    fn begin(&mut self, at_work: &mut JoinSet<(Key, Option<Duration>)>) {
        while at_work.len() < self.concurrency {
            let now = Instant::now();
            let Some(key) = self.queue.next(now) else { return };
            match self.store.get(key.0.as_deref(), &key.1) {
                // Woken or retried after it went.
                None => self.context.attempts.forget(&key),
                Some(kept) if !self.is_settled(key.0.as_deref(), &key.1, &kept) => {
                    at_work.spawn(guarded_work(Arc::clone(&self.context), key, kept));
                    continue;
                }
                Some(_) => {}
            }
            self.queue.finished(key, None, now);
        }
    }

    fn is_settled(&self, namespace: Option<&str>, name: &str, kept: &Kept<R::Object, R::Settled>) -> bool {
        matches!(kept, Kept::Settled(settled) if self.context.reconciler.is_settled(namespace, name, settled))
    }

    fn wake(&mut self, key: Key) {
        // Before, nothing is known; what the listing names is looked at anyway.
        if self.started {
            self.context.attempts.wake(&key);
            let now = Instant::now();
            self.queue.add(key, now, now);
        }
    }

    fn ended(&mut self, ended: Result<(Key, Option<Duration>), JoinError>) {
        match ended {
            Ok((key, again)) => {
                let now = Instant::now();
                self.queue.finished(key, again.and_then(|wait| now.checked_add(wait)), now);
            }
            // It cannot panic, so the threads of the program end.
            Err(error) => error!(controller = self.context.name, error = chain(&error), "a reconcile was lost"),
        }
    }

    fn seen(&mut self, event: Event<R::Object>) {
        self.started = true;
        match event {
            Event::Init => self.store.listing(),
            Event::InitApply(mut object) | Event::Apply(mut object) => {
                let key = key_of(&object);
                let kept = match self.context.reconciler.settle(&object) {
                    Some(settled) => Kept::Settled(settled),
                    None => {
                        (self.compact)(&mut object);
                        Kept::Whole(Arc::new(object))
                    }
                };
                self.store.insert(&key, kept.clone());
                if self.is_settled(key.0.as_deref(), &key.1, &kept) {
                    self.context.attempts.forget(&key);
                } else {
                    let now = Instant::now();
                    self.queue.add(key, now, now);
                }
            }
            Event::InitDone => {
                for (key, kept) in self.store.listed() {
                    self.context.attempts.forget(&key);
                    if let Kept::Whole(object) = kept {
                        self.observer.deleted(&object);
                    }
                }
                self.synced.done();
            }
            Event::Delete(object) => {
                let key = key_of(&object);
                self.store.remove(&key);
                self.context.attempts.forget(&key);
            }
        }
    }
}

/// Hands on what the watch of the kind tells, once everything in `awaited` has been listed: only then is the kind itself.
pub(super) async fn feed<K>(
    mut events: BoxStream<'static, Event<K>>,
    awaited: Vec<ReadinessGate>,
    sender: mpsc::Sender<Event<K>>,
) {
    join_all(awaited.iter().map(ReadinessGate::wait)).await;
    while let Some(event) = events.next().await {
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

/// Works on one object, and gives its key back even after a panic: a key that is not given back is worked on no more.
async fn guarded_work<R: Reconciler>(
    context: Arc<Context<R>>,
    key: Key,
    kept: Kept<R::Object, R::Settled>,
) -> (Key, Option<Duration>) {
    let again = AssertUnwindSafe(work(&context, &key, kept)).catch_unwind().await;
    let again = again.unwrap_or_else(|_| {
        error!(controller = context.name, object = key.1, "a reconcile panicked; this is a mistake in the program");
        Some(PANIC_RETRY_DELAY)
    });
    (key, again)
}

/// Works on one object. Returns when to look at it again, if nothing happens before.
async fn work<R: Reconciler>(context: &Context<R>, key: &Key, kept: Kept<R::Object, R::Settled>) -> Option<Duration> {
    let object = match kept {
        Kept::Whole(object) => object,
        Kept::Settled(_) => match context.reconciler.read(key.0.as_deref(), &key.1).await {
            Ok(Some(object)) => Arc::new(object),
            Ok(None) => return None,
            Err(error) => {
                debug!(controller = context.name, object = key.1, error = chain(&error), "cannot be read now");
                return Some(INVALID_RETRY_DELAY);
            }
        },
    };
    reconcile(context, key, &object).await
}

async fn reconcile<R: Reconciler>(context: &Context<R>, key: &Key, object: &Arc<R::Object>) -> Option<Duration> {
    let mut attempt = match context.attempts.begin(object.as_ref(), Instant::now()) {
        Turn::Now(attempt) => attempt,
        Turn::Later(wait) => return Some(wait),
    };
    let run = AssertUnwindSafe(context.reconciler.reconcile(Arc::clone(object), &mut attempt)).catch_unwind();
    let failed = match tokio::time::timeout(RECONCILE_TIMEOUT, run).await {
        Ok(Ok(Ok(Outcome::Done))) => {
            context.attempts.forget(key);
            return None;
        }
        Ok(Ok(Ok(Outcome::Yield(wait)))) => return Some(context.attempts.yielded(key, attempt.state, wait)),
        Ok(Ok(Err(error))) => chain(&error),
        Ok(Err(_)) => "it panicked; this is a mistake in the program".to_owned(),
        Err(_) => format!("it took longer than {} s", RECONCILE_TIMEOUT.as_secs()),
    };
    let failures = attempt.failures.saturating_add(1);
    let wait = context.reconciler.retry_policy().wait(failures);
    let controller = &context.name;
    let object_name = display_name(object.as_ref());
    if failures <= 3 || !failures.is_power_of_two() {
        debug!(controller, object = object_name, failures, error = failed, "failed, will be tried again");
    } else {
        warn!(controller, object = object_name, failures, ?wait, error = failed, "keeps failing");
    }
    Some(context.attempts.failed(key, Attempt { failures, state: attempt.state }, Instant::now(), wait))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::task::Poll;

    use futures::stream::poll_fn;
    use k8s_openapi::api::core::v1::ConfigMap;

    use crate::health::Health;
    use super::*;

    /// Notes what it is asked to look at.
    #[derive(Default)]
    struct Notes {
        seen: Mutex<Vec<String>>,
    }

    impl Reconciler for Notes {
        type Object = ConfigMap;
        type Settled = Infallible;
        type State = ();
        type Error = Infallible;

        async fn reconcile(&self, object: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Outcome, Infallible> {
            self.seen.lock().unwrap().push(object.metadata.name.clone().unwrap_or_default());
            Ok(Outcome::Done)
        }
    }

    fn named(name: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object
    }

    fn synced() -> ReadinessGate {
        Health::default().announce("the kind")
    }

    #[tokio::test]
    async fn the_kind_is_listed_last_and_worked_on_while_it_is() {
        let (reconciler, asked) = (Arc::new(Notes::default()), Arc::new(Mutex::new(false)));
        let (sender, mut listing) = mpsc::unbounded_channel();
        let events = poll_fn({
            let asked = Arc::clone(&asked);
            move |context| {
                *asked.lock().unwrap() = true;
                match listing.poll_recv(context) {
                    Poll::Ready(None) => Poll::Pending,
                    polled => polled,
                }
            }
        });
        sender.send(Event::Init).unwrap();
        sender.send(Event::InitApply(named("a"))).unwrap();
        let (other, stop) = (Health::default().announce("the other kind"), CancellationToken::new());
        let (_wake, woken) = mpsc::unbounded_channel();
        let running =
            Running::new("test".into(), Arc::clone(&reconciler), Arc::new(()), Store::default(), |_| {}, synced(), 2);
        let (sender, fed) = mpsc::channel(1);
        tokio::spawn(feed(events.boxed(), vec![other.clone()], sender));
        let running = tokio::spawn(running.run(fed, woken, stop.clone()));
        tokio::task::yield_now().await;
        assert!(!*asked.lock().unwrap(), "it is listed before the other kind is known");

        other.done();
        // The listing is not complete, and never will be.
        while reconciler.seen.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*reconciler.seen.lock().unwrap(), ["a"]);
        stop.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn the_listing_is_complete_when_the_store_has_it() {
        let (synced, store, stop) = (synced(), Store::default(), CancellationToken::new());
        let (sender, events) = mpsc::channel(8);
        for event in [Event::Init, Event::InitApply(named("a")), Event::InitApply(named("b"))] {
            sender.send(event).await.unwrap();
        }
        let (_wake, woken) = mpsc::unbounded_channel();
        let reconciler = Arc::new(Notes::default());
        let running = Running::new(
            "test".into(),
            Arc::clone(&reconciler),
            Arc::new(()),
            store.clone(),
            |_| {},
            synced.clone(),
            2,
        );
        let running = tokio::spawn(running.run(events, woken, stop.clone()));
        while reconciler.seen.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!synced.is_done(), "more may come");

        sender.send(Event::InitApply(named("c"))).await.unwrap();
        sender.send(Event::InitDone).await.unwrap();
        assert!(!synced.is_done(), "nobody has looked at it yet");
        synced.wait().await;
        assert!(store.get(None, "c").is_some());
        stop.cancel();
        running.await.unwrap();
    }

    /// Remembers how many labels each object had that vanished.
    #[derive(Default)]
    struct DeletedClaims(Mutex<Vec<Option<usize>>>);

    impl Observer<ConfigMap> for DeletedClaims {
        fn applied(&self, _: &ConfigMap) {}
        fn deleted(&self, object: &ConfigMap) {
            self.0.lock().unwrap().push(object.metadata.labels.as_ref().map(std::collections::BTreeMap::len));
        }
    }

    #[tokio::test]
    async fn stored_object_is_compact() {
        let (store, observer) = (Store::default(), Arc::new(DeletedClaims::default()));
        let compact = |object: &mut ConfigMap| object.data = None;
        let notes = Arc::new(Notes::default());
        let mut running =
            Running::new("test".into(), notes, Arc::clone(&observer) as _, store.clone(), compact, synced(), 1);
        let mut whole = named("a");
        whole.data = Some([("k".to_owned(), "long".to_owned())].into());
        whole.metadata.labels = Some([("l".to_owned(), "v".to_owned())].into());
        for event in [Event::Init, Event::InitApply(whole.clone()), Event::InitDone, Event::Apply(whole)] {
            running.seen(event);
            if let Some(kept) = store.get(None, "a") {
                let Kept::Whole(object) = kept;
                assert_eq!((object.data.as_ref(), object.metadata.labels.is_some()), (None, true));
            }
        }
        assert!(store.get(None, "a").is_some());
        running.seen(Event::Init);
        running.seen(Event::InitDone);
        assert_eq!(*observer.0.lock().unwrap(), [Some(1)]);
    }

    /// Panics when an object is read.
    struct Panics;

    impl Reconciler for Panics {
        type Object = ConfigMap;
        type Settled = ();
        type State = ();
        type Error = Infallible;

        async fn reconcile(&self, _: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Outcome, Infallible> {
            Ok(Outcome::Done)
        }

        fn settle(&self, _: &ConfigMap) -> Option<()> {
            Some(())
        }

        fn is_settled(&self, _: Option<&str>, _: &str, (): &()) -> bool {
            false
        }

        async fn read(&self, _: Option<&str>, _: &str) -> Result<Option<ConfigMap>, Infallible> {
            panic!("a mistake in the program")
        }
    }

    #[tokio::test]
    async fn object_whose_read_panicked_is_retried() {
        let (store, events) = (Store::default(), [Event::Init, Event::InitApply(named("a")), Event::InitDone]);
        let mut running = Running::new("test".into(), Arc::new(Panics), Arc::new(()), store, |_| {}, synced(), 1);
        events.into_iter().for_each(|event| running.seen(event));
        let mut at_work = JoinSet::new();
        running.begin(&mut at_work);
        let ended = at_work.join_next().await.unwrap();
        running.ended(ended);
        let due = running.queue.next_due().expect("it is in the queue");
        assert!(due.saturating_duration_since(Instant::now()) <= PANIC_RETRY_DELAY);
        assert_eq!(running.queue.next(due), Some((None, "a".to_owned())));
    }

    /// Looks at "slow" for a while, and wants to look at all else again soon.
    struct Slow;

    const WHILE: Duration = Duration::from_millis(300);

    impl Reconciler for Slow {
        type Object = ConfigMap;
        type Settled = Infallible;
        type State = ();
        type Error = Infallible;

        async fn reconcile(&self, object: Arc<ConfigMap>, _: &mut Attempt<()>) -> Result<Outcome, Infallible> {
            if object.metadata.name.as_deref() != Some("slow") {
                return Ok(Outcome::Yield(WHILE / 30));
            }
            tokio::time::sleep(WHILE).await;
            Ok(Outcome::Done)
        }
    }

    #[tokio::test]
    async fn it_rests_while_all_hands_are_full() {
        let (sender, events) = mpsc::channel(8);
        for event in [Event::Init, Event::InitApply(named("soon")), Event::InitApply(named("slow"))] {
            sender.send(event).await.unwrap();
        }
        let (_wake, woken) = mpsc::unbounded_channel();
        let running = Running::new("test".into(), Arc::new(Slow), Arc::new(()), Store::default(), |_| {}, synced(), 1);
        tokio::spawn(running.run(events, woken, CancellationToken::new()));
        tokio::time::sleep(WHILE).await;
        // What is due and has to wait would keep it busy all the time.
        let busy = tokio::runtime::Handle::current().metrics().worker_total_busy_duration(0);
        assert!(busy < WHILE / 2, "{busy:?}");
    }
}
