//! Bodies that are far larger in memory than on the wire, from many clients at once: they are
//! rejected, the memory of the manager stays within the limit of its container, valid reviews are
//! answered meanwhile, and the log is not flooded.

use capi_ipam::admission::routes::CONVERT;

use crate::Environment;
use support::process::Memory;
use support::webhooks::junk::Junk;

/// The limit in `config/manager/deployment.yaml`.
const CONTAINER_MIB: f64 = 512.0;

const CLIENTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn oversized_bodies_stay_within_the_memory_limit() {
    let shared = Environment::start(&[]);
    for junk in Junk::all() {
        let outcome = junk.send(&shared.webhooks, CLIENTS, 1).await;
        let peak = Memory::of(shared.manager.pid()).peak;
        println!("{}: peak memory {peak:.0} MiB, {outcome:?}", junk.what);
        let answered: usize = outcome.statuses.values().sum();
        assert_eq!(answered, CLIENTS, "{}: {outcome:?}", junk.what);
        let refusals = [0, 400, 413, 422, 429, 504];
        assert!(
            outcome
                .statuses
                .keys()
                .all(|status| refusals.contains(status)),
            "{}: {outcome:?}",
            junk.what
        );
        assert!(
            outcome.good.answered > 0 && outcome.good.failed == 0,
            "{}: {:?}",
            junk.what,
            outcome.good
        );
        assert!(peak < CONTAINER_MIB * 0.75, "{}: {peak:.0} MiB", junk.what);
    }
}

/// Without other work, four reviews of the size of the largest object stay within this limit.
const QUIET_MIB: f64 = 128.0;

#[tokio::test(flavor = "multi_thread")]
async fn four_large_reviews_take_less_than_128_mib() {
    let shared = Environment::start(&[]);
    let outcome = Junk::largest_object().send(&shared.webhooks, 4, 5).await;
    let peak = Memory::of(shared.manager.pid()).peak;
    println!("peak memory {peak:.0} MiB, {outcome:?}");
    assert_eq!(outcome.statuses.values().sum::<usize>(), 20, "{outcome:?}");
    assert!(
        outcome.good.answered > 0 && outcome.good.failed == 0,
        "{outcome:?}"
    );
    assert!(peak < QUIET_MIB, "{peak:.0} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_reviews_do_not_flood_the_log() {
    let shared = Environment::start(&[]);
    let mut connection = shared
        .webhooks
        .connect_http2()
        .await
        .expect("a connection can be created");
    for _ in 0..200 {
        let response = connection
            .post(CONVERT, "nonsense")
            .await
            .expect("a response is received");
        assert_eq!(response.status, 400);
    }
    let objects = [serde_json::json!({"kind": "Pod"})];
    let body = support::webhooks::direct::conversion("v1alpha1", &objects).to_string();
    for _ in 0..200 {
        assert_eq!(
            connection
                .post(CONVERT, body.clone())
                .await
                .expect("a response is received")
                .status,
            200
        );
    }
    let log = shared.manager.log();
    for text in ["is malformed", "cannot convert objects"] {
        let lines = log.lines().filter(|line| line.contains(text)).count();
        assert!((1..20).contains(&lines), "{lines} lines: {text}");
    }
}
