//! What the store keeps of an object: all but what is trimmed, or its compact form.

use super::*;
use crate::client::CallError;

/// Records the number of labels of each deleted object.
#[derive(Default)]
struct Deletions(Mutex<Vec<Option<usize>>>);

impl EventHandler<ConfigMap> for Deletions {
    fn apply(&self, _: &ConfigMap) {}
    fn apply_invalid(&self, _: &Invalid) {}
    fn delete_invalid(&self, _: &Invalid) {}
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
        Settings {
            transform: |object: &mut ConfigMap| object.data = None,
            ..settings(1)
        },
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
        worker.handle_change(event);
        if let Some(cached) = store.get(None, "a") {
            let Cached::Full(object) = cached;
            assert_eq!(
                (object.data.as_ref(), object.metadata.labels.is_some()),
                (None, true)
            );
        }
    }
    assert!(store.get(None, "a").is_some());
    worker.handle_change(Change::Init);
    worker.handle_change(Change::InitDone);
    assert_eq!(*handler.0.lock().unwrap(), [Some(1)]);
}

/// Caches all objects in compact form.
struct Compacts;

impl Compaction<ConfigMap> for Compacts {
    type Compact = ();

    fn compact(&self, _: &ConfigMap) -> Option<()> {
        Some(())
    }

    fn needs_reconcile(&self, _: &NamespacedName, (): &()) -> bool {
        false
    }

    async fn fetch(&self, object: &NamespacedName) -> Result<Option<ConfigMap>, CallError> {
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
        settings(1),
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
        .for_each(|event| worker.handle_change(event));
    worker.handle_change(Change::Init);
    assert!(
        handler.0.lock().unwrap().is_empty(),
        "the list is not complete"
    );
    list(&["b"])
        .into_iter()
        .for_each(|event| worker.handle_change(event));
    assert_eq!(handler.0.lock().unwrap().len(), 1);
    assert!(worker.store.get(None, "a").is_none() && worker.store.get(None, "b").is_some());
}

/// Panics when an object is fetched.
struct Panics;

impl Compaction<ConfigMap> for Panics {
    type Compact = ();

    fn compact(&self, _: &ConfigMap) -> Option<()> {
        Some(())
    }

    fn needs_reconcile(&self, _: &NamespacedName, (): &()) -> bool {
        true
    }

    async fn fetch(&self, _: &NamespacedName) -> Result<Option<ConfigMap>, CallError> {
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
        settings(1),
        Arc::new(Recorder::default()),
        Arc::new(Panics),
        Arc::new(()),
        store,
        synced(),
    );
    events
        .into_iter()
        .for_each(|event| worker.handle_change(event));
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
