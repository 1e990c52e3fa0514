use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{AddedSource, ChangeHandler, SourceId};
use crate::controller::Cause;
use crate::controller::tests::{
    Changes, ChannelSource, Item, Recorder, Running, item, marker, until,
};
use crate::watch::{Change, EventHandler, Invalid};

/// Records the changes of all sources.
#[derive(Default)]
struct Handler {
    calls: Mutex<Vec<(SourceId, String)>>,
}

impl Handler {
    fn of(&self, source: SourceId) -> Vec<String> {
        let calls = self.calls.lock();
        let of_source = calls.iter().filter(|(other, _)| *other == source);
        of_source.map(|(_, text)| text.clone()).collect()
    }
}

impl ChangeHandler<Item> for Handler {
    fn change(&self, source: SourceId, change: &Change<Item>) {
        let text = match change {
            Change::Init => "init".to_owned(),
            Change::InitDone => "done".to_owned(),
            Change::InitApply(item) | Change::Apply(item) => item.name.clone(),
            Change::Delete(item) => format!("-{}", item.name),
            Change::ApplyInvalid(_) | Change::DeleteInvalid(_) => "invalid".to_owned(),
            Change::Failed(error) => error.clone(),
        };
        self.calls.lock().push((source, text));
    }

    fn source_removed(&self, source: SourceId) {
        self.calls.lock().push((source, "removed".to_owned()));
    }
}

/// Counts the changes of one source.
#[derive(Default)]
struct Counter(Mutex<usize>);

impl EventHandler<Item> for Counter {
    fn apply(&self, _: &Item) {
        *self.0.lock() += 1;
    }

