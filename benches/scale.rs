//! `make bench-scale`: the ledger with a thousand to a million addresses in use, in 1, 100 and
//! 10,000 pools, without an API server. Prints a table and draws each figure over the number of
//! addresses.
//!
//! Each case runs in a separate process, which contains nothing else: its memory
//! is that of the case.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "it prints its results"
)]

use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Instant;

use capi_ipam_api::{IPReservation, InClusterKind, Pool, PoolKey};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{Ledger, Observe, Outcome};
use capi_ipam_provider::api::IPAddress;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use support::process::Memory;

const POOLS: [u32; 3] = [1, 100, 10_000];
const IN_USE: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// How often each operation is measured.
const REPEATS: u32 = 1_000;
/// The same for the change of a pool, which takes longer.
const CHANGES: u32 = 20;
const OUTPUT: &str = "target/bench/scale";

/// Names and units of the figures of a case. The operations are: propose an address and withdraw
/// the proposal; observe a new reservation and its IPAddress; observe their deletion; wake the claim
/// that waits for an address of an exhausted pool; exclude another address of a pool; move all
/// addresses in use out of the range of a pool, or back.
const COLUMNS: [(&str, &str); 7] = [
    ("propose", "µs"),
    ("bind", "µs"),
    ("release", "µs"),
    ("wake", "µs"),
    ("pool change", "µs"),
    ("change of all in use", "µs"),
    ("memory", "MiB"),
];

#[derive(Debug, Deserialize, Serialize)]
struct Case {
    pools: u32,
    in_use: u32,
    figures: [f64; 7],
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, case, pools, in_use] = &arguments[..]
        && case == "case"
    {
        let number = |text: &str| text.parse().expect("a number");
        println!("{}", json!(measure(number(pools), number(in_use))));
        return;
    }
    print!("{:>8} {:>10}", "pools", "in use");
    COLUMNS
        .iter()
        .for_each(|(name, unit)| print!(" {:>17}", format!("{name}, {unit}")));
    println!();
    let mut all = Vec::new();
    for pools in POOLS {
        for in_use in IN_USE {
            let case = run_case(pools, in_use);
            print!("{pools:>8} {in_use:>10}");
            case.figures
                .iter()
                .for_each(|value| print!(" {value:>17.2}"));
            println!();
            all.push(case);
        }
    }
    std::fs::create_dir_all(OUTPUT).expect("the folder can be created");
    let text = format!("{:#}\n", json!(all));
    std::fs::write(format!("{OUTPUT}/scale.json"), text).expect("the figures can be written");
    draw(&all).expect("the charts can be drawn");
    println!("\nwritten: {OUTPUT}/scale.json and {OUTPUT}/scale.svg");
}

/// Runs this program to measure a case: the memory is that of one process.
fn run_case(pools: u32, in_use: u32) -> Case {
    let program = std::env::current_exe().expect("the program has a path");
    let arguments = ["case", &pools.to_string(), &in_use.to_string()];
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("the case runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("the case prints its figures")
}

/// Draws one chart for each figure, with one line for each number of pools.
fn draw(all: &[Case]) -> Result<(), Box<dyn Error>> {
    let path = format!("{OUTPUT}/scale.svg");
    let area = SVGBackend::new(&path, (1_400, 640)).into_drawing_area();
    area.fill(&WHITE)?;
    let colors = [
        RGBColor(20, 90, 200),
        RGBColor(200, 110, 20),
        RGBColor(60, 150, 70),
    ];
    for (column, part) in area
        .split_evenly((2, 4))
        .iter()
        .enumerate()
        .take(COLUMNS.len())
    {
        let (name, unit) = COLUMNS[column];
        let most = all
            .iter()
            .map(|case| case.figures[column])
            .fold(0.0, f64::max)
            * 1.2;
        let mut chart = ChartBuilder::on(part)
            .caption(format!("{name}, {unit}"), ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(28)
            .y_label_area_size(56)
            .build_cartesian_2d((900.0..1_100_000.0).log_scale(), 0.0..most)?;
        chart.configure_mesh().disable_x_mesh().x_labels(4).draw()?;
        for (pools, color) in POOLS.iter().zip(colors) {
            let of_pools = all.iter().filter(|case| case.pools == *pools);
            let points = of_pools.map(|case| (f64::from(case.in_use), case.figures[column]));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))?
                .label(format!("pools: {pools}"))
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
                });
        }
        chart
            .configure_series_labels()
            .border_style(BLACK)
            .background_style(WHITE)
            .draw()?;
    }
    area.present()?;
    Ok(())
}

/// The addresses in use: the lowest ones of each pool.
struct Layout {
    pools: u32,
    /// The number of addresses from one pool to the next.
    distance: u32,
}

impl Layout {
    fn first(&self, pool: u32) -> u32 {
        0x0a00_0000 + pool * self.distance
    }

    /// The address with a number, and its pool.
    fn place(&self, number: u32) -> (u32, u32) {
        let pool = number % self.pools;
        (pool, self.first(pool) + 1 + number / self.pools)
    }
}

