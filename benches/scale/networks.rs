//! A network of 100 pools with 64 ranges each: how long the ledger takes to read all of them at a start, and how long
//! the change of one pool or of the network takes.
//!
//! The ledger may release its lock during a change: the lock is held for at most the time that is shown.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use capi_ipam_api::{IPNetwork, Pool};
use capi_ipam_ledger::Ledger;
use parking_lot::Mutex;
use serde_json::json;

const POOLS: u32 = 100;
const RANGES: u32 = 64;
const CHANGES: u32 = 20;

/// Where the gateways of a pool are.
#[derive(Clone, Copy, PartialEq)]
enum Gateways {
    None,
    /// Each in its own range.
    InRange,
    /// In the first range, which all pools have.
    InAllPools,
}

/// Prints the figures.
pub(super) fn print() {
    let columns = ["start, ms", "change, ms", "longest, ms", "network, ms", "lock, ms"];
    print!("{:>24}", "gateways");
    columns.iter().for_each(|column| print!(" {column:>12}"));
    println!();
    for (name, gateways) in
        [("none", Gateways::None), ("in their ranges", Gateways::InRange), ("in all pools", Gateways::InAllPools)]
    {
        print!("{name:>24}");
        measure(gateways).iter().for_each(|figure| print!(" {figure:>12.2}"));
        println!();
    }
}

fn measure(gateways: Gateways) -> [f64; 5] {
    let pools: Vec<Pool> = (0..POOLS).map(|number| pool(gateways, number, 0)).collect();
    // Parsing the specifications needs no lock.
    let [edited, other] = [1, 2].map(|edit| pool(gateways, 0, edit));
    let networks = [1, 2].map(network);
    let ledger = Ledger::read_only();
    ledger.apply_network(&networks[0]);
    let start = milliseconds(|| pools.iter().for_each(|pool| ledger.apply_pool(pool)));
    let (waited, is_done) = (Mutex::new(0.0_f64), AtomicBool::new(false));
    let (mut changes, mut network_changes) = (Vec::new(), Vec::new());
    let key = capi_ipam_api::PoolKey::of(&pools[1]);
    std::thread::scope(|scope| {
        // What another claim waits for the lock.
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let duration = milliseconds(|| drop(ledger.scope(&key)));
                let mut longest = waited.lock();
                *longest = longest.max(duration);
            }
        });
        for number in 0..CHANGES {
            let change = if number % 2 == 0 { &edited } else { &other };
            changes.push(milliseconds(|| ledger.apply_pool(change)));
        }
        for number in 0..CHANGES {
            let change = &networks[usize::from(number % 2 == 0)];
            network_changes.push(milliseconds(|| ledger.apply_network(change)));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let longest = |durations: &[f64]| durations.iter().copied().fold(0.0, f64::max);
    let mean = changes.iter().sum::<f64>() / f64::from(CHANGES);
    let waited = waited.into_inner();
    [start, mean, longest(&changes), longest(&network_changes), waited]
}

fn milliseconds(call: impl FnOnce()) -> f64 {
    let started = Instant::now();
    call();
    started.elapsed().as_secs_f64() * 1e3
}

fn network(generation: u32) -> IPNetwork {
    serde_json::from_value(json!({
        "metadata": {
            "name": "lab", "uid": "lab", "generation": generation,
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"],
        },
        "spec": {"namespaces": {"from": "All"}, "pools": {}, "excluded": [format!("10.0.0.{generation}")]},
        "status": {"blockLengths": {"ipv4": 32}},
    }))
    .expect("the network is valid")
}

/// A pool of the network. Another `edit` has other gateways.
fn pool(gateways: Gateways, number: u32, edit: u32) -> Pool {
    let address = |value: u32| Ipv4Addr::from(value).to_string();
    let range = |index: u32| {
        let first = 0x0a80_0000 + (number * RANGES + index) * 256;
        let shared = 0x0a00_0000 + (number * RANGES + index) * 4;
        let gateway = match gateways {
            Gateways::None => None,
            Gateways::InRange => Some(first + 1 + edit),
            Gateways::InAllPools => Some(shared + 1 + edit),
        };
        let addresses = if index == 0 {
            vec!["10.0.0.0-10.1.255.255".to_owned(), format!("{}-{}", address(first + 1), address(first + 200))]
        } else {
            vec![format!("{}-{}", address(first + 1), address(first + 200))]
        };
        json!({"addresses": addresses, "prefix": 8, "gateway": gateway.map(address)})
    };
    let ranges: Vec<_> = (0..RANGES).map(range).collect();
    serde_json::from_value(json!({
        "kind": "InClusterIPPool",
        "metadata": {
            "namespace": "n", "name": format!("p{number}"), "uid": format!("p{number}"), "generation": edit + 1,
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"],
        },
        "spec": {"ranges": ranges},
    }))
    .expect("the pool is valid")
}
