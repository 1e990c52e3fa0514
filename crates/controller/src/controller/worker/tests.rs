use std::convert::Infallible;
use std::sync::Mutex;
use std::task::Poll;

use futures::StreamExt;
use futures::stream::poll_fn;
use k8s_openapi::api::core::v1::ConfigMap;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::controller::compaction::NoCompaction;
use crate::controller::sources::Controller;
use crate::health::Health;
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::traces::{TraceOptions, Traces};
use crate::watch::Change;

/// Records the names of the reconciled objects.
#[derive(Default)]
struct Recorder {
    names: Mutex<Vec<String>>,
}

impl Reconciler for Recorder {
    type Object = ConfigMap;
    type State = ();
    type Error = Infallible;

    fn transform(object: &mut ConfigMap) {
        object.data = None;
    }

    async fn reconcile(
        &self,
        object: Arc<ConfigMap>,
        _: &mut Attempt<()>,
    ) -> Result<Action, Infallible> {
        self.names
            .lock()
            .unwrap()
            .push(object.metadata.name.clone().unwrap_or_default());
        Ok(Action::AwaitChange)
    }
}

fn named(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object
}

fn options(concurrency: usize) -> WorkerOptions {
    let (name, metrics) = ("test".to_owned(), Metrics::default().controllers.of("test"));
    WorkerOptions {
        name,
        concurrency,
        metrics,
        priorities: Priorities::default(),
    }
}

/// A change of the main source.
fn message(change: Change<ConfigMap>) -> Message<ConfigMap> {
    Message::Change(SourceId::MAIN, change)
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
    sender.send(Change::Init).unwrap();
    sender.send(Change::InitApply(named("a"))).unwrap();
    let (other, stop) = (
        Health::default().register_watch("another kind"),
        CancellationToken::new(),
    );
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let worker = Worker::new(
        options(2),
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    let (controller, receivers) = Controller::new();
    tokio::spawn(controller.main_task(events.boxed(), vec![other.clone()]));
    let worker = tokio::spawn(worker.run(receivers.messages, triggered, stop.clone()));
    tokio::task::yield_now().await;
    assert!(
        !*polled.lock().unwrap(),
        "it is listed before another kind is synced"
    );

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
    for event in [
        Change::Init,
        Change::InitApply(named("a")),
        Change::InitApply(named("b")),
    ] {
        sender.send(message(event)).await.unwrap();
    }
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let reconciler = Arc::new(Recorder::default());
    let worker = Worker::new(
        options(2),
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        store.clone(),
        synced.clone(),
    );
    let worker = tokio::spawn(worker.run(events, triggered, stop.clone()));
    while reconciler.names.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!synced.is_ready(), "the list is not complete");

    sender
        .send(message(Change::InitApply(named("c"))))
        .await
        .unwrap();
    sender.send(message(Change::InitDone)).await.unwrap();
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
        self.0.lock().unwrap().push(
            object
                .metadata
                .labels
                .as_ref()
                .map(std::collections::BTreeMap::len),
        );
    }
}

#[tokio::test]
async fn stored_object_is_trimmed() {
    let (store, handler) = (Store::default(), Arc::new(Deletions::default()));
    let recorder = Arc::new(Recorder::default());
    let mut worker = Worker::new(
        options(1),
        recorder,
        Arc::new(NoCompaction),
        Arc::clone(&handler) as _,
        store.clone(),
        synced(),
    );
    let mut full = named("a");
    full.data = Some([("k".to_owned(), "long".to_owned())].into());
    full.metadata.labels = Some([("l".to_owned(), "v".to_owned())].into());
    for event in [
        Change::Init,
        Change::InitApply(full.clone()),
        Change::InitDone,
        Change::Apply(full),
    ] {
        worker.handle_change(SourceId::MAIN, event);
        if let Some(cached) = store.get(None, "a") {
            let Cached::Full(object) = cached;
            assert_eq!(
                (object.data.as_ref(), object.metadata.labels.is_some()),
                (None, true)
            );
        }
    }
    assert!(store.get(None, "a").is_some());
    worker.handle_change(SourceId::MAIN, Change::Init);
    worker.handle_change(SourceId::MAIN, Change::InitDone);
    assert_eq!(*handler.0.lock().unwrap(), [Some(1)]);
}

/// Caches all objects in compact form.
struct Compacts;

