//! Pools with slices.

use std::sync::Arc;

use capi_ipam_api::{IPSlice, SliceCounts, SliceOwner, SliceOwnerKind};
use capi_ipam_objects::maybe_invalid::Invalid;

use super::order::allocated;
use super::*;

fn owner(name: &str) -> Arc<SliceOwner> {
    Arc::new(SliceOwner {
        kind: SliceOwnerKind::Label,
        namespace: None,
        name: name.to_owned(),
    })
}

fn of(name: &str) -> ClaimAttributes {
    ClaimAttributes {
        priority: 1,
        slice_owner: Some(owner(name)),
        ..ClaimAttributes::default()
    }
}

/// A pool of eight addresses in slices of four: .0 to .3 has three usable addresses, and .8 one.
fn sliced() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(
        json!({"spec": {"slices": {"size": 4, "per": "Label", "label": "rack"}}}),
    ));
    take(&mut ledger);
    ledger
}

fn slice(block_of: &str, name: &str) -> IPSlice {
    let pool = key();
    let text = format!(
        "{}.{}",
        Scope::Pool(pool).name(),
        block_of.replace('/', "-")
    );
    serde_json::from_value(json!({
        "metadata": {"name": text, "uid": format!("uid-{block_of}"), "resourceVersion": "5"},
        "spec": {"scope": Scope::Pool(key()).name(), "block": block_of, "assignedAt": "2026-01-01T00:00:00Z",
                 "owner": {"kind": "Label", "name": name}},
    }))
    .unwrap()
}

fn assign(ledger: &mut Ledger, claim_name: &str, owner: &str) -> String {
    match ledger.propose(&key(), &claim(claim_name), of(owner)) {
        Outcome::First(Preparation::AssignSlice(block)) => block.to_string(),
        other => panic!("{other:?}"),
    }
}

