use std::collections::BTreeSet;

use capi_ipam_api::{AllocationOrder, SliceOwnerKind};
use capi_ipam_ip::PoolAddresses;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::outcome::{Outcome, Preparation};
use super::super::slice_refusal::SliceRefusal;
use super::*;

/// A pool of the addresses .2 to .29 in slices of 8: the first and the last one have fewer
/// addresses.
fn usable() -> UsableBlocks {
    let addresses = ["10.0.0.2-10.0.0.29".to_owned()];
    let pool = PoolAddresses {
        addresses: &addresses,
        excluded: &[],
        prefix: 24,
        gateway: None,
        allocate_reserved: false,
        ranges: &[],
        draining: &[],
    };
    pool.usable().unwrap()
}

fn rules(most_each: Option<usize>) -> Arc<SliceRules> {
    Arc::new(SliceRules {
        shift: 3,
        per: SliceOwnerKind::Label,
        label: None,
        most_each,
        keep_seconds: None,
    })
}

fn owner(name: &str) -> Arc<SliceOwner> {
    Arc::new(SliceOwner {
        kind: SliceOwnerKind::Label,
        namespace: None,
        name: name.to_owned(),
    })
}

fn block(first: u8, length: u8) -> Block {
    Block::new([10, 0, 0, first].into(), length)
}

fn info(name: &str) -> SliceInfo {
    SliceInfo {
        uid: "u".into(),
        stamp: Stamp::default(),
        owner: Some(owner(name)),
        is_pinned: false,
        empty_since: None,
        absence: Absence::Deleted,
        is_returning: false,
    }
}

/// A pool that keeps no number for a claim, and does not know when blocks were allocated.
fn contents<'a>(usable: &'a UsableBlocks, free: &'a FreeSet) -> Contents<'a> {
    static REMEMBERED: BTreeSet<(i64, u128)> = BTreeSet::new();
    static ALLOCATED: BTreeMap<Block, i64> = BTreeMap::new();
    Contents {
        usable,
        free: Some(free),
        remembered: &REMEMBERED,
        allocated: &ALLOCATED,
    }
}

/// What an owner gets, without the reason why it gets nothing.
#[derive(Debug, PartialEq)]
enum Choice {
    Number(u128),
    Assign(Block),
    Resume(Block),
    None,
}

/// A pool, its free numbers and its slices.
struct Fixture {
    usable: UsableBlocks,
    free: FreeSet,
    slices: Slices,
}

impl Fixture {
    fn new(most_each: Option<usize>) -> Self {
        let usable = usable();
        let free = FreeSet::new(&usable.set);
        let contents = Contents {
            free: None,
            ..contents(&usable, &free)
        };
        let slices = Slices::new(
            rules(most_each),
            contents,
            &usable.set,
            &BTreeMap::new(),
            None,
        );
        Self {
            usable,
            free,
            slices,
        }
    }

    fn number(&self, last: u8) -> u128 {
        self.usable
            .number(Block::address([10, 0, 0, last].into()))
            .unwrap()
    }

    fn insert(&mut self, first: u8, info: SliceInfo) {
        self.slices
            .insert(contents(&self.usable, &self.free), block(first, 29), info);
    }

    fn set_free(&mut self, last: u8, is_free: bool) {
        let number = self.number(last);
        if if is_free {
            self.free.release(number)
        } else {
            self.free.take(number)
        } {
            self.slices.set_free(number, is_free);
        }
    }

    fn choose(&mut self, name: &str) -> Choice {
        let order = AllocationOrder::LowestFirst;
        let owner = owner(name);
        let outcome = self
            .slices
            .choose(&owner, order, &self.usable, |_| false, |_| 0);
        match outcome {
            Outcome::Offer(number) => Choice::Number(number),
            Outcome::First(Preparation::AssignSlice(block)) => Choice::Assign(block),
            Outcome::First(Preparation::ResumeSlice(block)) => Choice::Resume(block),
            Outcome::NotNow(_) => Choice::None,
        }
    }

    /// Chooses an address and takes it. Returns its last part.
    fn take(&mut self, name: &str) -> Option<u8> {
        let Choice::Number(number) = self.choose(name) else {
            return None;
        };
        let last = (0..=255).find(|last| self.number(*last) == number)?;
        self.set_free(last, false);
        Some(last)
    }
}

