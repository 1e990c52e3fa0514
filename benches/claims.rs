//! `make bench`: how fast claims are bound and released, beside the bare writes of as many claims on the same API server
//! in the same run.
//!
//! The ratio is what counts: single figures are those of the machine. `cargo bench --bench claims -- 5000` runs it with
//! 5,000 claims instead of 2,000.

#![allow(clippy::print_stdout, clippy::expect_used, clippy::indexing_slicing, reason = "it is there to be looked at")]
#![allow(clippy::cast_precision_loss, reason = "counts are small")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use capi_ipam::api::IPAddressClaim;
use capi_ipam::runtime::client::{Calls, connect};
use capi_ipam::runtime::{finalizer, patch};
use futures::{StreamExt, TryStreamExt};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use support::consumer::{Consumer, object};
use support::control_plane::{ControlPlane, Options};
use support::manager::Manager;

/// Claims made at the same time.
const AT_ONCE: usize = 32;
/// Claims made one by one, to measure how long a single one takes.
const IDLE: usize = 50;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let count = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(2_000);
    let control_plane = ControlPlane::start(Options::default());
    println!("bare writes of {count} claims, {AT_ONCE} at a time, no provider:");
    let floor = bare_writes(&control_plane, count, false).await;
    report("  finalizer, IPAddress, status", count, floor);
    let reserved_floor = bare_writes(&control_plane, count, true).await;
    report("  the same and a reservation", count, reserved_floor);

    let manager = Manager::start(&control_plane, &["--log-level=warn"]);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("big", json!({"addresses": ["10.0.0.0/12"], "prefix": 12})).await;
    println!("the provider, {count} claims in one pool, {AT_ONCE} at a time:");
    let names: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
    let before = requests(&control_plane);
    let bound =
        timed(&consumer, count, |claim| claim.bound_address().is_some(), consumer_claims(&consumer, &names)).await;
    let after = requests(&control_plane);
    report("  bound", count, bound);
    println!(
        "  ratio to the bare writes {:.2}, to those with a reservation {:.2}",
        ratio(floor, bound),
        ratio(reserved_floor, bound)
    );
    // The creation of the claim is the consumer's.
    println!("  writes of the provider per bound claim: {:.2}", (after.0 - before.0) as f64 / count as f64 - 1.0);
    println!("  reads of the provider per bound claim: {:.2}", (after.1 - before.1) as f64 / count as f64);
    let addresses = consumer.addresses().list().await.expect("addresses can be listed");
    let distinct: HashSet<_> = addresses.iter().map(|address| &address.spec.address).collect();
    assert_eq!(distinct.len(), count, "every claim has an address of its own");

    println!("one claim at a time, {IDLE} of them, from create to addressRef:");
    report_times("  the provider", idle_claims(&consumer).await);
    report_times("  the bare writes one after another, no provider", bare_idle(&control_plane).await);
    println!("memory of the provider: {}", memory(manager.pid()));

    println!("release of {count} claims, {AT_ONCE} at a time:");
    let before = requests(&control_plane);
    let started = Instant::now();
    let delete = futures::stream::iter(&names).for_each_concurrent(AT_ONCE, |name| consumer.delete(name));
    delete.await;
    while consumer.claims().list().await.map_or(usize::MAX, |claims| claims.len()) > IDLE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let released = started.elapsed();
    let after = requests(&control_plane);
    report("  released", count, released);
    println!("  writes of the provider per claim: {:.2}", (after.0 - before.0) as f64 / count as f64 - 1.0);
    println!("memory of the provider: {}", memory(manager.pid()));
}

fn report(what: &str, count: usize, time: Duration) {
    println!("{what}: {:.0} a second ({:.2} s)", count as f64 / time.as_secs_f64(), time.as_secs_f64());
}

fn report_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (middle, ninth, longest) = (times[IDLE / 2], times[IDLE * 9 / 10], times[IDLE - 1]);
    println!("{what}: p50 {:.1} ms, p90 {:.1} ms, longest {:.1} ms", millis(middle), millis(ninth), millis(longest));
}

