#![allow(
    clippy::needless_pass_by_value,
    reason = "the values are written where they are passed"
)]

mod access;
mod arrivals;
mod blocks;
mod candidates;
mod cooldown;
mod draining;
mod invalid;
mod joining;
mod last_valid;
mod late;
mod laws;
mod lookup;
mod networks;
mod order;
mod overlaps;
mod policy;
mod prefixes;
mod preview;
mod quarantine;
mod recount;
mod scope_changes;
mod scopes;
mod sets;
mod slices;
mod start;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{
    AddressCounts, IPNetwork, IPReservation, InClusterKind, NetworkRefusal, OverLimit, Pool,
    PoolNetwork, Scope, SliceCounts, Slot, reservation_name,
};
use capi_ipam_contract::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_ip::{Block, Family};
use capi_ipam_objects::maybe_invalid::Invalid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{ObjectVersion, Origin};
use k8s_openapi::api::core::v1::Namespace;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The addresses of the pool in these tests are 10.0.0.1 to 10.0.0.8.
const SIZE: u8 = 8;

fn ledger() -> Ledger {
    Ledger::default()
}

/// A ledger with the pool of these tests.
fn with_pool() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({})));
    ledger
}

/// A ledger with the network `lab`.
fn with_lab() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_network(&lab(json!({})));
    ledger
}

fn unavailable(why: Unavailable) -> Outcome<Slot> {
    Outcome::NotNow(Reason::Unavailable(why))
}

/// The last number of the address that is proposed to a claim.
fn offered(ledger: &mut Ledger, name: &str) -> Option<u8> {
    match ledger.propose(&key(), &claim(name), 1) {
        Outcome::Offer(slot) => (1..=SIZE).find(|last| value(*last) == slot),
        _ => None,
    }
}

/// Records the reservation of an address for a claim, which a response has shown.
fn reserve(ledger: &mut Ledger, last: u8, name: &str) {
    ledger.insert_reservation(&reservation(last, held_by(name), None));
}

fn address_counts(ledger: &Ledger) -> AddressCounts {
    ledger.pools.counts(&key())
}

fn info_of(ledger: &Ledger) -> Option<Arc<PoolInfo>> {
    ledger.pools.pool_info(&key())
}

fn scope_of(ledger: &Ledger, pool: &str) -> Scope {
    ledger.pools.scope(&named(pool))
}

fn pool_network(ledger: &Ledger, key: &PoolKey) -> Option<PoolNetwork> {
    super::report::pool_network(key, ledger.pools.get(key)?)
}

fn slice_counts(ledger: &Ledger) -> Option<SliceCounts> {
    ledger.pools.get(&key())?.slice_counts()
}

/// The claims that the ledger has woken since the last call.
fn take(ledger: &mut Ledger) -> Vec<NamespacedName> {
    ledger.take_effects().claims
}

/// The pools with an entry, also those that do not exist.
fn known_pools(ledger: &Ledger) -> Vec<PoolKey> {
    ledger.pools.iter().map(|(key, _)| key.clone()).collect()
}

fn named(name: &str) -> PoolKey {
    PoolKey::new(InClusterKind::IPPool, Some("n"), name)
}

fn key() -> PoolKey {
    named("p")
}

fn claim(name: &str) -> NamespacedName {
    NamespacedName::new("n", name)
}

fn pool(change: serde_json::Value) -> Pool {
    let mut pool = json!({
        "kind": "InClusterIPPool",
        "metadata": {"namespace": "n", "name": "p", "uid": "pool", "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": {"addresses": ["10.0.0.1-10.0.0.8"], "prefix": 24},
    });
    json_patch::merge(&mut pool, &change);
    serde_json::from_value(pool).unwrap()
}

fn block(last: u8) -> Block {
    Block::address([10, 0, 0, last].into())
}

fn value(last: u8) -> Slot {
    Slot {
        scope: Scope::Pool(key()),
        block: block(last),
    }
}

fn address(name: &str, last: u8) -> IPAddress {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": name, "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"]},
        "spec": {"claimRef": {"name": name}, "address": block(last).to_string(), "prefix": 24,
                 "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
    }))
    .unwrap()
}

