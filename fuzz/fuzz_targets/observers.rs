//! Fuzzes the ledger with watch events in any order: duplicate, late and missing events, incomplete
//! lists, and objects with unexpected fields; and with claims that request addresses in between.
//!
//! Invariants: no address that is known to be in use, is draining or is in a slice of another owner
//! is proposed; counts are never negative; and after a full list, the ledger equals a new ledger
//! that has observed this list only.
//!
//! Run with `cargo +nightly fuzz run observers`.

#![no_main]

#[path = "observers/objects.rs"]
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{PoolKey, Scope, SliceOwner, SliceOwnerKind, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{ClaimAttributes, Held, Ledger, Outcome, PoolInfo, Preparation, Unreserved};
use capi_ipam_provider::api::Uid;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

use objects::{Description, Object, init, init_done, owner_name, pool_key};

#[derive(Arbitrary, Debug)]
enum Event<'a> {
    /// The object exists, and a watch reports it.
    Applied(Description<'a>),
    /// The object exists, and no watch reports it.
    AppliedUnseen(Description<'a>),
    /// A watch reports an object that does not exist.
    AppliedLate(Description<'a>),
    Deleted(Description<'a>),
    DeletedUnseen(Description<'a>),
    DeletedLate(Description<'a>),
    ListingBegins,
    ListingEnds,
    Propose {
        pool: u8,
        claim: u8,
        requested: Option<u8>,
    },
    Drop(u8),
    EndSliceAssignment(u8),
    EndCooldowns(u8),
    LookUp {
        pool: u8,
        claim: u8,
    },
    Finish {
        pool: u8,
        claim: u8,
    },
}

/// What a manager has begun.
#[derive(Default)]
struct Begun {
    proposed: BTreeSet<Slot>,
    slices: BTreeSet<(PoolKey, Block)>,
}

type Truth<'a> = BTreeMap<(&'static str, String, String), Object>;

fuzz_target!(|events: Vec<Event<'_>>| {
    let mut ledger = with_network();
    let (mut truth, mut begun) = (Truth::new(), Begun::default());
    for event in &events {
        happen(event, &mut ledger, &mut truth, &mut begun);
    }
    begun
        .proposed
        .iter()
        .for_each(|slot| ledger.drop_candidate(slot));
    begun
        .slices
        .iter()
        .for_each(|(pool, block)| ledger.end_slice_assignment(pool, *block));
    // The scope of a deleted pool is remembered, and a new ledger does not know it.
    let pools: BTreeSet<PoolKey> = truth.values().filter_map(Object::as_pool).collect();
    truth.retain(|_, object| {
        object
            .pool_of_address()
            .is_none_or(|pool| pools.contains(&pool))
    });

    let mut fresh = with_network();
    list(&mut ledger, truth.values());
    list(&mut fresh, truth.values().rev());
    // Afterwards, the end of a cool-down does not depend on when it was recorded.
    [&mut ledger, &mut fresh]
        .into_iter()
        .for_each(|ledger| ledger.end_cooldowns(i64::MAX));
    compare(&ledger, &fresh, &pools);
});

/// A ledger with the network that pools can name.
fn with_network() -> Ledger {
    let mut ledger = Ledger::default();
    let network = json!({
        "metadata": {"name": "lab", "uid": "lab", "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"]},
        "spec": {"namespaces": {"from": "All"}}, "status": {"blockLengths": {"ipv4": 32, "ipv6": 64}},
    });
    ledger.apply_network(&serde_json::from_value(network).expect("a network"));
    ledger
}

fn happen(event: &Event<'_>, ledger: &mut Ledger, truth: &mut Truth<'_>, begun: &mut Begun) {
    let proposed = &mut begun.proposed;
    match event {
        Event::Applied(object) | Event::AppliedUnseen(object) | Event::AppliedLate(object) => {
            let Some(object) = object.build() else { return };
            if !matches!(event, Event::AppliedUnseen(_)) {
                object.apply(ledger);
                // A claim that is about to reserve the address finds it reserved.
                if let Some(slot) = object
                    .slot()
                    .filter(|slot| ledger.addresses().known_reservation(slot).is_some())
                {
                    ledger.drop_candidate(&slot);
                    proposed.remove(&slot);
                }
            }
            if !matches!(event, Event::AppliedLate(_)) {
                truth.insert(object.key(), object);
            }
        }
        Event::Deleted(object) | Event::DeletedUnseen(object) | Event::DeletedLate(object) => {
            let Some(object) = object.build() else { return };
            let late = matches!(event, Event::DeletedLate(_));
            let known = if late {
                None
            } else {
                truth.remove(&object.key())
            };
            if !matches!(event, Event::DeletedUnseen(_)) {
                known.unwrap_or(object).delete(ledger);
            }
        }
        Event::ListingBegins => init(ledger),
        Event::ListingEnds => init_done(ledger),
        Event::Propose {
            pool,
            claim,
            requested,
        } => {
            let pool = pool_key(*pool);
            let Some(info) = ledger.pools().pool_info(&pool) else {
                return;
            };
            let attributes = attributes(*claim, *requested, &info);
            match ledger.propose(&pool, &self::claim(*claim), attributes.clone()) {
                Outcome::Offer(slot) => {
                    check_proposal(ledger, &pool, &self::claim(*claim), &attributes, &slot);
                    assert!(proposed.insert(slot.clone()), "{slot} is proposed twice");
                }
                Outcome::First(Preparation::AssignSlice(block)) => {
                    let is_free = !ledger
                        .slices()
                        .iter()
                        .any(|slice| slice.pool == pool && slice.block == block);
                    assert!(is_free, "{block:?} of {pool} is assigned twice");
                    begun.slices.insert((pool, block));
                }
                _ => {}
            }
        }
        Event::Drop(index) => {
            let Some(slot) = proposed.iter().nth(usize::from(*index)).cloned() else {
                return;
            };
            ledger.drop_candidate(&slot);
            proposed.remove(&slot);
        }
        Event::EndSliceAssignment(index) => {
            let Some((pool, block)) = begun.slices.iter().nth(usize::from(*index)).cloned() else {
                return;
            };
            ledger.end_slice_assignment(&pool, block);
            begun.slices.remove(&(pool, block));
        }
        Event::EndCooldowns(seconds) => {
            ledger.end_cooldowns(FIRST_RELEASE + i64::from(*seconds % 32))
        }
        Event::LookUp { pool, claim } => {
            let (pool, claim) = (pool_key(*pool), self::claim(*claim));
            let _ = ledger.pool_or_wait(&pool, &claim, 1);
            let counts = ledger.pools().counts(&pool);
            assert!(
                counts.free >= 0
                    && counts.free <= counts.total
                    && counts.used >= 0
                    && counts.out_of_range >= 0
            );
        }
        Event::Finish { pool, claim } => {
            let uid = Uid::of(&format!("u{}", claim % 4));
            ledger.end_unused_turn(&pool_key(*pool), &self::claim(*claim), uid, Instant::now());
        }
    }
}

/// Seconds since the Unix epoch: 2026-01-01, the time of the first release.
const FIRST_RELEASE: i64 = 1_767_225_600;

fn attributes(claim: u8, requested: Option<u8>, info: &PoolInfo) -> ClaimAttributes {
    let owner = SliceOwner {
        kind: SliceOwnerKind::Namespace,
        namespace: None,
        name: owner_name(claim).to_owned(),
    };
    let block = |number: u8| {
        info.usable
            .as_ref()
            .ok()
            .map(|usable| usable.block(u128::from(number % 12)))
    };
    ClaimAttributes {
        slice_owner: info.slices.is_some().then(|| Arc::new(owner)),
        requested: requested.and_then(block),
        ..ClaimAttributes::from(i64::from(claim))
    }
}

fn check_proposal(
    ledger: &Ledger,
    pool: &PoolKey,
    claim: &NamespacedName,
    attributes: &ClaimAttributes,
    slot: &Slot,
) {
    let is_reserved = ledger.addresses().known_reservation(slot).is_some()
        && ledger.released_reservation(slot, claim).is_none();
    assert!(
        ledger.addresses().owners(slot).is_empty() && !is_reserved,
        "{slot} is in use"
    );
    let info = ledger.pools().pool_info(pool).expect("the pool exists");
    let usable = info.usable.as_ref().expect("the pool is valid");
    assert!(info.can_allocate() && info.scope == slot.scope);
    assert!(
        usable.contains(slot.block) && !usable.is_draining(slot.block),
        "{slot} cannot be allocated"
    );
    assert!(
        attributes
            .requested
            .is_none_or(|requested| requested == slot.block),
        "{slot} is not requested"
    );
    if let Some(owner) = &attributes.slice_owner {
        let contains = |block: Block| {
            let (all, one) = (block.span(), slot.block.span());
            block.family() == slot.block.family()
                && all.first() <= one.first()
                && one.last() <= all.last()
        };
        let slices = ledger.slices();
        let mut own = slices
            .iter()
            .filter(|slice| slice.pool == *pool && slice.owner == *owner);
        assert!(
            own.any(|slice| contains(slice.block)),
            "{slot} is in no slice of {owner}"
        );
    }
}

fn claim(number: u8) -> NamespacedName {
    NamespacedName::new("n", &format!("c{}", number % 4))
}

fn list<'a>(ledger: &mut Ledger, objects: impl Iterator<Item = &'a Object>) {
    init(ledger);
    objects.for_each(|object| object.apply(ledger));
    init_done(ledger);
}

fn sorted<T: std::fmt::Debug>(values: Vec<T>) -> Vec<String> {
    let mut texts: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    texts.sort_unstable();
    texts
}

/// Asserts that all queries of both ledgers return the same.
fn compare(ledger: &Ledger, fresh: &Ledger, pools: &BTreeSet<PoolKey>) {
    for pool in pools {
        let report = |ledger: &Ledger| {
            // The counts remain when a pool is gone.
            let report = ledger.pool_report(pool, ledger.pools().overlapping(pool));
            (report, ledger.pools().counts(pool))
        };
        assert_eq!(report(ledger), report(fresh), "{pool}");
        assert_eq!(
            ledger.in_use(pool, &|_| true),
            fresh.in_use(pool, &|_| true),
            "{pool}"
        );
        assert_eq!(
            ledger.pools().is_in_use(pool),
            fresh.pools().is_in_use(pool)
        );
        assert_eq!(
            ledger.addresses().usage_count(&ledger.pools().scope(pool)),
            fresh.addresses().usage_count(&fresh.pools().scope(pool)),
            "{pool}"
        );
    }
    let network = Scope::Network("lab".into());
    assert_eq!(
        ledger.addresses().usage_count(&network),
        fresh.addresses().usage_count(&network)
    );
    assert_eq!(
        sorted(ledger.addresses().members("lab").to_vec()),
        sorted(fresh.addresses().members("lab").to_vec())
    );
    assert_eq!(sorted(ledger.slices()), sorted(fresh.slices()));
    // The order of the owners of a duplicate address does not matter.
    let has_one_owner =
        |unreserved: &Unreserved| fresh.addresses().owners(&unreserved.slot).len() == 1;
    let unreserved = |ledger: &Ledger| {
        sorted(
            ledger
                .unreserved(usize::MAX, |_| true)
                .into_iter()
                .filter(has_one_owner)
                .collect(),
        )
    };
    assert_eq!(unreserved(ledger), unreserved(fresh));
    let invalid = |ledger: &Ledger| -> Vec<String> {
        ledger
            .invalid_reservations()
            .0
            .into_iter()
            .map(|one| one.name)
            .collect()
    };
    assert_eq!(sorted(invalid(ledger)), sorted(invalid(fresh)));
    let cooling_down = |ledger: &Ledger| -> Vec<Slot> {
        ledger
            .cooling_down_in_use()
            .into_iter()
            .map(|(slot, ..)| slot)
            .collect()
    };
    assert_eq!(sorted(cooling_down(ledger)), sorted(cooling_down(fresh)));
    let abandoned = |ledger: &Ledger| sorted(ledger.abandoned_reservations(|_, _, _| false));
    assert_eq!(abandoned(ledger), abandoned(fresh));
    for now in [0, i64::MAX] {
        let cooled_down = |ledger: &Ledger| sorted(ledger.cooled_down(now, |_| true, 0));
        assert_eq!(cooled_down(ledger), cooled_down(fresh));
    }
    assert_eq!(
        ledger.pools().next_cooldown_end(|_| true, 0),
        fresh.pools().next_cooldown_end(|_| true, 0)
    );
    // Only the former ledger knows which addresses were used.
    let held_by = |ledger: &Ledger, claim: &NamespacedName, uid| {
        sorted(
            ledger
                .addresses()
                .held_by(claim, uid)
                .into_iter()
                .map(|held| Held {
                    was_used: false,
                    ..held
                })
                .collect(),
        )
    };
    for (claim, uid) in (0..4).map(|number| (claim(number), Uid::of(&format!("u{number}")))) {
        assert_eq!(held_by(ledger, &claim, uid), held_by(fresh, &claim, uid));
    }
}
