//! A definition of a pool kind is replaced by an older one, which has fewer fields: the API server
//! removes these fields from all pools.

use std::cell::RefCell;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::networks::wait_for_other_addresses;
use crate::stored_versions::change_definition;
use support::consumer::Consumer;
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::proxy::{ApiRequest, Forward, ProxyServer, Verb};
use support::wait::eventually;

const DEFINITION: &str = "inclusterippools.ipam.cluster.x-k8s.io";

/// Fields that an older version does not have.
const NEW_FIELDS: [&str; 4] = ["network", "draining", "ranges", "slices"];

/// Serves the definition without the new fields. Returns the schema that it had.
fn serve_old_fields(plane: &ControlPlane) -> Value {
    let before = RefCell::new(Value::Null);
    change_definition(plane, DEFINITION, |versions| {
        before.borrow_mut().clone_from(versions);
        for version in versions.as_array_mut().expect("there are versions") {
            let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
            // Rules name the fields.
            spec.as_object_mut()
                .expect("there is a specification")
                .remove("x-kubernetes-validations");
            let fields = spec["properties"].as_object_mut();
            let fields = fields.expect("the specification has fields");
            fields.retain(|name, _| !NEW_FIELDS.contains(&name.as_str()));
        }
    });
    before.into_inner()
}

/// What the probe of the manager says about the definitions.
async fn wait_until_not_ready(manager: &Manager) {
    eventually("the manager reports the definition", async || {
        let answer = manager.probe("/readyz")?;
        let is_reported = answer.contains(DEFINITION) && answer.contains("spec.network");
        (answer.starts_with("HTTP/1.1 503") && is_reported).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_that_loses_fields_opens_no_network() {
    let plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    consumer.create_open_network("lab").await;
    let spec = json!({"addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24, "network": "lab"});
    for pool in ["a", "b"] {
        consumer.create_pool(pool, spec.clone()).await;
    }
    consumer.create_claim("a0", "a").await;
    assert_eq!(consumer.wait_for_address("a0").await, "10.0.0.10");

    let before = serve_old_fields(&plane);
    wait_until_not_ready(&manager).await;
    consumer.create_claim("b0", "b").await;
    let text = consumer.wait_for_reason("b0", "PoolNotReady").await;
    assert!(text.contains(DEFINITION), "{text}");
    // Nor after a restart, in which nothing but the definition is known.
    manager.kill();
    manager = Manager::launch(&plane, plane.provider_kubeconfig(), &[]);
    wait_until_not_ready(&manager).await;
    consumer.create_claim("b1", "b").await;
    consumer.wait_for_reason("b1", "PoolNotReady").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let pool = consumer.pools().get("b").await.unwrap().unwrap();
    assert_eq!(
        pool.spec.network(),
        None,
        "the API server removes the field"
    );

    change_definition(&plane, DEFINITION, |versions| versions.clone_from(&before));
    wait_for_other_addresses(&consumer, &["b0", "b1"], "10.0.0.10").await;
    let pool = consumer.pools().get("b").await.unwrap().unwrap();
    assert_eq!(
        pool.spec.network(),
        Some("lab"),
        "no write has removed the field"
    );
}

/// More than the time between two checks of the definitions.
const CHECKED: Duration = Duration::from_secs(20);

/// A proxy that answers no list and no watch of pools while `held` is true.
async fn start_proxy(plane: &ControlPlane, held: watch::Receiver<bool>) -> ProxyServer {
    let upstream = ProxyServer::upstream(plane).await;
    ProxyServer::start(plane, "late", move || {
        let (upstream, held) = (upstream.clone(), held.clone());
        move |request| {
            let (upstream, mut held) = (upstream.clone(), held.clone());
            async move {
                let forward = Forward::receive(upstream, request).await?;
                let asked = ApiRequest::of(&forward.method, &forward.path);
                let is_list =
                    matches!(asked.verb, Verb::Read | Verb::Watch) && asked.name.is_empty();
                if is_list && asked.resource == "inclusterippools" {
                    // The sender lives as long as the test.
                    drop(held.wait_for(|is_held| !is_held).await);
                }
                forward.stream().await
            }
        }
    })
    .await
}

/// The manager has only ever read a pool without its network, and cannot read it again when the
/// definition is restored.
#[tokio::test(flavor = "multi_thread")]
async fn pool_that_was_read_without_its_network_allocates_nothing() {
    let plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    consumer.create_open_network("lab").await;
    let spec = json!({"addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24, "network": "lab"});
    consumer.create_pool("a", spec.clone()).await;
    consumer.create_claim("a0", "a").await;
    assert_eq!(consumer.wait_for_address("a0").await, "10.0.0.10");
    manager.kill();
    consumer.create_pool("b", spec).await;
    let before = serve_old_fields(&plane);
    let (sender, held) = watch::channel(false);
    let proxy = start_proxy(&plane, held).await;
    manager = Manager::launch(&plane, proxy.kubeconfig(), &[]);
    wait_until_not_ready(&manager).await;
    consumer.create_claim("b0", "b").await;
    consumer.wait_for_reason("b0", "PoolNotReady").await;

    sender.send_replace(true);
    change_definition(&plane, DEFINITION, |versions| versions.clone_from(&before));
    tokio::time::sleep(CHECKED).await;
    let claim = consumer.claims().get("b0").await.unwrap().unwrap();
    assert_eq!(claim.bound_address(), None, "the pool may be in a network");
    sender.send_replace(false);
    wait_for_other_addresses(&consumer, &["b0"], "10.0.0.10").await;
}
