//! The manager with the permissions of `config/rbac`, and no more.

use std::path::Path;

use serde_json::json;

use crate::support::consumer::{Consumer, eventually};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::manager::Manager;

/// Requests that the API server answered with 403.
fn refusals(control_plane: &ControlPlane) -> Vec<String> {
    let metrics = control_plane.kubectl(&["get", "--raw", "/metrics"]);
    let refused = |line: &&str| line.starts_with("apiserver_request_total") && line.contains(r#"code="403""#);
    metrics.lines().filter(refused).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_committed_roles_are_enough() {
    let control_plane = ControlPlane::start(Options { enforce_owner_references: true, ..Options::default() });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/rbac");
    for file in ["service_account.yaml", "role.yaml", "role_binding.yaml"] {
        control_plane.kubectl(&["apply", "-f", &folder.join(file).display().to_string()]);
    }
    let namespace = "capi-ipam-in-cluster-system";
    let account = "capi-ipam-in-cluster-controller-manager";
    let token = control_plane.kubectl(&["-n", namespace, "create", "token", account]);
    let kubeconfig = control_plane.kubeconfig_for(account, token.trim());
    let election = format!("--leader-election-namespace={namespace}");
    let flags = ["--leader-elect", &election, "--sweep-interval=1s", "--sweep-grace=1s"];
    let before = refusals(&control_plane);
    let mut manager = Manager::launch(&control_plane, &kubeconfig, &flags);
    manager.wait_for_log("the controller starts");
    manager.wait_until_ready();

    let consumer = Consumer::new(&control_plane).await;
    let rest = json!({"addresses": ["10.0.0.10-10.0.0.11"], "prefix": 24, "addressReuseGracePeriodSeconds": 1});
    consumer.pool("web", rest).await;
    consumer.global_pool("all", json!({"addresses": ["fd00::/64"], "prefix": 64})).await;
    consumer.cluster("alpha", true).await;
    consumer.claim("a", "web").await;
    consumer.claim("b", "web").await;
    consumer.global_claim("g", "all").await;
    consumer.claim_with("p", "InClusterIPPool", "web", json!({"clusterName": "alpha"})).await;
    for name in ["a", "b", "g"] {
        consumer.bound(name).await;
    }
    consumer.claim("c", "web").await;
    consumer.waits_for("c", "PoolExhausted").await;
    consumer.waits_for("p", "Paused").await;
    consumer.release("a").await;
    consumer.bound("c").await;
    // The sweeper's work: an address whose owner is gone, a reservation of nobody.
    consumer.address_by_hand("orphan", "web", "10.0.0.200").await;
    consumer.gone("orphan").await;
    let reservation = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
        "metadata": {"name": format!("p.{}.web.10.0.0.201", consumer.namespace)},
        "spec": {
            "scope": format!("p.{}.web", consumer.namespace), "address": "10.0.0.201",
            "poolRef": {"kind": "InClusterIPPool", "namespace": consumer.namespace, "name": "web"},
            "claimRef": {"namespace": consumer.namespace, "name": "dead", "uid": "dead"},
        },
    });
    consumer.reservations().create(&crate::support::consumer::object(reservation)).await.expect("it can be made");
    let name = format!("p.{}.web.10.0.0.201", consumer.namespace);
    eventually("the reservation of nobody is freed", || async {
        consumer.reservations().get(&name).await.expect("reservations can be read").is_none().then_some(())
    })
    .await;
    // Pools go, with what is in them.
    for name in ["b", "c", "g", "p"] {
        consumer.delete(name).await;
    }
    control_plane.kubectl(&["delete", "globalinclusterippool", "all", "--timeout=30s"]);
    for name in ["b", "c", "g"] {
        consumer.gone(name).await;
    }
    manager.stop();
    assert_eq!(refusals(&control_plane), before, "{}", manager.log());
    assert!(!manager.log().contains("orbidden"), "{}", manager.log());
}
