//! Each view equals a replay of the facts of all addresses, after any sequence of changes.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{IPReservation, InClusterKind, Slot};
use capi_ipam_contract::IPAddress;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};
use capi_ipam_objects::namespaced_name::NamespacedName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::PoolEntry;
use super::*;
use crate::addresses::Facts;
use crate::pools::draining::Draining;
use crate::quota::Quota;
use crate::{ClaimAttributes, Ledger, Observe, Outcome};

const POOLS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    /// A reservation of a pool, in the network or in the scope of the pool.
    Reserve(usize, bool, u8, Holder),
    Unreserve(usize, bool, u8),
    InsertAddress(usize, u8),
    RemoveAddress(usize, u8),
    Propose(usize, u8),
    Drop(u8),
    EndCooldowns,
    Change(usize, Value),
    RemovePool(usize),
}

/// What a reservation is for.
#[derive(Clone, Copy, Debug)]
enum Holder {
    Claim,
    /// A user promised the address to a claim.
    Promise,
    Exclusion,
    /// The claim has released the address at this second.
    Released(i64),
    /// The address is quarantined until this second.
    Quarantined(i64),
}

fn spec() -> impl Strategy<Value = Value> {
    let draining = proptest::collection::vec(1..=12_u8, 0..3);
    let options = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (1..=6_u8, 0..8_u8, draining, options).prop_map(|(first, more, draining, options)| {
        let (is_member, sticky, has_limits, cools_down) = options;
        let draining: Vec<String> = draining
            .iter()
            .map(|last| format!("10.0.0.{last}"))
            .collect();
        json!({
            "addresses": [format!("10.0.0.{first}-10.0.0.{}", first + more)], "prefix": 24,
            "draining": draining,
            "network": is_member.then_some("lab"),
            "allocation": {"sticky": sticky},
            "releasedAddressGracePeriodSeconds": if cools_down { 3_600 } else { 0 },
            "limits": has_limits.then(|| json!({"perNamespace": 3, "perCluster": 2})),
        })
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let holder = prop_oneof![
        3 => Just(Holder::Claim),
        1 => Just(Holder::Promise),
        1 => Just(Holder::Exclusion),
        2 => (1_000..1_003_i64).prop_map(Holder::Released),
        1 => (1_000..1_003_i64).prop_map(Holder::Quarantined),
    ];
    let (pool, last) = (0..POOLS.len(), 1..=12_u8);
    let place = (pool.clone(), any::<bool>(), last.clone());
    let step = prop_oneof![
        4 => (place.clone(), holder)
            .prop_map(|((pool, in_network, last), holder)| Step::Reserve(pool, in_network, last, holder)),
        1 => place.prop_map(|(pool, in_network, last)| Step::Unreserve(pool, in_network, last)),
        3 => (pool.clone(), last.clone()).prop_map(|(pool, last)| Step::InsertAddress(pool, last)),
        1 => (pool.clone(), last.clone()).prop_map(|(pool, last)| Step::RemoveAddress(pool, last)),
        2 => (pool.clone(), last.clone()).prop_map(|(pool, number)| Step::Propose(pool, number)),
        1 => last.prop_map(Step::Drop),
        1 => Just(Step::EndCooldowns),
        3 => (pool.clone(), spec()).prop_map(|(pool, spec)| Step::Change(pool, spec)),
        1 => pool.prop_map(Step::RemovePool),
    ];
    proptest::collection::vec(step, 0..60)
}

fn key(pool: usize) -> PoolKey {
    PoolKey::new(InClusterKind::GlobalIPPool, None, POOLS[pool])
}

fn slot(pool: usize, in_network: bool, last: u8) -> Slot {
    let scope = if in_network {
        Scope::Network("lab".into())
    } else {
        Scope::Pool(key(pool))
    };
    let block = Block::address([10, 0, 0, last].into());
    Slot { scope, block }
}

/// The claim of an address, which is always in the same Cluster.
fn claim(pool: usize, last: u8) -> (NamespacedName, String) {
    let namespace = if last.is_multiple_of(2) { "m" } else { "n" };
    let name = NamespacedName::new(namespace, &format!("{}-{last}", POOLS[pool]));
    (name, format!("cluster-{}", last % 3))
}

fn reserved(pool: usize, in_network: bool, last: u8, holder: Holder, step: usize) -> IPReservation {
    let slot = slot(pool, in_network, last);
    let (name, cluster) = claim(pool, last);
    let (namespace, name) = name.parts();
    let mut claim = json!({"namespace": namespace, "name": name, "cluster": cluster});
    match holder {
        Holder::Claim | Holder::Released(_) => claim["uid"] = format!("uid-{name}").into(),
        Holder::Promise => {}
        Holder::Exclusion | Holder::Quarantined(_) => claim = Value::Null,
    }
    let time = |second| jiff::Timestamp::from_second(second).unwrap().to_string();
    let released_at = match holder {
        Holder::Released(second) => Some(time(second)),
        _ => None,
    };
    let quarantine = match holder {
        Holder::Quarantined(second) => json!({"until": time(second), "reason": "ARP reply"}),
        _ => Value::Null,
    };
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("r{step}")},
        "spec": {"scope": slot.scope.name(), "address": slot.block.base().to_string(), "claimRef": claim,
                 "poolRef": key(pool).to_reference(), "releasedAt": released_at, "quarantine": quarantine},
    }))
    .unwrap()
}