fn last(ledger: &mut Ledger, claim_name: &str, owner: &str) -> u8 {
    match ledger.propose(&key(), &claim(claim_name), of(owner)) {
        Outcome::Offer(slot) => (0..=255).find(|last| block(*last) == slot.block).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn claims_of_an_owner_wait_for_one_slice() {
    let mut ledger = sliced();
    assert_eq!(assign(&mut ledger, "a1", "a"), "10.0.0.0/30");
    let pending = Outcome::NotNow(Reason::SliceUnavailable(SliceRefusal::Pending {
        owner: owner("a"),
    }));
    assert_eq!(ledger.propose(&key(), &claim("a2"), of("a")), pending);
    assert_eq!(
        assign(&mut ledger, "b1", "b"),
        "10.0.0.4/30",
        "another owner does not wait"
    );
    ledger.insert_slice(&slice("10.0.0.0/30", "a"));
    assert_eq!(take(&mut ledger), [claim("a2")]);
    assert_eq!(
        (last(&mut ledger, "a1", "a"), last(&mut ledger, "a2", "a")),
        (1, 2)
    );
    assert_eq!(
        slice_counts(&ledger),
        Some(SliceCounts {
            total: 3,
            assigned: 1,
            free: 2
        })
    );
}

#[test]
fn claim_waits_if_the_pool_is_divided_during_its_attempt() {
    let mut ledger = sliced();
    // Its owner was looked up when the pool had no slices.
    let attributes = ClaimAttributes {
        slice_owner: None,
        ..of("a")
    };
    let outcome = ledger.propose(&key(), &claim("a1"), attributes);
    assert_eq!(outcome, Outcome::NO_ADDRESS);
    assert_eq!(take(&mut ledger), [claim("a1")], "it looks up its owner");
    assert_eq!(assign(&mut ledger, "a1", "a"), "10.0.0.0/30");
}

#[test]
fn failed_assignment_wakes_the_claim_that_waits_for_it() {
    let mut ledger = sliced();
    assert_eq!(assign(&mut ledger, "a1", "a"), "10.0.0.0/30");
    let pending = Outcome::NotNow(Reason::SliceUnavailable(SliceRefusal::Pending {
        owner: owner("a"),
    }));
    assert_eq!(ledger.propose(&key(), &claim("a2"), of("a")), pending);
    assert_eq!(take(&mut ledger), []);
    ledger.end_slice_assignment(&key(), Block::new([10, 0, 0, 0].into(), 30));
    assert_eq!(take(&mut ledger), [claim("a2")]);
    assert_eq!(assign(&mut ledger, "a2", "a"), "10.0.0.0/30");
}

/// The request that assigns a slice ends after the pool has changed its family, its slice size or
/// its addresses, or has lost its slices, and after it is as before.
#[test]
fn assignment_ends_although_the_pool_has_changed() {
    let slices = |size: u32| json!({"size": size, "per": "Label", "label": "rack"});
    let changes = [
        json!({"spec": {"addresses": ["fd00::/112"], "prefix": 64}}),
        json!({"spec": {"slices": slices(2)}}),
        json!({"spec": {"addresses": ["10.0.0.5-10.0.0.8"]}}),
        json!({"spec": {"slices": null}}),
        json!({"spec": {"addresses": ["nonsense"]}}),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for is_undone in [false, true] {
            let mut ledger = ledger();
            let before =
                pool(json!({"metadata": {"generation": 1}, "spec": {"slices": slices(4)}}));
            ledger.apply_pool(&before);
            assert_eq!(assign(&mut ledger, "a1", "a"), "10.0.0.0/30");
            assert!(matches!(
                ledger.propose(&key(), &claim("a2"), of("a")),
                Outcome::NotNow(Reason::SliceUnavailable(_))
            ));
            let mut object = json!({"metadata": {"generation": 2}, "spec": {"slices": slices(4)}});
            json_patch::merge(&mut object, &change);
            ledger.apply_pool(&pool(object));
            if is_undone {
                ledger.apply_pool(&pool(
                    json!({"metadata": {"generation": 3}, "spec": {"slices": slices(4)}}),
                ));
            }
            ledger.end_slice_assignment(&key(), Block::new([10, 0, 0, 0].into(), 30));
            take(&mut ledger);
            ledger.apply_pool(&pool(
                json!({"metadata": {"generation": 4}, "spec": {"slices": slices(4)}}),
            ));
            assert_eq!(
                assign(&mut ledger, "a3", "a"),
                "10.0.0.0/30",
                "change {number}, undone: {is_undone}"
            );
            assert_eq!(slice_counts(&ledger).unwrap().assigned, 0);
        }
    }
}

#[test]
fn invalid_slice_takes_the_block_of_its_name() {
    let mut ledger = sliced();
    let mut invalid = slice("10.0.0.0/30", "b");
    invalid.spec.block = "10.0.0.4/30".to_owned();
    ledger.apply(&invalid);
    assert_eq!(
        assign(&mut ledger, "a1", "a"),
        "10.0.0.4/30",
        "the API server has the name of the first one"
    );
    assert_eq!(ledger.slices(), [], "it is never returned");
    ledger.delete(&invalid);
    assert_eq!(assign(&mut ledger, "c1", "c"), "10.0.0.0/30");
    let undecodable = Invalid {
        spec: serde_json::Value::Null,
        error: "no date".to_owned(),
        metadata: Box::new(slice("10.0.0.8/30", "d").metadata),
    };
    Observe::<IPSlice>::apply_invalid(&mut ledger, &undecodable);
    assert!(matches!(
        ledger.propose(&key(), &claim("e1"), of("e")),
        Outcome::NotNow(Reason::SliceUnavailable(_))
    ));
    Observe::<IPSlice>::delete_invalid(&mut ledger, &undecodable);
    assert_eq!(assign(&mut ledger, "e1", "e"), "10.0.0.8/30");
}

#[test]
fn full_owner_does_not_delay_others() {
    let mut ledger = sliced();
    for (block, name) in [
        ("10.0.0.0/30", "a"),
        ("10.0.0.4/30", "b"),
        ("10.0.0.8/30", "c"),
    ] {
        ledger.apply(&slice(block, name));
    }
    let taken: Vec<u8> = (0..3)
        .map(|number| last(&mut ledger, &format!("a{number}"), "a"))
        .collect();
    assert_eq!(taken, [1, 2, 3]);
    let full = ledger.propose(&key(), &claim("a3"), of("a"));
    assert_eq!(
        full,
        Outcome::NotNow(Reason::SliceUnavailable(SliceRefusal::NoFreeSlice {
            owner: owner("a"),
            slices: 1
        }))
    );
    assert_eq!(last(&mut ledger, "b0", "b"), 4);
    assert!(matches!(
        ledger.propose(&key(), &claim("d0"), of("d")),
        Outcome::NotNow(Reason::SliceUnavailable(_))
    ));
    assert_eq!(take(&mut ledger), []);
    ledger.drop_candidate(&value(2));
    assert_eq!(take(&mut ledger), [claim("a3")]);
    assert_eq!(last(&mut ledger, "a3", "a"), 2);
    // A returned slice is for the claim that waits.
    ledger.delete(&slice("10.0.0.8/30", "c"));
    assert_eq!(take(&mut ledger), [claim("d0")]);
    assert_eq!(assign(&mut ledger, "d0", "d"), "10.0.0.8/30");
}

/// The last slice.
fn view(ledger: &Ledger) -> SliceView {
    ledger.slices().pop().unwrap()
}

fn begin_return(ledger: &mut Ledger) -> bool {
    let slice = view(ledger);
    ledger.begin_slice_return(&slice.scope(), slice.block, &slice.uid)
}

#[test]
fn slice_in_use_is_not_returned() {
    let mut ledger = sliced();
    ledger.apply(&slice("10.0.0.4/30", "a"));
    assert!(!view(&ledger).is_in_use && view(&ledger).retention == SliceRetention::Owner);
    assert_eq!(last(&mut ledger, "a0", "a"), 4);
    assert!(view(&ledger).is_in_use && !begin_return(&mut ledger));
    ledger.drop_candidate(&value(4));
    assert!(begin_return(&mut ledger));
    assert_eq!(
        assign(&mut ledger, "a0", "a"),
        "10.0.0.0/30",
        "no address of a slice that is being returned"
    );
    let returning = view(&ledger);
    ledger.cancel_slice_return(&returning.scope(), returning.block, &returning.uid);
    assert_eq!(last(&mut ledger, "a0", "a"), 4);
    // Addresses of a deleted pool are in use as well.
    ledger.apply(&address("a0", 4));
    ledger.remove_pool(&key());
    assert!(view(&ledger).is_in_use && view(&ledger).retention == SliceRetention::NoPool);
}

#[test]
fn slices_are_known_before_their_pool() {
    let mut ledger = ledger();
    Observe::<IPSlice>::init(&mut ledger);
    ledger.apply(&slice("10.0.0.4/30", "a"));
    Observe::<IPSlice>::init_done(&mut ledger);
    ledger.apply_pool(&pool(
        json!({"spec": {"slices": {"size": 4, "per": "Label", "label": "rack"}}}),
    ));
    assert_eq!(last(&mut ledger, "a0", "a"), 4);
    // The slices are removed from the pool: claims get any address.
    assert_eq!(assign(&mut ledger, "b0", "b"), "10.0.0.0/30");
    assert!(matches!(
        ledger.propose(&key(), &claim("b1"), of("b")),
        Outcome::NotNow(Reason::SliceUnavailable(_))
    ));
    ledger.apply_pool(&pool(json!({"metadata": {"generation": 2}})));
    assert!(take(&mut ledger).contains(&claim("b1")));
    assert_eq!(
        (slice_counts(&ledger), last(&mut ledger, "b1", "b")),
        (None, 1)
    );
    // A list without the slice.
    Observe::<IPSlice>::init(&mut ledger);
    Observe::<IPSlice>::init_done(&mut ledger);
    assert_eq!(ledger.slices(), []);
}

/// Observes a pool with the order RoundRobin, its slices and its addresses; `order` is the order of
/// the three.
fn with_round_robin(order: [usize; 3]) -> Ledger {
    let mut ledger = ledger();
    for step in order {
        match step {
            0 => {
                let slices = json!({"size": 4, "per": "Label", "label": "rack"});
                ledger.apply_pool(&pool(
                    json!({"spec": {"slices": slices, "allocation": {"order": "RoundRobin"}}}),
                ));
            }
            1 => {
                ledger.insert_slice(&slice("10.0.0.0/30", "0"));
                ledger.insert_slice(&slice("10.0.0.4/30", "4"));
            }
            _ => {
                for (last, at) in [(1, 300), (2, 100), (5, 600), (6, 700)] {
                    ledger.apply(&allocated(last, at));
                }
            }
        }
    }
    ledger
}

#[test]
fn round_robin_continues_in_the_slices_of_each_owner() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut ledger = with_round_robin(order);
        ledger.delete(&allocated(2, 100));
        assert_eq!(
            (last(&mut ledger, "a", "0"), last(&mut ledger, "b", "4")),
            (2, 7),
            "{order:?}"
        );
        assert_eq!(
            (last(&mut ledger, "c", "0"), last(&mut ledger, "d", "4")),
            (3, 4),
            "{order:?}"
        );
    }
}

