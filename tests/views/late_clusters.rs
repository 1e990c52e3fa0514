//! A manager whose watch of Clusters is late.

use support::{prelude::*, wait::consistently};

use crate::lagging::Lagging;

/// `clusterctl move` pauses the Cluster, and then removes the objects with their finalizers.
#[tokio::test(flavor = "multi_thread")]
async fn claim_of_a_paused_cluster_is_not_repaired() {
    let plane = ControlPlane::new();
    let lagging = Lagging::start(&plane).await;
    let manager = Manager::launch(&plane, lagging.kubeconfig(), &[]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    consumer.create_cluster("c", false).await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    let pool = InClusterKind::IPPool.name();
    let of_cluster = json!({"clusterName": "c"});
    consumer
        .create_claim_with("a", pool, "web", of_cluster)
        .await;
    let address = consumer.wait_for_address("a").await;

    lagging.hold_watches(&["clusters"]);
    let clusters = consumer.clusters();
    consumer.set_paused(&clusters, "c", true).await;
    let (claims, addresses) = (consumer.claims(), consumer.addresses());
    consumer.force_delete(&addresses, "a").await;
    let is_left = async || {
        let found = addresses.get("a").await;
        let claim = claims.get("a").await.expect("it can be read");
        found.expect("it can be read").is_none() && claim.expect("it exists").finalizers().len() < 2
    };
    consistently("the IPAddress is not created again", &is_left).await;
    consumer.set_finalizers(&claims, "a", &[]).await;
    let is_untouched = async || {
        let claim = claims.get("a").await.expect("it can be read");
        is_left().await && claim.expect("it exists").finalizers().is_empty()
    };
    consistently("the finalizer is not added again", &is_untouched).await;

    lagging.hold_watches(&[]);
    consumer.set_paused(&clusters, "c", false).await;
    eventually("the claim is repaired", || async {
        let claim = claims.get("a").await.ok().flatten()?;
        let found = addresses.get("a").await.ok().flatten()?;
        (!claim.finalizers().is_empty() && found.spec.address == address).then_some(())
    })
    .await;
}
