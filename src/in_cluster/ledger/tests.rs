#![allow(clippy::needless_pass_by_value, reason = "the values are written where they are passed")]

mod cooldown;
mod late;
mod laws;
mod overlaps;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capi_ipam_controller::watch::Observer;
use capi_ipam_ip::{Block, Family};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use proptest::prelude::*;
use serde_json::json;

use crate::api::{InClusterIPPool, InClusterPrefixPool, reservation_name, Scope};
use super::*;

/// The addresses of the pool in these tests are 10.0.0.1 to 10.0.0.8.
const SIZE: u8 = 8;

fn ledger() -> Ledger {
    Ledger::read_only()
}

/// The pools that have an entry, existing or not.
fn known_pools(ledger: &Ledger) -> Vec<PoolKey> {
    ledger.lock().pools.keys().cloned().collect()
}

fn named(name: &str) -> PoolKey {
    PoolKey { kind: InClusterKind::IPPool, namespace: Some("n".into()), name: name.into() }
}

fn key() -> PoolKey {
    named("p")
}

fn claim(name: &str) -> ClaimKey {
    ("n".to_owned(), name.to_owned())
}

fn pool(change: serde_json::Value) -> InClusterIPPool {
    let mut pool = json!({
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
    Slot { scope: Scope::Pool(key()), block: block(last) }
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

fn counts(ledger: &Ledger) -> (i64, i64, i64, i64) {
    let counts = ledger.counts(&key());
    (counts.total, counts.free, counts.used, counts.out_of_range)
}

#[test]
fn nothing_is_proposed_before_the_pool_is_protected() {
    let ledger = ledger();
    ledger.applied(&pool(json!({"metadata": {"finalizers": null}})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Wait);
    ledger.applied(&pool(json!({})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Slot(value(1)));
}

#[test]
fn a_pool_counts_as_missing_when_it_is_asked_for_again() {
    let ledger = ledger();
    assert_eq!(ledger.pool_for(&key(), &claim("a"), 1), PoolLookup::NotSeenYet);
    assert_eq!(ledger.pool_for(&key(), &claim("a"), 1), PoolLookup::Missing);
    assert_eq!(ledger.pool_for(&key(), &claim("b"), 1), PoolLookup::NotSeenYet);
    ledger.applied(&pool(json!({})));
    assert!(matches!(ledger.pool_for(&key(), &claim("a"), 1), PoolLookup::Found(_)));
}

#[test]
fn a_proposal_is_not_made_twice_and_can_be_withdrawn() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Slot(value(1)));
    assert_eq!(ledger.propose(&key(), &claim("b"), 1), Proposal::Slot(value(2)));
    ledger.withdraw(&value(1));
    assert_eq!(ledger.propose(&key(), &claim("c"), 1), Proposal::Slot(value(1)));
}

#[test]
fn a_reservation_outlives_the_proposal_it_came_from() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Slot(value(1)));
    ledger.insert_reservation(&reservation(1, held_by("a"), None));
    ledger.withdraw(&value(1));
    assert_eq!(ledger.propose(&key(), &claim("b"), 1), Proposal::Slot(value(2)));
    assert_eq!(ledger.reservations_of(&claim("a"), Uid::of("uid-a")), [(value(1), key())]);
}

#[test]
fn an_address_is_free_when_nothing_holds_it() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    ledger.applied(&address("a", 1));
    ledger.insert_reservation(&reservation(1, held_by("a"), None));
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    ledger.remove_reservation(&reservation(1, held_by("a"), None));
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    ledger.deleted(&address("a", 1));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}

#[test]
fn a_late_word_of_an_old_reservation_does_not_free_the_new_one() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    ledger.insert_reservation(&reservation(1, held_by("new"), None));
    ledger.remove_reservation(&reservation(1, held_by("old"), None));
    assert_eq!(counts(&ledger), (8, 7, 0, 0));
}

#[test]
fn a_promise_is_kept_for_the_claim_of_that_name() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    ledger.insert_reservation(&reservation(1, json!({"namespace": "n", "name": "vip"}), None));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Slot(value(2)));
    assert_eq!(ledger.reservations_of(&claim("vip"), Uid::of("any")), [(value(1), key())]);
    assert!(ledger.is_promise(&value(1)));
}

