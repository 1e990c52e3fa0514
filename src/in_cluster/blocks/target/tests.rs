use capi_ipam_controller::clock;
use capi_ipam_protocol::block::Step;

use super::*;

const DELAYS: Delays = Delays {
    settle: Duration::ZERO,
    drain: Duration::ZERO,
    keep: 0,
    quarantine: 100,
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
        assigned_at: Some(assigned_at),
        confirmed_at: None,
        conflict: None,
        empty_since: None,
    }
}

/// An unused block of the cluster west, with this record.
fn target(record: &BlockRecord, slice: Option<&BlockSlice>) -> Target {
    let entry = Entry {
        key: "block.lab.10.0.0.0-30".to_owned(),
        version: Version::Bucket {
            incarnation: None,
            revision: 1,
        },
        value: Ok(RegistryRecord::Block(record.clone())),
    };
    Target {
        network: "lab".into(),
        block: Block::new([10, 0, 0, 0].into(), 30),
        cluster: "west".into(),
        has_peers: false,
        is_shared: true,
        is_used: false,
        is_needed: false,
        may_take: true,
        access: Access::Full,
        delays: DELAYS,
        slice: slice.cloned(),
        is_foreign: false,
        is_listed: true,
        entry: Some(Arc::new(entry)),
    }
}

fn view(target: &Target, memory: &mut Memory, second: i64) -> View {
    let now = Instant::now();
    memory.update(target, now);
    target.view(memory, now, second)
}

#[test]
fn recent_take_of_another_manager_is_kept_for_a_minute() {
    let own = record("west", 0);
    let now = clock::now().0.as_second();
    let unconfirmed = slice(now);
    for slice in [None, Some(&unconfirmed)] {
        let alone = target(&own, slice);
        let shared = Target {
            has_peers: true,
            ..target(&own, slice)
        };
        let mut memory = Memory::default();
        assert_eq!(view(&shared, &mut memory, now + 5).next(), Step::Wait);
        // The other manager has given up.
        let step = match slice {
            Some(_) => Step::DeleteSlice,
            None => Step::ReturnRecord,
        };
        assert_eq!(view(&shared, &mut memory, now + 61).next(), step);
        assert_eq!(view(&alone, &mut memory, now + 5).next(), step);
    }
    let confirmed = BlockSlice {
        confirmed_at: Some(now),
        ..slice(now)
    };
    let shared = Target {
        has_peers: true,
        ..target(&own, Some(&confirmed))
    };
    assert!(!view(&shared, &mut Memory::default(), now).is_being_taken);
}

/// The network and its slices may not be restored yet.
#[test]
fn record_without_a_network_is_left() {
    let own = record("west", 0);
    let found = Target {
        is_shared: false,
        ..target(&own, None)
    };
    let seen = view(&found, &mut Memory::default(), 0);
    assert_eq!(seen.next(), Step::Wait);
}

#[test]
fn record_of_a_take_is_returned_when_sharing_ends() {
    let own = record("west", 0);
    let taking = target(&own, None);
    let mut memory = Memory::default();
    view(&taking, &mut memory, 0);
    let ended = Target {
        is_shared: false,
        ..taking
    };
    let seen = view(&ended, &mut memory, 0);
    assert_eq!(seen.next(), Step::ReturnRecord);
}

#[test]
fn record_without_a_slice_is_returned_once() {
    let own = record("west", 0);
    let next = |record: &BlockRecord, is_used| {
        let alone = Target {
            is_used,
            ..target(record, None)
        };
        view(&alone, &mut Memory::default(), 0).next()
    };
    assert_eq!(next(&own, false), Step::ReturnRecord);
    let returned = BlockRecord {
        returned_at: Some(clock::now()),
        ..own
    };
    assert_eq!(next(&returned, false), Step::Wait);
    // Its claims are restored later.
    assert_eq!(next(&returned, true), Step::KeepRecord);
}

#[test]
fn block_of_another_cluster_is_free_after_the_quarantine() {
    let now = clock::now();
    let second = now.0.as_second();
    let returned = BlockRecord {
        returned_at: Some(now),
        ..record("east", 0)
    };
    let entry = target(&returned, None).entry;
    for (later, holding) in [
        (0, Holding::Returned),
        (99, Holding::Returned),
        (100, Holding::Free),
        (-1, Holding::Returned),
    ] {
        let seen = shown(entry.as_deref(), "west", DELAYS.quarantine, second + later);
        let expected = Record::Theirs {
            names_us: false,
            is_full: false,
            holding,
        };
        assert_eq!(seen, expected, "{later}");
    }
    // It is that of the cluster that contends for it.
    let contended = BlockRecord {
        contenders: vec!["north".to_owned()],
        ..returned
    };
    let entry = target(&contended, None).entry;
    for (cluster, expected) in [("north", Holding::Free), ("west", Holding::Returned)] {
        let seen = shown(entry.as_deref(), cluster, DELAYS.quarantine, second + 100);
        let Record::Theirs { holding, .. } = seen else {
            panic!("{seen:?}");
        };
        assert_eq!(holding, expected, "{cluster}");
    }
}

#[test]
fn block_is_marked_after_the_idle_delay() {
    let own = record("west", 0);
    let confirmed = BlockSlice {
        confirmed_at: Some(1),
        ..slice(0)
    };
    let delays = Delays {
        keep: 100,
        ..DELAYS
    };
    let empty = Target {
        delays,
        ..target(&own, Some(&confirmed))
    };
    let used = Target {
        is_used: true,
        ..empty.clone()
    };
    let start = Instant::now();
    let mut memory = Memory::default();
    let mut next = |target: &Target, seconds| {
        let now = start + Duration::from_secs(seconds);
        memory.update(target, now);
        (
            target.view(&memory, now, 0).next(),
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
    let target = Target {
        delays: Delays {
            keep: 100,
            ..DELAYS
        },
        ..target(&other, Some(&in_conflict))
    };
    let seen = view(&target, &mut Memory::default(), 0);
    assert_eq!(seen.next(), Step::MarkEmpty);
}

#[test]
fn record_with_all_contenders_is_full() {
    for (contenders, expected) in [(MAX_CONTENDERS - 1, false), (MAX_CONTENDERS, true)] {
        let other = record("east", contenders);
        let seen = target(&other, None);
        let seen = view(&seen, &mut Memory::default(), 0);
        assert_eq!(
            seen.record,
            Record::Theirs {
                names_us: false,
                is_full: expected,
                holding: Holding::Held,
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
        let target = Target {
            is_needed,
            delays: Delays { keep, ..DELAYS },
            ..target(&own, Some(&marked))
        };
        view(&target, &mut Memory::default(), 1000).next()
    };
    assert_eq!(next(1001, false, 0), Step::MarkEmpty);
    assert_eq!(next(1000, false, 0), Step::DeleteSlice);
    assert_eq!(next(1000, false, 1), Step::Wait);
    // Otherwise no address of the block could be allocated.
    assert_eq!(next(1001, true, 0), Step::ClearMark);
}
