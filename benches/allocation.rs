//! `make bench-allocation`: the cost of allocation without Kubernetes, by the number of addresses
//! in use.
//!
//! An allocation should take less than 2 µs with a million addresses in use. Compact: the lowest
//! addresses are in use, as without releases. Fragmented: every second address is free.

#![allow(missing_docs, clippy::expect_used, reason = "it prints its results")]

use std::hint::black_box;
use std::net::Ipv4Addr;

use capi_ipam_api::{IPReservation, InClusterKind, Pool, PoolKey};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{FreeRanks, FreeSet, PoolAddresses, PoolPrefixes, Span, SpanSet, UsableBlocks};
use capi_ipam_ledger::{Ledger, Outcome};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

const IN_USE: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// The addresses of the pool: 10.0.0.0/8, without network and broadcast address.
const FIRST: u32 = 0x0a00_0001;
const LAST: u32 = 0x0aff_fffe;

/// The layout of the addresses in use.
#[derive(Clone, Copy)]
enum Layout {
    Compact,
    Fragmented,
}

impl Layout {
    const ALL: [(&'static str, Self); 2] =
        [("compact", Self::Compact), ("fragmented", Self::Fragmented)];

    fn in_use(self, count: u32) -> impl Iterator<Item = u32> + Clone {
        let step = match self {
            Self::Compact => 1,
            Self::Fragmented => 2,
        };
        (0..count).map(move |place| FIRST + place * step)
    }
}

fn free_set(criterion: &mut Criterion) {
    let usable: SpanSet = Span::new(FIRST.into(), LAST.into()).into_iter().collect();
    for (name, layout) in Layout::ALL {
        let mut group = criterion.benchmark_group(format!("free set, {name}"));
        for count in IN_USE {
            let mut free = FreeSet::without(&usable, layout.in_use(count).map(u128::from));
            group.bench_function(
                BenchmarkId::new("take and return the lowest", count),
                |bencher| {
                    bencher.iter(|| {
                        let lowest = free.lowest().expect("some are free");
                        free.take(lowest);
                        free.release(lowest)
                    });
                },
            );
            let ranks = FreeRanks::new(&usable, &free);
            let mut random = SmallRng::seed_from_u64(1);
            group.bench_function(BenchmarkId::new("choose a random one", count), |bencher| {
                bencher.iter(|| ranks.random(&free, 0, |count| random.random_range(0..count)));
            });
            let last = layout
                .in_use(count)
                .map(u128::from)
                .nth(count as usize / 2)
                .expect("some are in use");
            group.bench_function(
                BenchmarkId::new("choose the next above one", count),
                |bencher| {
                    bencher.iter(|| free.next_above(black_box(last)));
                },
            );
            // One in the middle: when free, it joins two spans or is a separate one.
            let middle = layout
                .in_use(count)
                .map(u128::from)
                .nth(count as usize / 2)
                .expect("the layout has enough addresses");
            group.bench_function(BenchmarkId::new("return and take one", count), |bencher| {
                bencher.iter(|| {
                    let was_taken = free.release(black_box(middle));
                    free.take(middle) || was_taken
                });
            });
        }
    }
}

fn ledger(criterion: &mut Criterion) {
    let claim: NamespacedName = NamespacedName::new("n", "new");
    let pool = PoolKey::new(InClusterKind::IPPool, Some("n"), "p");
    for (name, layout) in Layout::ALL {
        let mut group = criterion.benchmark_group(format!("ledger, {name}"));
        group.sample_size(50);
        for count in IN_USE {
            let mut ledger = Ledger::default();
            ledger.apply_pool(&pool_object());
            layout
                .in_use(count)
                .for_each(|address| ledger.insert_reservation(&reservation(address)));
            group.bench_function(BenchmarkId::new("propose and withdraw", count), |bencher| {
                bencher.iter(|| {
                    let proposal = ledger.propose(&pool, &claim, 1);
                    if let Outcome::Offer(slot) = &proposal {
                        ledger.drop_candidate(slot);
                    }
                    (proposal, ledger.take_effects())
                });
            });
            let Outcome::Offer(slot) = ledger.propose(&pool, &claim, 1) else {
                continue;
            };
            ledger.drop_candidate(&slot);
            let lowest = slot
                .block
                .base()
                .to_string()
                .parse::<Ipv4Addr>()
                .expect("the pool has IPv4 addresses");
            let reserved = reservation(lowest.into());
            group.bench_function(
                BenchmarkId::new("propose, reserve and release", count),
                |bencher| {
                    bencher.iter(|| {
                        let proposal = ledger.propose(&pool, &claim, 1);
                        ledger.insert_reservation(&reserved);
                        ledger.delete(&reserved);
                        (proposal, ledger.take_effects())
                    });
                },
            );
        }
    }
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    for count in [1, 100, 4_096] {
        // Ranges with a gap after each, the worst order for an adaptive sort.
        let ranges: Vec<String> = (0..count).rev().map(range).collect();
        group.bench_function(BenchmarkId::new("parse ranges", count), |bencher| {
            bencher.iter(|| addresses(black_box(&ranges)));
        });
    }
    group.finish();
}

fn prefixes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("/64 prefixes of a /32");
    let whole = ["fd00::/32".to_owned()];
    let pool = PoolPrefixes {
        prefixes: &whole,
        excluded: &[],
        length: 64,
        ..PoolPrefixes::default()
    };
    group.bench_function("parse", |bencher| {
        bencher.iter(|| black_box(&pool).usable())
    });
    let usable = pool.usable().expect("the pool is right");
    let first = usable
        .set
        .spans()
        .first()
        .expect("the pool has prefixes")
        .first();
    for (name, step) in [("compact", 1), ("fragmented", 2)] {
        for count in IN_USE {
            let taken = (0..u128::from(count)).map(|place| first + place * step);
            let mut free = FreeSet::without(&usable.set, taken);
            group.bench_function(
                BenchmarkId::new(format!("carve one, {name}"), count),
                |bencher| {
                    bencher.iter(|| {
                        let lowest = free.lowest().expect("some are free");
                        free.take(lowest);
                        let block = usable.block(lowest);
                        free.release(lowest);
                        block
                    });
                },
            );
        }
    }
}

fn range(number: u32) -> String {
    let first = FIRST + number * 16;
    format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(first + 9))
}

fn addresses(ranges: &[String]) -> UsableBlocks {
    let pool = PoolAddresses {
        addresses: ranges,
        prefix: 8,
        ..PoolAddresses::default()
    };
    pool.usable().expect("the pool is right")
}

fn pool_object() -> Pool {
    serde_json::from_value(json!({
        "kind": "InClusterIPPool",
        "metadata": {"namespace": "n", "name": "p", "uid": "pool", "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": {"addresses": ["10.0.0.0/8"], "prefix": 8},
    }))
    .expect("the pool is valid")
}

fn reservation(address: u32) -> IPReservation {
    let text = Ipv4Addr::from(address).to_string();
    serde_json::from_value(json!({
        "metadata": {"name": format!("p.n.p.{text}"), "uid": format!("{address:08x}-0000-4000-8000-000000000000")},
        "spec": {
            "scope": "p.n.p", "address": text,
            "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"},
            "claimRef": {"namespace": "n", "name": format!("c-{address}"), "uid": format!("{address:08x}-0000-4000-8000-000000000001")},
        },
    }))
    .expect("the reservation is valid")
}

criterion_group!(benches, free_set, ledger, parse, prefixes);
criterion_main!(benches);
