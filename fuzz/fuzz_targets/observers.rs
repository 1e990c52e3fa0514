//! Fuzzes the ledger with watch events in any order: duplicate, late and missing events, incomplete lists, and objects
//! with unexpected fields; and with claims that request addresses in between.
//!
//! Invariants: no address that is known to be in use is proposed; counts are never negative; and after a full list, the
//! ledger equals a new ledger that has observed this list only.
//!
//! Run with `cargo +nightly fuzz run observers`.

#![no_main]

#[path = "observers/objects.rs"]
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use capi_ipam::api::{PoolKey, Scope, Slot};
use capi_ipam::in_cluster::ledger::{Ledger, Proposal, Unreserved};
use capi_ipam_provider::api::Uid;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

use objects::{Description, Object, init, init_done, pool_key};

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
    },
    Drop(u8),
    LookUp {
        pool: u8,
        claim: u8,
    },
    Finish {
        pool: u8,
        claim: u8,
    },
}

type Truth<'a> = BTreeMap<(&'static str, String, String), Object>;

fuzz_target!(|events: Vec<Event<'_>>| {
    let ledger = with_network();
    let (mut truth, mut proposed) = (Truth::new(), BTreeSet::new());
    for event in &events {
        happen(event, &ledger, &mut truth, &mut proposed);
    }
    proposed.iter().for_each(|slot| ledger.drop_candidate(slot));
    // The scope of a deleted pool is remembered, and a new ledger does not know it.
    let pools: BTreeSet<PoolKey> = truth.values().filter_map(Object::as_pool).collect();
    truth.retain(|_, object| object.pool_of_address().is_none_or(|pool| pools.contains(&pool)));

    let fresh = with_network();
    list(&ledger, truth.values());
    list(&fresh, truth.values().rev());
    compare(&ledger, &fresh, &pools);
});

/// A ledger with the network that pools can name.
fn with_network() -> Ledger {
    let ledger = Ledger::read_only();
    let network = json!({
        "metadata": {"name": "lab", "uid": "lab", "finalizers": ["ipam.cluster.x-k8s.io/ProtectNetwork"]},
        "spec": {"namespaces": {"from": "All"}}, "status": {"blockLengths": {"ipv4": 32, "ipv6": 64}},
    });
    ledger.apply_network(&serde_json::from_value(network).expect("a network"));
    ledger
}

fn happen(event: &Event<'_>, ledger: &Ledger, truth: &mut Truth<'_>, proposed: &mut BTreeSet<Slot>) {
    match event {
        Event::Applied(object) | Event::AppliedUnseen(object) | Event::AppliedLate(object) => {
            let Some(object) = object.build() else { return };
            if !matches!(event, Event::AppliedUnseen(_)) {
                object.apply(ledger);
                // A claim that is about to reserve the address finds it reserved.
                proposed.retain(|slot| !ledger.is_reserved(slot));
            }
            if !matches!(event, Event::AppliedLate(_)) {
                truth.insert(object.key(), object);
            }
        }
        Event::Deleted(object) | Event::DeletedUnseen(object) | Event::DeletedLate(object) => {
            let Some(object) = object.build() else { return };
            let late = matches!(event, Event::DeletedLate(_));
            let known = if late { None } else { truth.remove(&object.key()) };
            if !matches!(event, Event::DeletedUnseen(_)) {
                known.unwrap_or(object).delete(ledger);
            }
        }
        Event::ListingBegins => init(ledger),
        Event::ListingEnds => init_done(ledger),
        Event::Propose { pool, claim } => {
            let pool = pool_key(*pool);
            let Proposal::Slot(slot) = ledger.propose(&pool, &self::claim(*claim), i64::from(*claim)) else { return };
            assert!(ledger.owners(&slot).is_empty() && !ledger.is_reserved(&slot), "{slot} is in use");
            assert!(ledger.pool_info(&pool).is_some_and(|info| info.can_allocate() && info.scope == slot.scope));
            assert!(proposed.insert(slot.clone()), "{slot} is proposed twice");
        }
        Event::Drop(index) => {
            let Some(slot) = proposed.iter().nth(usize::from(*index)).cloned() else { return };
            ledger.drop_candidate(&slot);
            proposed.remove(&slot);
        }
        Event::LookUp { pool, claim } => {
            let (pool, claim) = (pool_key(*pool), self::claim(*claim));
            let _ = ledger.pool_or_wait(&pool, &claim, 1);
            let counts = ledger.counts(&pool);
            assert!(counts.free >= 0 && counts.free <= counts.total && counts.used >= 0 && counts.out_of_range >= 0);
        }
        Event::Finish { pool, claim } => ledger.end_unused_turn(&pool_key(*pool), &self::claim(*claim), Instant::now()),
    }
}

fn claim(number: u8) -> (String, String) {
    ("n".to_owned(), format!("c{}", number % 4))
}

fn list<'a>(ledger: &Ledger, objects: impl Iterator<Item = &'a Object>) {
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
        assert_eq!(ledger.pool_info(pool), fresh.pool_info(pool));
        assert_eq!(ledger.counts(pool), fresh.counts(pool), "{pool}");
        assert_eq!(ledger.in_use(pool, &|_| true), fresh.in_use(pool, &|_| true), "{pool}");
        assert_eq!(ledger.is_in_use(pool), fresh.is_in_use(pool));
        assert_eq!(ledger.overlapping(pool), fresh.overlapping(pool));
        assert_eq!(ledger.pool_network(pool), fresh.pool_network(pool));
        assert_eq!(ledger.usage_count(&ledger.scope(pool)), fresh.usage_count(&fresh.scope(pool)), "{pool}");
    }
    let network = Scope::Network("lab".into());
    assert_eq!(ledger.usage_count(&network), fresh.usage_count(&network));
    assert_eq!(sorted(ledger.members("lab")), sorted(fresh.members("lab")));
    // The order of the owners of a duplicate address does not matter.
    let has_one_owner = |unreserved: &Unreserved| fresh.owners(&unreserved.slot).len() == 1;
    let unreserved =
        |ledger: &Ledger| sorted(ledger.unreserved(usize::MAX, |_| true).into_iter().filter(has_one_owner).collect());
    assert_eq!(unreserved(ledger), unreserved(fresh));
    let invalid =
        |ledger: &Ledger| -> Vec<String> { ledger.invalid_reservations().into_iter().map(|one| one.name).collect() };
    assert_eq!(sorted(invalid(ledger)), sorted(invalid(fresh)));
    let cooling_down =
        |ledger: &Ledger| -> Vec<Slot> { ledger.cooling_down_in_use().into_iter().map(|(slot, ..)| slot).collect() };
    assert_eq!(sorted(cooling_down(ledger)), sorted(cooling_down(fresh)));
    let abandoned = |ledger: &Ledger| sorted(ledger.abandoned_reservations(|_, _, _| false));
    assert_eq!(abandoned(ledger), abandoned(fresh));
    for now in [0, i64::MAX] {
        let cooled_down = |ledger: &Ledger| sorted(ledger.cooled_down(now, |_| true, 0));
        assert_eq!(cooled_down(ledger), cooled_down(fresh));
    }
    assert_eq!(ledger.next_cooldown_end(|_| true, 0), fresh.next_cooldown_end(|_| true, 0));
    for (claim, uid) in (0..4).map(|number| (claim(number), Uid::of(&format!("u{number}")))) {
        assert_eq!(sorted(ledger.held_by(&claim, uid)), sorted(fresh.held_by(&claim, uid)));
    }
}
