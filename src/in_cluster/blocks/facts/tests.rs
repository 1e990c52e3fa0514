use capi_ipam_controller::clock;
use capi_ipam_protocol::block::{Sharing, Step};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const DELAYS: Delays = Delays {
    settle: Duration::ZERO,
    drain: Duration::ZERO,
    keep: 0,
    restore: Duration::ZERO,
};
const VERSION: Version = Version::Bucket {
    incarnation: None,
    revision: 1,
};

fn record(cluster: &str, contenders: usize) -> BlockRecord {
    BlockRecord {
        cluster: cluster.to_owned(),
        since: Some(clock::now()),
        contenders: (0..contenders).map(|number| format!("c{number}")).collect(),
        ..BlockRecord::default()
    }
}

fn slice(assigned_at: i64) -> BlockSlice {
    BlockSlice {
        uid: "s".to_owned(),
        version: "1".to_owned(),
        cluster: "west".into(),
        registry: Some("site".into()),
        is_valid: true,
        is_deleting: false,
        is_returning: false,
        is_usable: false,
        awaits_comparison: false,
        assigned_at: Some(assigned_at),
        confirmed_at: None,
        conflict: None,
        empty_since: None,
        absence: Absence::Deleted,
    }
}

/// An unused block of the cluster west.
fn facts<'a>(shown: Shown<'a>, slice: Option<&'a BlockSlice>) -> Facts<'a> {
    Facts {
        registry: "site",
        cluster: "west",
        has_peers: false,
        is_shared: true,
        shown,
        is_overlapped: false,
        is_watched: true,
        slice,
        is_used: false,
        is_needed: false,
    }
}

fn view(facts: &Facts<'_>, memory: &mut Memory, second: i64) -> View {
    let now = Instant::now();
    memory.update(facts, now, second);
    facts.view(memory, DELAYS, now, second)
}

#[test]
fn recent_take_of_another_manager_is_kept_for_a_minute() {
    let own = record("west", 0);
    let now = clock::now().0.as_second();
    let unconfirmed = slice(now);
    let shown = Shown::Record(&own, &VERSION);
    for slice in [None, Some(&unconfirmed)] {
        let alone = facts(shown, slice);
        let shared = Facts {
            has_peers: true,
            ..facts(shown, slice)
        };
        let mut memory = Memory::default();
        assert_eq!(view(&shared, &mut memory, now + 5).next(), Step::Wait);
        // The other manager has given up. A record of that age is kept like an empty block.
        let (later, alone_now) = match slice {
            Some(_) => (Step::DeleteSlice, Step::DeleteSlice),
            None => (Step::CreateSlice, Step::MarkRecord),
        };
        assert_eq!(view(&shared, &mut memory, now + 61).next(), later);
        assert_eq!(view(&alone, &mut memory, now + 5).next(), alone_now);
    }
    let confirmed = BlockSlice {
        confirmed_at: Some(now),
        ..slice(now)
    };
    let shared = Facts {
        has_peers: true,
        ..facts(shown, Some(&confirmed))
    };
    assert!(!view(&shared, &mut Memory::default(), now).is_being_taken);
}

#[test]
fn slice_names_the_registry_of_a_network_that_shares_none() {
    let (own, other) = (record("west", 0), record("east", 0));
    let mut memory = Memory::default();
    let unnamed = BlockSlice {
        registry: None,
        ..slice(0)
    };
    let elsewhere = BlockSlice {
        registry: Some("other".into()),
        ..slice(0)
    };
    for slice in [&unnamed, &elsewhere] {
        let ended = Facts {
            is_shared: false,
            ..facts(Shown::Record(&other, &VERSION), Some(slice))
        };
        let seen = view(&ended, &mut memory, 0);
        assert_eq!(seen.sharing, Sharing::Elsewhere);
    }
    let recorded = Facts {
        is_shared: false,
        ..facts(Shown::Record(&own, &VERSION), Some(&unnamed))
    };
    let seen = view(&recorded, &mut Memory::default(), 0);
    assert_eq!(seen.sharing, Sharing::Ended);
    // Whatever this registry shows: the record can be lost, and another cluster can have the block.
    let named = slice(0);
    for shown in [
        Shown::Record(&own, &VERSION),
        Shown::Absent,
        Shown::Record(&other, &VERSION),
    ] {
        let ended = Facts {
            is_shared: false,
            ..facts(shown, Some(&named))
        };
        assert_eq!(view(&ended, &mut memory, 0).sharing, Sharing::Ended);
    }
    let returned = Facts {
        is_shared: false,
        ..facts(Shown::Absent, None)
    };
    assert_eq!(view(&returned, &mut memory, 0).sharing, Sharing::Elsewhere);
    assert!(memory.is_empty());
}