    fn delete(&self, _: &Item) {
        *self.0.lock() += 1;
    }

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

fn add(running: &Running) -> (Changes, AddedSource) {
    let (changes, source) = ChannelSource::new(&running.health);
    (changes, running.controller.add(source))
}

fn has(running: &Running, name: &str) -> bool {
    running.store.get(None, name).is_some()
}

#[tokio::test]
async fn objects_of_an_added_source_are_reconciled() {
    let running = Running::start(Recorder::default());
    let (changes, added) = add(&running);
    running.main.list(vec![item("a", 1)]);
    running.expect(&[("a 1", Cause::Resumed)]).await;
    changes.list(vec![item("b", 1)]);
    added.synced().wait().await;
    changes.send(Change::Apply(item("c", 2)));
    running
        .expect(&[
            ("a 1", Cause::Resumed),
            ("b 1", Cause::Resumed),
            ("c 2", Cause::Created),
        ])
        .await;
}

#[tokio::test]
async fn removed_source_leaves_nothing() {
    let running = Running::start(Recorder::default());
    let (changes, added) = add(&running);
    running.main.list(vec![item("a", 1), item("both", 1)]);
    // Never complete.
    changes.send(Change::Init);
    for name in ["both", "b"] {
        changes.send(Change::InitApply(item(name, 1)));
    }
    until(|| has(&running, "a") && has(&running, "b")).await;
    assert_eq!(running.health.pending(), ["Item (2): being listed"]);
    added.remove().await;
    assert!(running.health.pending().is_empty());
    assert!(changes.0.is_closed(), "the source is closed");
    assert!(has(&running, "both") && !has(&running, "b"));
    // It is not reconciled as deleted.
    running.main.send(Change::Apply(item("last", 1)));
    let last = ("last 1".to_owned(), Cause::Created);
    until(|| running.calls().contains(&last)).await;
    let causes: Vec<Cause> = running.calls().iter().map(|(_, cause)| *cause).collect();
    assert!(!causes.contains(&Cause::Deleted), "{causes:?}");
}

#[tokio::test]
async fn deletion_of_a_removed_source_is_not_retried() {
    let running = Running::start(Recorder::default());
    running.main.list(Vec::new());
    *running.reconciler.failures.lock() = u32::MAX;
    let (changes, added) = add(&running);
    changes.list(vec![marker("b", 1)]);
    until(|| running.calls().len() > 1).await;
    added.remove().await;
    let calls = running.calls().len();
    running.main.send(Change::Apply(item("last", 1)));
    until(|| has(&running, "last") && running.calls().len() > calls).await;
    assert_eq!(running.calls().len(), calls + 1);
}

#[tokio::test]
async fn removal_waits_for_reconciles_in_progress() {
    let running = Running::start(Recorder {
        permits: Semaphore::new(0),
        ..Recorder::default()
    });
    running.main.list(Vec::new());
    let (changes, added) = add(&running);
    changes.list(vec![item("b", 1)]);
    running.expect(&[("b 1", Cause::Resumed)]).await;
    let mut removal = Box::pin(added.remove());
    assert!(removal.as_mut().now_or_never().is_none());
    until(|| !has(&running, "b")).await;
    assert!(removal.as_mut().now_or_never().is_none(), "b is reconciled");
    running.reconciler.permits.add_permits(1);
    removal.await;
}

#[tokio::test]
async fn list_of_one_source_keeps_the_objects_of_another() {
    let running = Running::start(Recorder::default());
    let (changes, added) = add(&running);
    let handler = Arc::new(Handler::default());
    let _handler = running.controller.add_handler(Arc::clone(&handler) as _);
    running.main.list(vec![item("a", 1)]);
    changes.list(vec![item("b", 1)]);
    added.synced().wait().await;
    changes.list(vec![item("c", 1)]);
    until(|| has(&running, "c")).await;
    until(|| !has(&running, "b")).await;
    assert!(has(&running, "a"));
    until(|| handler.of(added.id()).len() == 7).await;
    assert_eq!(
        handler.of(added.id()),
        ["init", "b", "done", "init", "c", "-b", "done"]
    );
    let id = added.id();
    assert_ne!(id, SourceId::MAIN);
    added.remove().await;
    assert_eq!(handler.of(id).last().map(String::as_str), Some("removed"));
    assert_eq!(handler.of(SourceId::MAIN), ["init", "a", "done"]);
}

#[tokio::test]
async fn added_handler_gets_what_is_known_first() {
    let running = Running::start(Recorder::default());
    let (changes, added) = add(&running);
    running.main.list(vec![item("a", 1)]);
    changes.send(Change::Init);
    changes.send(Change::InitApply(item("b", 1)));
    until(|| has(&running, "a") && has(&running, "b")).await;
    let handler = Arc::new(Handler::default());
    let added_handler = running.controller.add_handler(Arc::clone(&handler) as _);
    until(|| handler.of(added.id()).len() == 2).await;
    changes.send(Change::InitDone);
    running.main.send(Change::Delete(item("a", 2)));
    until(|| handler.of(SourceId::MAIN).len() == 4).await;
    until(|| handler.of(added.id()).len() == 3).await;
    assert_eq!(handler.of(SourceId::MAIN), ["init", "a", "done", "-a"]);
    assert_eq!(handler.of(added.id()), ["init", "b", "done"]);

    added_handler.remove().await;
    changes.send(Change::Apply(item("c", 1)));
    until(|| has(&running, "c")).await;
    assert_eq!(handler.of(added.id()).len(), 3);
    assert_eq!(Arc::strong_count(&handler), 1, "the handler is dropped");
}

#[tokio::test]
async fn late_state_of_another_source_is_ignored() {
    let running = Running::start(Recorder::default());
    let (changes, added) = add(&running);
    running.main.list(vec![item("both", 5)]);
    running.expect(&[("both 5", Cause::Resumed)]).await;
    changes.list(Vec::new());
    added.synced().wait().await;
    for change in [item("both", 4), item("both", 6)] {
        changes.send(Change::Apply(change));
    }
    let mut expected = vec![("both 5", Cause::Resumed), ("both 6", Cause::Changed)];
    running.expect(&expected).await;
    // A list is believed.
    changes.list(vec![item("both", 3)]);
    expected.push(("both 3", Cause::Changed));
    running.expect(&expected).await;
    // The late source delivers it all the same.
    running.main.send(Change::Delete(item("both", 7)));
    running.main.send(Change::Apply(item("last", 8)));
    until(|| has(&running, "last")).await;
    assert!(has(&running, "both"));
    added.remove().await;
    assert!(!has(&running, "both"));
}

#[tokio::test]
async fn watched_source_can_be_removed() {
    let running = Running::start(Recorder::default());
    running.main.list(Vec::new());
    let (changes, source) = ChannelSource::new(&running.health);
    let handler = Arc::new(Counter::default());
    let added = running.controller.watch(ChannelSource {
        handler: Arc::clone(&handler) as _,
        ..source
    });
    changes.list(vec![item("other", 1)]);
    added.synced().wait().await;
    assert_eq!(*handler.0.lock(), 1);
    added.remove().await;
    assert!(changes.0.is_closed());
    assert_eq!(Arc::strong_count(&handler), 1, "the handler is dropped");
    until(|| running.health.pending().is_empty()).await;
    assert!(running.calls().is_empty(), "it is not reconciled");
}

#[tokio::test]
async fn removal_ends_with_the_controller() {
    let running = Running::start(Recorder::default());
    let (_changes, before) = add(&running);
    running.stop.cancel();
    let Running {
        task, controller, ..
    } = running;
    task.await.unwrap();
    let (changes, source) = ChannelSource::new(&running.health);
    let after = controller.add(source);
    assert!(changes.0.is_closed(), "nothing is opened");
    for added in [before, after] {
        let removal = tokio::time::timeout(Duration::from_secs(10), added.remove());
        removal.await.expect("it ends");
    }
    assert!(
        running.health.pending() == ["Item: being listed"],
        "the main source remains"
    );
}

#[tokio::test]
async fn end_of_an_added_source_ends_the_controller() {
    let running = Running::start(Recorder::default());
    let (changes, _added) = add(&running);
    running.main.list(Vec::new());
    drop(changes);
    running.task.await.unwrap();
}
