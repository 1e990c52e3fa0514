//! Fuzzes the proposals of the ledger with arbitrary pools of addresses and of prefixes, and
//! addresses in use.
//!
//! Invariants: each proposal is the lowest block of the pool that overlaps with no excluded,
//! reserved, used or proposed address; the order of events does not matter; a dropped candidate is
//! proposed again; and the size of a pool does not affect the time.
//!
//! Run with `cargo +nightly fuzz run allocation`.

#![no_main]

#[path = "allocation/pools.rs"]
mod pools;

use capi_ipam_api::{InClusterKind, Pool, PoolKey, Scope, Slot, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Family, Span};
use capi_ipam_ledger::{Ledger, Outcome};
use ipnet::IpNet;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

use pools::{Entry, Number, add_used, spans, text};

const SUBNETS: [&str; 8] = [
    "10.0.0.0/8",
    "0.0.0.0/0",
    "10.0.0.0/24",
    "10.0.0.0/31",
    "fd00::/8",
    "::/0",
    "fd00::/120",
    "fd00::/127",
];

#[derive(Arbitrary, Debug)]
struct Input {
    subnet: u8,
    /// The allocation prefix length; `None` for a pool of addresses.
    length: Option<u8>,
    entries: Vec<Entry>,
    excluded: Vec<Entry>,
    gateway: Option<Number>,
    allocate_reserved: bool,
    used: Vec<(bool, Number, u8)>,
    claims: u8,
}

fuzz_target!(|input: Input| {
    let subnet: IpNet = SUBNETS[usize::from(input.subnet) % SUBNETS.len()]
        .parse()
        .expect("a subnet");
    let whole = Span::from(subnet);
    let texts = |entries: &[Entry]| -> Vec<String> {
        entries
            .iter()
            .map(|entry| text(*entry, subnet, input.length.is_some()))
            .collect()
    };
    let (entries, excluded) = (texts(&input.entries), texts(&input.excluded));
    let gateway = input
        .gateway
        .map(|number| text(Entry::One(number), subnet, false));
    let mut not_usable = spans(&excluded);
    if subnet.addr().is_ipv6() {
        not_usable.extend(Span::new(0xffff_0000_0000, 0xffff_ffff_ffff));
    }
    if let Some(length) = input.length {
        let spec = json!({"prefixes": entries, "excludedPrefixes": excluded, "allocationPrefixLength": length,
                          "gateway": gateway});
        check(&input, subnet, &spec, &spans(&entries), not_usable, length);
    } else {
        not_usable.extend(spans(gateway.as_slice()));
        if !input.allocate_reserved && whole.len() > 2 {
            let last = subnet.addr().is_ipv4().then_some(whole.last());
            not_usable.extend([whole.first()].into_iter().chain(last).map(Span::single));
        }
        let spec = json!({"addresses": entries, "excludedAddresses": excluded, "prefix": subnet.prefix_len(),
                          "gateway": gateway, "allocateReservedIPAddresses": input.allocate_reserved});
        check(
            &input,
            subnet,
            &spec,
            &spans(&entries),
            not_usable,
            subnet.max_prefix_len(),
        );
    }
});

fn check(
    input: &Input,
    subnet: IpNet,
    spec: &Value,
    given: &[Span],
    mut not_usable: Vec<Span>,
    length: u8,
) {
    let kind = if input.length.is_some() {
        InClusterKind::PrefixPool
    } else {
        InClusterKind::IPPool
    };
    let key = PoolKey::new(kind, Some("n"), "p");
    let metadata =
        json!({"namespace": "n", "name": "p", "uid": "u", "finalizers": [names::PROTECT_POOL]});
    let pool: Pool =
        serde_json::from_value(json!({"kind": kind.name(), "metadata": metadata, "spec": spec}))
            .expect("a pool");
    let family = Family::of(subnet.addr());
    let in_use = input
        .used
        .iter()
        .enumerate()
        .map(|(index, (reserved, number, length))| {
            let address = family.address(number.within(subnet.into()));
            let block = input
                .length
                .map_or(Block::address(address), |_| Block::new(address, *length));
            (
                index,
                *reserved,
                Slot {
                    scope: Scope::Pool(key.clone()),
                    block,
                },
            )
        });
    let in_use: Vec<(usize, bool, Slot)> = in_use.collect();
    let (mut ledger, mut other) = (Ledger::default(), Ledger::default());
    ledger.apply_pool(&pool);
    in_use
        .iter()
        .for_each(|used| add_used(&mut ledger, &key, used));
    in_use
        .iter()
        .rev()
        .for_each(|used| add_used(&mut other, &key, used));
    other.apply_pool(&pool);
    let before = ledger.pools().counts(&key);
    assert_eq!(before, other.pools().counts(&key));
    if pool.spec.usable().is_err() {
        assert_eq!(ledger.propose(&key, &claim(0), 0), Outcome::NO_ADDRESS);
        return;
    }

    not_usable.extend(in_use.iter().map(|(_, _, slot)| slot.block.span()));
    let mut proposed = Vec::new();
    for number in 0..input.claims % 32 {
        let expected = lowest(family, length, given, &not_usable).map(|block| Slot {
            scope: Scope::Pool(key.clone()),
            block,
        });
        let got = ledger.propose(&key, &claim(number), i64::from(number));
        assert_eq!(
            got,
            expected.clone().map_or(Outcome::NO_ADDRESS, Outcome::Offer),
            "{spec}"
        );
        assert_eq!(got, other.propose(&key, &claim(number), i64::from(number)));
        let Some(slot) = expected else { break };
        not_usable.push(slot.block.span());
        proposed.push(slot);
    }
    let fewer = i64::try_from(proposed.len()).expect("few");
    assert!(before.free == i64::MAX || before.free - fewer == ledger.pools().counts(&key).free);
    if let Some(first) = proposed.first() {
        ledger.drop_candidate(first);
        // The claim without an address waits for it.
        assert_eq!(
            ledger.propose(&key, &claim(u8::try_from(proposed.len()).expect("few")), 99),
            Outcome::Offer(first.clone())
        );
    }
    proposed.iter().for_each(|slot| ledger.drop_candidate(slot));
    assert_eq!(ledger.pools().counts(&key), before);
}

/// The lowest usable block. It starts an entry, or follows a block that is not usable.
fn lowest(family: Family, length: u8, given: &[Span], not_usable: &[Span]) -> Option<Block> {
    let behind = not_usable.iter().map(|span| {
        Block::new(family.address(span.last()), length)
            .span()
            .last()
    });
    let behind = behind
        .filter(|last| *last < family.last())
        .map(|last| last + 1);
    let candidates = given
        .iter()
        .map(|span| span.first())
        .chain(behind)
        .map(|n| Block::new(family.address(n), length));
    let is_free = |block: &Block| {
        let span = block.span();
        given
            .iter()
            .any(|given| given.contains(span.first()) && given.contains(span.last()))
            && !not_usable
                .iter()
                .any(|other| span.first() <= other.last() && other.first() <= span.last())
    };
    candidates.filter(is_free).min()
}

fn claim(number: u8) -> NamespacedName {
    NamespacedName::new("n", &format!("c{number}"))
}