#[test]
fn a_controller_is_told_once_until_it_looks() {
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let wake = move |pool: &PoolKey| {
        assert_eq!(*pool, key());
        count.fetch_add(1, Ordering::Relaxed);
    };
    let ledger = Ledger { pools: Box::new(wake), ..ledger() };
    ledger.applied(&pool(json!({})));
    let told = || told.swap(0, Ordering::Relaxed);
    assert_eq!(told(), 1);
    ledger.applied(&address("a", 1));
    ledger.applied(&address("b", 2));
    assert_eq!(told(), 0, "it has not looked yet");
    ledger.look(&key());
    ledger.applied(&address("c", 3));
    ledger.applied(&address("d", 4));
    assert_eq!(told(), 1);
    ledger.look(&key());
    ledger.will_look(&key());
    ledger.applied(&address("e", 5));
    assert_eq!(told(), 0, "it will look by itself");
}

#[test]
fn shrinking_counts_what_is_left_outside() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    for (name, last) in [("a", 1), ("b", 5)] {
        ledger.applied(&address(name, last));
    }
    ledger.applied(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.4"]}})));
    assert_eq!(counts(&ledger), (4, 3, 1, 1));
    ledger.applied(&pool(json!({"spec": {"addresses": ["oops"]}})));
    assert_eq!(counts(&ledger), (0, 0, 0, 2));
    ledger.applied(&pool(json!({})));
    assert_eq!(counts(&ledger), (8, 6, 2, 0));
    ledger.deleted(&address("b", 5));
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
}

#[test]
fn what_a_new_listing_does_not_name_is_gone() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    Observer::<IPAddress>::listing(&ledger);
    ledger.applied(&address("a", 1));
    ledger.applied(&address("b", 2));
    Observer::<IPAddress>::listed(&ledger);
    Observer::<IPReservation>::listing(&ledger);
    ledger.applied(&reservation(3, held_by("c"), None));
    Observer::<IPReservation>::listed(&ledger);
    assert_eq!(counts(&ledger), (8, 5, 2, 0));

    Observer::<IPAddress>::listing(&ledger);
    ledger.applied(&address("b", 2));
    Observer::<IPAddress>::listed(&ledger);
    Observer::<IPReservation>::listing(&ledger);
    Observer::<IPReservation>::listed(&ledger);
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    assert!(ledger.reservations_of(&claim("c"), Uid::of("uid-c")).is_empty());

    Observer::<InClusterIPPool>::listing(&ledger);
    Observer::<InClusterIPPool>::listed(&ledger);
    assert!(ledger.facts(&key()).is_none());
}

/// Two claims that wait for one address; it is free now, and the first has been called for it.
fn with_one_called() -> Ledger {
    let ledger = ledger();
    ledger.applied(&pool(json!({"spec": {"addresses": ["10.0.0.1"]}})));
    ledger.applied(&address("held", 1));
    for (priority, name) in [(1, "first"), (2, "second")] {
        assert_eq!(ledger.propose(&key(), &claim(name), priority), Proposal::Wait);
    }
    ledger.deleted(&address("held", 1));
    assert_eq!(ledger.propose(&key(), &claim("second"), 2), Proposal::Wait, "it is kept for the first");
    ledger
}

#[test]
fn a_claim_that_another_manager_gave_an_address_waits_no_longer() {
    let ledger = with_one_called();
    ledger.applied(&address("first", 2));
    assert_eq!(ledger.propose(&key(), &claim("second"), 2), Proposal::Slot(value(1)));
}

#[test]
fn a_claim_that_is_gone_is_taken_out_of_line() {
    let ledger = with_one_called();
    ledger.prune_wait_queues(|_| true);
    assert_eq!(ledger.propose(&key(), &claim("second"), 2), Proposal::Wait);
    ledger.prune_wait_queues(|known| *known != claim("first"));
    assert_eq!(ledger.propose(&key(), &claim("second"), 2), Proposal::Slot(value(1)));
}

