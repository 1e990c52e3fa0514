//! How many objects are reconciled at the same time.

use super::*;

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
        sender.send(event).await.unwrap();
    }
    let (_trigger, triggered) = mpsc::unbounded_channel();
    let worker = Worker::new(
        settings(1),
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

/// Objects whose name begins with `low` have low priority.
fn priority_of(object: &ConfigMap) -> Priority {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with("low") {
        Priority::Low
    } else {
        Priority::Normal
    }
}

/// Every reconcile waits until it is allowed to end.
struct ByName {
    started: Mutex<Vec<String>>,
    end: tokio::sync::Semaphore,
}

impl Reconciler for ByName {
    type Object = ConfigMap;
    type State = ();
    type Error = Infallible;

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
        Settings {
            priority: Box::new(|object: &ConfigMap, _| priority_of(object)),
            ..settings(4)
        },
        Arc::clone(&reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    let worker = tokio::spawn(worker.run(events, triggered, stop.clone()));
    let names = || reconciler.started.lock().unwrap().clone();
    for name in ["low-1", "low-2", "low-3"] {
        sender.send(Change::Apply(named(name))).await.unwrap();
    }
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(names(), ["low-1"]);
    sender.send(Change::Apply(named("new"))).await.unwrap();
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
