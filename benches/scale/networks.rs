//! A network of 100 pools with 64 ranges each: how long the ledger takes to read all of them at a
//! start, and how long the change of one pool or of the network takes. A network that selects
//! 10,000 pools of a namespace: how long a start and a change of the labels of the namespace take.
//!
//! The ledger may release its lock during a change: the lock is held for at most the time that is
//! shown.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use capi_ipam_api::{IPNetwork, InClusterKind, Pool, PoolKey};
use capi_ipam_ledger::{Ledger, Observe};
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use serde_json::json;

const POOLS: u32 = 100;
const RANGES: u32 = 64;
const CHANGES: u32 = 20;
/// The number of pools of one namespace that a network selects.
const SELECTED_POOLS: u32 = 10_000;

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
    print_header(&[
        "start, ms",
        "late network, ms",
        "change, ms",
        "longest, ms",
        "network, ms",
        "lock, ms",
    ]);
    for (name, gateways) in [
        ("none", Gateways::None),
        ("in their ranges", Gateways::InRange),
        ("in all pools", Gateways::InAllPools),
    ] {
        print_row(name, &measure(gateways));
    }
    println!("\n{SELECTED_POOLS} pools of a namespace");
    print_header(&[
        "start, ms",
        "late network, ms",
        "start lock, ms",
        "labels, ms",
        "lock, ms",
    ]);
    for (name, gateways) in [
        ("none", Gateways::None),
        ("in their ranges", Gateways::InRange),
    ] {
        print_row(name, &measure_selected(gateways));
    }
}

fn print_header(columns: &[&str]) {
    print!("{:>24}", "gateways");
    columns.iter().for_each(|column| print!(" {column:>16}"));
    println!();
}

fn print_row(name: &str, figures: &[f64]) {
    print!("{name:>24}");
    figures.iter().for_each(|figure| print!(" {figure:>16.2}"));
    println!();
}

fn measure(gateways: Gateways) -> [f64; 6] {
    let pools: Vec<Pool> = (0..POOLS)
        .map(|number| pool(gateways, number, RANGES, 0))
        .collect();
    // Parsing the specifications needs no lock.
    let [edited, other] = [1, 2].map(|edit| pool(gateways, 0, RANGES, edit));
    let networks = [1, 2].map(network);
    let late = milliseconds(|| list(&Shared::default(), &networks[0], &pools, true));
    let ledger = Shared::default();
    let start = milliseconds(|| list(&ledger, &networks[0], &pools, false));
    let (mut changes, mut network_changes) = (Vec::new(), Vec::new());
    let key = PoolKey::of(&pools[1]);
    let waited = longest_wait(&ledger, &key, || {
        for number in 0..CHANGES {
            let change = if number % 2 == 0 { &edited } else { &other };
            changes.push(milliseconds(|| {
                ledger.change(|ledger| ledger.apply_pool(change))
            }));
        }
        for number in 0..CHANGES {
            let change = &networks[usize::from(number % 2 == 0)];
            network_changes.push(milliseconds(|| {
                ledger.change(|ledger| ledger.apply_network(change))
            }));
        }
    });
    let mean = changes.iter().sum::<f64>() / f64::from(CHANGES);
    [
        start,
        late,
        mean,
        longest(&changes),
        longest(&network_changes),
        waited,
    ]
}

fn measure_selected(gateways: Gateways) -> [f64; 5] {
    let pools: Vec<Pool> = (0..SELECTED_POOLS)
        .map(|number| pool(gateways, number, 1, 0))
        .collect();
    let mut network = network(1);
    network.spec = serde_json::from_value(json!({
        "namespaces": {"from": "Selector", "selector": {"matchLabels": {"tenant": "a"}}}, "pools": {},
    }))
    .expect("the specification is valid");
    let late = Shared::default();
    late.change(|ledger| ledger.apply(&namespace("a")));
    let late = milliseconds(|| list(&late, &network, &pools, true));
    let ledger = Shared::default();
    ledger.change(|ledger| ledger.apply(&namespace("a")));
    let key = PoolKey::of(&pools[1]);
    let mut start = 0.0;
    let start_wait = longest_wait(&ledger, &key, || {
        start = milliseconds(|| list(&ledger, &network, &pools, false))
    });
    let mut changes = Vec::new();
    let waited = longest_wait(&ledger, &key, || {
        for number in 0..CHANGES {
            let namespace = namespace(if number % 2 == 0 { "b" } else { "a" });
            changes.push(milliseconds(|| {
                ledger.change(|ledger| ledger.apply(&namespace))
            }));
        }
    });
    [start, late, start_wait, longest(&changes), waited]
}

