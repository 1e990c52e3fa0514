//! What a manager looks after: `--namespace` and `--watch-filter`.

use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn limited_to_a_namespace_it_counts_a_global_pool_right() {
    let control_plane = ControlPlane::start(Options::default());
    let (one, two) = (Consumer::new(&control_plane).await, Consumer::new(&control_plane).await);
    one.global_pool("shared", json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24})).await;
    let first = format!("--namespace={}", one.namespace);
    let _first = Manager::start(&control_plane, &[&first]);
    one.global_claim("a", "shared").await;
    two.global_claim("b", "shared").await;
    assert_eq!(one.bound("a").await, "10.0.0.10");
    two.stays_unbound("b").await;

    // Another one for the other namespace, at the same time: it knows what the first gave out by the reservations.
    let second = format!("--namespace={}", two.namespace);
    let _second = Manager::start(&control_plane, &[&second]);
    assert_eq!(two.bound("b").await, "10.0.0.11");
    one.global_claim("c", "shared").await;
    assert_eq!(one.bound("c").await, "10.0.0.12");
    two.global_claim("d", "shared").await;
    two.waits_for("d", "PoolExhausted").await;
    one.release("a").await;
    assert_eq!(two.bound("d").await, "10.0.0.10");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_filter_selects_claims_and_pools() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &["--watch-filter=blue"]);
    let consumer = Consumer::new(&control_plane).await;
    let label = |value: &str| json!({"labels": {"cluster.x-k8s.io/watch-filter": value}});
    consumer.pool("web", json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24})).await;
    consumer.claim_with("red", "InClusterIPPool", "web", label("red")).await;
    consumer.claim_with("none", "InClusterIPPool", "web", json!({})).await;
    consumer.claim_with("blue", "InClusterIPPool", "web", label("blue")).await;
    // The pool is not looked after by this manager, so it has no finalizer and the claim waits for it.
    consumer.stays_unbound("blue").await;
    let pools = consumer.pools();
    consumer.change(&pools, "web", |pool| pool["metadata"]["labels"] = label("blue")["labels"].clone()).await;
    let address = consumer.bound_address("blue").await;
    assert_eq!(address.metadata.labels.unwrap_or_default()["cluster.x-k8s.io/watch-filter"], "blue");
    consumer.stays_unbound("red").await;
    consumer.stays_unbound("none").await;
}
