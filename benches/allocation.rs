//! Allocation without Kubernetes, with up to a million addresses in use: the sets of free addresses
//! and prefixes, and the parser of ranges. `benches/scale.rs` measures the ledger.

#![allow(missing_docs, clippy::expect_used, reason = "it prints its results")]

use std::hint::black_box;
use std::net::Ipv4Addr;

use capi_ipam_ip::{FreeRanks, FreeSet, PoolAddresses, PoolPrefixes, Span, SpanSet};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const IN_USE: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// The name of a layout, and the distance of the addresses in use.
const LAYOUTS: [(&str, u128); 2] = [("compact", 1), ("fragmented", 2)];
const FIRST: u32 = 0x0a00_0001;
const LAST: u32 = 0x0aff_fffe;

fn free_set(criterion: &mut Criterion) {
    let usable: SpanSet = Span::new(FIRST.into(), LAST.into()).into_iter().collect();
    for (name, step) in LAYOUTS {
        let mut group = criterion.benchmark_group(format!("free set, {name}"));
        for count in IN_USE {
            let in_use = (0..u128::from(count)).map(|place| u128::from(FIRST) + place * step);
            let middle = u128::from(FIRST) + u128::from(count / 2) * step;
            let mut free = FreeSet::without(&usable, in_use);
            group.bench_function(
                BenchmarkId::new("take and return the lowest", count),
                |bencher| {
                    bencher.iter(|| take_and_return(&mut free));
                },
            );
            let ranks = FreeRanks::new(&usable, &free);
            let mut random = SmallRng::seed_from_u64(1);
            group.bench_function(BenchmarkId::new("choose a random one", count), |bencher| {
                bencher.iter(|| ranks.random(&free, 0, |count| random.random_range(0..count)));
            });
            group.bench_function(
                BenchmarkId::new("choose the next above one", count),
                |bencher| {
                    bencher.iter(|| free.next_above(black_box(middle)));
                },
            );
            group.bench_function(BenchmarkId::new("return and take one", count), |bencher| {
                bencher.iter(|| free.release(black_box(middle)) | free.take(middle));
            });
        }
    }
}

fn take_and_return(free: &mut FreeSet) -> u128 {
    let lowest = free.lowest().expect("some are free");
    free.take(lowest);
    free.release(lowest);
    lowest
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    for count in [1, 100, 4_096] {
        let range = |number: u32| {
            let first = FIRST + number * 16;
            format!("{}-{}", Ipv4Addr::from(first), Ipv4Addr::from(first + 9))
        };
        let ranges: Vec<String> = (0..count).rev().map(range).collect();
        group.bench_function(BenchmarkId::new("parse ranges", count), |bencher| {
            let pool = PoolAddresses {
                addresses: &ranges,
                prefix: 8,
                ..PoolAddresses::default()
            };
            bencher.iter(|| black_box(&pool).usable());
        });
    }
}

fn prefixes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("/64 prefixes of a /32");
    let whole = ["fd00::/32".to_owned()];
    let pool = PoolPrefixes {
        prefixes: &whole,
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
    for (name, step) in LAYOUTS {
        for count in IN_USE {
            let taken = (0..u128::from(count)).map(|place| first + place * step);
            let mut free = FreeSet::without(&usable.set, taken);
            group.bench_function(
                BenchmarkId::new(format!("carve one, {name}"), count),
                |bencher| {
                    bencher.iter(|| usable.block(take_and_return(&mut free)));
                },
            );
        }
    }
}

criterion_group!(benches, free_set, parse, prefixes);
criterion_main!(benches);
