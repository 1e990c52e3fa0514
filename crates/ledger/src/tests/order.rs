//! The order in which a pool allocates its addresses.

use std::collections::BTreeSet;

use capi_ipam_api::AllocationOrder::{self, LowestFirst, Random, RoundRobin};
use capi_ipam_api::names;
use capi_ipam_ip::{FreeSet, UsableBlocks};

use super::super::order::Order;
use super::*;

fn with_order(order: &str) -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"allocation": {"order": order}}})));
    ledger
}

/// The last part of the address that is proposed to a claim.
fn propose(ledger: &mut Ledger, name: &str) -> u8 {
    match ledger.propose(&key(), &claim(name), 1) {
        Outcome::Offer(slot) => (1..=SIZE)
            .find(|last| block(*last) == slot.block)
            .expect("an address of the pool"),
        other => panic!("{other:?}"),
    }
}

/// An IPAddress that was allocated in that microsecond.
pub(super) fn allocated(last: u8, at: i64) -> IPAddress {
    let mut address = address(&format!("c{last}"), last);
    let at = jiff::Timestamp::from_microsecond(at).unwrap();
    address.metadata.annotations = Some(
        [(
            names::ALLOCATED_AT_ANNOTATION.to_owned(),
            format!("{at:.6}"),
        )]
        .into(),
    );
    address
}

#[test]
fn round_robin_proposes_the_next_address() {
    let mut ledger = with_order("RoundRobin");
    assert_eq!(
        [
            propose(&mut ledger, "a"),
            propose(&mut ledger, "b"),
            propose(&mut ledger, "c")
        ],
        [1, 2, 3]
    );
    ledger.drop_candidate(&value(1));
    ledger.drop_candidate(&value(2));
    let rest: Vec<u8> = (4..=8).map(|_| propose(&mut ledger, "d")).collect();
    assert_eq!(rest, [4, 5, 6, 7, 8]);
    assert_eq!(propose(&mut ledger, "e"), 1);
}

#[test]
fn round_robin_continues_above_the_newest_address() {
    let mut ledger = ledger();
    // A list has the order of the names, and the IPAddress objects can be listed before the pool.
    for (last, at) in [(1, 500), (2, 600), (3, 100), (5, 300)] {
        ledger.apply(&allocated(last, at));
    }
    ledger.apply_pool(&pool(
        json!({"spec": {"allocation": {"order": "RoundRobin"}}}),
    ));
    assert_eq!(propose(&mut ledger, "a"), 4);
    // An older allocation does not move the position.
    ledger.apply(&allocated(6, 200));
    assert_eq!(propose(&mut ledger, "b"), 7);
    // Another manager has allocated an address.
    ledger.drop_candidate(&value(4));
    ledger.apply(&allocated(8, 700));
    assert_eq!(propose(&mut ledger, "c"), 4);
}

#[test]
fn random_order_proposes_every_address_once() {
    let mut ledger = with_order("Random");
    let proposed: BTreeSet<u8> = (0..SIZE)
        .map(|number| propose(&mut ledger, &format!("c{number}")))
        .collect();
    assert_eq!(proposed.len(), usize::from(SIZE));
    assert_eq!(
        ledger.propose(&key(), &claim("more"), 1),
        Outcome::NO_ADDRESS
    );
    ledger.drop_candidate(&value(5));
    ledger.drop_candidate(&value(6));
    let again: BTreeSet<u8> = ["more", "last"]
        .map(|name| propose(&mut ledger, name))
        .into();
    assert_eq!(again, BTreeSet::from([5, 6]));
}

fn usable() -> UsableBlocks {
    pool(json!({})).spec.usable().unwrap()
}

#[test]
fn highest_addresses_are_kept_in_every_order() {
    let usable = usable();
    let first = usable.set.lowest().unwrap();
    for order in [LowestFirst, RoundRobin, Random] {
        let (mut state, mut free) = (Order::default(), FreeSet::new(&usable.set));
        let mut chosen = BTreeSet::new();
        for _ in 0..5 {
            let draw = |count: u128| count - 1;
            let number = state
                .choose(order, &usable, || usable.set.clone(), &free, 3, draw)
                .expect("an address is free");
            free.take(number);
            state.set_free(number, false);
            chosen.insert(number - first);
        }
        assert_eq!(chosen, (0..5).collect(), "{order:?}");
    }
}

/// What managers that know nothing of each other choose as the last address outside of the
/// headroom.
fn last_choices(order: AllocationOrder) -> BTreeSet<u128> {
    let usable = usable();
    let choose = |seed: u8| {
        let (mut state, mut free) = (Order::default(), FreeSet::new(&usable.set));
        for last in 2..5 {
            free.take(usable.number(block(last)).unwrap());
        }
        state.record(block(seed), 1);
        state
            .choose(
                order,
                &usable,
                || usable.set.clone(),
                &free,
                4,
                |count| u128::from(seed) % count,
            )
            .unwrap()
    };
    (1..=SIZE).map(choose).collect()
}

#[test]
fn managers_choose_the_same_last_address() {
    for order in [LowestFirst, RoundRobin, Random] {
        assert_eq!(last_choices(order).len(), 1, "{order:?}");
    }
}
