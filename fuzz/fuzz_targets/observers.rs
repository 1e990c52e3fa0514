//! Feeds the ledger what watches may tell it, in any order: events twice, late, or not at all, listings that break off, and
//! objects with fields that nobody expects; and has claims ask for addresses meanwhile.
//!
//! What must hold: nothing that is known to be taken is proposed; counts are never negative; and once everything was listed
//! again, the ledger knows what one knows that has heard of nothing else.
//!
//! Run with `cargo +nightly fuzz run observers`.

#![no_main]

#[path = "observers/objects.rs"]
mod objects;

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam::api::{PoolKey, Scope, Slot};
use capi_ipam::in_cluster::ledger::{Ledger, Proposal, Unreserved};
use capi_ipam_provider::api::Uid;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

use objects::{Description, listed, listing, Object, pool_key};

#[derive(Arbitrary, Debug)]
enum Event<'a> {
    /// The object is there, and a watch says so.
    Applied(Description<'a>),
    /// The object is there, and no watch says so.
    AppliedUnseen(Description<'a>),
    /// A watch says that the object is there, and it is not.
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
    Withdraw(u8),
    Ask {
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
    let ledger = Ledger::read_only();
    let (mut truth, mut proposed) = (Truth::new(), BTreeSet::new());
    for event in &events {
        happen(event, &ledger, &mut truth, &mut proposed);
    }
    proposed.iter().for_each(|slot| ledger.withdraw(slot));
    // Where the addresses of a pool are that is gone is remembered, and not known to a new ledger.
    let pools: BTreeSet<PoolKey> = truth.values().filter_map(Object::as_pool).collect();
    truth.retain(|_, object| object.pool_of_address().is_none_or(|pool| pools.contains(&pool)));

    let fresh = Ledger::read_only();
    list(&ledger, truth.values());
    list(&fresh, truth.values().rev());
    compare(&ledger, &fresh, &pools);
});

fn happen(event: &Event<'_>, ledger: &Ledger, truth: &mut Truth<'_>, proposed: &mut BTreeSet<Slot>) {
    match event {
        Event::Applied(object) | Event::AppliedUnseen(object) | Event::AppliedLate(object) => {
            let Some(object) = object.build() else { return };
            if !matches!(event, Event::AppliedUnseen(_)) {
                object.applied(ledger);
                // Whoever is about to reserve it finds it reserved.
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
                known.unwrap_or(object).deleted(ledger);
            }
        }
        Event::ListingBegins => listing(ledger),
        Event::ListingEnds => listed(ledger),
        Event::Propose { pool, claim } => {
            let pool = pool_key(*pool);
            let Proposal::Slot(slot) = ledger.propose(&pool, &self::claim(*claim), (*claim).into()) else { return };
            assert!(ledger.holders(&slot).is_empty() && !ledger.is_reserved(&slot), "{slot} is taken");
            assert!(ledger.facts(&pool).is_some_and(|facts| facts.serves() && facts.scope == slot.scope));
            assert!(proposed.insert(slot.clone()), "{slot} is proposed twice");
        }
        Event::Withdraw(index) => {
            let Some(slot) = proposed.iter().nth(usize::from(*index)).cloned() else { return };
            ledger.withdraw(&slot);
            proposed.remove(&slot);
        }
        Event::Ask { pool, claim } => {
            let (pool, claim) = (pool_key(*pool), self::claim(*claim));
            ledger.attend(&pool, &claim);
            let _ = ledger.pool_for(&pool, &claim, 1);
            let counts = ledger.counts(&pool);
            assert!(counts.free >= 0 && counts.free <= counts.total && counts.used >= 0 && counts.out_of_range >= 0);
        }
        Event::Finish { pool, claim } => ledger.finished(&pool_key(*pool), &self::claim(*claim)),
    }
}

fn claim(number: u8) -> (String, String) {
    ("n".to_owned(), format!("c{}", number % 4))
}

fn list<'a>(ledger: &Ledger, objects: impl Iterator<Item = &'a Object>) {
    listing(ledger);
    objects.for_each(|object| object.applied(ledger));
    listed(ledger);
}

fn sorted<T: std::fmt::Debug>(answers: Vec<T>) -> Vec<String> {
    let mut texts: Vec<String> = answers.iter().map(|answer| format!("{answer:?}")).collect();
    texts.sort_unstable();
    texts
}

/// Both give the same answer to every question.
fn compare(ledger: &Ledger, fresh: &Ledger, pools: &BTreeSet<PoolKey>) {
    for pool in pools {
        assert_eq!(ledger.facts(pool), fresh.facts(pool));
        assert_eq!(ledger.counts(pool), fresh.counts(pool), "{pool}");
        assert_eq!(ledger.in_use(pool, &|_| true), fresh.in_use(pool, &|_| true), "{pool}");
        assert_eq!(ledger.is_in_use(pool), fresh.is_in_use(pool));
        assert_eq!(ledger.overlapping(pool), fresh.overlapping(pool));
        assert_eq!(ledger.missing_block_length(pool), fresh.missing_block_length(pool));
        assert_eq!(ledger.taken(&ledger.scope(pool)), fresh.taken(&fresh.scope(pool)), "{pool}");
    }
    let network = Scope::Network("lab".into());
    assert_eq!(ledger.taken(&network), fresh.taken(&network));
    assert_eq!(sorted(ledger.members("lab")), sorted(fresh.members("lab")));
    // Of several who have one address, it does not matter who is named.
    let one_has = |unreserved: &Unreserved| fresh.holders(&unreserved.slot).len() == 1;
    let unreserved =
        |ledger: &Ledger| sorted(ledger.unreserved(usize::MAX, |_| true).into_iter().filter(one_has).collect());
    assert_eq!(unreserved(ledger), unreserved(fresh));
    let useless =
        |ledger: &Ledger| -> Vec<String> { ledger.invalid_reservations().into_iter().map(|one| one.name).collect() };
    assert_eq!(sorted(useless(ledger)), sorted(useless(fresh)));
    let resting =
        |ledger: &Ledger| -> Vec<Slot> { ledger.cooling_down_in_use().into_iter().map(|(slot, ..)| slot).collect() };
    assert_eq!(sorted(resting(ledger)), sorted(resting(fresh)));
    assert_eq!(sorted(ledger.suspects(|_, _, _| false)), sorted(fresh.suspects(|_, _, _| false)));
    let unclaimed = |ledger: &Ledger| sorted(ledger.unclaimed(|_| false).into_iter().map(|found| found.name).collect());
    assert_eq!(unclaimed(ledger), unclaimed(fresh));
    for now in [0, i64::MAX] {
        let cooled_down = |ledger: &Ledger| sorted(ledger.cooled_down(now, |_| true, 0));
        assert_eq!(cooled_down(ledger), cooled_down(fresh));
    }
    assert_eq!(ledger.next_cooldown_end(|_| true, 0), fresh.next_cooldown_end(|_| true, 0));
    for (claim, uid) in (0..4).map(|number| (claim(number), Uid::of(&format!("u{number}")))) {
        assert_eq!(sorted(ledger.reservations_of(&claim, uid)), sorted(fresh.reservations_of(&claim, uid)));
    }
}