fn reservation(last: u8, claim_ref: serde_json::Value, released_at: Option<&str>) -> IPReservation {
    serde_json::from_value(json!({
        "metadata": {"name": value(last).reservation_name(), "uid": format!("r-{last}-{claim_ref}")},
        "spec": {"scope": "p.n.p", "address": block(last).to_string(), "claimRef": claim_ref,
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}, "releasedAt": released_at},
    }))
    .unwrap()
}

fn held_by(name: &str) -> serde_json::Value {
    json!({"namespace": "n", "name": name, "uid": format!("uid-{name}")})
}

/// The addresses that a claim holds, and their pools.
fn held_slots(ledger: &Ledger, name: &str, uid: &str) -> Vec<(Slot, PoolKey)> {
    ledger
        .addresses()
        .held_by(&claim(name), Uid::of(uid))
        .into_iter()
        .map(|held| (held.slot, held.pool))
        .collect()
}

/// Records a pool that a response has shown.
fn insert_pool(ledger: &mut Ledger, pool: &Pool) {
    let known = ledger.pools().declared_pool(&PoolKey::of(pool));
    let info = PoolInfo::updated(known.as_deref(), pool);
    ledger.record_pool(pool, info, Origin::Response);
}

fn remove_network(ledger: &mut Ledger, name: &str) {
    ledger.change_networks(|networks| networks.remove(name, None));
}

fn namespace(name: &str, labels: &BTreeMap<String, String>) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
}

fn set_namespace(ledger: &mut Ledger, name: &str, labels: &BTreeMap<String, String>) {
    ledger.apply(&namespace(name, labels));
}

fn remove_namespace(ledger: &mut Ledger, name: &str) {
    ledger.delete(&namespace(name, &BTreeMap::new()));
}

fn over_limit(ledger: &Ledger, key: &PoolKey) -> Option<OverLimit> {
    ledger.pool_report(key, Vec::new())?.over_limit
}

fn counts(ledger: &Ledger) -> (i64, i64, i64, i64) {
    let counts = address_counts(ledger);
    (counts.total, counts.free, counts.used, counts.out_of_range)
}

fn member(name: &str, addresses: &str) -> Pool {
    pool(
        json!({"metadata": {"name": name, "uid": name}, "spec": {"addresses": [addresses], "network": "lab"}}),
    )
}

/// The network `lab`, which all pools can join.
fn lab(change: serde_json::Value) -> IPNetwork {
    let mut network = json!({
        "metadata": {"name": "lab", "uid": "lab", "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"]},
        "spec": {"namespaces": {"from": "All"}}, "status": {"blockLengths": {"ipv4": 32}},
    });
    json_patch::merge(&mut network, &change);
    serde_json::from_value(network).unwrap()
}

fn in_lab(last: u8) -> Slot {
    Slot {
        scope: Scope::Network("lab".into()),
        block: block(last),
    }
}

fn free(ledger: &Ledger, name: &str) -> i64 {
    ledger.pools().counts(&named(name)).free
}

fn prefix_key() -> PoolKey {
    PoolKey::new(InClusterKind::PrefixPool, Some("n"), "p")
}

fn prefix_pool(length: u8) -> Pool {
    serde_json::from_value(json!({
        "kind": "InClusterPrefixPool",
        "metadata": {"namespace": "n", "name": "p", "uid": "pool", "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]},
        "spec": {"prefixes": ["fd00::/61"], "allocationPrefixLength": length},
    }))
    .unwrap()
}

fn prefix_address(name: &str, base: &str, length: u8) -> IPAddress {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": name},
        "spec": {"claimRef": {"name": name}, "address": base, "prefix": length,
                 "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterPrefixPool", "name": "p"}},
    }))
    .unwrap()
}

#[test]
fn nothing_is_proposed_before_the_pool_is_initialized() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"metadata": {"finalizers": null}})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    ledger.apply_pool(&pool(json!({})));
    assert_eq!(offered(&mut ledger, "a"), Some(1));
}

