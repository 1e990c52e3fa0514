//! The scope of a manager: `--namespace`, `--watch-filter` and `--selector`.

use support::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn global_pool_counts_are_correct_with_namespace_flag() {
    let control_plane = ControlPlane::new();
    let (one, two) = two_consumers(&control_plane).await;
    one.create_global_pool("shared", "10.0.0.10-10.0.0.12")
        .await;
    let first = format!("--namespace={}", one.namespace);
    let _first = Manager::start(&control_plane, &[&first]);
    one.create_global_claim("a", "shared").await;
    two.create_global_claim("b", "shared").await;
    one.assert_address("a", "10.0.0.10").await;
    two.assert_stays_unbound("b").await;

    // Another one for the other namespace at the same time: it observes the allocations of the
    // first by the reservations.
    let second = format!("--namespace={}", two.namespace);
    let _second = Manager::start(&control_plane, &[&second]);
    two.assert_address("b", "10.0.0.11").await;
    one.bind_global_to("c", "shared", "10.0.0.12").await;
    two.global_claim_waits("d", "shared", "PoolExhausted").await;
    one.release("a").await;
    two.assert_address("d", "10.0.0.10").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_filter_selects_claims_and_pools() {
    let (_plane, _manager, consumer) = scene_with_manager(&["--watch-filter=blue"]).await;
    let label = |value: &str| json!({"labels": {"cluster.x-k8s.io/watch-filter": value}});
    consumer.create_pool("web", "10.0.0.10-10.0.0.12").await;
    consumer
        .create_claim_with_metadata("red", "web", label("red"))
        .await;
    consumer
        .create_claim_with_metadata("none", "web", json!({}))
        .await;
    consumer
        .create_claim_with_metadata("blue", "web", label("blue"))
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
    let control_plane = ControlPlane::new();
    let (one, two, other) = (
        Consumer::new(&control_plane).await,
        Consumer::new(&control_plane).await,
        Consumer::new(&control_plane).await,
    );
    let flags = [&one, &two].map(|team| format!("--namespace={}", team.namespace));
    let _manager = Manager::start(&control_plane, &[&flags[0], &flags[1]]);
    for team in [&one, &two, &other] {
        team.create_pool("web", "10.0.0.10").await;
        team.create_cluster("paused", true).await;
        team.create_claim_with_metadata("p", "web", json!({"clusterName": "paused"}))
            .await;
    }
    for team in [&one, &two] {
        // The Clusters of all selected namespaces are watched.
        team.wait_for_reason("p", "Paused").await;
        team.bind_to("c", "web", "10.0.0.10").await;
    }
    other.create_claim("c", "web").await;
    other.assert_stays_unbound("c").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selector_selects_claims_and_pools() {
    let (_plane, _manager, consumer) =
        scene_with_manager(&["--selector=tier in (web,db),!legacy"]).await;
    let label = |value: &str| json!({"labels": {"tier": value}});
    consumer.create_pool("web", "10.0.0.10-10.0.0.12").await;
    consumer
        .create_claim_with_metadata("web", "web", label("web"))
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
            .create_claim_with_metadata(name, "web", labels)
            .await;
    }
    consumer.assert_stays_unbound("cache").await;
    consumer.assert_stays_unbound("none").await;
    consumer.assert_stays_unbound("legacy").await;
}