fn address(pool: usize, last: u8) -> IPAddress {
    let (name, cluster) = claim(pool, last);
    let (namespace, name) = name.parts();
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"cluster.x-k8s.io/cluster-name": cluster}},
        "spec": {"claimRef": {"name": name}, "address": format!("10.0.0.{last}"), "prefix": 24,
                 "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": key(pool).kind.name(), "name": POOLS[pool]}},
    }))
    .unwrap()
}

fn pool(pool: usize, spec: &Value) -> capi_ipam_api::Pool {
    serde_json::from_value(json!({
        "kind": key(pool).kind.name(),
        "metadata": {"name": POOLS[pool], "uid": POOLS[pool], "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": spec,
    }))
    .unwrap()
}

fn with_network() -> Ledger {
    let mut ledger = Ledger::default();
    let network = json!({
        "metadata": {"name": "lab", "uid": "lab", "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"]},
        "spec": {"namespaces": {"from": "All"}, "blocks": {"registry": "site", "size": 4}},
        "status": {"blockLengths": {"ipv4": 32}},
    });
    ledger.apply_network(&serde_json::from_value(network).unwrap());
    ledger.set_management_cluster("site", "west");
    // All blocks are usable: only the use of each is counted.
    for first in [0, 4, 8, 12] {
        let slice = json!({
            "metadata": {"name": format!("n.lab.10.0.0.{first}-30"), "uid": format!("s{first}")},
            "spec": {"scope": "n.lab", "block": format!("10.0.0.{first}/30"),
                     "confirmedAt": "2026-01-01T00:00:00Z",
                     "owner": {"kind": "ManagementCluster", "name": "west"}},
        });
        ledger.insert_slice(&serde_json::from_value(slice).unwrap());
    }
    ledger
}