#[test]
fn change_of_the_pool_keeps_the_position_of_each_owner() {
    let mut ledger = with_round_robin([0, 1, 2]);
    ledger.delete(&allocated(5, 600));
    ledger.delete(&allocated(6, 700));
    let slices = json!({"size": 4, "per": "Label", "label": "rack", "mostEach": 3});
    let order = json!({"order": "RoundRobin"});
    ledger.apply_pool(&pool(
        json!({"metadata": {"generation": 2}, "spec": {"slices": slices, "allocation": order}}),
    ));
    assert_eq!(last(&mut ledger, "a", "4"), 7);
}

#[test]
fn requested_address_is_in_a_slice_of_the_owner() {
    let mut ledger = sliced();
    ledger.apply(&slice("10.0.0.4/30", "a"));
    let request = |ledger: &mut Ledger, name: &str, owner: &str, last: u8| {
        let attributes = ClaimAttributes {
            requested: Some(block(last)),
            ..of(owner)
        };
        ledger.propose(&key(), &claim(name), attributes)
    };
    assert_eq!(request(&mut ledger, "a0", "a", 6), Outcome::Offer(value(6)));
    assert_eq!(
        request(&mut ledger, "b0", "b", 5),
        unavailable(Unavailable::InOtherSlice)
    );
    assert_eq!(
        request(&mut ledger, "c0", "c", 2),
        Outcome::First(Preparation::AssignSlice(Block::new(
            [10, 0, 0, 0].into(),
            30
        )))
    );
    ledger.apply(&slice("10.0.0.0/30", "c"));
    assert_eq!(request(&mut ledger, "c0", "c", 2), Outcome::Offer(value(2)));
    assert_eq!(
        take(&mut ledger).last(),
        Some(&claim("b0")),
        "the slices have changed"
    );
    assert_eq!(
        request(&mut ledger, "b0", "b", 5),
        unavailable(Unavailable::InOtherSlice)
    );
    // The slice is returned, and the claim can have it.
    ledger.drop_candidate(&value(6));
    ledger.delete(&slice("10.0.0.4/30", "a"));
    assert!(take(&mut ledger).contains(&claim("b0")));
    assert_eq!(
        request(&mut ledger, "b0", "b", 5),
        Outcome::First(Preparation::AssignSlice(Block::new(
            [10, 0, 0, 4].into(),
            30
        )))
    );
}