#[test]
fn owner_without_a_free_address_gets_a_slice() {
    let mut pool = Fixture::new(Some(2));
    assert_eq!(pool.choose("a"), Choice::Assign(block(0, 29)));
    assert_eq!(
        pool.slices.describe(&owner("a")),
        SliceRefusal::Pending { owner: owner("a") }
    );
    assert_eq!(
        (pool.choose("a"), pool.choose("b")),
        (Choice::None, Choice::Assign(block(8, 29)))
    );
    let counts = |assigned, free| SliceCounts {
        total: 4,
        assigned,
        free,
    };
    assert_eq!(
        pool.slices.counts(),
        counts(0, 4),
        "another manager does not know that both are being assigned"
    );
    pool.insert(0, info("a"));
    pool.insert(8, info("b"));
    assert_eq!(pool.slices.counts(), counts(2, 2));
    assert_eq!(
        (0..6).filter_map(|_| pool.take("a")).collect::<Vec<_>>(),
        [2, 3, 4, 5, 6, 7]
    );
    assert_eq!(pool.choose("a"), Choice::Assign(block(16, 29)));
    pool.insert(16, info("a"));
    assert_eq!((0..9).filter_map(|_| pool.take("a")).count(), 8);
    assert_eq!(pool.choose("a"), Choice::None);
    let limit = SliceRefusal::Limit {
        owner: owner("a"),
        most: 2,
    };
    assert_eq!(
        (
            pool.slices.room(&owner("a")),
            pool.slices.describe(&owner("a"))
        ),
        (0, limit)
    );
    pool.set_free(5, true);
    assert_eq!(
        (pool.slices.room(&owner("a")), pool.take("a")),
        (1, Some(5))
    );
    assert_eq!(pool.choose("c"), Choice::Assign(block(24, 29)));
    pool.insert(24, info("c"));
    let refusal = SliceRefusal::NoFreeSlice {
        owner: owner("d"),
        slices: 0,
    };
    assert_eq!(
        (pool.choose("d"), pool.slices.describe(&owner("d"))),
        (Choice::None, refusal)
    );
    pool.slices.remove(&pool.usable, block(24, 29));
    assert_eq!(pool.choose("d"), Choice::Assign(block(24, 29)));
}

#[test]
fn slices_with_addresses_in_use_are_not_assigned() {
    let mut pool = Fixture::new(None);
    pool.set_free(9, false);
    pool.set_free(10, false);
    pool.set_free(29, false);
    let free = pool.slices.counts().free;
    assert_eq!(
        (free, pool.choose("a"), pool.choose("b")),
        (
            2,
            Choice::Assign(block(0, 29)),
            Choice::Assign(block(16, 29))
        )
    );
    pool.set_free(9, true);
    assert_eq!(pool.choose("c"), Choice::None);
    pool.set_free(10, true);
    assert!(pool.slices.take_freed().1);
    assert_eq!(pool.choose("c"), Choice::Assign(block(8, 29)));
    pool.slices.end_assignment(block(8, 29));
    assert_eq!(
        pool.choose("d"),
        Choice::Assign(block(8, 29)),
        "the first assignment has failed"
    );
}

#[test]
fn pinned_slice_of_any_size_has_its_owner() {
    let mut pool = Fixture::new(None);
    pool.slices
        .insert(contents(&pool.usable, &pool.free), block(0, 28), info("a"));
    assert_eq!(
        pool.slices.counts(),
        SliceCounts {
            total: 4,
            assigned: 1,
            free: 2
        }
    );
    assert_eq!((0..14).filter_map(|_| pool.take("a")).count(), 14);
    // Overlapping and distant slices have no effect.
    pool.insert(8, info("b"));
    pool.insert(64, info("b"));
    assert_eq!(pool.choose("b"), Choice::Assign(block(16, 29)));
    pool.slices.remove(&pool.usable, block(0, 28));
    assert_eq!(pool.slices.counts().assigned, 0);
    let everything = Block::new([0, 0, 0, 0].into(), 0);
    pool.slices
        .insert(contents(&pool.usable, &pool.free), everything, info("c"));
    assert_eq!(
        (pool.slices.counts().free, pool.choose("c")),
        (0, Choice::Number(pool.number(16)))
    );
    pool.slices.remove(&pool.usable, everything);
    assert_eq!(
        pool.slices.counts().free,
        2,
        "one is being assigned, and two others have addresses in use"
    );
}