/// Executes the steps. A reservation that is deleted is created again with another uid only.
fn run(steps: Vec<Step>) -> Ledger {
    let mut ledger = with_network();
    let mut reservations: BTreeMap<Slot, IPReservation> = BTreeMap::new();
    let mut proposed: BTreeSet<Slot> = BTreeSet::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Reserve(pool, in_network, last, holder) => {
                let found = reserved(pool, in_network, last, holder, number);
                let slot = slot(pool, in_network, last);
                if let Some(before) = reservations.remove(&slot) {
                    ledger.delete(&before);
                }
                ledger.apply(&found);
                reservations.insert(slot, found);
            }
            Step::Unreserve(pool, in_network, last) => {
                if let Some(before) = reservations.remove(&slot(pool, in_network, last)) {
                    ledger.delete(&before);
                }
            }
            Step::InsertAddress(pool, last) => ledger.apply(&address(pool, last)),
            Step::RemoveAddress(pool, last) => ledger.delete(&address(pool, last)),
            Step::Propose(pool, last) => {
                let (name, cluster) = claim(pool, last);
                let attributes = ClaimAttributes {
                    cluster: Some(cluster.as_str().into()),
                    ..ClaimAttributes::from(1)
                };
                if let Outcome::Offer(slot) = ledger.propose(&key(pool), &name, attributes) {
                    proposed.insert(slot);
                }
            }
            Step::Drop(index) => {
                if let Some(slot) = proposed.iter().nth(usize::from(index)).cloned() {
                    ledger.drop_candidate(&slot);
                    proposed.remove(&slot);
                }
            }
            Step::EndCooldowns => ledger.end_cooldowns(2_000),
            Step::Change(number, spec) => ledger.apply_pool(&pool(number, &spec)),
            Step::RemovePool(pool) => ledger.remove_pool(&key(pool)),
        }
    }
    ledger
}

/// What the views keep of one pool.
fn digest(entry: &PoolEntry) -> BTreeMap<&'static str, String> {
    let all = entry.usable().map(UsableBlocks::allocatable);
    let free = entry.free.clone();
    let free = free.unwrap_or_else(|| FreeSet::new(&all.unwrap_or_default()));
    let mut holds: Vec<String> = entry
        .holds
        .iter()
        .map(|(scope, count)| format!("{}: {count}", scope.name()))
        .collect();
    holds.sort_unstable();
    BTreeMap::from([
        ("counts", format!("{} {}", entry.used, entry.out_of_range)),
        ("free", format!("{free:?} {:?}", entry.remembered)),
        (
            "quotas",
            format!(
                "{:?}",
                entry.quota.as_ref().map(|quota| quota.used_counts())
            ),
        ),
        ("cooldowns", format!("{:?}", entry.released)),
        ("draining", format!("{:?}", entry.draining)),
        ("holders", format!("{holds:?} {}", entry.candidates)),
    ])
}

/// A pool without addresses.
fn empty(key: &PoolKey, entry: &PoolEntry) -> PoolEntry {
    let mut fresh = PoolEntry {
        info: entry.info.clone(),
        scope: entry.scope.clone(),
        ..PoolEntry::default()
    };
    let rules = entry.info.as_ref().and_then(|info| info.access.clone());
    fresh.quota = rules.map(|rules| Box::new(Quota::new(&rules)));
    if let Some(usable) = entry.usable() {
        let none = ScopeEntry::default().usage;
        fresh.draining = Draining::of(key, usable, &SpanSet::default(), &none);
        fresh.free = Some(FreeSet::new(&usable.allocatable()));
    }
    fresh
}

proptest! {
    #[test]
    fn each_view_equals_a_replay_of_all_facts(steps in steps()) {
        let mut ledger = run(steps);
        let pools = ledger.pools.iter().map(|(key, entry)| (key.clone(), empty(key, entry)));
        let mut pools = Pools { entries: pools.collect(), ..Pools::default() };
        for (scope, entry) in ledger.addresses.scopes_mut() {
            let holders = std::mem::take(&mut entry.holders);
            let facts: Vec<_> =
                entry.usage.iter().map(|(block, usage)| (block, Facts::of(usage, true))).collect();
            for (block, after) in facts {
                let slot = Slot { scope: scope.clone(), block };
                let change = Change { slot: &slot, before: Facts::default(), after };
                let mut derived = Derived {
                    pools: &mut pools,
                    scope: entry,
                    elsewhere: Vec::new(),
                    dirty_pools: &mut Vec::new(),
                    effects: &mut Effects::default(),
                };
                changed(&change, &mut derived);
            }
            prop_assert_eq!(&holders, &entry.holders, "{}", scope.name());
        }
        ledger.addresses.check_in_use();
        prop_assert_eq!(pools.entries.len(), ledger.pools.entries.len());
        for (key, entry) in ledger.pools.iter() {
            prop_assert_eq!(digest(entry), digest(pools.get(key).unwrap()), "{}", key);
        }
    }
}
