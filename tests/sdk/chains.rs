//! Reconcilers that are made of closures and of others, and what they are told.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex},
};

use capi_ipam_controller::{
    client::{CallError, connect},
    controller::{Action, Attempt, Changed, Failure, Reconciler, reconcile_fn, watch_fn},
    finalizer, patch, references,
    retry::Retry,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use support::prelude::*;

use crate::{config_maps, consumer, control_plane, program::Program};

const FINALIZER: &str = "sdk-test.example.com/closure";
const REFERENCE: &str = "reference.ipam.cluster.x-k8s.io/server.0";

/// What has happened, in order.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    /// Returns how much has happened.
    fn push(&self, what: impl Into<String>) -> usize {
        let mut all = self.0.lock().expect("it is not poisoned");
        all.push(what.into());
        all.len()
    }

    async fn wait_for_last(&self, expected: &str) {
        eventually(&format!("the last record is {expected:?}"), || async {
            let all = self.0.lock().expect("it is not poisoned");
            (all.last()? == expected).then_some(())
        })
        .await;
    }

    fn push_source_error(&self, error: &str) {
        if error.contains("cannot list resource") || error.contains("cannot watch resource") {
            self.push("forbidden");
        }
    }

    async fn wait_for(&self, expected: &[&str]) {
        eventually(&format!("the record is {expected:?}"), || async {
            let all = self.0.lock().expect("it is not poisoned");
            (*all == expected).then_some(())
        })
        .await;
    }
}

/// Runs a controller of the ConfigMaps of a namespace, which it watches with `client`.
fn start(
    client: Client,
    namespace: &str,
    reconciler: impl Reconciler<Object = ConfigMap>,
    record: &Record,
) -> Program {
    let (namespace, record) = (namespace.to_owned(), record.clone());
    Program::start(async move |manager| {
        let maps = manager.watch(Api::namespaced(client, &namespace));
        let controller = manager
            .controller("configmaps")
            .concurrency(1)
            .on_source_error(move |error| record.push_source_error(error));
        manager.run_controller(controller, maps, reconciler);
        Ok(())
    })
}

fn value(map: &ConfigMap) -> &str {
    let data = map.data.as_ref().and_then(|data| data.get("value"));
    data.map_or("none", String::as_str)
}

#[tokio::test]
async fn change_reaches_a_closure_with_the_object_before() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let record = Record::default();
    let (of_first, of_second) = (record.clone(), record.clone());
    let first = reconcile_fn(move |map: Arc<ConfigMap>| {
        of_first.push(format!("first {}", value(&map)));
        std::future::ready(Ok::<_, Infallible>(Action::AwaitChange))
    });
    let second = watch_fn(move |change: Changed<ConfigMap>| {
        let text = match change {
            Changed::Added(map) => format!("added {}", value(&map)),
            Changed::Updated { before, after } => {
                format!("updated {} to {}", value(&before), value(&after))
            }
            Changed::Deleted(map) => format!("deleted {}", value(&map)),
        };
        of_second.push(text);
        std::future::ready(Ok::<_, Infallible>(()))
    });
    let program = start(
        consumer.client.clone(),
        &consumer.namespace,
        first.then(second),
        &record,
    );

    let map = object(json!({"metadata": {"name": "a"}, "data": {"value": "1"}}));
    let created = maps.create(&map).await.expect("it can be created");
    let mut expected = vec!["first 1", "added 1"];
    record.wait_for(&expected).await;

    let mut changed = created.clone();
    changed.data = Some([("value".to_owned(), "2".to_owned())].into());
    let written = patch::write(&maps, &created, &changed).await;
    let written = written.expect("it can be written").expect("it differs");
    expected.extend(["first 2", "updated 1 to 2"]);
    record.wait_for(&expected).await;

    maps.delete("a", &written.uid().unwrap_or_default())
        .await
        .expect("it can be deleted");
    expected.push("deleted 2");
    record.wait_for(&expected).await;
    program.stop();
}

/// What closures do with a ConfigMap: the first one fails once.
#[tokio::test]
async fn closures_have_a_finalizer_and_a_policy() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let record = Record::default();
    let [of_first, of_error, of_second, of_clean_up] = std::array::from_fn(|_| record.clone());
    let first = reconcile_fn(move |map: Arc<ConfigMap>| {
        let is_protected = finalizer::is_set(map.as_ref(), FINALIZER);
        let result = if of_first.push(format!("first {is_protected}")) == 1 {
            Err(CallError::TimedOut {
                operation: "label".to_owned(),
            })
        } else {
            Ok(Action::AwaitChange)
        };
        std::future::ready(result)
    })
    .with_retry(|_, _| Retry::After(Duration::from_millis(5)))
    .with_on_error(move |map, attempt, _| {
        of_error.push(format!("{} {}", map.name_any(), attempt.failures));
    });
    let second = watch_fn(move |change: Changed<ConfigMap>| {
        let text = match change {
            Changed::Added(_) => "added",
            Changed::Updated { .. } => "updated",
            Changed::Deleted(_) => "deleted",
        };
        of_second.push(text);
        std::future::ready(Ok::<_, CallError>(()))
    });
    let client = maps.clone();
    let of_map = move |_: &ConfigMap| client.clone();
    let reconciler = first
        .then(second)
        .finalizer(FINALIZER, of_map, move |map: Arc<ConfigMap>| {
            of_clean_up.push(format!("clean up {}", value(&map)));
            std::future::ready(Ok(Action::AwaitChange))
        });
    let program = start(
        consumer.client.clone(),
        &consumer.namespace,
        reconciler,
        &record,
    );

    let map = object(json!({"metadata": {"name": "a"}, "data": {"value": "1"}}));
    let created = maps.create(&map).await.expect("it can be created");
    record.wait_for_last("added").await;
    maps.delete("a", &created.uid().unwrap_or_default())
        .await
        .expect("it can be deleted");
    record.wait_for_last("deleted").await;
    let all = record.0.lock().expect("it is not poisoned").clone();
    assert_eq!(all[..3], ["first true", "a 0", "first true"]);
    assert!(all.contains(&"clean up 1".to_owned()), "{all:?}");
    program.stop();
}

