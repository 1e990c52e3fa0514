//! The requests for a release.

use support::prelude::*;

/// How long a create request of a previous manager may still be applied.
const CREATE_EXPIRY: Duration = Duration::from_secs(30);

/// The number of reads of single IPAddresses, and of writes of claims and their objects. Others are
/// sent again: those that a loaded API server refused or did not answer in time.
fn counts(control_plane: &ControlPlane) -> (u64, u64) {
    let is_answered = |code: u16| (200..300).contains(&code) || code == 404;
    let all = control_plane.request_count().into_iter();
    let ours = all.filter(|(key, _)| key.group == "ipam.cluster.x-k8s.io" && is_answered(key.code));
    ours.fold((0, 0), |(reads, writes), (key, count)| {
        match (key.verb.as_str(), key.resource.as_str()) {
            ("GET", "ipaddresses") => (reads + count, writes),
            ("GET" | "LIST" | "WATCH", _) | (_, "inclusterippools") => (reads, writes),
            _ => (reads, writes + count),
        }
    })
}

/// Releases claims, and asserts the increase of these counts.
async fn release(
    control_plane: &ControlPlane,
    consumer: &Consumer,
    names: &[String],
    left: i64,
    expected: (u64, u64),
) {
    let before = counts(control_plane);
    for name in names {
        consumer.delete(name).await;
    }
    consumer
        .wait_for_counts("web", (100, 100 - left, left, 0))
        .await;
    // Lists are not counted, unlike reads of one object.
    until("the claims are deleted", async || {
        let claims = consumer.claims().list().await.ok()?;
        Some(!claims.iter().any(|claim| names.contains(&claim.name_any())))
    })
    .await;
    // The API server counts a request after its response.
    eventually_ok(
        &format!("the reads and writes are {expected:?}"),
        || async {
            let after = counts(control_plane);
            let increase = (after.0 - before.0, after.1 - before.1);
            if increase == expected {
                Ok(())
            } else {
                Err(format!("{increase:?}"))
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_reads_the_address_only_after_a_restart() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&[]).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.100").await;
    let names: Vec<String> = numbered("c", 20);
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;
    manager.stop();

    let _manager = Manager::start(&control_plane, &[]);
    // With the deletion by the consumer: the finalizer, the IPAddress, the reservation, the
    // finalizer of the claim.
    release(&control_plane, &consumer, &names[..10], 10, (10, 50)).await;
    tokio::time::sleep(CREATE_EXPIRY).await;
    release(&control_plane, &consumer, &names[10..], 0, (0, 50)).await;
}
