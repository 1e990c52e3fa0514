//! Controllers and tasks of one manager.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use capi_ipam_controller::{
    controller::{Action, reconcile_fn},
    manager::Manager,
};
use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;

use crate::{consumer, program::Program};

/// The names of reconciled objects.
type Names = Arc<Mutex<BTreeSet<String>>>;

/// Adds a controller that records the objects of one namespace. It panics for an object with the
/// name `bad`.
fn add_controller(manager: &mut Manager, namespace: &str) -> Names {
    let names = Names::default();
    let (namespace, recorded) = (namespace.to_owned(), Arc::clone(&names));
    let reconciler = reconcile_fn(move |object: Arc<ConfigMap>| {
        assert_ne!(object.name_any(), "bad", "a bug");
        if object.namespace().as_deref() == Some(namespace.as_str()) {
            recorded
                .lock()
                .expect("it is not poisoned")
                .insert(object.name_any());
        }
        std::future::ready(Ok::<_, Infallible>(Action::AwaitChange))
    });
    let maps = manager.watch(manager.watch_api(&()));
    manager.run("configmaps", maps, reconciler);
    names
}

async fn create(consumer: &Consumer, name: &str) {
    let objects: ResourceClient<ConfigMap> = ResourceClient::new(
        Api::namespaced(consumer.client.clone(), &consumer.namespace),
        &(),
    );
    objects
        .create(&object(json!({"metadata": {"name": name}})))
        .await
        .expect("it can be created");
}

#[tokio::test]
async fn two_controllers_of_a_kind_work_in_one_manager() {
    let consumer = consumer().await;
    create(&consumer, "a").await;
    let (found, namespace) = (Arc::new(Mutex::new(Vec::new())), consumer.namespace.clone());
    let program = Program::start({
        let found = Arc::clone(&found);
        async move |manager| {
            let both = [
                add_controller(manager, &namespace),
                add_controller(manager, &namespace),
            ];
            *found.lock().expect("it is not poisoned") = both.to_vec();
            Ok(())
        }
    });
    create(&consumer, "bad").await;
    create(&consumer, "b").await;
    let found = found.lock().expect("it is not poisoned").clone();
    assert_eq!(found.len(), 2);
    for names in found {
        let expected = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        // A panic fails the reconcile of its object only.
        eventually("the controller reconciles", || async {
            expected
                .is_subset(&names.lock().expect("it is not poisoned"))
                .then_some(())
        })
        .await;
    }
    // A panic of a reconcile does not end the process.
    program.stop();
}

#[tokio::test]
async fn second_component_with_a_name_ends_the_setup() {
    let program = Program::start(async |manager| {
        let _inventory = manager.health.register("inventory")?;
        manager.health.require("inventory")?;
        manager.add("unreachable", std::future::pending());
        Ok(())
    });
    assert!(!program.ends_well());
    let program = Program::start(async |manager| {
        manager.declare("controller of nodes")?;
        manager.declare("controller of nodes")?;
        Ok(())
    });
    assert!(!program.ends_well());
}

#[tokio::test]
async fn task_that_ends_ends_the_process() {
    let program = Program::start(async |manager| {
        manager.add("endless", std::future::pending());
        manager.add("short", tokio::time::sleep(Duration::from_millis(100)));
        Ok(())
    });
    assert!(!program.ends_well());
}

#[tokio::test]
async fn task_that_panics_ends_the_process() {
    let program = Program::start(async |manager| {
        manager.add("endless", std::future::pending());
        manager.add("buggy", async { panic!("a bug") });
        Ok(())
    });
    assert!(!program.ends_well());
}

#[tokio::test]
async fn stopped_program_ends_without_an_error() {
    let program = Program::start(async |manager| {
        let stop = manager.stop.clone();
        manager.add("a task", async move { stop.cancelled().await });
        Ok(())
    });
    program.stop();
}