#[test]
fn held_address_is_proposed_again_after_it_is_dropped() {
    let mut ledger = with_pool();
    assert_eq!(offered(&mut ledger, "a"), Some(1));
    assert_eq!(offered(&mut ledger, "b"), Some(2));
    ledger.drop_candidate(&value(1));
    assert_eq!(offered(&mut ledger, "c"), Some(1));
}

#[test]
fn reservation_survives_the_drop_of_its_candidate() {
    let mut ledger = with_pool();
    assert_eq!(offered(&mut ledger, "a"), Some(1));
    reserve(&mut ledger, 1, "a");
    ledger.drop_candidate(&value(1));
    assert_eq!(offered(&mut ledger, "b"), Some(2));
    assert_eq!(held_slots(&ledger, "a", "uid-a"), [(value(1), key())]);
}

#[test]
fn address_is_free_without_reservation_and_ipaddress() {
    let mut ledger = with_pool();
    ledger.apply(&address("a", 1));
    reserve(&mut ledger, 1, "a");
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    ledger.delete(&reservation(1, held_by("a"), None));
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    ledger.delete(&address("a", 1));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}

#[test]
fn deletion_of_an_old_reservation_keeps_the_new_one() {
    let mut ledger = with_pool();
    reserve(&mut ledger, 1, "new");
    ledger.delete(&reservation(1, held_by("old"), None));
    assert_eq!(counts(&ledger), (8, 7, 0, 0));
}

#[test]
fn promised_address_is_held_for_the_named_claim() {
    let mut ledger = with_pool();
    ledger.insert_reservation(&reservation(
        1,
        json!({"namespace": "n", "name": "vip"}),
        None,
    ));
    assert_eq!(offered(&mut ledger, "a"), Some(2));
    assert_eq!(held_slots(&ledger, "vip", "any"), [(value(1), key())]);
    assert!(
        ledger
            .addresses()
            .held_by(&claim("vip"), Uid::of("any"))
            .iter()
            .all(|held| held.is_promise)
    );
}

#[test]
fn controller_is_notified_once_until_it_reads() {
    let mut ledger = with_pool();
    let notified = |ledger: &mut Ledger| ledger.take_effects().pools;
    assert_eq!(notified(&mut ledger), [key()]);
    ledger.apply(&address("a", 1));
    ledger.apply(&address("b", 2));
    assert_eq!(notified(&mut ledger), [], "it has not read the state yet");
    ledger.pools_mut().set_notified(&key(), false);
    ledger.apply(&address("c", 3));
    ledger.apply(&address("d", 4));
    assert_eq!(notified(&mut ledger), [key()]);
    ledger.pools_mut().set_notified(&key(), false);
    ledger.pools_mut().set_notified(&key(), true);
    ledger.apply(&address("e", 5));
    assert_eq!(notified(&mut ledger), [], "it is reconciled anyway");
}

#[test]
fn shrunk_pool_counts_addresses_out_of_range() {
    let mut ledger = with_pool();
    for (name, last) in [("a", 1), ("b", 5)] {
        ledger.apply(&address(name, last));
    }
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.4"]}})));
    assert_eq!(counts(&ledger), (4, 3, 1, 1));
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["oops"]}})));
    assert_eq!(counts(&ledger), (0, 0, 0, 2));
    ledger.apply_pool(&pool(json!({})));
    assert_eq!(counts(&ledger), (8, 6, 2, 0));
    ledger.delete(&address("b", 5));
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
}

#[test]
fn objects_missing_in_a_new_list_are_removed() {
    let mut ledger = with_pool();
    Observe::<IPAddress>::init(&mut ledger);
    ledger.apply(&address("a", 1));
    ledger.apply(&address("b", 2));
    Observe::<IPAddress>::init_done(&mut ledger);
    Observe::<IPReservation>::init(&mut ledger);
    ledger.apply(&reservation(3, held_by("c"), None));
    Observe::<IPReservation>::init_done(&mut ledger);
    assert_eq!(counts(&ledger), (8, 5, 2, 0));

    Observe::<IPAddress>::init(&mut ledger);
    ledger.apply(&address("b", 2));
    Observe::<IPAddress>::init_done(&mut ledger);
    Observe::<IPReservation>::init(&mut ledger);
    Observe::<IPReservation>::init_done(&mut ledger);
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    assert!(held_slots(&ledger, "c", "uid-c").is_empty());

    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.end_pool_list(InClusterKind::IPPool);
    assert!(info_of(&ledger).is_none());
}

