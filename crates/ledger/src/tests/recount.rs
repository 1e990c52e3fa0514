//! Changes of a pool count only the blocks that they add or remove, and agree with a count of all
//! blocks.

use super::super::addresses::UsageMap;
use super::*;

#[derive(Clone, Debug)]
enum Step {
    Reserve(u8),
    Release(u8, bool),
    Unreserve(u8),
    /// Four addresses, as in a prefix pool of the same network.
    ReserveBlock(u8, bool),
    InsertAddress(u8),
    RemoveAddress(u8),
    Propose,
    Change(serde_json::Value),
    RemovePool,
}

fn spec() -> impl Strategy<Value = serde_json::Value> {
    let entries = || {
        let entry = (1..=12_u8, 0..6_u8)
            .prop_map(|(first, more)| format!("10.0.0.{first}-10.0.0.{}", first + more));
        proptest::collection::vec(entry, 0..3)
    };
    let invalid = proptest::bool::weighted(0.1);
    (entries(), entries(), entries(), any::<bool>(), any::<bool>(), invalid).prop_map(
        |(addresses, excluded, draining, sticky, cools_down, invalid)| {
            json!({
                "addresses": addresses, "excludedAddresses": excluded, "draining": draining,
                "prefix": if invalid { 99 } else { 24 },
                "allocation": {"sticky": sticky, "order": if cools_down { "Random" } else { "LowestFirst" }},
                "releasedAddressGracePeriodSeconds": if cools_down { 3_600 } else { 0 },
            })
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let last = 1..=18_u8;
    let step = prop_oneof![
        2 => last.clone().prop_map(Step::Reserve),
        1 => (last.clone(), any::<bool>()).prop_map(|(last, is_long_ago)| Step::Release(last, is_long_ago)),
        1 => last.clone().prop_map(Step::Unreserve),
        1 => (0..5_u8, any::<bool>()).prop_map(|(number, is_added)| Step::ReserveBlock(number, is_added)),
        2 => last.clone().prop_map(Step::InsertAddress),
        1 => last.prop_map(Step::RemoveAddress),
        1 => Just(Step::Propose),
        4 => spec().prop_map(Step::Change),
        1 => Just(Step::RemovePool),
    ];
    proptest::collection::vec(step, 0..60)
}

/// The counts and the free addresses of the pool, as they are and after a count of all blocks.
fn now_and_recounted(ledger: &mut Ledger) -> [String; 2] {
    let Some(entry) = ledger.pools.get_mut(&key()) else {
        return Default::default();
    };
    let now = entry.describe();
    let none = UsageMap::default();
    let usage = ledger
        .addresses
        .scope(&Scope::Pool(key()))
        .map_or(&none, |scope| &scope.usage);
    entry.recount(&key(), usage);
    [now, entry.describe()]
}

proptest! {
    #[test]
    fn change_of_a_pool_agrees_with_a_recount(steps in steps()) {
        let mut ledger = ledger();
        let now = jiff::Timestamp::now().as_second();
        for (number, step) in steps.into_iter().enumerate() {
            let held = |last: u8| reservation(last, held_by(&format!("c{last}")), None);
            match step {
                Step::Reserve(last) => ledger.apply(&held(last)),
                Step::Release(last, is_long_ago) => {
                    let since = now - if is_long_ago { 7_200 } else { 60 };
                    let since = jiff::Timestamp::from_second(since).unwrap().to_string();
                    ledger.apply(&reservation(last, held_by(&format!("c{last}")), Some(&since)));
                }
                Step::Unreserve(last) => ledger.delete(&held(last)),
                Step::ReserveBlock(number, is_added) => {
                    let mut object = reservation(number * 4, held_by("block"), None);
                    object.spec.prefix_length = Some(30);
                    let block = Block::new(block(number * 4).base(), 30);
                    object.metadata.name = Some(Slot { scope: Scope::Pool(key()), block }.reservation_name());
                    if is_added { ledger.apply(&object) } else { ledger.delete(&object) }
                }
                Step::InsertAddress(last) => ledger.apply(&address(&format!("c{last}"), last)),
                Step::RemoveAddress(last) => ledger.delete(&address(&format!("c{last}"), last)),
                Step::Propose => drop(ledger.propose(&key(), &claim(&format!("new-{number}")), 1)),
                Step::Change(spec) => ledger.apply_pool(&pool(json!({ "spec": spec }))),
                Step::RemovePool => ledger.remove_pool(&key()),
            }
        }
        // Once, since the count of all blocks would correct what an earlier step has left wrong.
        let [now, recounted] = now_and_recounted(&mut ledger);
        prop_assert_eq!(now, recounted);
    }
}

#[test]
fn block_of_another_length_is_not_allocated_when_a_pool_grows() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.3"]}})));
    let mut prefix = reservation(4, held_by("block"), None);
    prefix.spec.prefix_length = Some(30);
    let slot = Slot {
        scope: Scope::Pool(key()),
        block: Block::new(block(4).base(), 30),
    };
    prefix.metadata.name = Some(slot.reservation_name());
    ledger.apply(&prefix);
    assert_eq!(counts(&ledger), (3, 3, 0, 0));
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.8"]}})));
    assert_eq!(counts(&ledger), (8, 4, 0, 0));
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.3"]}})));
    ledger.delete(&prefix);
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.8"]}})));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}

#[test]
fn many_blocks_are_looked_up_by_their_usage() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.8"]}})));
    ledger.apply(&reservation(9, held_by("outside"), None));
    ledger.apply(&address("outside", 9));
    assert_eq!(counts(&ledger), (8, 8, 0, 1));
    ledger.apply_pool(&pool(
        json!({"spec": {"addresses": ["10.0.0.1-10.0.0.200"]}}),
    ));
    assert_eq!(counts(&ledger), (200, 199, 1, 0));
    ledger.remove_pool(&key());
    assert_eq!(counts(&ledger), (0, 0, 0, 1));
}