impl Compaction<ConfigMap> for Compacts {
    type Compact = ();
    type Error = Infallible;

    fn compact(&self, _: &ConfigMap) -> Option<()> {
        Some(())
    }

    fn needs_reconcile(&self, _: &NamespacedName, (): &()) -> bool {
        false
    }

    async fn fetch(&self, object: &NamespacedName) -> Result<Option<ConfigMap>, Infallible> {
        Ok(Some(named(object.name())))
    }

    fn expand(&self, object: &NamespacedName, (): &()) -> Option<ConfigMap> {
        Some(named(object.name()))
    }
}

#[tokio::test]
async fn compact_object_missing_in_a_new_list_is_reported() {
    let (store, handler) = (Store::default(), Arc::new(Deletions::default()));
    let mut worker = Worker::new(
        options(1),
        Arc::new(Recorder::default()),
        Arc::new(Compacts),
        Arc::clone(&handler) as _,
        store,
        synced(),
    );
    let list = |names: &[&str]| {
        let listed = names.iter().map(|name| Change::InitApply(named(name)));
        let mut events: Vec<_> = std::iter::once(Change::Init).chain(listed).collect();
        events.push(Change::InitDone);
        events
    };
    list(&["a", "b"])
        .into_iter()
        .for_each(|event| worker.handle_change(SourceId::MAIN, event));
    worker.handle_change(SourceId::MAIN, Change::Init);
    assert!(
        handler.0.lock().unwrap().is_empty(),
        "the list is not complete"
    );
    list(&["b"])
        .into_iter()
        .for_each(|event| worker.handle_change(SourceId::MAIN, event));
    assert_eq!(handler.0.lock().unwrap().len(), 1);
    assert!(worker.store.get(None, "a").is_none() && worker.store.get(None, "b").is_some());
}

/// Panics when an object is fetched.
struct Panics;

impl Compaction<ConfigMap> for Panics {
    type Compact = ();
    type Error = Infallible;

    fn compact(&self, _: &ConfigMap) -> Option<()> {
        Some(())
    }

    fn needs_reconcile(&self, _: &NamespacedName, (): &()) -> bool {
        true
    }

    async fn fetch(&self, _: &NamespacedName) -> Result<Option<ConfigMap>, Infallible> {
        panic!("a bug")
    }

    fn expand(&self, _: &NamespacedName, (): &()) -> Option<ConfigMap> {
        None
    }
}

#[tokio::test]
async fn object_whose_fetch_panicked_is_retried() {
    let (store, events) = (
        Store::default(),
        [
            Change::Init,
            Change::InitApply(named("a")),
            Change::InitDone,
        ],
    );
    let mut worker = Worker::new(
        options(1),
        Arc::new(Recorder::default()),
        Arc::new(Panics),
        Arc::new(()),
        store,
        synced(),
    );
    events
        .into_iter()
        .for_each(|event| worker.handle_change(SourceId::MAIN, event));
    let mut running = JoinSet::new();
    worker.start_due(&mut running);
    let ended = running.join_next().await.unwrap();
    worker.handle_end(ended);
    let due = worker.queue.next_due().expect("it is in the queue");
    assert!(due.saturating_duration_since(Instant::now()) <= PANIC_RETRY_DELAY);
    let next = worker
        .queue
        .next(due, true)
        .map(|(key, reason)| (key, reason.cause));
    assert_eq!(next, Some((NamespacedName::new("", "a"), Cause::Requeued)));
}

/// Takes [`DELAY`] for "slow", and requeues all other objects soon.
struct Slow;

const DELAY: Duration = Duration::from_millis(300);

impl Reconciler for Slow {
    type Object = ConfigMap;
    type State = ();
    type Error = Infallible;

