//! Feeds arbitrary pools, of addresses and of prefixes, and what is in use in them, to the ledger, and has it propose.
//!
//! What must hold: each proposal is the lowest block that lies in the pool and touches nothing excluded, held back, in use
//! or proposed before; the order in which the ledger heard of things does not matter; what is given back is proposed
//! again; and the widest pool takes no longer than any other.
//!
//! Run with `cargo +nightly fuzz run allocation`.

#![no_main]

#[path = "allocation/pools.rs"]
mod pools;

use capi_ipam::api::{InClusterIPPool, InClusterPrefixPool, names, Pool, PoolKey, Scope, Slot};
use capi_ipam::in_cluster::ledger::{Ledger, Proposal};
use capi_ipam_controller::watch::Observer;
use capi_ipam_ip::{Block, Family, Span};
use ipnet::IpNet;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{json, Value};

use pools::{Entry, Number, spans, take, text};

const SUBNETS: [&str; 8] =
    ["10.0.0.0/8", "0.0.0.0/0", "10.0.0.0/24", "10.0.0.0/31", "fd00::/8", "::/0", "fd00::/120", "fd00::/127"];

#[derive(Arbitrary, Debug)]
struct Input {
    subnet: u8,
    /// The length of what is given out; none in a pool of addresses.
    length: Option<u8>,
    entries: Vec<Entry>,
    excluded: Vec<Entry>,
    gateway: Option<Number>,
    allocate_reserved: bool,
    taken: Vec<(bool, Number, u8)>,
    claims: u8,
}

fuzz_target!(|input: Input| {
    let subnet: IpNet = SUBNETS[usize::from(input.subnet) % SUBNETS.len()].parse().expect("a subnet");
    let whole = Span::from(subnet);
    let texts = |entries: &[Entry]| -> Vec<String> {
        entries.iter().map(|entry| text(*entry, subnet, input.length.is_some())).collect()
    };
    let (entries, excluded) = (texts(&input.entries), texts(&input.excluded));
    let gateway = input.gateway.map(|number| text(Entry::One(number), subnet, false));
    let mut kept_out = spans(&excluded);
    if subnet.addr().is_ipv6() {
        kept_out.extend(Span::new(0xffff_0000_0000, 0xffff_ffff_ffff));
    }
    if let Some(length) = input.length {
        let spec = json!({"prefixes": entries, "excludedPrefixes": excluded, "allocationPrefixLength": length,
                          "gateway": gateway});
        check::<InClusterPrefixPool>(&input, subnet, &spec, &spans(&entries), kept_out, length);
    } else {
        kept_out.extend(spans(gateway.as_slice()));
        if !input.allocate_reserved && whole.len() > 2 {
            let last = subnet.addr().is_ipv4().then_some(whole.last());
            kept_out.extend([whole.first()].into_iter().chain(last).map(Span::single));
        }
        let spec = json!({"addresses": entries, "excludedAddresses": excluded, "prefix": subnet.prefix_len(),
                          "gateway": gateway, "allocateReservedIPAddresses": input.allocate_reserved});
        check::<InClusterIPPool>(&input, subnet, &spec, &spans(&entries), kept_out, subnet.max_prefix_len());
    }
});

fn check<P: Pool>(input: &Input, subnet: IpNet, spec: &Value, given: &[Span], mut kept_out: Vec<Span>, length: u8)
where
    Ledger: Observer<P>,
{
    let key = PoolKey { kind: P::KIND, namespace: Some("n".into()), name: "p".into() };
    let metadata = json!({"namespace": "n", "name": "p", "uid": "u", "finalizers": [names::PROTECT_POOL]});
    let pool: P = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pool");
    let family = Family::of(subnet.addr());
    let in_use = input.taken.iter().enumerate().map(|(index, (reserved, number, odd))| {
        let address = family.address(number.within(subnet.into()));
        let block = input.length.map_or(Block::address(address), |_| Block::new(address, *odd));
        (index, *reserved, Slot { scope: Scope::Pool(key.clone()), block })
    });
    let in_use: Vec<(usize, bool, Slot)> = in_use.collect();
    let (ledger, other) = (Ledger::read_only(), Ledger::read_only());
    ledger.applied(&pool);
    in_use.iter().for_each(|taken| take(&ledger, &key, taken));
    in_use.iter().rev().for_each(|taken| take(&other, &key, taken));
    other.applied(&pool);
    let before = ledger.counts(&key);
    assert_eq!(before, other.counts(&key));
    if pool.spec().usable().is_err() {
        assert_eq!(ledger.propose(&key, &claim(0), 0), Proposal::Wait);
        return;
    }

    kept_out.extend(in_use.iter().map(|(_, _, slot)| slot.block.span()));
    let mut proposed = Vec::new();
    for number in 0..input.claims % 32 {
        let expected =
            lowest(family, length, given, &kept_out).map(|block| Slot { scope: Scope::Pool(key.clone()), block });
        let got = ledger.propose(&key, &claim(number), number.into());
        assert_eq!(got, expected.clone().map_or(Proposal::Wait, Proposal::Slot), "{spec}");
        assert_eq!(got, other.propose(&key, &claim(number), number.into()));
        let Some(slot) = expected else { break };
        kept_out.push(slot.block.span());
        proposed.push(slot);
    }
    let fewer = i64::try_from(proposed.len()).expect("few");
    assert!(before.free == i64::MAX || before.free - fewer == ledger.counts(&key).free);
    if let Some(first) = proposed.first() {
        ledger.withdraw(first);
        // Whoever found nothing waits for it.
        assert_eq!(
            ledger.propose(&key, &claim(u8::try_from(proposed.len()).expect("few")), 99),
            Proposal::Slot(first.clone())
        );
    }
    proposed.iter().for_each(|slot| ledger.withdraw(slot));
    assert_eq!(ledger.counts(&key), before);
}

/// The lowest block that is given and not kept out. Before it there is always something kept out, or nothing given.
fn lowest(family: Family, length: u8, given: &[Span], kept_out: &[Span]) -> Option<Block> {
    let behind = kept_out.iter().map(|span| Block::new(family.address(span.last()), length).span().last());
    let behind = behind.filter(|last| *last < family.last()).map(|last| last + 1);
    let candidates = given.iter().map(|span| span.first()).chain(behind).map(|n| Block::new(family.address(n), length));
    let is_free = |block: &Block| {
        let span = block.span();
        given.iter().any(|given| given.contains(span.first()) && given.contains(span.last()))
            && !kept_out.iter().any(|other| span.first() <= other.last() && other.first() <= span.last())
    };
    candidates.filter(is_free).min()
}

fn claim(number: u8) -> (String, String) {
    ("n".to_owned(), format!("c{number}"))
}