/// A ledger that two threads use, as in the manager.
struct Shared(Mutex<Ledger>);

impl Default for Shared {
    fn default() -> Self {
        Self(Mutex::new(Ledger::shared()))
    }
}

impl Shared {
    /// Releases the lock between two steps of a computation.
    fn change(&self, change: impl FnOnce(&mut Ledger)) {
        let run = |change: &mut dyn FnMut(&mut Ledger)| {
            let mut ledger = self.0.lock();
            change(&mut ledger);
            ledger.take_effects().has_queued_refreshes
        };
        let mut change = Some(change);
        let mut has_more = run(&mut |ledger| {
            if let Some(change) = change.take() {
                change(ledger);
            }
        });
        while has_more {
            has_more = run(&mut Ledger::refresh);
        }
    }
}

/// The initial lists of networks and pools: the network is listed before the pools, or after them.
fn list(ledger: &Shared, network: &IPNetwork, pools: &[Pool], is_late: bool) {
    let list_network = || {
        ledger.change(|ledger| ledger.apply_network(network));
        ledger.change(Observe::<IPNetwork>::init_done);
    };
    ledger.change(Observe::<IPNetwork>::init);
    ledger.change(|ledger| ledger.begin_pool_list(InClusterKind::IPPool));
    if !is_late {
        list_network();
    }
    pools
        .iter()
        .for_each(|pool| ledger.change(|ledger| ledger.apply_pool(pool)));
    ledger.change(|ledger| ledger.end_pool_list(InClusterKind::IPPool));
    if is_late {
        list_network();
    }
}

/// The milliseconds for which another claim waits at most for the lock during `work`.
fn longest_wait(ledger: &Shared, key: &PoolKey, work: impl FnOnce()) -> f64 {
    let (waited, is_done) = (Mutex::new(0.0_f64), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let duration = milliseconds(|| drop(ledger.0.lock().scope(key)));
                let mut longest = waited.lock();
                *longest = longest.max(duration);
            }
        });
        work();
        is_done.store(true, Ordering::Relaxed);
    });
    waited.into_inner()
}

fn longest(durations: &[f64]) -> f64 {
    durations.iter().copied().fold(0.0, f64::max)
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

fn namespace(tenant: &str) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"tenant": tenant}}}))
        .expect("the namespace is valid")
}

/// A pool of the network. Another `edit` has other gateways.
fn pool(gateways: Gateways, number: u32, ranges: u32, edit: u32) -> Pool {
    let address = |value: u32| Ipv4Addr::from(value).to_string();
    let range = |index: u32| {
        let first = 0x0a80_0000 + (number * ranges + index) * 256;
        let shared = 0x0a00_0000 + (number * ranges + index) * 4;
        let gateway = match gateways {
            Gateways::None => None,
            Gateways::InRange => Some(first + 1 + edit),
            Gateways::InAllPools => Some(shared + 1 + edit),
        };
        let addresses = if index == 0 && ranges > 1 {
            vec![
                "10.0.0.0-10.1.255.255".to_owned(),
                format!("{}-{}", address(first + 1), address(first + 200)),
            ]
        } else {
            vec![format!("{}-{}", address(first + 1), address(first + 200))]
        };
        json!({"addresses": addresses, "prefix": 8, "gateway": gateway.map(address)})
    };
    let ranges: Vec<_> = (0..ranges).map(range).collect();
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
