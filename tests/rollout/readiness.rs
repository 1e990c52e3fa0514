//! The probes, and when a manager that cannot work exits.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::consumer::Consumer;
use crate::support::control_plane::{ACCOUNT, ControlPlane, Options};
use crate::support::manager::Manager;
use crate::support::wait::{eventually, eventually_within};

fn is_ok(manager: &Manager, path: &str) -> bool {
    manager.probe(path).is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The first list of pools needs a conversion, and no webhook responds: the manager may have to serve it itself.
#[tokio::test(flavor = "multi_thread")]
async fn unsynced_caches_do_not_fail_readiness() {
    let control_plane = ControlPlane::start(Options::default());
    let definition = ["patch", "crd", "inclusterippools.ipam.cluster.x-k8s.io", "--type=json", "-p"];
    let change = |conversion: serde_json::Value| {
        let stored = |version| format!("/spec/versions/{version}/storage");
        let patch = json!([
            {"op": "replace", "path": "/spec/conversion", "value": conversion},
            {"op": "replace", "path": stored(0), "value": true},
            {"op": "replace", "path": stored(1), "value": false},
        ]);
        control_plane.kubectl(&[&definition[..], &[&patch.to_string()]].concat());
    };
    change(json!({"strategy": "None"}));
    // Until the API server stores pools in the old version.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}});
    change(json!({"strategy": "Webhook", "webhook": webhook}));

    let manager = Manager::launch(&control_plane, control_plane.provider_kubeconfig(), &[]);
    eventually("the manager is ready", || async { is_ok(&manager, "/readyz").then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let missing = manager.probe("/readyz/caches").unwrap_or_default();
    assert!(missing.starts_with("HTTP/1.1 503") && missing.contains("- InClusterIPPool: "), "{missing}");
    assert!(is_ok(&manager, "/readyz"), "{:?}", manager.probe("/readyz"));
    change(json!({"strategy": "None"}));
    eventually("all caches are synced", || async { is_ok(&manager, "/readyz/caches").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_that_lacks_a_permission_is_not_ready() {
    let control_plane = ControlPlane::start(Options::default());
    let manager = Manager::start(&control_plane, &[]).may_lack_permissions();
    assert!(is_ok(&manager, "/readyz"));
    let bindings = control_plane.kubectl(&["get", "clusterrolebindings", "-o=json"]);
    let bindings: serde_json::Value = serde_json::from_str(&bindings).expect("kubectl writes JSON");
    let ours = bindings["items"].as_array().into_iter().flatten().find(|item| {
        item["subjects"].as_array().into_iter().flatten().any(|subject| subject["name"] == json!(ACCOUNT))
    });
    let name = ours.and_then(|item| item["metadata"]["name"].as_str()).expect("there is a binding").to_owned();
    let saved = control_plane.kubectl(&["get", "clusterrolebinding", &name, "-o=json"]);
    control_plane.kubectl(&["delete", "clusterrolebinding", &name]);
    // Open watches continue until they are restarted.
    eventually_within(Duration::from_mins(2), "the manager is not ready", || async {
        let answer = manager.probe("/readyz")?;
        (answer.starts_with("HTTP/1.1 503") && answer.contains("IPAddressClaim: ") && answer.contains("is forbidden"))
            .then_some(())
    })
    .await;
    let mut saved: serde_json::Value = serde_json::from_str(&saved).expect("kubectl writes JSON");
    saved["metadata"] = json!({"name": name});
    control_plane.kubectl_apply(&saved.to_string());
    eventually("the manager is ready again", || async { is_ok(&manager, "/readyz").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_exits_when_a_kind_is_no_longer_served() {
    let control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &["--leader-elect"]).may_lack_permissions();
    manager.wait_for_log("acquired leadership lease");
    eventually("all caches are synced", || async { manager.is_ready().then_some(()) }).await;
    let started = Instant::now();
    control_plane.kubectl(&["delete", "crd", "clusters.cluster.x-k8s.io", "--timeout=120s"]);
    let status = eventually_within(Duration::from_mins(3), "the manager exits", || {
        let status = manager.exit_status();
        async move { status }
    })
    .await;
    assert!(started.elapsed() > Duration::from_secs(25), "the CRD may be installed again: {:?}", started.elapsed());
    assert_eq!(status.code(), Some(1));
    let log = manager.log();
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("error: cannot continue: Cluster: the API server no longer serves this kind in"),
        "{last}"
    );
    assert!(log.contains("released leadership lease"), "other replicas do not have to wait:\n{log}");
}
