//! One namespace creates thousands of claims at once, another one a single claim.
//!
//! The work queue serves namespaces in turn. How long the single claim waits depends on the
//! machine, so its waiting time is printed, and the test only asserts that it is bound.

use support::prelude::*;

const FLOOD: usize = 600;
/// How long a slow machine takes for all of them.
const MAX_WAIT: Duration = Duration::from_mins(5);

async fn assert_is_bound(addresses: &str) {
    let control_plane = ControlPlane::new();
    let mut manager = Manager::start(&control_plane, &[]);
    let (many, one) = two_consumers(&control_plane).await;
    many.create_pool("web", json!({"addresses": [addresses], "prefix": 16}))
        .await;
    one.create_pool("web", "10.0.0.1").await;
    one.wait_for_counts("web", (1, 1, 0, 0)).await;
    // All at once: the manager reconciles nothing until it is resumed.
    manager.signal("STOP");
    many.create_claims(&numbered("c", FLOOD), "web").await;
    one.create_claim("single", "web").await;
    manager.signal("CONT");
    let started = Instant::now();
    one.wait_until_bound("single", MAX_WAIT).await;
    let waited = started.elapsed();
    let served = many
        .claims()
        .list()
        .await
        .expect("claims can be read")
        .iter()
        .filter(|claim| claim.status.is_some())
        .count();
    println!("{addresses}: a single claim waited {waited:?}, behind {served} of {FLOOD} others");
    one.assert_address("single", "10.0.0.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_bound_during_a_flood_from_another_namespace() {
    assert_is_bound("10.1.0.0/16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_bound_during_a_flood_for_an_exhausted_pool() {
    assert_is_bound("10.1.0.0/30").await;
}
