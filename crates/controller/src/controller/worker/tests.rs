//! The worker of a controller with one source.

mod attempts;
mod caching;
mod concurrency;
mod failures;
mod lists;

use std::convert::Infallible;
use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;

use super::*;
use crate::controller::compaction::NoCompaction;
use crate::health::Health;
use crate::watch::{Change, Invalid};

/// Records the names of the reconciled objects.
#[derive(Default)]
struct Recorder {
    names: Mutex<Vec<String>>,
}

impl Reconciler for Recorder {
    type Object = ConfigMap;
    type State = ();
    type Error = Infallible;

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

fn settings(concurrency: u16) -> Settings<ConfigMap> {
    Settings {
        concurrency,
        ..Settings::new("test")
    }
}

fn synced() -> ReadinessGate {
    Health::default().register_watch("the kind")
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

    fn retry(&self, _: &std::fmt::Error, failures: u32) -> Retry {
        if failures < 3 {
            Retry::After(Duration::from_millis(1))
        } else {
            Retry::GiveUp
        }
    }
}

/// What is known of an object that cannot be decoded.
fn known(metadata: &ObjectMeta) -> Option<ConfigMap> {
    let name = metadata.name.as_deref().filter(|name| *name != "other")?;
    let mut object = named(name);
    object.metadata.clone_from(metadata);
    Some(object)
}

impl Faulty {
    fn settings(self: &Arc<Self>) -> Settings<ConfigMap> {
        let faulty = Arc::clone(self);
        Settings {
            undecodable: Box::new(known),
            on_source_error: Arc::new(move |error| {
                faulty.failures.lock().unwrap().push(error.to_owned());
            }),
            ..settings(8)
        }
    }

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
        reconciler.settings(),
        Arc::clone(reconciler),
        Arc::new(NoCompaction),
        Arc::new(()),
        Store::default(),
        synced(),
    );
    Arc::get_mut(&mut worker.context).unwrap().timeout = Duration::from_millis(20);
    let mut running = JoinSet::new();
    for event in events {
        worker.handle_change(event);
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
