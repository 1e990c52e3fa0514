//! One namespace makes thousands of claims at once, another one a single claim.
//!
//! Claims are worked on in no order that regards namespaces: the single claim has its turn somewhere among the others.
//! So how long it waits is printed, and only that it is served is held true.

use std::time::{Duration, Instant};

use capi_ipam::support::consumer::{Consumer, eventually_within};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::workload::names;
use serde_json::json;

const FLOOD: usize = 2000;
/// What a slow machine takes for all of them.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

async fn waits(addresses: &str) {
    let control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &[]);
    let (many, one) = (Consumer::new(&control_plane).await, Consumer::new(&control_plane).await);
    many.pool("web", json!({"addresses": [addresses], "prefix": 16})).await;
    one.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    one.counts("web", (1, 1, 0, 0)).await;
    // All at once: nothing is served before the manager goes on.
    manager.signal("STOP");
    many.claim_all(&names("c", FLOOD), "web").await;
    one.claim("lonely", "web").await;
    manager.signal("CONT");
    let started = Instant::now();
    eventually_within(LONGEST_WAIT, "the lonely claim is bound", || async {
        one.claims().get("lonely").await.ok()??.bound_address().map(drop)
    })
    .await;
    let waited = started.elapsed();
    let served =
        many.claims().list().await.expect("claims can be read").iter().filter(|claim| claim.status.is_some()).count();
    println!("{addresses}: a single claim waited {waited:?}, behind {served} of {FLOOD} others");
    assert_eq!(one.bound("lonely").await, "10.0.0.1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_served_beside_a_flood_of_another_namespace() {
    waits("10.1.0.0/16").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_served_beside_a_flood_for_a_pool_that_is_used_up() {
    waits("10.1.0.0/30").await;
}