/// It may belong to another management cluster with the same identity by mistake.
#[test]
fn record_whose_slice_was_never_seen_is_left() {
    let own = record("west", 0);
    let unknown = Facts {
        slice: None,
        is_shared: false,
        ..facts(Shown::Record(&own, &VERSION), None)
    };
    let mut memory = Memory::default();
    let seen = view(&unknown, &mut memory, 0);
    assert_eq!(seen.sharing, Sharing::Elsewhere);
    assert_eq!(seen.next(), Step::Wait);
}

/// A copy of the management cluster, which was restored from a backup, has taken the block.
#[test]
fn found_record_without_a_slice_is_left_when_sharing_ends() {
    let own = record("west", 0);
    let later = clock::now().0.as_second() + FOUND_AGE;
    let mut memory = Memory::default();
    let found = facts(Shown::Record(&own, &VERSION), None);
    assert_eq!(view(&found, &mut memory, later).sharing, Sharing::Active);
    let ended = Facts {
        is_shared: false,
        ..found
    };
    let seen = view(&ended, &mut memory, later);
    assert_eq!(seen.sharing, Sharing::Elsewhere);
    assert_eq!(seen.next(), Step::Wait);
}

#[test]
fn record_of_a_take_is_returned_when_sharing_ends() {
    let own = record("west", 0);
    let taking = facts(Shown::Record(&own, &VERSION), None);
    let mut memory = Memory::default();
    assert_eq!(view(&taking, &mut memory, 0).sharing, Sharing::Active);
    let ended = Facts {
        is_shared: false,
        ..taking
    };
    let seen = view(&ended, &mut memory, 0);
    assert_eq!(seen.sharing, Sharing::Ended);
    assert_eq!(seen.next(), Step::MarkRecord);
}

/// The slice is deleted, and then the registry cannot be reached.
#[test]
fn returned_block_is_not_taken_up_again_after_an_outage() {
    let own = record("west", 0);
    let held = slice(0);
    let mut memory = Memory::default();
    let with_slice = facts(Shown::Record(&own, &VERSION), Some(&held));
    view(&with_slice, &mut memory, 0);
    view(&facts(Shown::Unknown, None), &mut memory, 0);
    let later = clock::now().0.as_second() + FOUND_AGE;
    let alone = facts(Shown::Record(&own, &VERSION), None);
    assert_eq!(view(&alone, &mut memory, later).next(), Step::MarkRecord);
}

/// Its claims may not be restored yet.
#[test]
fn block_found_without_a_slice_is_kept_as_an_empty_one() {
    let now = clock::now().0.as_second();
    let later = now + FOUND_AGE;
    let own = record("west", 0);
    let mut memory = Memory::default();
    let alone = facts(Shown::Record(&own, &VERSION), None);
    // A process was killed after it had created the record.
    assert_eq!(view(&alone, &mut memory, now).next(), Step::MarkRecord);
    assert_eq!(view(&alone, &mut memory, later).next(), Step::CreateSlice);
    let taken = slice(later);
    let with_slice = facts(Shown::Record(&own, &VERSION), Some(&taken));
    let step = view(&with_slice, &mut memory, later).next();
    assert_eq!(step, Step::ConfirmRecord);

    // From then on it is a block like any other.
    let confirmed = BlockSlice {
        confirmed_at: Some(later),
        ..slice(later)
    };
    let empty = facts(Shown::Record(&own, &VERSION), Some(&confirmed));
    assert_eq!(view(&empty, &mut memory, later).next(), Step::MarkEmpty);
    assert_eq!(view(&alone, &mut memory, later).next(), Step::MarkRecord);
    let returning = BlockRecord {
        empty_since: Some(clock::now()),
        ..own
    };
    let returning = facts(Shown::Record(&returning, &VERSION), None);
    let step = view(&returning, &mut Memory::default(), later).next();
    assert_eq!(step, Step::DeleteRecord);
}

