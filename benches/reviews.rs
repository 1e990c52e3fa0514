//! `make bench-reviews`: how fast the webhooks respond, in a cluster with many pools and many
//! addresses in use, and how much they delay the creation of a pool through the API server.
//!
//! `cargo bench --bench reviews -- 5000` sends 5,000 reviews instead of 20,000. With `--junk` it
//! measures memory: see `reviews/junk.rs`.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "it prints its results"
)]
#![allow(clippy::cast_precision_loss, reason = "counts are small")]

#[path = "reviews/junk.rs"]
mod junk;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use capi_ipam::admission::routes::paths_of;
use capi_ipam_api::InClusterKind::IPPool;
use futures::StreamExt;
use futures::future::join_all;
use serde_json::{Value, json};

use support::consumer::Consumer;
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;
use support::process::Memory;
use support::wait::eventually_within;
use support::webhooks::Webhooks;
use support::webhooks::direct::{Connection, review};

/// Concurrent requests.
const AT_ONCE: usize = 32;
/// Pools in the cluster.
const POOLS: usize = 1_000;
/// Claims of the first pool.
const CLAIMS: usize = 200;
/// Pools created in each round through the API server.
const MADE: usize = 500;
/// Rounds, each with and without webhooks.
const ROUNDS: usize = 3;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let count = std::env::args()
        .find_map(|word| word.parse().ok())
        .unwrap_or(20_000);
    let (pools, claims, made) = if count < 2_000 {
        (50, 10, 50)
    } else {
        (POOLS, CLAIMS, MADE)
    };
    let plane = ControlPlane::start(Options::default());
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let flags: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(["--log-level=warn"])
        .collect();
    let manager = Manager::start(&plane, &flags);
    let consumer = Consumer::new(&plane).await;
    if std::env::args().any(|word| word == "--junk") {
        return junk::measure(&manager, &webhooks).await;
    }
    fill(&consumer, pools, claims).await;

    println!(
        "{count} reviews directly to the webhooks, {AT_ONCE} at a time, {pools} pools, {claims} addresses in use:"
    );
    println!(
        "  {:<48} {:>9} {:>8} {:>8} {:>8}",
        "", "per second", "p50 ms", "p99 ms", "longest"
    );
    for (what, operation, http2) in [
        ("creations, HTTP/1.1, 32 connections", "CREATE", false),
        ("creations, HTTP/2, one connection", "CREATE", true),
        ("updates that drop addresses, HTTP/1.1", "UPDATE", false),
        ("updates that drop addresses, HTTP/2", "UPDATE", true),
    ] {
        let connections = connections(&webhooks, http2).await;
        reviews(what, connections, count, &bodies(&consumer, operation)).await;
    }
    let memory = Memory::of(manager.pid()).now;
    println!("memory of the manager: {memory:.0} MiB");

    println!("{made} pools created through the API server, {AT_ONCE} at a time, {ROUNDS} rounds:");
    let (mut without, mut with) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        without += create(&plane, made).await;
        webhooks.register(&plane);
        with += create(&plane, made).await;
        Webhooks::unregister(&plane);
    }
    let speed = |time: Duration| (made * ROUNDS) as f64 / time.as_secs_f64();
    println!("  without webhooks: {:.0} per second", speed(without));
    println!("  with webhooks: {:.0} per second", speed(with));
    println!("  ratio: {:.2}", without.as_secs_f64() / with.as_secs_f64());
}

/// Creates the pools, and claims for the first one.
async fn fill(consumer: &Consumer, pools: usize, claims: usize) {
    let make = async |number: usize| {
        let spec = json!({"addresses": [format!("10.{}.{}.0/24", number / 256, number % 256)], "prefix": 24});
        consumer.create_pool(&format!("p{number}"), spec).await;
    };
    futures::stream::iter(0..pools)
        .for_each_concurrent(AT_ONCE, make)
        .await;
    let names: Vec<String> = (0..claims).map(|number| format!("c{number}")).collect();
    consumer.create_claims(&names, "p0").await;
    consumer.wait_for_addresses(&names).await;
    eventually_within(
        Duration::from_mins(5),
        "all pools have a status",
        || async {
            let all = consumer.pools().list().await.ok()?;
            all.iter().all(|pool| pool.status.is_some()).then_some(())
        },
    )
    .await;
}

