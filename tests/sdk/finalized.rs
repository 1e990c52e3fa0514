//! Reconcilers whose objects have a finalizer.

use std::sync::{Arc, Mutex};

use capi_ipam_controller::{
    client::CallError,
    clock,
    controller::{Action, Attempt, Cause, Finalized, Protect, Protection, Reconciler},
    finalizer, patch,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use support::prelude::*;

use crate::{config_maps, consumer, program::Program};

const FINALIZER: &str = "sdk-test.example.com/protect";

/// Reconciles: the name of the object, and the cause.
type Calls = Arc<Mutex<Vec<(String, Cause)>>>;

/// Records reconciles. An object is released when it has the label `free`.
struct Recorder {
    client: Client,
    calls: Calls,
}

impl Reconciler for Recorder {
    type Object = ConfigMap;
    type State = ();
    type Error = CallError;

    async fn reconcile(
        &self,
        map: Arc<ConfigMap>,
        attempt: &mut Attempt<()>,
    ) -> Result<Action, CallError> {
        let call = (map.name_any(), attempt.cause);
        let mut calls = self.calls.lock().expect("it is not poisoned");
        if calls.last() != Some(&call) {
            calls.push(call);
        }
        let is_blocked = attempt.cause == Cause::Deleting && !map.labels().contains_key("free");
        Ok(if is_blocked {
            Action::Requeue(std::time::Duration::from_millis(50))
        } else {
            Action::AwaitChange
        })
    }
}

impl Protect for Recorder {
    fn objects(&self, map: &ConfigMap) -> ResourceClient<ConfigMap> {
        let namespace = map.namespace().unwrap_or_default();
        ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &())
    }

    fn protection(&self, map: &ConfigMap) -> Protection {
        match map.name_any().as_str() {
            "postponed" => Protection::Postponed(Action::AwaitChange),
            "unmanaged" => Protection::Unmanaged,
            name if name.starts_with("kube-") => Protection::Postponed(Action::AwaitChange),
            _ => Protection::Managed,
        }
    }
}

/// Starts a program that reconciles the ConfigMaps of a namespace.
fn start(namespace: &str) -> (Program, Calls) {
    let (calls, namespace) = (Calls::default(), namespace.to_owned());
    let recorded = Arc::clone(&calls);
    let program = Program::start(async move |manager| {
        let client = manager.client.clone();
        let maps = manager.watch(Api::namespaced(client.clone(), &namespace));
        let inner = Recorder {
            client,
            calls: recorded,
        };
        // The whole object has to be read before its last finalizer is removed.
        let controller = manager
            .controller("configmaps")
            .transform(|map: &mut ConfigMap| map.data = None);
        manager.run_controller(controller, maps, Finalized::new(inner, FINALIZER));
        Ok(())
    });
    (program, calls)
}

/// The causes with which an object was reconciled.
fn causes(calls: &Calls, name: &str) -> Vec<Cause> {
    let calls = calls.lock().expect("it is not poisoned");
    let of_object = calls.iter().filter(|(other, _)| other == name);
    of_object.map(|(_, cause)| *cause).collect()
}

async fn is_reconciled(calls: &Calls, name: &str, cause: Cause) {
    eventually("the object is reconciled", || async {
        causes(calls, name).contains(&cause).then_some(())
    })
    .await;
}

async fn create(maps: &ResourceClient<ConfigMap>, name: &str) {
    let map = object(json!({"metadata": {"name": name}, "data": {"a": "1"}}));
    maps.create(&map).await.expect("it can be created");
}

async fn get(maps: &ResourceClient<ConfigMap>, name: &str) -> Option<ConfigMap> {
    maps.get(name).await.expect("it can be read")
}

async fn delete(maps: &ResourceClient<ConfigMap>, name: &str) {
    let uid = get(maps, name).await.and_then(|map| map.uid());
    maps.delete(name, &uid.unwrap_or_default())
        .await
        .expect("it can be deleted");
}

#[tokio::test]
async fn finalizer_goes_when_the_deletion_is_reconciled() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    // It is created while no program runs.
    create(&maps, "a").await;
    let (program, calls) = start(&consumer.namespace);
    is_reconciled(&calls, "a", Cause::Created).await;
    let map = get(&maps, "a").await.expect("it exists");
    assert!(finalizer::is_set(&map, FINALIZER));

    finalizer::remove(&maps, &map, FINALIZER)
        .await
        .expect("it can be removed");
    eventually("a lost finalizer is added again", || async {
        let map = get(&maps, "a").await?;
        finalizer::is_set(&map, FINALIZER).then_some(())
    })
    .await;
    program.stop();

    let (program, calls) = start(&consumer.namespace);
    is_reconciled(&calls, "a", Cause::Resumed).await;
    assert!(!causes(&calls, "a").contains(&Cause::Created));
    delete(&maps, "a").await;
    is_reconciled(&calls, "a", Cause::Deleting).await;
    let blocked = get(&maps, "a").await.expect("it is not released");
    assert!(blocked.data.is_some(), "{blocked:?}");

    let label = patch::set(&["metadata", "labels"], json!({"free": "yes"}));
    let labelled = patch::with_preconditions(&blocked, vec![label]);
    maps.patch("a", labelled)
        .await
        .expect("a label can be added");
    eventually("the object is gone", || async {
        get(&maps, "a").await.is_none().then_some(())
    })
    .await;
    program.stop();
}

#[tokio::test]
async fn unmanaged_object_gets_no_finalizer() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    for name in ["postponed", "unmanaged"] {
        create(&maps, name).await;
    }
    let (program, calls) = start(&consumer.namespace);
    is_reconciled(&calls, "unmanaged", Cause::Resumed).await;
    create(&maps, "last").await;
    is_reconciled(&calls, "last", Cause::Created).await;
    assert_eq!(causes(&calls, "postponed"), []);
    for name in ["postponed", "unmanaged"] {
        let map = get(&maps, name).await.expect("it exists");
        assert!(!finalizer::is_set(&map, FINALIZER));
    }
    program.stop();
}

#[tokio::test]
async fn object_whose_deletion_is_undone_keeps_its_finalizer() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let metadata = json!({"name": "a", "finalizers": [FINALIZER], "labels": {"free": ""}});
    let map = object(json!({"metadata": metadata}));
    let created = maps.create(&map).await.expect("it can be created");
    // The cache still has the deletion, which a restore of etcd has undone.
    let mut deleting = created.clone();
    deleting.metadata.deletion_timestamp = Some(clock::now());
    let inner = Recorder {
        client: consumer.client.clone(),
        calls: Calls::default(),
    };
    let reconciler = Finalized::new(inner, FINALIZER);
    let mut attempt = Attempt::default();
    let action = reconciler.reconcile(Arc::new(deleting), &mut attempt).await;
    assert_eq!(action.expect("it can be read"), Action::AwaitChange);
    let found = get(&maps, "a").await.expect("it exists");
    assert!(finalizer::is_set(&found, FINALIZER));
}