#[test]
fn marked_slice_is_resumed_and_a_returning_one_is_not_used() {
    let mut pool = Fixture::new(Some(1));
    pool.insert(
        8,
        SliceInfo {
            empty_since: Some(5),
            ..info("a")
        },
    );
    assert_eq!(pool.choose("a"), Choice::Resume(block(8, 29)));
    pool.insert(
        8,
        SliceInfo {
            is_returning: true,
            empty_since: Some(5),
            ..info("a")
        },
    );
    assert_eq!(
        (pool.choose("a"), pool.slices.room(&owner("a"))),
        (Choice::None, 0)
    );
    pool.insert(8, info("a"));
    assert_eq!(pool.take("a"), Some(8));
}

#[test]
fn invalid_slice_takes_its_block_without_an_owner() {
    let mut pool = Fixture::new(None);
    pool.insert(
        0,
        SliceInfo {
            owner: None,
            ..info("")
        },
    );
    assert_eq!(
        pool.slices.counts(),
        SliceCounts {
            total: 4,
            assigned: 1,
            free: 3
        }
    );
    assert_eq!(
        pool.choose("a"),
        Choice::Assign(block(8, 29)),
        "the name of the first block is taken"
    );
    let number = pool.number(2);
    assert_eq!(pool.slices.access(&owner("a"), number), SliceAccess::Denied);
    pool.slices.remove(&pool.usable, block(0, 29));
    assert_eq!(pool.choose("b"), Choice::Assign(block(0, 29)));
}

/// A change of the pool.
#[derive(Clone, Debug)]
enum Change {
    SetFree(u8, bool),
    Insert(u8, u8),
    Remove(u8),
    Choose(u8),
    Fail(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        (2..30_u8, any::<bool>()).prop_map(|(last, is_free)| Change::SetFree(last, is_free)),
        (0..4_u8, 0..3_u8).prop_map(|(group, name)| Change::Insert(group, name)),
        (0..4_u8).prop_map(Change::Remove),
        (0..3_u8).prop_map(Change::Choose),
        (0..4_u8).prop_map(Change::Fail),
    ];
    vec(change, 0..60)
}

proptest! {
    /// After any changes, the slices are as if they were computed from scratch.
    #[test]
    fn changes_agree_with_a_new_division(changes in changes()) {
        let mut pool = Fixture::new(Some(2));
        let mut objects: BTreeMap<Block, SliceInfo> = BTreeMap::new();
        for change in changes {
            match change {
                Change::SetFree(last, is_free) => pool.set_free(last, is_free),
                Change::Insert(group, name) => {
                    let info = info(&format!("o{name}"));
                    objects.insert(block(group * 8, 29), info.clone());
                    pool.insert(group * 8, info);
                }
                Change::Remove(group) => {
                    objects.remove(&block(group * 8, 29));
                    pool.slices.remove(&pool.usable, block(group * 8, 29));
                }
                Change::Choose(name) => {
                    let choice = pool.choose(&format!("o{name}"));
                    if let Choice::Number(number) = choice {
                        prop_assert!(pool.free.contains(number));
                        let slice = pool.slices.slice_of(number).unwrap();
                        prop_assert_eq!(&slice.info.owner.as_ref().unwrap().name, &format!("o{name}"));
                    }
                }
                Change::Fail(group) => pool.slices.end_assignment(block(group * 8, 29)),
            }
            let contents = contents(&pool.usable, &pool.free);
            let again = Slices::new(rules(Some(2)), contents, &pool.usable.set, &objects, Some(&pool.slices));
            prop_assert_eq!(&again.assignable, &pool.slices.assignable);
            prop_assert_eq!(&again.in_use, &pool.slices.in_use);
            let owners = |slices: &Slices| {
                let owners = slices.owners.iter().map(|(owner, holding)| {
                    (owner.name.clone(), holding.slices, holding.is_pending, holding.free.spans().collect::<Vec<_>>())
                });
                owners.collect::<BTreeSet<_>>()
            };
            prop_assert_eq!(owners(&again), owners(&pool.slices));
        }
    }
}
