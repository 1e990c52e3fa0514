//! A controller of objects that are not those of Kubernetes, for tests.

mod deleted;

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};

use tokio_util::sync::CancellationToken;

use super::{Action, Attempt, Cause, ControllerBuilder, Reconciler, Store, Trigger};
use crate::health::{Health, ReadinessGate};
use crate::namespaced_name::NamespacedName;
use crate::retry::Retry;
use crate::watch::{Change, EventHandler, Keyed, Opened, Source};

/// An object in some store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    /// Grows with each state.
    pub(super) revision: u32,
    pub(super) is_gone: bool,
}

pub(super) fn item(name: &str, revision: u32) -> Item {
    Item {
        name: name.to_owned(),
        revision,
        is_gone: false,
    }
}

/// A marker of a deleted object.
pub(super) fn marker(name: &str, revision: u32) -> Item {
    Item {
        is_gone: true,
        ..item(name, revision)
    }
}

pub(super) fn key(name: &str) -> NamespacedName {
    NamespacedName::new("", name)
}

impl Keyed for Item {
    fn key(&self) -> NamespacedName {
        key(&self.name)
    }

    fn is_deleting(&self) -> bool {
        false
    }

    fn is_gone(&self) -> bool {
        self.is_gone
    }

    fn fingerprint(&self, mut hasher: &mut dyn Hasher) {
        self.revision.hash(&mut hasher);
    }
}

/// A source whose changes a test sends.
pub(super) struct ChannelSource {
    pub(super) changes: mpsc::UnboundedReceiver<Change<Item>>,
    pub(super) handler: Arc<dyn EventHandler<Item>>,
    pub(super) synced: ReadinessGate,
}

impl ChannelSource {
    pub(super) fn new(health: &Health) -> (Changes, Self) {
        let (sender, changes) = mpsc::unbounded_channel();
        let (handler, synced) = (Arc::new(()), health.register_watch("Item"));
        let source = Self {
            changes,
            handler,
            synced,
        };
        (Changes(sender), source)
    }
}

impl Source for ChannelSource {
    type Object = Item;

    fn open(self) -> Opened<Item> {
        let changes = unfold(self.changes, async |mut changes| {
            let change = changes.recv().await?;
            Some((change, changes))
        });
        Opened::new(changes, self.handler, self.synced)
    }
}

/// Sends the changes of a [`ChannelSource`].
pub(super) struct Changes(pub(super) mpsc::UnboundedSender<Change<Item>>);

impl Changes {
    pub(super) fn send(&self, change: Change<Item>) {
        self.0.send(change).expect("the source is open");
    }

    pub(super) fn list(&self, items: Vec<Item>) {
        self.send(Change::Init);
        for item in items {
            self.send(Change::InitApply(item));
        }
        self.send(Change::InitDone);
    }
}

/// A reconcile: the object, its cause, and the number of failures before.
pub(super) type Call = (Item, Cause, u32);

/// Records reconciles.
pub(super) struct Recorder {
    pub(super) calls: Mutex<Vec<Call>>,
    /// Whether deleted objects are reconciled.
    pub(super) wants_deleted: bool,
    /// How many reconciles of deleted objects fail.
    pub(super) failures: Mutex<u32>,
    pub(super) retry: Retry,
    /// The revision that is not reconciled.
    pub(super) unwanted: Option<u32>,
    /// The result of a reconcile that does not fail.
    pub(super) action: Action,
    /// Reconciles that may end.
    pub(super) permits: Semaphore,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            wants_deleted: true,
            failures: Mutex::default(),
            retry: Retry::After(Duration::from_millis(1)),
            unwanted: None,
            action: Action::AwaitChange,
            permits: Semaphore::new(Semaphore::MAX_PERMITS),
        }
    }
}

impl Reconciler for Recorder {
    type Object = Item;
    type State = ();
    type Error = std::fmt::Error;