#[test]
fn claims_in_line_that_a_new_listing_does_not_name_wait_no_longer() {
    let ledger = ledger();
    ledger.applied(&pool(json!({"spec": {"addresses": ["10.0.0.1"]}})));
    ledger.applied(&address("held", 1));
    for (priority, name) in [(1, "gone"), (2, "stays")] {
        assert_eq!(ledger.propose(&key(), &claim(name), priority), Proposal::Wait);
    }
    let stays: IPAddressClaim = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "stays"},
        "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
    }))
    .unwrap();
    Observer::<IPAddressClaim>::listing(&ledger);
    ledger.applied(&stays);
    Observer::<IPAddressClaim>::listed(&ledger);
    ledger.deleted(&address("held", 1));
    assert_eq!(ledger.propose(&key(), &claim("stays"), 2), Proposal::Slot(value(1)));
}

#[test]
fn an_address_reserved_for_another_claim_is_contested() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    for (name, last) in [("a", 1), ("b", 1), ("c", 2), ("d", 3)] {
        ledger.applied(&address(name, last));
    }
    assert_eq!(ledger.unreserved(10, |_| true).iter().map(|unreserved| unreserved.claims.len()).max(), Some(2));
    assert_eq!(ledger.contested(), []);
    ledger.insert_reservation(&reservation(1, held_by("a"), None));
    ledger.insert_reservation(&reservation(2, held_by("c"), None));
    ledger.insert_reservation(&reservation(3, json!(null), None));
    let contested = ledger.contested();
    assert_eq!(contested.len(), 1, "{contested:?}");
    assert_eq!((&contested[0].slot, &contested[0].claim), (&value(1), &claim("b")));
    assert_eq!((&contested[0].reservations_of, contested[0].uid), (&claim("a"), Uid::of("uid-a")));
    assert!(contested[0].both_have_it);
    ledger.deleted(&address("a", 1));
    assert!(!ledger.contested()[0].both_have_it);
}

#[test]
fn only_what_has_no_right_is_suspect() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    ledger.applied(&address("a", 1));
    ledger.insert_reservation(&reservation(1, held_by("a"), None));
    ledger.insert_reservation(&reservation(2, held_by("a"), None));
    ledger.insert_reservation(&reservation(3, json!(null), None));
    ledger.insert_reservation(&reservation(4, json!({"namespace": "n", "name": "vip"}), None));
    let suspects = ledger.suspects(|_, uid, has_address| uid.is_none() || has_address);
    assert_eq!(suspects.len(), 1, "the reservation beside the one in use: {suspects:?}");
    assert_eq!(ledger.suspects(|_, _, _| false).len(), 3);
}

#[derive(Clone, Debug)]
enum Step {
    Propose(u8),
    Withdraw(u8),
    Reserve(u8),
    Unreserve(u8),
    Hold(u8),
    LetGo(u8),
    Resize(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let last = 1..=SIZE;
    let step = prop_oneof![
        last.clone().prop_map(Step::Propose),
        last.clone().prop_map(Step::Withdraw),
        last.clone().prop_map(Step::Reserve),
        last.clone().prop_map(Step::Unreserve),
        last.clone().prop_map(Step::Hold),
        last.clone().prop_map(Step::LetGo),
        last.prop_map(Step::Resize),
    ];
    proptest::collection::vec(step, 0..80)
}

proptest! {
    /// Whatever happens, the counts are those of sets counted naively, and a proposal is the lowest address in none.
    #[test]
    fn it_agrees_with_a_naive_model(steps in steps()) {
        let ledger = ledger();
        ledger.applied(&pool(json!({})));
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
                            prop_assert_eq!(got, Proposal::Slot(value(last)));
                            proposed.insert(last);
                        }
                        None => {
                            prop_assert_eq!(got, Proposal::Wait);
                            // Gone again, so that no line forms.
                            ledger.leave_line(&key(), &name);
                        }
                    }
                }
                Step::Withdraw(last) => {
                    ledger.withdraw(&value(last));
                    proposed.remove(&last);
                }
                Step::Reserve(last) => {
                    ledger.applied(&reservation(last, held_by("x"), None));
                    reserved.insert(last);
                    proposed.remove(&last);
                }
                Step::Unreserve(last) => {
                    ledger.remove_reservation(&reservation(last, held_by("x"), None));
                    reserved.remove(&last);
                }
                Step::Hold(last) => {
                    ledger.applied(&address(&format!("a{last}"), last));
                    held.insert(last);
                }
                Step::LetGo(last) => {
                    ledger.deleted(&address(&format!("a{last}"), last));
                    held.remove(&last);
                }
                Step::Resize(last) => {
                    size = last;
                    ledger.applied(&pool(json!({"spec": {"addresses": [format!("10.0.0.1-10.0.0.{last}")]}})));
                }
            }
            let inside = held.range(1..=size).count();
            let taken: BTreeSet<_> = proposed.iter().chain(&reserved).chain(&held).filter(|last| **last <= size).collect();
            let free = usize::from(size) - taken.len();
            let expected = [usize::from(size), free, inside, held.len() - inside].map(|count| i64::try_from(count).unwrap());
            let got = counts(&ledger);
            prop_assert_eq!([got.0, got.1, got.2, got.3], expected);
            let slots: BTreeSet<_> = reserved.iter().map(|last| (value(*last), key())).collect();
            let known: BTreeSet<_> = ledger.reservations_of(&claim("x"), Uid::of("uid-x")).into_iter().collect();
            prop_assert_eq!(known, slots);
        }
    }
}