/// Reviews as the API server sends them: creations of new pools, or updates of the pool of the
/// claims that drop addresses that are not in use.
fn bodies(consumer: &Consumer, operation: &str) -> Vec<String> {
    let pool = |name: &str, addresses: &str| {
        json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
            "metadata": {"name": name, "namespace": consumer.namespace},
            "spec": {"addresses": [addresses], "prefix": 24},
        })
    };
    let body = |number: usize| match operation {
        "CREATE" => review(
            operation,
            "InClusterIPPool",
            &Value::Null,
            &pool("new", &format!("172.16.{number}.0/24")),
        ),
        _ => {
            let less = format!("10.0.0.0-10.0.0.{}", 253 - number % 50);
            review(
                operation,
                "InClusterIPPool",
                &pool("p0", "10.0.0.0/24"),
                &pool("p0", &less),
            )
        }
    };
    (0..256).map(|number| body(number).to_string()).collect()
}

async fn connections(webhooks: &Webhooks, http2: bool) -> Vec<Connection> {
    if !http2 {
        let connect = async |_| {
            webhooks
                .connect()
                .await
                .expect("a connection can be created")
        };
        return join_all((0..AT_ONCE).map(connect)).await;
    }
    let connection = webhooks
        .connect_http2()
        .await
        .expect("a connection can be created");
    (0..AT_ONCE)
        .map(|_| connection.another().expect("HTTP/2 can do that"))
        .collect()
}

/// Sends reviews on all connections, one at a time on each, and prints a line.
async fn reviews(what: &str, connections: Vec<Connection>, count: usize, bodies: &[String]) {
    let (asked, path, started) = (
        AtomicUsize::new(0),
        paths_of(IPPool).validate,
        Instant::now(),
    );
    let ask = async |mut connection: Connection| {
        let mut times = Vec::new();
        loop {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return times;
            }
            let (body, began) = (bodies[number % bodies.len()].clone(), Instant::now());
            let answer = connection
                .post(path, body)
                .await
                .expect("a response is received");
            times.push(began.elapsed());
            assert!(answer.body.contains(r#""allowed":true"#), "{}", answer.body);
        }
    };
    let mut times: Vec<Duration> = join_all(connections.into_iter().map(ask))
        .await
        .into_iter()
        .flatten()
        .collect();
    let whole = started.elapsed();
    times.sort();
    let millis = |index: usize| times[index.min(count - 1)].as_secs_f64() * 1000.0;
    println!(
        "  {what:<48} {:>9.0} {:>8.2} {:>8.2} {:>8.2}",
        count as f64 / whole.as_secs_f64(),
        millis(count / 2),
        millis(count * 99 / 100),
        millis(count - 1)
    );
}

/// Creates `count` pools and deletes them. Returns the duration of the creation.
async fn create(plane: &ControlPlane, count: usize) -> Duration {
    let consumer = Consumer::new(plane).await;
    let make = async |number: usize| {
        let spec = json!({"addresses": [format!("172.{}.{}.0/24", 20 + number / 256, number % 256)], "prefix": 24});
        consumer.create_pool(&format!("made{number}"), spec).await;
    };
    let started = Instant::now();
    futures::stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, make)
        .await;
    let taken = started.elapsed();
    plane.kubectl(&[
        "-n",
        &consumer.namespace,
        "delete",
        "inclusterippools",
        "--all",
        "--wait=false",
    ]);
    eventually_within(Duration::from_mins(5), "the pools are gone", || async {
        consumer.pools().list().await.ok()?.is_empty().then_some(())
    })
    .await;
    taken
}
