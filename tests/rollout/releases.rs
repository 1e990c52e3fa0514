//! The requests for a release.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use crate::support::consumer::Consumer;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::manager::Manager;
use crate::support::wait::eventually;

/// How long a create request of a previous manager may still be applied.
const CREATE_EXPIRY: Duration = Duration::from_secs(30);

/// The number of reads of single IPAddresses, and of writes of claims and their objects.
fn counts(control_plane: &ControlPlane) -> (u64, u64) {
    let ours = control_plane.request_count().into_iter().filter(|(key, _)| key.group == "ipam.cluster.x-k8s.io");
    ours.fold((0, 0), |(reads, writes), (key, count)| match (key.verb.as_str(), key.resource.as_str()) {
        ("GET", "ipaddresses") => (reads + count, writes),
        ("GET" | "LIST" | "WATCH", _) | (_, "inclusterippools") => (reads, writes),
        _ => (reads, writes + count),
    })
}

/// The increase of these counts by the release of claims.
async fn release(control_plane: &ControlPlane, consumer: &Consumer, names: &[String], left: i64) -> (u64, u64) {
    let before = counts(control_plane);
    for name in names {
        consumer.delete(name).await;
    }
    consumer.wait_for_counts("web", (100, 100 - left, left, 0)).await;
    // Lists are not counted, unlike reads of one object.
    eventually("the claims are deleted", || async {
        let claims = consumer.claims().list().await.ok()?;
        (!claims.iter().any(|claim| names.contains(&claim.name_any()))).then_some(())
    })
    .await;
    let after = counts(control_plane);
    (after.0 - before.0, after.1 - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn release_reads_the_address_only_after_a_restart() {
    let control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &[]);
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", json!({"addresses": ["10.0.0.1-10.0.0.100"], "prefix": 24})).await;
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;
    manager.stop();

    let _manager = Manager::start(&control_plane, &[]);
    // With the deletion by the consumer: the finalizer, the IPAddress, the reservation, the finalizer of the claim.
    assert_eq!(release(&control_plane, &consumer, &names[..10], 10).await, (10, 50));
    tokio::time::sleep(CREATE_EXPIRY).await;
    assert_eq!(release(&control_plane, &consumer, &names[10..], 0).await, (0, 50));
}