fn ratio(floor: Duration, time: Duration) -> f64 {
    floor.as_secs_f64() / time.as_secs_f64()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// What the API contract asks of any provider, done by nobody in particular, for a kind of pool that nobody serves.
async fn bare_writes(control_plane: &ControlPlane, count: usize, reserve: bool) -> Duration {
    let (consumer, provider) = bare_pair(control_plane).await;
    let started = Instant::now();
    let bind = |number| bare_bind(&consumer, &provider, number, reserve);
    futures::stream::iter(0..count).for_each_concurrent(AT_ONCE, bind).await;
    started.elapsed()
}

/// The writes for one claim, by a consumer and a provider with a client each.
async fn bare_bind(consumer: &Consumer, provider: &Consumer, number: usize, reserve: bool) {
    let name = format!("bare{number}");
    let claim = consumer.claim_with(&name, "BarePool", "bare", json!({})).await;
    let claims: Calls<IPAddressClaim> = provider.claims();
    let claim = finalizer::add(&claims, &claim, "ipam.cluster.x-k8s.io/ReleaseAddress").await.expect("it can be added");
    let address = format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
    if reserve {
        let reservation = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": {"name": format!("p.{}.bare.{address}", provider.namespace)},
            "spec": {
                "scope": format!("p.{}.bare", provider.namespace), "address": address,
                "poolRef": {"kind": "BarePool", "namespace": provider.namespace, "name": "bare"},
                "claimRef": {"namespace": provider.namespace, "name": name, "uid": claim.metadata.uid},
            },
        });
        provider.reservations().create(&object(reservation)).await.expect("it can be made");
    }
    let owner = |kind: &str, name: &str, uid: &Option<String>, version: &str, controller: bool| {
        json!({
            "apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": kind, "name": name, "uid": uid,
            "controller": controller, "blockOwnerDeletion": true,
        })
    };
    let made = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {
            "name": name, "namespace": provider.namespace,
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"],
            "ownerReferences": [
                owner("IPAddressClaim", &name, &claim.metadata.uid, "v1beta2", true),
                owner("BarePool", "bare", &claim.metadata.uid, "v1alpha2", false),
            ],
        },
        "spec": {
            "claimRef": {"name": name}, "address": address, "prefix": 12, "poolRef": claim.spec.pool_ref,
        },
    });
    provider.addresses().create(&object(made)).await.expect("it can be made");
    let mut bound = claim.clone();
    bound.status.get_or_insert_default().address_ref = Some(object(json!({"name": name})));
    patch::write(&claims, &claim, &bound).await.expect("the status can be written");
}

/// How long the writes for one claim take one after another when nothing else happens: no provider can be faster.
async fn bare_idle(control_plane: &ControlPlane) -> Vec<Duration> {
    let (consumer, provider) = bare_pair(control_plane).await;
    let mut times = Vec::new();
    for number in 0..IDLE {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let started = Instant::now();
        bare_bind(&consumer, &provider, number, true).await;
        times.push(started.elapsed());
    }
    times
}

/// A consumer, and somebody who works in the same namespace with a client of its own, as a provider has.
async fn bare_pair(control_plane: &ControlPlane) -> (Consumer, Consumer) {
    let consumer = Consumer::new(control_plane).await;
    let client = connect(Some(control_plane.kubeconfig()), "consumer").await.expect("the kubeconfig is good");
    let provider = Consumer { client, namespace: consumer.namespace.clone() };
    (consumer, provider)
}

async fn consumer_claims(consumer: &Consumer, names: &[String]) {
    futures::stream::iter(names)
        .for_each_concurrent(AT_ONCE, |name| async { drop(consumer.claim(name, "big").await) })
        .await;
}

/// How long it takes until so many claims are in a state, seen by a watch, from when `work` begins.
async fn timed(
    consumer: &Consumer,
    count: usize,
    is_done: impl Fn(&IPAddressClaim) -> bool,
    work: impl Future<Output = ()>,
) -> Duration {
    let started = Instant::now();
    let mut seen = HashSet::new();
    let events =
        watcher(consumer.claims().api().clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events);
    let watch = async {
        while seen.len() < count {
            if let Ok(Some(claim)) = events.try_next().await
                && is_done(&claim)
            {
                seen.insert(claim.metadata.name);
            }
        }
    };
    tokio::join!(work, watch);
    started.elapsed()
}

async fn idle_claims(consumer: &Consumer) -> Vec<Duration> {
    let events =
        watcher(consumer.claims().api().clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events);
    let mut times = Vec::new();
    for number in 0..IDLE {
        // So that nothing is under way.
        let quiet = tokio::time::sleep(Duration::from_millis(300));
        tokio::pin!(quiet);
        loop {
            tokio::select! { _ = events.next() => {} () = &mut quiet => break }
        }
        let name = format!("idle{number}");
        let started = Instant::now();
        consumer.claim(&name, "big").await;
        while let Some(event) = events.next().await {
            let bound =
                |claim: &IPAddressClaim| claim.metadata.name.as_ref() == Some(&name) && claim.bound_address().is_some();
            if event.as_ref().is_ok_and(bound) {
                break;
            }
        }
        times.push(started.elapsed());
    }
    times
}

/// Writes and single reads of the contract kinds and ours so far, by everybody.
fn requests(control_plane: &ControlPlane) -> (u64, u64) {
    let (mut writes, mut reads) = (0, 0);
    for (key, count) in control_plane.request_count() {
        if key.group != "ipam.cluster.x-k8s.io" {
            continue;
        }
        match key.verb.as_str() {
            "GET" => reads += count,
            "LIST" | "WATCH" => {}
            _ => writes += count,
        }
    }
    (writes, reads)
}

fn memory(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kib| format!("{:.1} MiB", kib / 1024.0))
    };
    let unknown = || "unknown here".to_owned();
    format!("{} now, {} at most", field("VmRSS:").unwrap_or_else(unknown), field("VmHWM:").unwrap_or_else(unknown))
}
