//! Definitions that are removed while the manager runs, and come back.

use capi_ipam::api::InClusterPrefixPool;
use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::workload::{make_all, names, settles};
use serde_json::{json, Value};

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

/// Removes a definition and all objects of the kind; returns what brings it back.
fn remove(control_plane: &ControlPlane, definition: &str) -> String {
    let saved = control_plane.kubectl(&["get", "crd", definition, "-o=json"]);
    control_plane.kubectl(&["delete", "crd", definition, "--timeout=60s"]);
    let mut saved: Value = serde_json::from_str(&saved).expect("kubectl writes JSON");
    let (name, labels) = (saved["metadata"]["name"].take(), saved["metadata"]["labels"].take());
    saved["metadata"] = json!({"name": name, "labels": labels});
    saved["status"] = json!(null);
    saved.to_string()
}

fn bring_back(control_plane: &ControlPlane, definition: &str, saved: &str) {
    control_plane.kubectl_apply(saved);
    control_plane.wait_until_served(definition);
}

/// All reservations go with their kind. What is in use is known by the IPAddress objects, and reserved again.
#[tokio::test(flavor = "multi_thread")]
async fn without_reservations_nothing_is_given_and_nothing_lost() {
    let control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.50"], "prefix": 24})).await;
    let (before, during) = (names("before", 20), names("during", 10));
    make_all(&consumer, &before, "web").await;
    consumer.all_bound(&before).await;
    let given = consumer.given().await;
    let definition = "ipreservations.ipam.cluster.x-k8s.io";
    let saved = remove(&control_plane, definition);
    manager.wait_for_log("the API server does not know the kind; install its definition kind=\"IPReservation\"");
    make_all(&consumer, &during, "web").await;
    let text = consumer.waits_for("during0", "AllocationFailed").await;
    assert!(text.contains("reserve"), "{text}");
    assert_eq!(consumer.given().await, given, "nothing is given out without a reservation");

    bring_back(&control_plane, definition, &saved);
    settles(&consumer, "web", &[before, during].concat()).await;
    let after = consumer.given().await;
    assert!(given.iter().all(|(name, address)| after.get(name) == Some(address)), "{given:?} {after:?}");
    assert!(manager.is_running() && manager.is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_kinds_are_served_while_one_is_gone() {
    let control_plane = ControlPlane::start(Options::default());
    let manager = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.50"], "prefix": 24})).await;
    let mut claims = names("c", 5);
    make_all(&consumer, &claims, "web").await;
    consumer.all_bound(&claims).await;
    let gone = [
        ("inclusterprefixpools.ipam.cluster.x-k8s.io", "InClusterPrefixPool"),
        ("clusters.cluster.x-k8s.io", "Cluster"),
    ];
    let mut saved = Vec::new();
    for (definition, kind) in gone {
        saved.push((definition, remove(&control_plane, definition)));
        manager.wait_for_log(&format!("the API server does not know the kind; install its definition kind=\"{kind}\""));
    }
    let more = names("more", 5);
    make_all(&consumer, &more, "web").await;
    claims.extend(more);
    settles(&consumer, "web", &claims).await;

    for (definition, saved) in &saved {
        bring_back(&control_plane, definition, saved);
    }
    // In another namespace, whose objects are counted by nobody here.
    let other = Consumer::new(&control_plane).await;
    other.cluster("alpha", false).await;
    other.make(&other.prefix_pools(), "blocks", json!({"prefixes": ["fd00::/56"], "allocationPrefixLength": 64})).await;
    other.claim_with("block", "InClusterPrefixPool", "blocks", json!({"clusterName": "alpha"})).await;
    assert_eq!(other.bound("block").await, "fd00::");
    other.counts_of::<InClusterPrefixPool>(&other.prefix_pools(), "blocks", (256, 255, 1, 0)).await;
}
