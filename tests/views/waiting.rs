//! Claims that wait while several managers serve them: the reason is written only once.

use support::prelude::*;

use crate::{GLOBAL, serving, versions::at_rest};

/// How often the status of one waiting claim may be written, apart from changes of its message
/// while the pool fills up.
const MAX_WRITES: usize = 3;
/// How long a message must differ before each of the two managers writes it.
const DEBOUNCE_SECONDS: u64 = 5;

/// Waits until `bound` claims of the namespace are bound and all others report an exhausted pool.
/// Returns the names of the others.
async fn waiting(consumer: &Consumer, bound: usize) -> Vec<String> {
    eventually_within(
        Duration::from_mins(3),
        "every claim is bound or waits",
        || async {
            let claims = consumer.claims().list().await.ok()?;
            let waiting = claims
                .iter()
                .filter(|claim| ready(claim).reason.as_deref() == Some("PoolExhausted"));
            let waiting: Vec<String> = waiting
                .filter_map(|claim| claim.metadata.name.clone())
                .collect();
            let have = claims
                .iter()
                .filter(|claim| claim.bound_address().is_some())
                .count();
            (have == bound && waiting.len() + bound == claims.len()).then_some(waiting)
        },
    )
    .await
}

/// How often the provider has written the status of each claim.
fn status_writes(plane: &ControlPlane) -> BTreeMap<String, usize> {
    let mut writes = BTreeMap::new();
    for request in plane.provider_requests() {
        if request.resource == "ipaddressclaims/status" && request.code < 300 {
            *writes.entry(request.name).or_default() += 1;
        }
    }
    writes
}

/// Asserts that the status of each waiting claim is written at least once, and at most `max` times.
async fn assert_writes_few(plane: &ControlPlane, consumer: &Consumer, bound: usize, max: usize) {
    let names = waiting(consumer, bound).await;
    at_rest(consumer).await;
    assert_eq!(waiting(consumer, bound).await, names);
    let writes = status_writes(plane);
    let of_waiting: Vec<(&String, usize)> = names
        .iter()
        .map(|name| (name, writes.get(name).copied().unwrap_or_default()))
        .collect();
    println!("status writes of waiting claims: {of_waiting:?}");
    assert!(
        of_waiting
            .iter()
            .all(|(_, count)| (1..=max).contains(count)),
        "at most {max}: {of_waiting:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_write_waiting_status_once() {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    });
    let _managers = [serving(&plane, &[]), serving(&plane, &[])];
    let consumer = Consumer::new(&plane).await;
    consumer
        .create_global_pool("shared", "10.0.0.1-10.0.0.4")
        .await;
    for name in ["a", "b", "c", "d"] {
        consumer.bind_global(name, "shared").await;
    }
    consumer
        .wait_for_counts_of(GLOBAL, "shared", (4, 0, 4, 0))
        .await;
    futures::future::join_all((0..12).map(async |number| {
        consumer
            .create_global_claim(&format!("waits{number}"), "shared")
            .await;
    }))
    .await;
    assert_writes_few(&plane, &consumer, 4, MAX_WRITES).await;
}

/// The numbers in the message change while the pool fills up.
#[tokio::test(flavor = "multi_thread")]
async fn burst_of_waiting_claims_is_written_few_times() {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    });
    let _managers = [serving(&plane, &[]), serving(&plane, &[])];
    let consumer = Consumer::new(&plane).await;
    consumer
        .create_global_pool("shared", "10.0.0.1-10.0.0.20")
        .await;
    consumer
        .wait_for_counts_of(GLOBAL, "shared", (20, 20, 0, 0))
        .await;
    let started = Instant::now();
    futures::future::join_all((0..40).map(async |number| {
        consumer
            .create_global_claim(&format!("c{number}"), "shared")
            .await;
    }))
    .await;
    waiting(&consumer, 20).await;
    let changes =
        usize::try_from(started.elapsed().as_secs() / DEBOUNCE_SECONDS).expect("a small number");
    assert_writes_few(&plane, &consumer, 20, MAX_WRITES + 2 * changes).await;
}