#[test]
fn block_is_marked_after_the_idle_delay() {
    let own = record("west", 0);
    let confirmed = BlockSlice {
        confirmed_at: Some(1),
        ..slice(0)
    };
    let empty = facts(Shown::Record(&own, &VERSION), Some(&confirmed));
    let used = Facts {
        is_used: true,
        ..facts(Shown::Record(&own, &VERSION), Some(&confirmed))
    };
    let delays = Delays {
        keep: 100,
        ..DELAYS
    };
    let start = Instant::now();
    let mut memory = Memory::default();
    let mut next = |facts: &Facts<'_>, seconds| {
        let now = start + Duration::from_secs(seconds);
        memory.update(facts, now, 0);
        (
            facts.view(&memory, delays, now, 0).next(),
            memory.idle_time(delays, now).as_secs(),
        )
    };
    assert_eq!(next(&empty, 0), (Step::Wait, 0));
    assert_eq!(next(&empty, 9), (Step::Wait, 9));
    // The time begins again with the next use.
    assert_eq!(next(&used, 10), (Step::Wait, 0));
    assert_eq!(next(&empty, 11), (Step::Wait, 0));
    assert_eq!(next(&empty, 20), (Step::Wait, 9));
    assert_eq!(next(&empty, 21), (Step::MarkEmpty, 10));
    // One that could not be marked in time is kept as long as any other one.
    assert_eq!(next(&empty, 9_000), (Step::MarkEmpty, 10));
}

#[test]
fn block_in_conflict_is_marked_at_once() {
    let other = record("east", 1);
    let in_conflict = BlockSlice {
        confirmed_at: Some(1),
        conflict: Some("east".into()),
        ..slice(0)
    };
    let facts = facts(Shown::Record(&other, &VERSION), Some(&in_conflict));
    let delays = Delays {
        keep: 100,
        ..DELAYS
    };
    let mut memory = Memory::default();
    let now = Instant::now();
    memory.update(&facts, now, 0);
    assert_eq!(facts.view(&memory, delays, now, 0).next(), Step::MarkEmpty);
}

#[test]
fn record_with_all_contenders_is_full() {
    for (contenders, expected) in [(MAX_CONTENDERS - 1, false), (MAX_CONTENDERS, true)] {
        let other = record("east", contenders);
        let seen = facts(Shown::Record(&other, &VERSION), None);
        let seen = view(&seen, &mut Memory::default(), 0);
        assert_eq!(
            seen.record,
            Record::Theirs {
                names_us: false,
                is_full: expected
            }
        );
    }
}

#[test]
fn mark_in_the_future_is_written_again() {
    let own = record("west", 0);
    let next = |empty_since: i64, is_needed: bool, keep: i64| {
        let marked = BlockSlice {
            confirmed_at: Some(1),
            empty_since: Some(empty_since),
            ..slice(0)
        };
        let facts = Facts {
            is_needed,
            ..facts(Shown::Record(&own, &VERSION), Some(&marked))
        };
        let mut memory = Memory::default();
        let now = Instant::now();
        memory.update(&facts, now, 1000);
        let delays = Delays { keep, ..DELAYS };
        facts.view(&memory, delays, now, 1000).next()
    };
    assert_eq!(next(1001, false, 0), Step::MarkEmpty);
    assert_eq!(next(1000, false, 0), Step::DeleteSlice);
    assert_eq!(next(1000, false, 1), Step::Wait);
    // Otherwise no address of the block could be allocated.
    assert_eq!(next(1001, true, 0), Step::ClearMark);
}

/// Its addresses may not be restored yet.
#[test]
fn restored_block_is_kept_until_its_addresses_are_restored() {
    let next = |absence: Absence, taken: i64, assigned: i64| {
        let own = BlockRecord {
            since: Some(Time(Timestamp::from_second(taken).unwrap())),
            ..record("west", 0)
        };
        let marked = BlockSlice {
            confirmed_at: Some(1),
            empty_since: Some(1000),
            absence,
            ..slice(assigned)
        };
        let facts = facts(Shown::Record(&own, &VERSION), Some(&marked));
        let mut memory = Memory::default();
        let now = Instant::now();
        memory.update(&facts, now, 1100);
        let delays = Delays {
            keep: 0,
            restore: Duration::from_secs(200),
            ..DELAYS
        };
        facts.view(&memory, delays, now, 1100).next()
    };
    let restored_at = |second| Absence::Restore(Timestamp::from_second(second).unwrap());
    assert_eq!(next(restored_at(950), 0, 10), Step::Wait);
    assert_eq!(next(restored_at(900), 0, 10), Step::DeleteSlice);
    assert_eq!(next(Absence::Deleted, 0, 10), Step::DeleteSlice);
    // The record was found without a slice.
    assert_eq!(next(Absence::Deleted, 0, 950), Step::Wait);
    assert_eq!(next(Absence::Deleted, 0, 900), Step::DeleteSlice);
    assert_eq!(next(Absence::Deleted, 900, 950), Step::DeleteSlice);
}
