//! The provider against a real API server.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

use std::path::Path;
use std::time::Duration;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::patience::Patience;
use serde_json::json;

const CRD: &str = include_str!("../config/crd.yaml");

#[tokio::test]
async fn example_provider_binds_and_releases_claims() {
    let control_plane = ControlPlane::start(Options::default(), &Installation::of(CRD));
    let program = Path::new(env!("CARGO_BIN_EXE_list-provider"));
    let manager = Manager::start_program(
        &control_plane,
        program,
        control_plane.kubeconfig(),
        &[
            "--leader-elect",
            "--concurrency=4",
            "--config-map-prefix=own-",
        ],
    );
    manager.wait_until_ready();

    let consumer = Consumer::new(&control_plane).await;
    let namespace = &consumer.namespace;
    control_plane.kubectl_apply(&format!(
        "{{apiVersion: example.com/v1, kind: ListPool, metadata: {{name: list, namespace: {namespace}}}, \
         spec: {{addresses: [10.1.0.5, 10.1.0.7], prefix: 24}}}}"
    ));
    for (name, pool) in [
        ("a", "list"),
        ("b", "list"),
        ("early", "second"),
        ("lost", "nowhere"),
    ] {
        claim(&consumer, name, pool).await;
    }
    let mut given = vec![
        consumer.wait_for_address("a").await,
        consumer.wait_for_address("b").await,
    ];
    given.sort();
    assert_eq!(given, ["10.1.0.5", "10.1.0.7"]);
    assert_eq!(
        consumer.wait_for_reason("lost", "PoolNotReady").await,
        format!(
            "ListPool {}/nowhere does not exist; create it, or delete the claim, so that its controller creates it \
             with another pool: a claim cannot be changed",
            consumer.namespace
        )
    );

    // A claim that is created before its pool is bound as soon as the pool exists.
    consumer.wait_for_reason("early", "PoolNotReady").await;
    control_plane.kubectl_apply(&format!(
        "{{apiVersion: example.com/v1, kind: ListPool, metadata: {{name: second, namespace: {namespace}}}, \
         spec: {{addresses: ['fd00::5'], prefix: 64}}}}"
    ));
    let created = Patience::new(Duration::from_secs(25));
    assert_eq!(consumer.wait_for_address("early").await, "fd00::5");
    println!(
        "bound {:?} after the creation of the pool",
        created.elapsed()
    );
    // Without a trigger it is retried after 30 s.
    assert!(!created.is_over(), "{:?}", created.elapsed());
    claim(&consumer, "c", "list").await;
    let text = consumer.wait_for_reason("c", "PoolExhausted").await;
    assert_eq!(text, "no address is free");
    // The address of another claim is not allocated again, whatever an existing IPAddress says.
    let taken = consumer.wait_for_address("a").await;
    let pool = json!({"apiGroup": "example.com", "kind": "ListPool", "name": "list"});
    consumer.create_address_for("e", pool, &taken).await;
    claim(&consumer, "e", "list").await;
    let text = consumer.wait_for_reason("e", "DuplicateAddress").await;
    assert_eq!(text, format!("{taken} is allocated to another claim"));
    release(&consumer, "e").await;
    release(&consumer, "a").await;
    release(&consumer, "c").await;
    claim(&consumer, "d", "list").await;
    consumer.wait_for_address("d").await;
    release(&consumer, "b").await;
    let uid = release(&consumer, "d").await;
    deleted_pool_outlives_its_addresses(&control_plane, &consumer).await;
    let record = control_plane.kubectl(&[
        "-n",
        namespace,
        "get",
        "configmap",
        "own-list",
        "-o=jsonpath={.data}",
    ]);
    assert_eq!(record, json!({ "released": uid }).to_string());
}

/// The pool `second` has one address, which the claim `early` has.
async fn deleted_pool_outlives_its_addresses(control_plane: &ControlPlane, consumer: &Consumer) {
    let namespace = format!("--namespace={}", consumer.namespace);
    let pool = ["listpools", "second", &namespace];
    let wait = |condition: &str| {
        let condition = format!("--for={condition}");
        control_plane.kubectl(&[&["wait"][..], &pool, &[&condition, "--timeout=60s"]].concat());
    };
    wait("condition=Ready");
    wait("condition=Exhausted");
    wait("jsonpath={.status.ipAddresses.used}=1");
    wait("jsonpath={.status.ipAddresses.free}=0");
    control_plane.kubectl(&[&["delete"][..], &pool, &["--wait=false"]].concat());
    wait("condition=Ready=false");
    consumer.wait_for_address("early").await;
    release(consumer, "early").await;
    wait("delete");
}

async fn claim(consumer: &Consumer, name: &str, pool: &str) {
    let pool = json!({"apiGroup": "example.com", "kind": "ListPool", "name": pool});
    consumer.create_claim_for(name, pool, json!({})).await;
}

/// Returns the uid of the claim.
async fn release(consumer: &Consumer, name: &str) -> String {
    let claim = consumer
        .claims()
        .get(name)
        .await
        .expect("claims can be read")
        .expect("the claim exists");
    let uid = claim.metadata.uid.expect("a claim has a uid");
    consumer
        .claims()
        .delete(name, &uid)
        .await
        .expect("the claim can be deleted");
    consumer.wait_until_deleted(name).await;
    uid
}