    async fn reconcile(
        &self,
        object: Arc<ConfigMap>,
        _: &mut Attempt<()>,
    ) -> Result<Action, Infallible> {
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
    for event in [
        Change::Init,
        Change::InitApply(named("soon")),
        Change::InitApply(named("slow")),
    ] {
        sender.send(message(event)).await.unwrap();
    }
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let worker = Worker::new(
        options(1),
        Arc::new(Slow),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    tokio::spawn(worker.run(events, triggered, CancellationToken::new()));
    tokio::time::sleep(DELAY).await;
    // The object that is due and has to wait must not keep the loop busy.
    let busy = tokio::runtime::Handle::current()
        .metrics()
        .worker_total_busy_duration(0);
    assert!(busy < DELAY / 2, "{busy:?}");
}

/// Hangs for the object "hangs", panics for "panics", and fails for "fails".
#[derive(Default)]
struct Faulty {
    attempts: Mutex<Vec<(String, Cause, u32)>>,
    /// The failures of which it was told.
    failures: Mutex<Vec<String>>,
}

impl Reconciler for Faulty {
    type Object = ConfigMap;
    type State = ();
    type Error = std::fmt::Error;

    async fn reconcile(
        &self,
        object: Arc<ConfigMap>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, std::fmt::Error> {
        let name = object.metadata.name.clone().unwrap_or_default();
        self.attempts
            .lock()
            .unwrap()
            .push((name.clone(), attempt.cause, attempt.failures));
        match name.as_str() {
            "hangs" => std::future::pending().await,
            "panics" => panic!("a bug"),
            "fails" => Err(std::fmt::Error),
            _ => Ok(Action::AwaitChange),
        }
    }

    fn on_error(
        &self,
        object: &ConfigMap,
        attempt: &Attempt<()>,
        failure: &Failure<'_, std::fmt::Error>,
    ) {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let text = format!("{name} {}: {failure}", attempt.failures);
        self.failures.lock().unwrap().push(text);
    }

    fn on_source_error(&self, source: SourceId, error: &str) {
        assert_eq!(source, SourceId::MAIN);
        self.failures.lock().unwrap().push(error.to_owned());
    }

    fn retry(&self, _: &std::fmt::Error, failures: u32) -> Retry {
        if failures < 3 {
            Retry::After(Duration::from_millis(1))
        } else {
            Retry::GiveUp
        }
    }
}

impl Faulty {
    fn of(&self, name: &str) -> Vec<(Cause, u32)> {
        let attempts = self.attempts.lock().unwrap();
        attempts
            .iter()
            .filter(|(other, ..)| other == name)
            .map(|(_, cause, failures)| (*cause, *failures))
            .collect()
    }
}

/// Runs a worker with a short timeout until `events` are handled and all reconciles have ended or
/// wait.
async fn run_faulty(
    reconciler: &Arc<Faulty>,
    events: Vec<Change<ConfigMap>>,
) -> Worker<Faulty, NoCompaction> {
    let mut worker = Worker::new(
        options(8),
        Arc::clone(reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    Arc::get_mut(&mut worker.context).unwrap().timeout = Duration::from_millis(20);
    let mut running = JoinSet::new();
    for event in events {
        worker.handle_change(SourceId::MAIN, event);
        settle(&mut worker, &mut running).await;
    }
    worker
}

async fn settle<R: Reconciler<Object = ConfigMap>>(
    worker: &mut Worker<R, NoCompaction>,
    running: &mut JoinSet<Ended<ConfigMap>>,
) {
    worker.start_due(running);
    while let Some(ended) = running.join_next().await {
        worker.handle_end(ended);
        worker.start_due(running);
    }
}

#[tokio::test]
async fn panic_or_hang_fails_one_reconcile_only() {
    let reconciler = Arc::new(Faulty::default());
    let events = ["panics", "hangs", "good"].map(|name| Change::InitApply(named(name)));
    let mut worker = run_faulty(
        &reconciler,
        [Change::Init].into_iter().chain(events).collect(),
    )
    .await;
    assert_eq!(reconciler.of("good"), [(Cause::Resumed, 0)]);
    // Both are retried after the default delay.
    tokio::time::sleep(Duration::from_millis(60)).await;
    settle(&mut worker, &mut JoinSet::new()).await;
    for name in ["panics", "hangs"] {
        assert_eq!(
            reconciler.of(name).get(..2),
            Some(&[(Cause::Resumed, 0), (Cause::Requeued, 1)][..]),
            "{name}"
        );
    }
}

#[tokio::test]
async fn reconciler_is_told_of_every_failure() {
    let reconciler = Arc::new(Faulty::default());
    let objects = ["fails", "good", "hangs", "panics"];
    let mut events = vec![Change::Failed("the watch failed".to_owned()), Change::Init];
    events.extend(objects.map(|name| Change::InitApply(named(name))));
    run_faulty(&reconciler, events).await;
    let mut failures = reconciler.failures.lock().unwrap().clone();
    // Some are retried in the meantime.
    failures.retain(|text| !text.contains(" 1: ") && !text.contains(" 2: "));
    failures.sort_unstable();
    let expected = [
        "fails 0: an error occurred when formatting an argument",
        "hangs 0: the reconcile took longer than 0 s",
        "panics 0: the reconcile panicked; this is a bug",
        "the watch failed",
    ];
    assert_eq!(failures, expected);
}

#[tokio::test]
async fn object_is_given_up_until_it_changes() {
    let reconciler = Arc::new(Faulty::default());
    let mut worker = run_faulty(
        &reconciler,
        vec![
            Change::Init,
            Change::InitDone,
            Change::Apply(named("fails")),
        ],
    )
    .await;
    let mut running = JoinSet::new();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        settle(&mut worker, &mut running).await;
    }
    let attempts = [
        (Cause::Created, 0),
        (Cause::Requeued, 1),
        (Cause::Requeued, 2),
    ];
    assert_eq!(reconciler.of("fails"), attempts);
    assert_eq!(worker.queue.next_due(), None);
    let mut changed = named("fails");
    changed.metadata.resource_version = Some("2".to_owned());
    worker.handle_change(SourceId::MAIN, Change::Apply(changed.clone()));
    settle(&mut worker, &mut running).await;
    assert_eq!(
        reconciler.of("fails"),
        attempts,
        "it has not changed apart from its status"
    );
    changed.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    worker.handle_change(SourceId::MAIN, Change::Apply(changed));
    settle(&mut worker, &mut running).await;
    assert_eq!(reconciler.of("fails")[3..4], [(Cause::Changed, 0)]);
}

#[tokio::test]
async fn attempt_has_the_cause_of_the_event() {
    let reconciler = Arc::new(Faulty::default());
    let mut deleting = named("old");
    deleting.metadata.deletion_timestamp = Some(crate::clock::now());
    let events = vec![
        Change::Init,
        Change::InitApply(named("old")),
        Change::InitDone,
        Change::Apply(named("old")),
        Change::Apply(named("new")),
        Change::Apply(deleting),
        Change::Init,
        Change::InitApply(named("new")),
        Change::InitApply(named("newest")),
        Change::InitDone,
    ];
    let mut worker = run_faulty(&reconciler, events).await;
    worker.handle_trigger(NamespacedName::new("", "new"), Cause::Triggered);
    settle(&mut worker, &mut JoinSet::new()).await;
    let causes = |name: &str| {
        reconciler
            .of(name)
            .into_iter()
            .map(|(cause, _)| cause)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        causes("old"),
        [Cause::Resumed, Cause::Changed, Cause::Deleting]
    );
    assert_eq!(
        causes("new"),
        [Cause::Created, Cause::Changed, Cause::Triggered]
    );
    assert_eq!(causes("newest"), [Cause::Created]);
}

/// Objects whose name begins with `low` have low priority. Every reconcile waits until it is
/// allowed to end.
struct ByName {
    started: Mutex<Vec<String>>,
    end: tokio::sync::Semaphore,
}

impl Reconciler for ByName {
    type Object = ConfigMap;
    type State = ();
    type Error = Infallible;

    fn priority(&self, object: &ConfigMap, _: Cause) -> Priority {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        if name.starts_with("low") {
            Priority::Low
        } else {
            Priority::Normal
        }
    }

    async fn reconcile(
        &self,
        object: Arc<ConfigMap>,
        _: &mut Attempt<()>,
    ) -> Result<Action, Infallible> {
        self.started
            .lock()
            .unwrap()
            .push(object.metadata.name.clone().unwrap_or_default());
        self.end.acquire().await.unwrap().forget();
        Ok(Action::AwaitChange)
    }
}

#[tokio::test]
async fn low_priority_leaves_most_of_the_concurrency() {
    let reconciler = Arc::new(ByName {
        started: Mutex::default(),
        end: tokio::sync::Semaphore::new(0),
    });
    let (sender, events) = mpsc::channel(8);
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let worker = Worker::new(
        options(4),
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    let worker = tokio::spawn(worker.run(events, triggered, stop.clone()));
    let names = || reconciler.started.lock().unwrap().clone();
    for name in ["low-1", "low-2", "low-3"] {
        sender
            .send(message(Change::Apply(named(name))))
            .await
            .unwrap();
    }
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(names(), ["low-1"]);
    sender
        .send(message(Change::Apply(named("new"))))
        .await
        .unwrap();
    while names().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(names(), ["low-1", "new"]);
    reconciler.end.add_permits(4);
    while names().len() < 4 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    worker.await.unwrap();
    assert_eq!(names(), ["low-1", "new", "low-2", "low-3"]);
}

/// Records the ended spans: their name and attributes.
#[derive(Clone, Debug, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        for span in batch {
            let attributes = span.attributes.iter();
            let mut attributes: Vec<String> = attributes
                .map(|attribute| format!("{}={}", attribute.key, attribute.value))
                .collect();
            attributes.sort_unstable();
            let text = format!("{} {}", span.name, attributes.join(" "));
            self.0.lock().unwrap().push(text);
        }
        Ok(())
    }
}

#[tokio::test]
async fn every_reconcile_has_a_span() {
    let spans = Spans::default();
    let builder = SdkTracerProvider::builder().with_simple_exporter(spans.clone());
    let options = TraceOptions {
        provider: Some(builder.build()),
        ..TraceOptions::default()
    };
    let identity = Identity::new("test", "0.0.1");
    let traces = Traces::start(&options, &identity, &Handle::current()).unwrap();
    let subscriber = tracing_subscriber::registry().with(traces.unwrap().layer());
    let _guard = tracing::subscriber::set_default(subscriber);

    let events = |names: &[&'static str]| {
        let mut events = vec![Change::Init, Change::InitDone];
        events.extend(names.iter().map(|name| Change::Apply(named(name))));
        events
    };
    // Another test can register the span at the same time, for no subscriber. Once it is registered,
    // this subscriber is asked.
    run_faulty(&Arc::default(), events(&["good"])).await;
    tracing::callsite::rebuild_interest_cache();
    run_faulty(&Arc::default(), events(&["good", "panics"])).await;
    let expected = ["good done", "panics panic"].map(|object| {
        let (name, outcome) = object.split_once(' ').unwrap();
        format!("reconcile attempt=1 cause=Created controller=test object={name} outcome={outcome}")
    });
    let spans = spans.0.lock().unwrap();
    for expected in expected {
        assert!(spans.contains(&expected), "{expected} in {spans:#?}");
    }
}

/// Fails, and ignores every change that it may ignore.
#[derive(Default)]
struct Stubborn(Mutex<Vec<Cause>>);

impl Reconciler for Stubborn {
    type Object = ConfigMap;
    type State = ();
    type Error = std::fmt::Error;

    async fn reconcile(
        &self,
        _: Arc<ConfigMap>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, std::fmt::Error> {
        self.0.lock().unwrap().push(attempt.cause);
        Err(std::fmt::Error)
    }

    fn wants(&self, _: &ConfigMap, _: &ConfigMap) -> bool {
        false
    }

    fn dequeues(&self, _: &ConfigMap, _: &ConfigMap) -> bool {
        false
    }

    fn retry(&self, _: &std::fmt::Error, _: u32) -> Retry {
        Retry::GiveUp
    }
}

#[tokio::test]
async fn deletion_and_successor_end_what_is_given_up() {
    let reconciler = Arc::new(Stubborn::default());
    let mut worker = Worker::new(
        options(8),
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    let mut first = named("a");
    first.metadata.uid = Some("1".to_owned());
    let mut changed = first.clone();
    changed.metadata.generation = Some(2);
    let mut deleting = changed.clone();
    deleting.metadata.deletion_timestamp = Some(crate::clock::now());
    // The watch did not report the deletion of the first object.
    let mut second = named("a");
    second.metadata.uid = Some("2".to_owned());
    second.metadata.deletion_timestamp = deleting.metadata.deletion_timestamp.clone();
    let mut third = named("a");
    third.metadata.uid = Some("3".to_owned());

    let mut running = JoinSet::new();
    let events = [
        Change::Init,
        Change::InitDone,
        Change::Apply(first),
        Change::Apply(changed),
        Change::Apply(deleting),
        Change::Apply(second),
        Change::Apply(third),
    ];
    for event in events {
        worker.handle_change(SourceId::MAIN, event);
        settle(&mut worker, &mut running).await;
    }
    let causes = reconciler.0.lock().unwrap().clone();
    let expected = [
        Cause::Created,
        Cause::Deleting,
        Cause::Deleting,
        Cause::Created,
    ];
    assert_eq!(causes, expected);
}
