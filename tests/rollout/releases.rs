//! What taking an address back asks the API server for.

use std::time::Duration;

use capi_ipam::support::consumer::{Consumer, eventually};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use kube::ResourceExt;
use serde_json::json;

/// How long a creation that a manager sent before it ended may come late.
const LATEST: Duration = Duration::from_secs(30);

/// How often IPAddresses were read one by one, and how often claims and their objects were written.
fn counts(control_plane: &ControlPlane) -> (u64, u64) {
    let ours = control_plane.request_count().into_iter().filter(|(key, _)| key.group == "ipam.cluster.x-k8s.io");
    ours.fold((0, 0), |(reads, writes), (key, count)| match (key.verb.as_str(), key.resource.as_str()) {
        ("GET", "ipaddresses") => (reads + count, writes),
        ("GET" | "LIST" | "WATCH", _) | (_, "inclusterippools") => (reads, writes),
        _ => (reads, writes + count),
    })
}

/// What the release of so many claims adds to these counts.
async fn release(control_plane: &ControlPlane, consumer: &Consumer, names: &[String], left: i64) -> (u64, u64) {
    let before = counts(control_plane);
    for name in names {
        consumer.delete(name).await;
    }
    consumer.counts("web", (100, 100 - left, left, 0)).await;
    // A list is not counted, other than reads of one.
    eventually("the claims are gone", || async {
        let claims = consumer.claims().list().await.ok()?;
        (!claims.iter().any(|claim| names.contains(&claim.name_any()))).then_some(())
    })
    .await;
    let after = counts(control_plane);
    (after.0 - before.0, after.1 - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_reads_the_address_only_where_a_creation_may_come_late() {
    let control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &[]);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.100"], "prefix": 24})).await;
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    consumer.claim_all(&names, "web").await;
    consumer.all_bound(&names).await;
    manager.stop();

    let _manager = Manager::start(&control_plane, &[]);
    // With the deletion by the consumer: the finalizer, the IPAddress, the reservation, the finalizer of the claim.
    assert_eq!(release(&control_plane, &consumer, &names[..10], 10).await, (10, 50));
    tokio::time::sleep(LATEST).await;
    assert_eq!(release(&control_plane, &consumer, &names[10..], 0).await, (0, 50));
}
