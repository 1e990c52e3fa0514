//! `doctor`.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{create, definitions, manager, reference, run};

#[tokio::test]
async fn doctor_finds_each_fault_made_by_hand() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let flags = ["--webhook-port=0", "--leader-elect", "--leader-election-namespace=default"];
    let mut manager = Manager::start_program(&plane, &program, admin, &flags);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    for name in ["one", "two", "three"] {
        consumer.create_claim_for(name, reference("InClusterIPPool", "web"), json!({})).await;
        consumer.wait_for_address(name).await;
    }
    eventually("the cluster is healthy", async || (run(admin, &["doctor"]).0 == 0).then_some(())).await;

    create(&plane, "InClusterIPPool", Some(namespace), "copy", &spec);
    manager.stop();
    let remove = |resource: &str| {
        let without = r#"{"metadata":{"finalizers":null}}"#;
        plane.kubectl(&["delete", resource, "-n", namespace, "--wait=false"]);
        plane.kubectl(&["patch", resource, "-n", namespace, "--type=merge", "-p", without]);
    };
    remove("ipaddresses.ipam.cluster.x-k8s.io/two");
    remove("ipaddressclaims.ipam.cluster.x-k8s.io/three");
    consumer.create_address_for("twin", reference("InClusterIPPool", "web"), "10.0.0.10").await;
    consumer.create_claim_for("lost", reference("InClusterIPPool", "none"), json!({})).await;
    let webhook = json!({
        "name": "inclusterippool.example.com", "failurePolicy": "Ignore", "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": "default", "name": "hooks" } },
        "rules": [{ "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"] }],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "capi-ipam-in-cluster-validating-webhook-configuration" }, "webhooks": [webhook],
    });
    plane.kubectl_apply(&configuration.to_string());

    let (code, output, errors) = run(admin, &["doctor", "-o", "json"]);
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    let report: Value = serde_json::from_str(&output).expect("the output is JSON");
    let found: Vec<(String, String)> = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| {
            let part = |name: &str| finding[name].as_str().expect("text").to_owned();
            assert!(!part("repair").is_empty(), "{finding}");
            (part("check"), part("object").replace(namespace, "NS"))
        })
        .collect();
    let expected = [
        ("DuplicateAddress", "address 10.0.0.10"),
        ("LostAddress", "ipaddressclaim NS/two"),
        ("MissingPool", "ipaddressclaim NS/lost"),
        ("NoLeader", "lease default/7bb7acb4.ipam.cluster.x-k8s.io"),
        ("WebhookUnavailable", "capi-ipam-in-cluster-validating-webhook-configuration"),
        ("WebhookUntrusted", "capi-ipam-in-cluster-validating-webhook-configuration"),
        ("OrphanAddress", "ipaddress NS/three"),
        ("OrphanAddress", "ipaddress NS/twin"),
        ("AbandonedReservation", "ipreservation p.NS.web.10.0.0.12"),
        ("PoolsOverlap", "InClusterIPPool NS/copy"),
        ("PoolsOverlap", "InClusterIPPool NS/web"),
    ];
    assert_eq!(found, expected.map(|(check, object)| (check.to_owned(), object.to_owned())), "{output}");
}