// === networks ===

fn member(name: &str, addresses: &str) -> InClusterIPPool {
    pool(json!({"metadata": {"name": name, "uid": name}, "spec": {"addresses": [addresses], "network": "lab"}}))
}

fn unit(family: Family, length: u8) -> IPReservation {
    let mut unit = crate::in_cluster::reservation::network_block_length("lab", family, length, &key());
    unit.metadata.uid = Some(format!("unit-{length}"));
    unit
}

fn in_lab(last: u8) -> Slot {
    Slot { scope: Scope::Network("lab".into()), block: block(last) }
}

fn free(ledger: &Ledger, name: &str) -> i64 {
    ledger.counts(&named(name)).free
}

#[test]
fn pools_of_one_network_never_propose_the_same_address() {
    let ledger = ledger();
    ledger.insert_reservation(&unit(Family::V4, 32));
    ledger.applied(&member("p", "10.0.0.1-10.0.0.3"));
    ledger.applied(&member("q", "10.0.0.2-10.0.0.4"));
    assert!(ledger.overlapping(&named("p")).is_empty(), "the network keeps them apart");
    assert_eq!(ledger.propose(&named("q"), &claim("a"), 1), Proposal::Slot(in_lab(2)));
    assert_eq!(ledger.propose(&named("p"), &claim("b"), 1), Proposal::Slot(in_lab(1)));
    assert_eq!(ledger.propose(&named("p"), &claim("c"), 1), Proposal::Slot(in_lab(3)));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (0, 1));
    ledger.withdraw(&in_lab(2));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (1, 2));
}

#[test]
fn an_address_seen_before_its_pool_is_found_in_the_network_later() {
    let ledger = ledger();
    ledger.insert_reservation(&unit(Family::V4, 32));
    ledger.applied(&address("a", 2));
    ledger.applied(&member("q", "10.0.0.2-10.0.0.4"));
    assert_eq!(free(&ledger, "q"), 3, "nobody knows yet that p is of the same network");
    ledger.applied(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (2, 2));
    assert_eq!((ledger.counts(&named("p")).used, ledger.counts(&named("q")).used), (1, 0));
    Observer::<InClusterIPPool>::deleted(&ledger, &member("p", ""));
    assert_eq!(free(&ledger, "q"), 2, "the pool is gone, its address is still in use");
    ledger.deleted(&address("a", 2));
    assert_eq!(free(&ledger, "q"), 3);
    assert!(ledger.facts(&named("p")).is_none() && !known_pools(&ledger).contains(&named("p")));
}

#[test]
fn a_pool_serves_once_its_network_is_prepared_and_not_when_it_differs() {
    let ledger = ledger();
    ledger.applied(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Wait);
    assert_eq!(ledger.missing_block_length(&key()), Some(("lab".into(), Family::V4, 32)));
    ledger.insert_reservation(&unit(Family::V4, 24));
    let problem = ledger.facts(&key()).unwrap().usable.unwrap_err();
    assert!(problem.contains("spec.network") && problem.contains("length 24"), "{problem}");
    ledger.remove_reservation(&unit(Family::V4, 24));
    ledger.insert_reservation(&unit(Family::V4, 32));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Slot(in_lab(1)));
}