/// A ledger with two claims that wait for one address. The address is free, and the first claim has
/// been granted the turn.
fn with_one_turn() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1"]}})));
    ledger.apply(&address("held", 1));
    for (priority, name) in [(1, "first"), (2, "second")] {
        assert_eq!(
            ledger.propose(&key(), &claim(name), priority),
            Outcome::NO_ADDRESS
        );
    }
    ledger.delete(&address("held", 1));
    assert_eq!(
        ledger.propose(&key(), &claim("second"), 2),
        Outcome::NO_ADDRESS,
        "it is held for the first"
    );
    ledger
}

#[test]
fn claim_served_by_another_manager_leaves_the_queue() {
    let mut ledger = with_one_turn();
    ledger.apply(&address("first", 2));
    assert_eq!(
        ledger.propose(&key(), &claim("second"), 2),
        Outcome::Offer(value(1))
    );
}

#[test]
fn deleted_claim_is_pruned_from_the_queue() {
    let mut ledger = with_one_turn();
    ledger.prune_wait_queues(|_| true);
    assert_eq!(
        ledger.propose(&key(), &claim("second"), 2),
        Outcome::NO_ADDRESS
    );
    ledger.prune_wait_queues(|known| *known != claim("first"));
    assert_eq!(
        ledger.propose(&key(), &claim("second"), 2),
        Outcome::Offer(value(1))
    );
}

#[test]
fn deleted_claim_leaves_the_wait_queue() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1"]}})));
    ledger.apply(&address("held", 1));
    for (priority, name) in [(1, "gone"), (2, "stays")] {
        assert_eq!(
            ledger.propose(&key(), &claim(name), priority),
            Outcome::NO_ADDRESS
        );
    }
    let gone: IPAddressClaim = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "gone"},
        "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
    }))
    .unwrap();
    ledger.delete(&gone);
    ledger.delete(&address("held", 1));
    assert_eq!(
        ledger.propose(&key(), &claim("stays"), 2),
        Outcome::Offer(value(1))
    );
}

#[test]
fn address_reserved_for_another_claim_is_a_conflict() {
    let mut ledger = with_pool();
    for (name, last) in [("a", 1), ("b", 1), ("c", 2), ("d", 3)] {
        ledger.apply(&address(name, last));
    }
    assert_eq!(
        ledger
            .unreserved(10, |_| true)
            .iter()
            .map(|unreserved| unreserved.claims.len())
            .max(),
        Some(2)
    );
    assert_eq!(ledger.addresses().conflicts(), []);
    reserve(&mut ledger, 1, "a");
    reserve(&mut ledger, 2, "c");
    ledger.insert_reservation(&reservation(3, json!(null), None));
    let conflicts = ledger.addresses().conflicts();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!(
        (&conflicts[0].slot, &conflicts[0].claim),
        (&value(1), &claim("b"))
    );
    assert_eq!(
        (&conflicts[0].reserved_for, conflicts[0].uid),
        (&claim("a"), Uid::of("uid-a"))
    );
    assert!(conflicts[0].is_duplicate);
    ledger.delete(&address("a", 1));
    assert!(!ledger.addresses().conflicts()[0].is_duplicate);
}