    async fn reconcile(
        &self,
        item: Arc<Item>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, std::fmt::Error> {
        let call = (Item::clone(&item), attempt.cause, attempt.failures);
        self.calls.lock().push(call);
        let permit = self.permits.acquire().await;
        permit.expect("it is never closed").forget();
        let mut failures = self.failures.lock();
        if attempt.cause == Cause::Deleted && *failures > 0 {
            *failures -= 1;
            return Err(std::fmt::Error);
        }
        Ok(self.action)
    }

    fn retry(&self, _: &std::fmt::Error, _: u32) -> Retry {
        self.retry
    }

    fn wants_deleted(&self, _: &Item) -> bool {
        self.wants_deleted
    }
}

/// A running controller with one source.
pub(super) struct Running {
    pub(super) main: Changes,
    pub(super) trigger: Trigger<Item>,
    pub(super) store: Store<Item>,
    pub(super) reconciler: Arc<Recorder>,
}

impl Running {
    pub(super) fn start(reconciler: Recorder) -> Self {
        let (main, source) = ChannelSource::new(&Health::default());
        let unwanted = reconciler.unwanted;
        let builder = ControllerBuilder::new("items")
            .wants(move |_, after: &Item| unwanted != Some(after.revision));
        let (trigger, store) = (builder.trigger(), builder.store());
        let reconciler = Arc::new(reconciler);
        let task = builder.run(source, CancellationToken::new(), Arc::clone(&reconciler));
        tokio::spawn(task);
        Self {
            main,
            trigger,
            store,
            reconciler,
        }
    }

    /// The reconciles so far.
    pub(super) fn calls(&self) -> Vec<(String, Cause)> {
        let calls = self.reconciler.calls.lock();
        calls
            .iter()
            .map(|(item, cause, _)| (format!("{} {}", item.name, item.revision), *cause))
            .collect()
    }

    /// The numbers of failures before each reconcile.
    pub(super) fn failures(&self) -> Vec<u32> {
        let calls = self.reconciler.calls.lock();
        calls.iter().map(|(_, _, failures)| *failures).collect()
    }

    /// Waits for these reconciles.
    pub(super) async fn expect(&self, expected: &[(&str, Cause)]) {
        until(|| self.calls().len() >= expected.len()).await;
        let calls = self.calls();
        let calls: Vec<_> = calls
            .iter()
            .map(|(object, cause)| (object.as_str(), *cause))
            .collect();
        assert_eq!(calls, expected);
    }
}

#[tokio::test]
async fn object_is_enqueued_after_a_delay() {
    let running = Running::start(Recorder::default());
    running.main.list(vec![item("a", 1)]);
    let mut expected = vec![("a 1", Cause::Resumed)];
    running.expect(&expected).await;
    for delay in [Duration::from_millis(50), Duration::ZERO] {
        running.trigger.enqueue_after(key("a"), delay);
        running.trigger.enqueue_after(key("gone"), delay);
    }
    // The first one is not cancelled.
    expected.extend([("a 1", Cause::Requeued); 2]);
    running.expect(&expected).await;
}

#[tokio::test]
async fn failures_of_all_sources_are_reported() {
    let (health, failures) = (Health::default(), Arc::new(Mutex::new(Vec::new())));
    let (of_main, main) = ChannelSource::new(&health);
    let (of_other, other) = ChannelSource::new(&health);
    let mut controller = ControllerBuilder::new("items");
    controller.watch(other);
    let seen = Arc::clone(&failures);
    let controller = controller.on_source_error(move |error| seen.lock().push(error.to_owned()));
    let stop = CancellationToken::new();
    let running = controller.run(main, stop.clone(), Arc::new(Recorder::default()));
    let running = tokio::spawn(running);
    of_other.send(Change::Failed("other".to_owned()));
    until(|| *failures.lock() == ["other"]).await;
    of_other.list(Vec::new());
    of_main.send(Change::Failed("main".to_owned()));
    until(|| *failures.lock() == ["other", "main"]).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn end_of_a_source_ends_the_controller() {
    for ends_main in [true, false] {
        let health = Health::default();
        let (main, source) = ChannelSource::new(&health);
        let (other, watched) = ChannelSource::new(&health);
        let mut builder = ControllerBuilder::new("items");
        builder.watch(watched);
        other.list(Vec::new());
        let reconciler = Arc::new(Recorder::default());
        let task = builder.run(source, CancellationToken::new(), reconciler);
        let task = tokio::spawn(task);
        main.list(vec![item("a", 1)]);
        let (closed, kept) = if ends_main {
            (main, other)
        } else {
            (other, main)
        };
        drop(closed);
        task.await.expect("no panic");
        drop(kept);
    }
}

/// Waits for a condition.
pub(super) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