#[test]
fn overlapping_pools_are_found_unless_one_network_keeps_them_apart() {
    let ledger = ledger();
    let other =
        |name: &str, addresses: &str| pool(json!({"metadata": {"name": name}, "spec": {"addresses": [addresses]}}));
    ledger.applied(&pool(json!({})));
    ledger.applied(&other("q", "10.0.0.8-10.0.0.20"));
    ledger.applied(&other("r", "10.0.0.9-10.0.0.20"));
    ledger.applied(&member("s", "10.0.0.1-10.0.0.8"));
    assert_eq!(ledger.overlapping(&key()), [named("q"), named("s")]);
    assert_eq!(ledger.overlapping(&named("r")), [named("q")]);
    ledger.applied(&other("q", "10.0.0.9-10.0.0.20"));
    assert_eq!(ledger.overlapping(&key()), [named("s")]);
}

// === prefixes ===

fn prefix_key() -> PoolKey {
    PoolKey { kind: InClusterKind::PrefixPool, namespace: Some("n".into()), name: "p".into() }
}

fn prefix_pool(length: u8) -> InClusterPrefixPool {
    serde_json::from_value(json!({
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
fn prefixes_are_counted_and_proposed_like_addresses() {
    let ledger = ledger();
    ledger.applied(&prefix_pool(64));
    ledger.applied(&prefix_address("a", "fd00::", 64));
    let Proposal::Slot(slot) = ledger.propose(&prefix_key(), &claim("b"), 1) else { panic!("there are some") };
    assert_eq!(reservation_name(&slot.scope, slot.block), "pp.n.p.fd00-0000-0000-0001-0000-0000-0000-0000-64");
    let counts = ledger.counts(&prefix_key());
    assert_eq!((counts.total, counts.free, counts.used, counts.out_of_range), (8, 6, 1, 0));
}

#[test]
fn a_prefix_of_another_length_takes_all_that_it_touches() {
    let ledger = ledger();
    ledger.applied(&prefix_pool(64));
    ledger.applied(&prefix_address("wide", "fd00::", 62));
    ledger.applied(&prefix_address("inside", "fd00:0:0:1::", 64));
    ledger.applied(&prefix_address("narrow", "fd00:0:0:5:1::", 80));
    let counts = |ledger: &Ledger| {
        let counts = ledger.counts(&prefix_key());
        (counts.total, counts.free, counts.used, counts.out_of_range)
    };
    assert_eq!(counts(&ledger), (8, 3, 1, 2));
    ledger.deleted(&prefix_address("inside", "fd00:0:0:1::", 64));
    assert_eq!(counts(&ledger), (8, 3, 0, 2), "it lies within the wide one");
    ledger.applied(&prefix_address("inside", "fd00:0:0:1::", 64));
    ledger.deleted(&prefix_address("wide", "fd00::", 62));
    assert_eq!(counts(&ledger), (8, 6, 1, 1));
    let wide = Slot { scope: Scope::Pool(prefix_key()), block: Block::new("fd00::".parse().unwrap(), 62) };
    assert!(ledger.touches_another(&wide, &claim("wide")));
    assert!(!ledger.touches_another(&wide, &claim("inside")));
}

#[test]
fn reservations_by_hand_that_are_of_no_use_are_found() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    ledger.insert_reservation(&reservation(3, json!(null), None));
    ledger.insert_reservation(&reservation(200, json!({"namespace": "n", "name": "vip"}), None));
    ledger.insert_reservation(&reservation(201, held_by("a"), None));
    let mut misnamed = reservation(4, json!(null), None);
    misnamed.metadata.name = Some("p.n.p.10.0.0.5".to_owned());
    ledger.insert_reservation(&misnamed);
    let useless = ledger.invalid_reservations();
    let names: Vec<&str> = useless.iter().map(|useless| useless.name.as_str()).collect();
    assert_eq!(names, ["p.n.p.10.0.0.5", "p.n.p.10.0.0.200"]);
    assert!(useless[1].why.contains("10.0.0.200"), "{}", useless[1].why);
    ledger.remove_reservation(&misnamed);
    assert_eq!(ledger.invalid_reservations().len(), 1);
}