#[test]
fn sticky_address_is_in_a_slice_of_the_owner() {
    let mut ledger = ledger();
    let slices = json!({"size": 4, "per": "Label", "label": "rack"});
    ledger.apply_pool(&pool(
        json!({"spec": {"slices": slices, "allocation": {"sticky": true}}}),
    ));
    ledger.apply(&slice("10.0.0.4/30", "a"));
    ledger.apply(&slice("10.0.0.0/30", "b"));
    let now = jiff::Timestamp::now().to_string();
    ledger.apply(&reservation(6, held_by("a0"), Some(&now)));
    assert!(
        ledger
            .slices()
            .iter()
            .find(|slice| slice.owner.name == "a")
            .unwrap()
            .is_in_use,
        "it is remembered"
    );
    assert_eq!(
        last(&mut ledger, "a0", "b"),
        1,
        "the claim has another owner now"
    );
    ledger.drop_candidate(&value(1));
    assert_eq!(last(&mut ledger, "a0", "a"), 6);
    ledger.drop_candidate(&value(6));
    // Remembered addresses of the owner are the last ones.
    let taken: Vec<u8> = (1..=4)
        .map(|number| last(&mut ledger, &format!("a{number}"), "a"))
        .collect();
    assert_eq!(taken, [4, 5, 7, 6]);
    assert!(matches!(
        ledger.propose(&key(), &claim("a9"), of("a")),
        Outcome::First(Preparation::AssignSlice(_))
    ));
}