#[tokio::test]
async fn object_in_use_is_not_cleaned_up() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let record = Record::default();
    let [of_reconcile, of_clean_up] = std::array::from_fn(|_| record.clone());
    let reconcile = reconcile_fn(move |_: Arc<ConfigMap>| {
        of_reconcile.push("reconciled");
        std::future::ready(Ok::<_, CallError>(Action::AwaitChange))
    });
    let client = maps.clone();
    let of_map = move |_: &ConfigMap| client.clone();
    let reconciler = reconcile.finalizer(FINALIZER, of_map, move |_: Arc<ConfigMap>| {
        of_clean_up.push("clean up");
        std::future::ready(Ok(Action::AwaitChange))
    });
    let client = consumer.client.clone();
    let program = start(client, &consumer.namespace, reconciler, &record);
    let map = object(json!({"metadata": {"name": "used", "finalizers": [REFERENCE]}}));
    let created = maps.create(&map).await.expect("it can be created");
    record.wait_for_last("reconciled").await;
    let uid = created.uid().unwrap_or_default();
    maps.delete("used", &uid).await.expect("it can be deleted");
    // Another object, whose clean-up comes after that of the first one would.
    let other = object(json!({"metadata": {"name": "free"}}));
    let created = maps.create(&other).await.expect("it can be created");
    eventually("the other object has the finalizer", || async {
        let found = maps.get("free").await.ok()??;
        finalizer::is_set(&found, FINALIZER).then_some(())
    })
    .await;
    let uid = created.uid().unwrap_or_default();
    maps.delete("free", &uid).await.expect("it can be deleted");
    eventually("the other object is gone", || async {
        maps.get("free").await.ok()?.is_none().then_some(())
    })
    .await;
    let cleaned_up = || {
        let all = record.0.lock().expect("it is not poisoned");
        all.iter().filter(|what| *what == "clean up").count()
    };
    assert_eq!(cleaned_up(), 1);
    references::clear(&maps, REFERENCE)
        .await
        .expect("it can be removed");
    eventually("the object is gone", || async {
        maps.get("used").await.ok()?.is_none().then_some(())
    })
    .await;
    assert_eq!(cleaned_up(), 2);
    program.stop();
}

/// Fails, and records what it is told.
struct Failing(Record);

impl Reconciler for Failing {
    type Object = ConfigMap;
    type State = ();
    type Error = fmt::Error;

    #[allow(clippy::panic_in_result_fn, reason = "the panic is a fault")]
    async fn reconcile(
        &self,
        map: Arc<ConfigMap>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, fmt::Error> {
        match (attempt.failures, value(&map)) {
            (0, "error") => Err(fmt::Error),
            (0, _) => panic!("a bug"),
            _ => Ok(Action::AwaitChange),
        }
    }

    fn on_error(&self, map: &ConfigMap, _: &Attempt<()>, failure: &Failure<'_, fmt::Error>) {
        let kind = match failure {
            Failure::Error(_) => "error",
            Failure::Panicked => "panic",
            Failure::TimedOut(_) => "timeout",
        };
        self.0.push(format!("{} {kind}", map.name_any()));
    }
}

#[tokio::test]
async fn reconciler_is_told_of_failures() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let record = Record::default();
    let failing = Failing(record.clone());
    let program = start(
        consumer.client.clone(),
        &consumer.namespace,
        failing,
        &record,
    );
    let mut expected = Vec::new();
    for (name, told) in [("error", "error error"), ("panic", "panic panic")] {
        let map = object(json!({"metadata": {"name": name}, "data": {"value": name}}));
        maps.create(&map).await.expect("it can be created");
        expected.push(told);
        record.wait_for(&expected).await;
    }
    program.stop();
}

#[tokio::test]
async fn reconciler_is_told_that_its_watch_is_forbidden() {
    let consumer = consumer().await;
    let plane = control_plane();
    let namespace = format!("--namespace={}", consumer.namespace);
    plane.kubectl(&["create", "serviceaccount", "nobody", &namespace]);
    let kubeconfig = plane.kubeconfig_of_account(&consumer.namespace, "nobody");
    let nobody = connect(Some(&kubeconfig), "nobody").await;
    let record = Record::default();
    let failing = Failing(record.clone());
    let program = start(
        nobody.expect("the kubeconfig is valid"),
        &consumer.namespace,
        failing,
        &record,
    );
    eventually("the reconciler is told", || async {
        let all = record.0.lock().expect("it is not poisoned");
        all.contains(&"forbidden".to_owned()).then_some(())
    })
    .await;
    program.stop();
}
