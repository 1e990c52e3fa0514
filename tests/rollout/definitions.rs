//! A definition is replaced by an older one, which has fewer fields: the API server removes these
//! fields from all objects.

use std::{cell::RefCell, sync::Arc};

use capi_ipam_api::{IPNetworkStatus, PoolStatus};
use capi_ipam_controller::{client::error_chain, finalizer, patch};
use http::Method;
use parking_lot::Mutex;
use support::{
    prelude::*,
    proxy::{ApiRequest, Forward, ProxyServer, error_response},
};
use tokio::sync::watch;

use crate::{networks::wait_for_other_addresses, stored_versions::change_definition};

const POOLS: &str = "inclusterippools.ipam.cluster.x-k8s.io";
const PREFIX_POOLS: &str = "inclusterprefixpools.ipam.cluster.x-k8s.io";
const NETWORKS: &str = "ipnetworks.ipam.cluster.x-k8s.io";

/// Fields that an older version does not have.
const NEW_FIELDS: [&str; 5] = ["network", "draining", "ranges", "slices", "excluded"];

/// Serves a definition without the new fields. Returns the schema that it had.
fn serve_old_fields(plane: &ControlPlane, definition: &str) -> Value {
    let before = RefCell::new(Value::Null);
    change_definition(plane, definition, |versions| {
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
async fn wait_until_not_ready(manager: &Manager, definition: &str, field: &str) {
    eventually("the manager reports the definition", async || {
        let answer = manager.probe("/readyz")?;
        let is_reported = answer.contains(definition) && answer.contains(field);
        (answer.starts_with("HTTP/1.1 503") && is_reported).then_some(())
    })
    .await;
}

/// Waits until the process has ended, as the kubelet does, which starts it again.
async fn wait_until_ended(manager: &mut Manager) {
    manager.wait_for_log("have all fields again");
    let manager = RefCell::new(manager);
    eventually("the manager has ended", async || {
        (!manager.borrow_mut().is_running()).then_some(())
    })
    .await;
}

/// Creates an open network, and two pools with the same addresses in it. Returns after the claim
/// `a0` has the first one.
async fn set_up(consumer: &Consumer) {
    let spec = json!({"namespaces": {"from": "All"}, "excluded": ["10.0.0.11"]});
    consumer.create_network("lab", spec).await;
    let spec = json!({"addresses": ["10.0.0.10-10.0.0.13"], "prefix": 24, "network": "lab"});
    for pool in ["a", "b"] {
        consumer.create_pool(pool, spec.clone()).await;
    }
    consumer.bind_to("a0", "a", "10.0.0.10").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_that_loses_fields_opens_no_network() {
    let (plane, mut manager, consumer) = scene_with_manager(&[]).await;
    set_up(&consumer).await;

    let before = serve_old_fields(&plane, POOLS);
    wait_until_not_ready(&manager, POOLS, "spec.network").await;
    assert_contains(
        &consumer.claim_waits("b0", "b", "PoolNotReady").await,
        POOLS,
    );
    // Nor after a restart, in which nothing but the definition is known.
    manager.kill();
    manager = Manager::launch(&plane, plane.provider_kubeconfig(), &[]);
    wait_until_not_ready(&manager, POOLS, "spec.network").await;
    consumer.claim_waits("b1", "b", "PoolNotReady").await;
    let pool = consumer.pools().get("b").await.unwrap().unwrap();
    assert_eq!(
        pool.spec.network(),
        None,
        "the API server removes the field"
    );

    // This process has only ever read pools without their network.
    change_definition(&plane, POOLS, |versions| versions.clone_from(&before));
    wait_until_ended(&mut manager).await;
    for claim in ["b0", "b1"] {
        let claim = consumer.claims().get(claim).await.unwrap().unwrap();
        assert_eq!(claim.bound_address(), None, "the pool is in a network");
    }
    let _manager = Manager::start(&plane, &[]);
    wait_for_other_addresses(&consumer, &["b0", "b1"], "10.0.0.10").await;
    let pool = consumer.pools().get("b").await.unwrap().unwrap();
    assert_eq!(
        pool.spec.network(),
        Some("lab"),
        "no write has removed the field"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn network_read_without_its_exclusions_allocates_nothing() {
    let (plane, mut manager, consumer) = scene_with_manager(&[]).await;
    set_up(&consumer).await;

    let before = serve_old_fields(&plane, NETWORKS);
    wait_until_not_ready(&manager, NETWORKS, "spec.excluded").await;
    manager.kill();
    manager = Manager::launch(&plane, plane.provider_kubeconfig(), &[]);
    wait_until_not_ready(&manager, NETWORKS, "spec.excluded").await;
    consumer.claim_waits("b0", "b", "PoolNotReady").await;
    change_definition(&plane, NETWORKS, |versions| versions.clone_from(&before));
    wait_until_ended(&mut manager).await;
    let _manager = Manager::start(&plane, &[]);
    consumer.assert_address("b0", "10.0.0.12").await;
}

/// A manager writes before it notices that the definition has changed.
#[tokio::test(flavor = "multi_thread")]
async fn write_without_fields_that_were_read_is_a_conflict() {
    let (plane, consumer) = scene().await;
    let spec = json!({"excluded": ["10.0.0.11"]});
    consumer.create_network("lab", spec.clone()).await;
    let networks = consumer.networks().requiring_fields();
    let known = networks.get("lab").await.unwrap().unwrap();
    let mut wanted = known.clone();
    wanted.status = Some(IPNetworkStatus::default());

    let before = serve_old_fields(&plane, NETWORKS);
    let error = patch::write(&networks, &known, &wanted).await.unwrap_err();
    assert!(error.is_conflict(), "{}", error_chain(&error));
    let error = finalizer::add(&networks, &known, "example.com/test").await;
    let error = error.unwrap_err();
    assert!(error.is_conflict(), "{}", error_chain(&error));
    change_definition(&plane, NETWORKS, |versions| versions.clone_from(&before));
    let kept = networks.get("lab").await.unwrap().unwrap();
    assert_eq!(json!(kept.spec), spec);
    let written = patch::write(&networks, &kept, &wanted).await.unwrap();
    assert_eq!(json!(written.expect("it differs").spec), spec);
}

/// Pools are cached without their specification.
#[tokio::test(flavor = "multi_thread")]
async fn write_of_a_cached_pool_keeps_its_fields() {
    let (plane, consumer) = scene().await;
    let spec = json!({"prefixes": ["10.0.0.0/24"], "network": "lab", "excludedPrefixes": ["10.0.0.0/28"],
        "allocationPrefixLength": 28, "allocation": {"requests": true}});
    let kind = InClusterKind::PrefixPool;
    consumer.create_pool_of(kind, "p", spec).await;
    let pools = consumer.pools_of(kind);
    let mut known = pools.get("p").await.unwrap().unwrap();
    let spec = known.spec.clone();
    known.clear_spec();
    let mut wanted = known.clone();
    wanted.status = Some(PoolStatus::default());

    let pools = pools.requiring(known.optional_fields().names());
    let before = serve_old_fields(&plane, PREFIX_POOLS);
    let error = patch::write(&pools, &known, &wanted).await.unwrap_err();
    assert!(error.is_conflict(), "{}", error_chain(&error));
    change_definition(&plane, PREFIX_POOLS, |versions| {
        versions.clone_from(&before)
    });
    let written = patch::write(&pools, &known, &wanted).await.unwrap();
    assert_eq!(written.expect("it differs").spec, spec);
}

/// The manager caches pools without their specification.
#[tokio::test(flavor = "multi_thread")]
async fn each_write_of_a_pool_requires_its_fields() {
    let plane = ControlPlane::new();
    let upstream = ProxyServer::upstream(&plane).await;
    let writes = Arc::new(Mutex::new(Vec::new()));
    let sent = Arc::clone(&writes);
    let proxy = ProxyServer::start(&plane, "writes", move || {
        let (upstream, sent) = (upstream.clone(), Arc::clone(&sent));
        move |request| {
            let (upstream, sent) = (upstream.clone(), Arc::clone(&sent));
            async move {
                let forward = Forward::receive(upstream, request).await?;
                let asked = ApiRequest::of(&forward.method, &forward.path);
                if forward.method == Method::PATCH && asked.resource == "inclusterippools" {
                    let text = String::from_utf8_lossy(&forward.body).into_owned();
                    sent.lock().push(text);
                }
                forward.stream().await
            }
        }
    })
    .await;
    let manager = Manager::launch(&plane, proxy.kubeconfig(), &[]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    set_up(&consumer).await;
    eventually("both pools count the address", async || {
        let pool = consumer.pools().get("b").await.ok()??;
        let free = pool.status?.ip_addresses?.free;
        (free == 2).then_some(())
    })
    .await;
    let writes = writes.lock();
    assert!(writes.len() >= 4, "{writes:?}");
    for text in &*writes {
        assert!(text.contains("\"/spec/network\""), "{text}");
    }
}

/// A proxy that answers reads of definitions with an error while `fails` is true.
async fn start_proxy(plane: &ControlPlane, fails: watch::Receiver<bool>) -> ProxyServer {
    let upstream = ProxyServer::upstream(plane).await;
    ProxyServer::start(plane, "definitions", move || {
        let (upstream, fails) = (upstream.clone(), fails.clone());
        move |request| {
            let (upstream, fails) = (upstream.clone(), fails.clone());
            async move {
                let forward = Forward::receive(upstream, request).await?;
                let asked = ApiRequest::of(&forward.method, &forward.path);
                if *fails.borrow() && asked.resource == "customresourcedefinitions" {
                    return Ok(error_response(503));
                }
                forward.stream().await
            }
        }
    })
    .await
}

/// More than the time between two checks of the definitions.
const CHECKED: Duration = Duration::from_secs(17);

/// An API server that does not answer has not changed its definitions.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_cannot_be_read_hold_up_nothing() {
    let plane = ControlPlane::new();
    let (sender, fails) = watch::channel(false);
    let proxy = start_proxy(&plane, fails).await;
    let mut manager = Manager::launch(&plane, proxy.kubeconfig(), &[]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    set_up(&consumer).await;

    sender.send_replace(true);
    tokio::time::sleep(CHECKED).await;
    consumer.bind_to("b0", "b", "10.0.0.12").await;
    assert!(manager.is_running() && manager.is_ready());
}