/// A state of the slice 10.0.0.4/30 in the order of the resource versions.
fn state(version: u32, uid: &str, name: &str, is_marked: bool) -> IPSlice {
    let mut slice = slice("10.0.0.4/30", name);
    (slice.metadata.uid, slice.metadata.resource_version) =
        (Some(uid.to_owned()), Some(version.to_string()));
    slice.spec.empty_since =
        is_marked.then(|| serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    slice
}

#[test]
fn late_watch_does_not_give_a_slice_back_to_its_former_owner() {
    let mut ledger = sliced();
    ledger.apply(&state(5, "first", "a", false));
    ledger.insert_slice(&state(6, "first", "a", true));
    ledger.delete(&state(6, "first", "a", true));
    // The responses above are ahead of the watch.
    ledger.apply(&state(6, "first", "a", true));
    assert_eq!(assign(&mut ledger, "a0", "a"), "10.0.0.0/30");
    ledger.insert_slice(&state(8, "second", "b", false));
    take(&mut ledger);
    ledger.apply(&state(6, "first", "a", true));
    assert_eq!(take(&mut ledger), []);
    let pending = Outcome::NotNow(Reason::SliceUnavailable(SliceRefusal::Pending {
        owner: owner("a"),
    }));
    assert_eq!(ledger.propose(&key(), &claim("a1"), of("a")), pending);
    assert_eq!(last(&mut ledger, "b0", "b"), 4);
    ledger.delete(&state(7, "first", "a", true));
    assert_eq!(last(&mut ledger, "b1", "b"), 5);
    ledger.apply(&state(8, "second", "b", false));
    ledger.apply(&state(9, "second", "b", true));
    assert!(ledger.slices()[0].empty_since.is_some());
}

#[test]
fn restored_slice_replaces_what_was_known() {
    let mut ledger = sliced();
    ledger.apply(&state(9, "first", "a", true));
    ledger.insert_slice(&state(5, "first", "a", false));
    assert!(
        ledger.slices()[0].empty_since.is_some(),
        "the response is older"
    );
    Observe::<IPSlice>::restored(&mut ledger);
    ledger.insert_slice(&state(5, "first", "a", false));
    assert!(ledger.slices()[0].empty_since.is_none());
}

#[test]
fn list_after_a_restore_of_etcd_is_believed() {
    let mut ledger = sliced();
    ledger.apply(&state(5, "first", "a", false));
    ledger.delete(&state(6, "first", "a", false));
    ledger.apply(&state(9, "second", "b", false));
    Observe::<IPSlice>::init(&mut ledger);
    ledger.apply(&state(5, "first", "a", false));
    Observe::<IPSlice>::init_done(&mut ledger);
    assert_eq!(last(&mut ledger, "a0", "a"), 4);
    ledger.apply(&state(6, "first", "a", true));
    assert!(ledger.slices()[0].empty_since.is_some());
}
