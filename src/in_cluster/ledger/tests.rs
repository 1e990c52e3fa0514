#![allow(clippy::needless_pass_by_value, reason = "the values are written where they are passed")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::{ContractVersion, IPAddress, InClusterIPPool};
use crate::in_cluster::reservation_name;
use crate::runtime::controller::ControllerBuilder;
use crate::runtime::watch::Observer;

/// The addresses of the pool in these tests are 10.0.0.1 to 10.0.0.8.
const SIZE: u8 = 8;

fn ledger() -> Ledger {
    let controller = ControllerBuilder::<IPAddressClaim>::new("test", ContractVersion::V1Beta2);
    Ledger::new(controller.waker(), |_| {})
}

fn key() -> PoolKey {
    PoolKey { namespace: Some("n".to_owned()), name: "p".to_owned() }
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

fn value(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn address(name: &str, last: u8) -> IPAddress {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": name},
        "spec": {"claimRef": {"name": name}, "address": value(last).to_string(), "prefix": 24,
                 "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
    }))
    .unwrap()
}

fn reservation(last: u8, claim_ref: serde_json::Value, released_at: Option<&str>) -> IPReservation {
    serde_json::from_value(json!({
        "metadata": {"name": reservation_name("p.n.p", value(last)), "uid": format!("r-{last}-{claim_ref}")},
        "spec": {"scope": "p.n.p", "address": value(last).to_string(), "claimRef": claim_ref,
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
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Address(value(1)));
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
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Address(value(1)));
    assert_eq!(ledger.propose(&key(), &claim("b"), 1), Proposal::Address(value(2)));
    ledger.withdraw(&key(), value(1));
    assert_eq!(ledger.propose(&key(), &claim("c"), 1), Proposal::Address(value(1)));
}

#[test]
fn a_reservation_outlives_the_proposal_it_came_from() {
    let ledger = ledger();
    ledger.applied(&pool(json!({})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Address(value(1)));
    ledger.insert_reservation(&reservation(1, held_by("a"), None));
    ledger.withdraw(&key(), value(1));
    assert_eq!(ledger.propose(&key(), &claim("b"), 1), Proposal::Address(value(2)));
    assert_eq!(ledger.reserved_for(&claim("a"), Uid::of("uid-a")), [(key(), value(1))]);
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
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Address(value(2)));
    assert_eq!(ledger.reserved_for(&claim("vip"), Uid::of("any")), [(key(), value(1))]);
    assert!(ledger.is_promise(&(key(), value(1))));
}

#[test]
fn a_rest_ends_after_the_time_the_pool_says_and_at_once_without_a_pool() {
    let ledger = ledger();
    ledger.applied(&pool(json!({"spec": {"addressReuseGracePeriodSeconds": 60}})));
    let released = reservation(1, held_by("a"), Some("1970-01-01T00:16:40Z"));
    ledger.insert_reservation(&released);
    assert_eq!(counts(&ledger), (8, 7, 0, 0));
    assert!(ledger.reserved_for(&claim("a"), Uid::of("uid-a")).is_empty(), "a resting address is nobody's");
    assert_eq!(ledger.rested(1060), []);
    assert_eq!(ledger.rested(1061), [(key(), value(1))]);
    Observer::<InClusterIPPool>::deleted(&ledger, &pool(json!({})));
    assert_eq!(ledger.rested(1000), [(key(), value(1))]);
    ledger.remove_reservation(&released);
    assert!(!ledger.anything_rests() && ledger.known_pools().is_empty());
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
    assert!(ledger.reserved_for(&claim("c"), Uid::of("uid-c")).is_empty());

    Observer::<InClusterIPPool>::listing(&ledger);
    Observer::<InClusterIPPool>::listed(&ledger);
    assert!(ledger.facts(&key()).is_none());
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
                            prop_assert_eq!(got, Proposal::Address(value(last)));
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
                    ledger.withdraw(&key(), value(last));
                    proposed.remove(&last);
                }
                Step::Reserve(last) => {
                    ledger.insert_reservation(&reservation(last, held_by("x"), None));
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
            let slots: BTreeSet<_> = reserved.iter().map(|last| (key(), value(*last))).collect();
            let known: BTreeSet<_> = ledger.reserved_for(&claim("x"), Uid::of("uid-x")).into_iter().collect();
            prop_assert_eq!(known, slots);
        }
    }
}
