//! The example provider against a real API server.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

mod support;

use serde_json::json;

use support::consumer::Consumer;
use support::control_plane::{ControlPlane, Options};
use support::manager::{Manager, built};

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: listpools.example.com}
spec:
  group: example.com
  names: {kind: ListPool, plural: listpools, singular: listpool}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                addresses: {type: array, items: {type: string}}
                prefix: {type: integer}
";

#[tokio::test]
async fn example_provider_binds_and_releases_claims() {
    let control_plane = ControlPlane::start(Options::default());
    control_plane.kubectl_apply(DEFINITION);
    control_plane.wait_until_served("listpools.example.com");
    let program = built("examples/list_provider");
    let manager = Manager::start_program(
        &control_plane,
        &program,
        control_plane.kubeconfig(),
        &["--leader-elect", "--concurrency=4"],
    );
    manager.wait_until_ready();

    let consumer = Consumer::new(&control_plane).await;
    let namespace = &consumer.namespace;
    control_plane.kubectl_apply(&format!(
        "{{apiVersion: example.com/v1, kind: ListPool, metadata: {{name: list, namespace: {namespace}}}, \
         spec: {{addresses: [10.1.0.5, 10.1.0.7], prefix: 24}}}}"
    ));
    for (name, pool) in [("a", "list"), ("b", "list"), ("lost", "nowhere")] {
        claim(&consumer, name, pool).await;
    }
    let mut given = vec![consumer.wait_for_address("a").await, consumer.wait_for_address("b").await];
    given.sort();
    assert_eq!(given, ["10.1.0.5", "10.1.0.7"]);
    assert_eq!(consumer.wait_for_reason("lost", "PoolNotReady").await, "ListPool nowhere does not exist");

    claim(&consumer, "c", "list").await;
    let text = consumer.wait_for_reason("c", "PoolExhausted").await;
    assert_eq!(text, "ListPool list has no free address; add addresses or release claims");
    // The address of another claim is not allocated again, whatever an existing IPAddress says.
    let taken = consumer.wait_for_address("a").await;
    let address = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": { "name": "e", "namespace": consumer.namespace },
        "spec": { "poolRef": { "apiGroup": "example.com", "kind": "ListPool", "name": "list" },
            "claimRef": { "name": "e" }, "address": taken, "prefix": 24 },
    });
    consumer.addresses().create(&support::consumer::object(address)).await.expect("the address can be created");
    claim(&consumer, "e", "list").await;
    let text = consumer.wait_for_reason("e", "DuplicateAddress").await;
    assert_eq!(text, format!("{taken} is allocated to another claim"));
    consumer.release("e").await;
    consumer.release("a").await;
    consumer.release("c").await;
    claim(&consumer, "d", "list").await;
    consumer.wait_for_address("d").await;
    consumer.release("b").await;
    consumer.release("d").await;
    assert_eq!(control_plane.kubectl(&["-n", namespace, "get", "configmap", "list", "-o=jsonpath={.data}"]), "");
}

async fn claim(consumer: &Consumer, name: &str, pool: &str) {
    let claim = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
        "metadata": { "name": name, "namespace": consumer.namespace },
        "spec": { "poolRef": { "apiGroup": "example.com", "kind": "ListPool", "name": pool } },
    });
    consumer.claims().create(&support::consumer::object(claim)).await.expect("the claim can be created");
}