#[test]
fn reservations_without_entitled_claim_are_abandoned() {
    let mut ledger = with_pool();
    ledger.apply(&address("a", 1));
    reserve(&mut ledger, 1, "a");
    reserve(&mut ledger, 2, "a");
    ledger.insert_reservation(&reservation(3, json!(null), None));
    ledger.insert_reservation(&reservation(
        4,
        json!({"namespace": "n", "name": "vip"}),
        None,
    ));
    let abandoned = ledger.abandoned_reservations(|_, _, has_address| has_address);
    assert_eq!(
        abandoned.len(),
        1,
        "the second reservation of the claim: {abandoned:?}"
    );
    assert_eq!(ledger.abandoned_reservations(|_, _, _| false).len(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Propose(u8),
    Drop(u8),
    Reserve(u8),
    Unreserve(u8),
    InsertAddress(u8),
    RemoveAddress(u8),
    Resize(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let last = 1..=SIZE;
    let step = prop_oneof![
        last.clone().prop_map(Step::Propose),
        last.clone().prop_map(Step::Drop),
        last.clone().prop_map(Step::Reserve),
        last.clone().prop_map(Step::Unreserve),
        last.clone().prop_map(Step::InsertAddress),
        last.clone().prop_map(Step::RemoveAddress),
        last.prop_map(Step::Resize),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// After any sequence of steps, the counts are those of the model, and a proposal is the lowest
    /// address that is not used in it.
    #[test]
    fn ledger_agrees_with_a_naive_model(steps in steps()) {
        let mut ledger = with_pool();
        let (mut proposed, mut reserved, mut held) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut size = SIZE;
        for step in steps {
            match step {
                Step::Propose(name) => {
                    let taken = |last: &u8| proposed.contains(last) || reserved.contains(last) || held.contains(last);
                    let lowest = (1..=size).find(|last| !taken(last));
                    let name = claim(&format!("c{name}"));
                    let got = ledger.propose(&key(), &name, 1);
                    match lowest {
                        Some(last) => {
                            prop_assert_eq!(got, Outcome::Offer(value(last)));
                            proposed.insert(last);
                        }
                        None => {
                            prop_assert_eq!(got, Outcome::NO_ADDRESS);
                            // Removed again, so that no queue forms.
                            ledger.stop_waiting(&key(), &name);
                        }
                    }
                }
                Step::Drop(last) => {
                    ledger.drop_candidate(&value(last));
                    proposed.remove(&last);
                }
                Step::Reserve(last) => {
                    ledger.apply(&reservation(last, held_by("x"), None));
                    reserved.insert(last);
                    proposed.remove(&last);
                }
                Step::Unreserve(last) => {
                    ledger.delete(&reservation(last, held_by("x"), None));
                    reserved.remove(&last);
                }
                Step::InsertAddress(last) => {
                    ledger.apply(&address(&format!("a{last}"), last));
                    held.insert(last);
                }
                Step::RemoveAddress(last) => {
                    ledger.delete(&address(&format!("a{last}"), last));
                    held.remove(&last);
                }
                Step::Resize(last) => {
                    size = last;
                    ledger.apply_pool(&pool(json!({"spec": {"addresses": [format!("10.0.0.1-10.0.0.{last}")]}})));
                }
            }
            let inside = held.range(1..=size).count();
            let taken: BTreeSet<_> = proposed.iter().chain(&reserved).chain(&held).filter(|last| **last <= size).collect();
            let free = usize::from(size) - taken.len();
            let expected = [usize::from(size), free, inside, held.len() - inside].map(|count| i64::try_from(count).unwrap());
            let got = counts(&ledger);
            prop_assert_eq!([got.0, got.1, got.2, got.3], expected);
            let slots: BTreeSet<_> = reserved.iter().map(|last| (value(*last), key())).collect();
            let known: BTreeSet<_> = held_slots(&ledger, "x", "uid-x").into_iter().collect();
            prop_assert_eq!(known, slots);
        }
    }
}

/// No claim can have these names, or use the namespaced pool from another namespace.
#[test]
fn promises_that_no_claim_can_get_are_found() {
    let mut ledger = with_pool();
    for (last, namespace, name) in [
        (1, "n", "vip"),
        (2, "n", "Bad_Claim"),
        (3, "kube-system", "x"),
        (4, "N", "x"),
    ] {
        ledger.insert_reservation(&reservation(
            last,
            json!({"namespace": namespace, "name": name}),
            None,
        ));
    }
    let mut invalid: Vec<_> = ledger
        .invalid_reservations()
        .0
        .into_iter()
        .map(|found| found.problem)
        .collect();
    invalid.sort();
    assert_eq!(invalid.len(), 3, "{invalid:?}");
    for (problem, expected) in invalid.iter().zip([
        "spec.claimRef.name: \"Bad_Claim\" is not",
        "spec.claimRef.namespace: \"N\" is not the name of a namespace",
        "spec.claimRef.namespace: InClusterIPPool n/p allocates only to claims of its namespace",
    ]) {
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn manual_reservations_without_effect_are_found() {
    let mut ledger = with_pool();
    ledger.insert_reservation(&reservation(3, json!(null), None));
    ledger.insert_reservation(&reservation(
        200,
        json!({"namespace": "n", "name": "vip"}),
        None,
    ));
    reserve(&mut ledger, 201, "a");
    let mut misnamed = reservation(4, json!(null), None);
    misnamed.metadata.name = Some("p.n.p.10.0.0.5".to_owned());
    ledger.insert_reservation(&misnamed);
    let invalid = ledger.invalid_reservations().0;
    let names: Vec<&str> = invalid.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["p.n.p.10.0.0.5", "p.n.p.10.0.0.200"]);
    assert!(
        invalid[1].problem.contains("10.0.0.200"),
        "{}",
        invalid[1].problem
    );
    ledger.delete(&misnamed);
    assert_eq!(ledger.invalid_reservations().0.len(), 1);
}

#[test]
fn valid_reservation_of_a_user_reports_it_once() {
    let mut ledger = with_pool();
    let reported = |last, claim_ref, ready: &str| {
        let status = json!({"conditions": [{"type": "Ready", "status": ready, "reason": "Any"}]});
        let mut reservation = reservation(last, claim_ref, None);
        reservation.status = serde_json::from_value(status).unwrap();
        reservation
    };
    let names = |ledger: &Ledger| -> Vec<String> {
        let valid = ledger.invalid_reservations().1.into_iter();
        let mut names: Vec<_> = valid.map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    };
    reserve(&mut ledger, 4, "a");
    assert!(names(&ledger).is_empty(), "it is that of a claim");
    ledger.insert_reservation(&reservation(3, json!(null), None));
    let promise = json!({"namespace": "n", "name": "vip"});
    ledger.insert_reservation(&reservation(6, promise, None));
    ledger.insert_reservation(&reported(5, json!(null), "False"));
    ledger.insert_reservation(&reported(7, json!(null), "True"));
    ledger.insert_reservation(&reported(200, json!(null), "False"));
    let mut deleting = reservation(8, json!(null), None);
    deleting.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    ledger.insert_reservation(&deleting);
    let expected = ["p.n.p.10.0.0.3", "p.n.p.10.0.0.5", "p.n.p.10.0.0.6"];
    assert_eq!(names(&ledger), expected);
    let seen = ObjectVersion::of(&reservation(3, json!(null), None).metadata);
    let valid = ledger.invalid_reservations().1;
    assert!(valid.contains(&(expected[0].to_owned(), seen)), "{valid:?}");
    for last in [3, 5] {
        ledger.insert_reservation(&reported(last, json!(null), "True"));
    }
    assert_eq!(names(&ledger), ["p.n.p.10.0.0.6"]);
    // A pool that is not valid says nothing of them.
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["no address"]}})));
    assert_eq!(ledger.invalid_reservations(), (Vec::new(), Vec::new()));
    ledger.remove_pool(&key());
    assert!(names(&ledger).is_empty());
}

#[test]
fn reservations_of_users_outlive_their_pool() {
    let mut ledger = with_pool();
    ledger.insert_reservation(&reservation(3, json!(null), None));
    reserve(&mut ledger, 4, "a");
    let scope = Scope::Pool(key());
    assert_eq!(ledger.reservations_without_pool(&key(), &scope), 0);
    assert_eq!(ledger.invalid_reservations().0, []);
    ledger.remove_pool(&key());
    assert_eq!(ledger.reservations_without_pool(&key(), &scope), 1);
    let invalid = ledger.invalid_reservations().0;
    assert_eq!(invalid.len(), 1, "{invalid:?}");
    let start = "spec.poolRef: InClusterIPPool n/p does not exist; create the pool, or delete";
    assert!(invalid[0].problem.starts_with(start), "{invalid:?}");
}
