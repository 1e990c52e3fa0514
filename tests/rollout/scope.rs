//! The scope of a manager: `--namespace`, `--watch-filter` and `--selector`.

use serde_json::json;

use support::consumer::Consumer;
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;

#[tokio::test(flavor = "multi_thread")]
async fn global_pool_counts_are_correct_with_namespace_flag() {
    let control_plane = ControlPlane::start(Options::default());
    let (one, two) = (
        Consumer::new(&control_plane).await,
        Consumer::new(&control_plane).await,
    );
    one.create_global_pool(
        "shared",
        json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24}),
    )
    .await;
    let first = format!("--namespace={}", one.namespace);
    let _first = Manager::start(&control_plane, &[&first]);
    one.create_global_claim("a", "shared").await;
    two.create_global_claim("b", "shared").await;
    assert_eq!(one.wait_for_address("a").await, "10.0.0.10");
    two.assert_stays_unbound("b").await;

    // Another one for the other namespace at the same time: it observes the allocations of the
    // first by the reservations.
    let second = format!("--namespace={}", two.namespace);
    let _second = Manager::start(&control_plane, &[&second]);
    assert_eq!(two.wait_for_address("b").await, "10.0.0.11");
    one.create_global_claim("c", "shared").await;
    assert_eq!(one.wait_for_address("c").await, "10.0.0.12");
    two.create_global_claim("d", "shared").await;
    two.wait_for_reason("d", "PoolExhausted").await;
    one.release("a").await;
    assert_eq!(two.wait_for_address("d").await, "10.0.0.10");
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_filter_selects_claims_and_pools() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &["--watch-filter=blue"]);
    let consumer = Consumer::new(&control_plane).await;
    let label = |value: &str| json!({"labels": {"cluster.x-k8s.io/watch-filter": value}});
    consumer
        .create_pool(
            "web",
            json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24}),
        )
        .await;
    consumer
        .create_claim_with("red", "InClusterIPPool", "web", label("red"))
        .await;
    consumer
        .create_claim_with("none", "InClusterIPPool", "web", json!({}))
        .await;
    consumer
        .create_claim_with("blue", "InClusterIPPool", "web", label("blue"))
        .await;
    // This manager does not serve the pool, so it has no finalizer and the claim waits for it.
    consumer.assert_stays_unbound("blue").await;
    let pools = consumer.pools();
    consumer
        .modify(&pools, "web", |pool| {
            pool["metadata"]["labels"] = label("blue")["labels"].clone()
        })
        .await;
    let address = consumer.wait_for_ip_address("blue").await;
    assert_eq!(
        address.metadata.labels.unwrap_or_default()["cluster.x-k8s.io/watch-filter"],
        "blue"
    );
    consumer.assert_stays_unbound("red").await;
    consumer.assert_stays_unbound("none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_namespaces_can_be_served() {
    let control_plane = ControlPlane::start(Options::default());
    let (one, two, other) = (
        Consumer::new(&control_plane).await,
        Consumer::new(&control_plane).await,
        Consumer::new(&control_plane).await,
    );
    let flags = [&one, &two].map(|team| format!("--namespace={}", team.namespace));
    let _manager = Manager::start(&control_plane, &[&flags[0], &flags[1]]);
    for team in [&one, &two, &other] {
        team.create_pool("web", json!({"addresses": ["10.0.0.10"], "prefix": 24}))
            .await;
        team.create_cluster("paused", true).await;
        team.create_claim_with(
            "p",
            "InClusterIPPool",
            "web",
            json!({"clusterName": "paused"}),
        )
        .await;
    }
    for team in [&one, &two] {
        // The Clusters of all selected namespaces are watched.
        team.wait_for_reason("p", "Paused").await;
        team.create_claim("c", "web").await;
        assert_eq!(team.wait_for_address("c").await, "10.0.0.10");
    }
    other.create_claim("c", "web").await;
    other.assert_stays_unbound("c").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selector_selects_claims_and_pools() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &["--selector=tier in (web,db),!legacy"]);
    let consumer = Consumer::new(&control_plane).await;
    let label = |value: &str| json!({"labels": {"tier": value}});
    consumer
        .create_pool(
            "web",
            json!({"addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24}),
        )
        .await;
    consumer
        .create_claim_with("web", "InClusterIPPool", "web", label("web"))
        .await;
    // This manager does not serve the pool, so it has no finalizer and the claim waits for it.
    consumer.assert_stays_unbound("web").await;
    let pools = consumer.pools();
    consumer
        .modify(&pools, "web", |pool| {
            pool["metadata"]["labels"] = label("db")["labels"].clone()
        })
        .await;
    consumer.wait_for_address("web").await;
    let legacy = json!({"labels": {"tier": "web", "legacy": ""}});
    for (name, labels) in [
        ("cache", label("cache")),
        ("none", json!({})),
        ("legacy", legacy),
    ] {
        consumer
            .create_claim_with(name, "InClusterIPPool", "web", labels)
            .await;
    }
    consumer.assert_stays_unbound("cache").await;
    consumer.assert_stays_unbound("none").await;
    consumer.assert_stays_unbound("legacy").await;
}