fn measure(pools: u32, in_use: u32) -> Case {
    let before = resident();
    let layout = Layout {
        pools,
        distance: 0x0100_0000 / pools.next_power_of_two(),
    };
    let mut ledger = Ledger::default();
    (0..pools).for_each(|pool| ledger.apply_pool(&pool_object(&layout, pool, 0)));
    for number in 0..in_use {
        let (pool, address) = layout.place(number);
        ledger.insert_reservation(&reservation(pool, address));
        ledger.apply(&ip_address(pool, address));
    }
    let memory = resident() - before;
    let claim: NamespacedName = NamespacedName::new("n", "new");

    let propose = timed(REPEATS, |number| {
        let proposal = ledger.propose(&key(number % pools), &claim, 1);
        if let Outcome::Offer(slot) = &proposal {
            ledger.drop_candidate(slot);
        }
        black_box(proposal);
        black_box(ledger.take_effects());
    });
    let new: Vec<(IPReservation, IPAddress)> = (in_use..in_use + REPEATS)
        .map(|number| layout.place(number))
        .map(|(pool, address)| (reservation(pool, address), ip_address(pool, address)))
        .collect();
    let bind = timed(REPEATS, |number| {
        let (reservation, address) = &new[number as usize];
        ledger.insert_reservation(reservation);
        ledger.apply(address);
        black_box(ledger.take_effects());
    });
    let release = timed(REPEATS, |number| {
        let (reservation, address) = &new[number as usize];
        ledger.delete(reservation);
        Observe::<IPAddress>::delete(&mut ledger, address);
        black_box(ledger.take_effects());
    });
    let change = timed(CHANGES, |number| {
        ledger.apply_pool(&pool_object(&layout, 0, number + 1));
    });
    let exclude = timed(CHANGES, |number| {
        let first = if number % 2 == 0 {
            in_use / pools + 2
        } else {
            1
        };
        ledger.apply_pool(&pool_from(&layout, 0, first, 0));
    });
    let wake = measure_wake(&mut ledger, &layout);
    let figures = [propose, bind, release, wake, change, exclude, memory];
    Case {
        pools,
        in_use,
        figures,
    }
}

/// A pool beside the others without a free address, for which 100 claims wait.
fn measure_wake(ledger: &mut Ledger, layout: &Layout) -> f64 {
    let small = layout.pools;
    let range = "192.168.0.1-192.168.0.1".to_owned();
    ledger.apply_pool(&pool_with(small, &range, "192.168.0.200"));
    let only = reservation(small, Ipv4Addr::new(192, 168, 0, 1).into());
    ledger.insert_reservation(&only);
    let claims: Vec<NamespacedName> = (0..100)
        .map(|number| NamespacedName::new("n", &format!("waits-{number}")))
        .collect();
    for claim in &claims {
        black_box(ledger.propose(&key(small), claim, 1));
    }
    timed(REPEATS, |_| {
        ledger.delete(&only);
        ledger.insert_reservation(&only);
        black_box(ledger.take_effects());
    })
}

/// The microseconds of one call.
fn timed(repeats: u32, mut call: impl FnMut(u32)) -> f64 {
    let started = Instant::now();
    (0..repeats).for_each(&mut call);
    started.elapsed().as_secs_f64() * 1e6 / f64::from(repeats)
}

/// The memory of this process, in MiB.
fn resident() -> f64 {
    Memory::of(std::process::id()).now
}

fn key(pool: u32) -> PoolKey {
    PoolKey::new(InClusterKind::IPPool, Some("n"), &format!("p{pool}"))
}

fn pool_object(layout: &Layout, pool: u32, edit: u32) -> Pool {
    pool_from(layout, pool, 1, edit)
}

/// A pool that begins with the address of this offset.
fn pool_from(layout: &Layout, pool: u32, offset: u32, edit: u32) -> Pool {
    let first = layout.first(pool);
    let (from, to) = (
        Ipv4Addr::from(first + offset),
        Ipv4Addr::from(first + layout.distance - 2),
    );
    pool_with(
        pool,
        &format!("{from}-{to}"),
        &Ipv4Addr::from(first + layout.distance - 2 - edit).to_string(),
    )
}

fn pool_with(pool: u32, range: &str, excluded: &str) -> Pool {
    serde_json::from_value(json!({
        "kind": "InClusterIPPool",
        "metadata": {
            "namespace": "n", "name": format!("p{pool}"), "uid": format!("pool-{pool}"),
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"],
        },
        "spec": {"addresses": [range], "excludedAddresses": [excluded], "prefix": 8},
    }))
    .expect("the pool is valid")
}

fn uid(address: u32, kind: u32) -> String {
    format!("{address:08x}-0000-4000-8000-{kind:012x}")
}

fn reservation(pool: u32, address: u32) -> IPReservation {
    let text = Ipv4Addr::from(address).to_string();
    serde_json::from_value(json!({
        "metadata": {"name": format!("p.n.p{pool}.{text}"), "uid": uid(address, 0)},
        "spec": {
            "scope": format!("p.n.p{pool}"), "address": text,
            "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": format!("p{pool}")},
            "claimRef": {"namespace": "n", "name": format!("c-{address}"), "uid": uid(address, 1)},
        },
    }))
    .expect("the reservation is valid")
}

fn ip_address(pool: u32, address: u32) -> IPAddress {
    let name = format!("c-{address}");
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "n", "name": name, "uid": uid(address, 2),
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"],
            "ownerReferences": [{
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": name,
                "uid": uid(address, 1), "controller": true,
            }],
        },
        "spec": {
            "claimRef": {"name": name}, "address": Ipv4Addr::from(address).to_string(), "prefix": 8,
            "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": format!("p{pool}")},
        },
    }))
    .expect("the IPAddress is valid")
}
