//! Reconciles that fail, hang or panic, and objects that are given up.

use super::*;

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
            Some(&[(Cause::Resumed, 0), (Cause::Resumed, 1)][..]),
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
        (Cause::Created, 1),
        (Cause::Created, 2),
    ];
    assert_eq!(reconciler.of("fails"), attempts);
    assert_eq!(worker.queue.next_due(), None);
    let mut changed = named("fails");
    changed.metadata.resource_version = Some("2".to_owned());
    worker.handle_change(Change::Apply(changed.clone()));
    settle(&mut worker, &mut running).await;
    assert_eq!(
        reconciler.of("fails"),
        attempts,
        "it has not changed apart from its status"
    );
    changed.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    worker.handle_change(Change::Apply(changed));
    settle(&mut worker, &mut running).await;
    // No attempt has succeeded yet.
    assert_eq!(reconciler.of("fails")[3..4], [(Cause::Created, 0)]);
}

/// Fails. Its controller ignores every change that it may ignore.
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

    fn retry(&self, _: &std::fmt::Error, _: u32) -> Retry {
        Retry::GiveUp
    }
}

#[tokio::test]
async fn deletion_and_successor_end_what_is_given_up() {
    let reconciler = Arc::new(Stubborn::default());
    let mut worker = Worker::new(
        Settings {
            wants: Box::new(|_, _| false),
            dequeues: Box::new(|_, _| false),
            ..settings(8)
        },
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
        worker.handle_change(event);
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
