//! A write of the provider that reaches the API server late: after its program was killed, and the
//! claim was released.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

use std::future::pending;
use std::path::Path;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::proxy::{ApiRequest, Forward, ProxyServer, Verb};
use serde_json::json;
use tokio::sync::mpsc;

const PROGRAM: &str = env!("CARGO_BIN_EXE_list-provider");
const CRD: &str = include_str!("../config/crd.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn late_allocation_of_a_released_claim_is_rejected() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(CRD));
    let upstream = ProxyServer::upstream(&plane).await;
    let (held, mut writes) = mpsc::unbounded_channel();
    let proxy = ProxyServer::start(&plane, "late-write", move || {
        let (upstream, held) = (upstream.clone(), held.clone());
        move |request| {
            let (upstream, held) = (upstream.clone(), held.clone());
            async move {
                let forward = Forward::receive(upstream, request).await?;
                let ApiRequest { verb, resource, .. } =
                    ApiRequest::of(&forward.method, &forward.path);
                match verb {
                    Verb::Watch => forward.stream().await,
                    Verb::Change if resource == "configmaps" => {
                        held.send(forward).expect("the test runs");
                        pending().await
                    }
                    _ => forward.send().await,
                }
            }
        }
    })
    .await;
    let launch = |kubeconfig: &Path| {
        let manager = Manager::start_program(&plane, PROGRAM.as_ref(), kubeconfig, &[]);
        manager.wait_until_ready();
        manager
    };
    let consumer = Consumer::new(&plane).await;
    let namespace = &consumer.namespace;
    plane.kubectl_apply(&format!(
        "{{apiVersion: example.com/v1, kind: ListPool, metadata: {{name: list, namespace: {namespace}}}, \
         spec: {{addresses: [10.1.0.5], prefix: 24}}}}"
    ));
    let pool = json!({"apiGroup": "example.com", "kind": "ListPool", "name": "list"});

    let mut manager = launch(proxy.kubeconfig());
    consumer
        .create_claim_for("a", pool.clone(), json!({}))
        .await;
    let late = writes.recv().await.expect("the address is allocated");
    manager.kill();
    consumer.delete("a").await;
    let _manager = launch(plane.kubeconfig());
    consumer.wait_until_deleted("a").await;
    let response = late.send().await.expect("the API server answers");
    assert!(!response.status().is_success(), "the late write is applied");
    consumer.create_claim_for("b", pool, json!({})).await;
    assert_eq!(consumer.wait_for_address("b").await, "10.1.0.5");
}
