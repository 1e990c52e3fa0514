//! What a program does before its first reconcile and after its last one.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use capi_ipam_controller::{
    client::error_chain,
    controller::{Action, reconcile_fn},
    manager::{InitializeError, Manager},
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::Client;
use support::prelude::*;
use tokio::time::sleep;

use crate::{config_maps, consumer, program::Program};

/// What has happened, in order.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    fn push(&self, what: impl Into<String>) {
        let mut all = self.0.lock().expect("it is not poisoned");
        all.push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().expect("it is not poisoned").clone()
    }
}

async fn is_lease_held(client: &Client, namespace: &str) -> bool {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = leases.get("sdk-test").await.expect("it can be read");
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    holder.is_some_and(|holder| !holder.is_empty())
}

/// Adds a controller of the ConfigMaps of a namespace. A reconcile begins before the program is
/// stopped, and ends some time later.
fn add_slow_controller(manager: &mut Manager, namespace: &str, record: &Record) {
    let maps = manager.watch(Api::namespaced(manager.client.clone(), namespace));
    let (record, stop) = (record.clone(), manager.stop.clone());
    let reconciler = reconcile_fn(move |_: Arc<ConfigMap>| {
        let (record, stop) = (record.clone(), stop.clone());
        async move {
            record.push("reconcile begins");
            stop.cancelled().await;
            sleep(Duration::from_millis(300)).await;
            record.push("reconcile ends");
            Ok::<_, Infallible>(Action::AwaitChange)
        }
    });
    manager.run("configmaps", maps, reconciler);
}

#[tokio::test]
async fn stop_actions_run_after_reconciles_with_the_lease() {
    let consumer = consumer().await;
    let maps = config_maps(&consumer);
    let map = object(json!({"metadata": {"name": "slow"}}));
    maps.create(&map).await.expect("it can be created");

    let (record, namespace) = (Record::default(), consumer.namespace.clone());
    let flags = [
        "--diagnostics-address=0",
        "--leader-elect",
        &format!("--leader-election-namespace={namespace}"),
    ];
    let (of_program, of_namespace) = (record.clone(), namespace.clone());
    let setup = async move |manager: &mut Manager| {
        let record = of_program;
        let client = manager.client.clone();
        let held = manager
            .initialize("the backend", async {
                Ok::<_, Infallible>(is_lease_held(&client, &of_namespace).await)
            })
            .await?;
        record.push(format!("initialized, lease {held}"));
        add_slow_controller(manager, &of_namespace, &record);
        for name in ["first", "second"] {
            let (record, client) = (record.clone(), manager.client.clone());
            let namespace = of_namespace.clone();
            manager.on_stop(name, async move {
                let held = is_lease_held(&client, &namespace).await;
                record.push(format!("{name} action, lease {held}"));
                // The others run nevertheless.
                Err("it cannot be closed".into())
            });
        }
        Ok(())
    };
    let program = Program::launch(&flags, async |_| Ok(()), setup);
    eventually("a reconcile begins", || async {
        let all = record.all();
        all.contains(&"reconcile begins".to_owned()).then_some(())
    })
    .await;
    program.stop();
    let expected = [
        "initialized, lease true",
        "reconcile begins",
        "reconcile ends",
        "second action, lease true",
        "first action, lease true",
    ];
    assert_eq!(record.all(), expected);
    assert!(!is_lease_held(&consumer.client, &namespace).await);
}

#[tokio::test]
async fn stop_action_that_hangs_is_dropped() {
    let record = Record::default();
    let of_program = record.clone();
    let program = Program::start(async move |manager| {
        manager.on_stop("never reached", async move {
            of_program.push("the deadline of all actions is over");
            sleep(Duration::from_millis(1)).await;
            of_program.push("never reached");
            Ok(())
        });
        manager.on_stop("hanging", std::future::pending());
        Ok(())
    });
    let begin = Instant::now();
    program.stop();
    assert!(begin.elapsed() >= Duration::from_secs(5));
    assert!(!record.all().contains(&"never reached".to_owned()));
}

#[tokio::test]
async fn failing_initializer_ends_the_program() {
    let record = Record::default();
    let of_program = record.clone();
    let program = Program::start(async move |manager| {
        let of_action = of_program.clone();
        manager.on_stop("the log", async move {
            of_action.push("closed");
            Ok(())
        });
        let refused = std::io::Error::other("connection refused");
        let initializer = std::future::ready(Err::<(), _>(refused));
        let opened = manager.initialize("the backend", initializer).await;
        opened.inspect_err(|error| of_program.push(error_chain(error)))?;
        of_program.push("set up");
        Ok(())
    });
    assert!(!program.ends_well());
    let expected = [
        "cannot initialize the backend: connection refused",
        "closed",
    ];
    assert_eq!(record.all(), expected);
}

#[tokio::test]
async fn initializer_after_a_task_is_refused() {
    let program = Program::start(async |manager| {
        manager.add("endless", std::future::pending());
        let initializer = std::future::ready(Ok::<(), Infallible>(()));
        let late = manager.initialize("the backend", initializer).await;
        assert!(
            matches!(late, Err(InitializeError::Late { .. })),
            "{late:?}"
        );
        Ok(late?)
    });
    assert!(!program.ends_well());
}
