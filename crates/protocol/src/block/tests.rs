use super::*;

const OURS: Record = Record::Ours {
    is_returned: false,
    is_contested: false,
};
const RETURNED: Record = Record::Ours {
    is_returned: true,
    is_contested: false,
};
const THEIRS: Record = theirs(Holding::Held);
const FREE: Record = theirs(Holding::Free);
const fn theirs(holding: Holding) -> Record {
    Record::Theirs {
        names_us: false,
        is_full: false,
        holding,
    }
}

const USABLE: Slice = Slice {
    confirmation: Confirmation::Written,
    ..Slice::NEW
};
const MARKED: Slice = Slice {
    mark: Mark::Old,
    ..USABLE
};
const CONFLICTING: Slice = Slice {
    is_conflicting: true,
    ..USABLE
};

/// An unused block that the cluster has.
const HELD: View = View {
    record: OURS,
    is_shared: true,
    slice: Some(USABLE),
    is_used: false,
    is_needed: false,
    is_idle: true,
    is_settled: true,
    is_being_taken: false,
    access: Access::Full,
};

/// What a write changes, if no other cluster writes.
fn after(view: View, step: Step) -> View {
    let mut view = view;
    let change = |slice: Option<Slice>, mark| slice.map(|slice| Slice { mark, ..slice });
    match step {
        Step::MarkEmpty => view.slice = change(view.slice, Mark::Old),
        Step::ClearMark => view.slice = change(view.slice, Mark::None),
        Step::MarkConflict => view.slice = Some(CONFLICTING),
        Step::CreateSlice => view.slice = Some(Slice::NEW),
        Step::DeleteSlice => view.slice = None,
        Step::CreateRecord | Step::TakeRecord | Step::KeepRecord => view.record = OURS,
        Step::ReturnRecord => view.record = RETURNED,
        Step::Withdraw => view.record = THEIRS,
        other => panic!("{other:?} is not expected"),
    }
    view
}

/// The writes until nothing is left to do.
fn writes(mut view: View) -> Vec<Step> {
    let mut steps = Vec::new();
    while view.next() != Step::Wait {
        let step = view.next();
        assert!(steps.len() < 10, "the writes never end: {steps:?}");
        steps.push(step);
        view = after(view, step);
    }
    steps
}

#[test]
fn block_of_a_network_that_shares_none_is_returned_once() {
    let ended = View {
        is_shared: false,
        ..HELD
    };
    let all = [Step::MarkEmpty, Step::DeleteSlice, Step::ReturnRecord];
    assert_eq!(writes(ended), all);
    let without_slice = View {
        slice: None,
        ..ended
    };
    assert_eq!(writes(without_slice), [Step::ReturnRecord]);
    let conflicting = View {
        slice: Some(CONFLICTING),
        record: Record::Theirs {
            names_us: true,
            is_full: false,
            holding: Holding::Held,
        },
        ..ended
    };
    let all = [Step::MarkEmpty, Step::DeleteSlice, Step::Withdraw];
    assert_eq!(writes(conflicting), all);
}

#[test]
fn empty_block_stays_usable_until_it_is_idle() {
    let empty = View {
        is_idle: false,
        ..HELD
    };
    assert_eq!(empty.next(), Step::Wait);
    let idle = View {
        is_idle: true,
        ..empty
    };
    assert_eq!(idle.next(), Step::MarkEmpty);
}

#[test]
fn no_slice_is_created_in_a_network_that_shares_none() {
    for record in [OURS, THEIRS, Record::Absent, Record::Unreadable] {
        let view = View {
            record,
            is_shared: false,
            slice: None,
            is_used: true,
            ..HELD
        };
        assert_eq!(view.next(), Step::Wait, "{view:?}");
    }
}

#[test]
fn lost_record_is_written_again() {
    let lost = View {
        record: Record::Absent,
        is_used: true,
        ..HELD
    };
    for is_shared in [true, false] {
        let view = View { is_shared, ..lost };
        assert_eq!(view.next(), Step::CreateRecord);
    }
    let unused = View {
        is_shared: false,
        is_used: false,
        ..lost
    };
    assert_eq!(writes(unused), [Step::MarkEmpty, Step::DeleteSlice]);
}

#[test]
fn full_record_of_another_cluster_is_not_written() {
    for (is_full, step) in [(false, Step::Contend), (true, Step::Wait)] {
        let view = View {
            record: Record::Theirs {
                names_us: false,
                is_full,
                holding: Holding::Held,
            },
            slice: Some(CONFLICTING),
            is_used: true,
            ..HELD
        };
        assert_eq!(view.next(), step);
    }
    let named = View {
        record: Record::Theirs {
            names_us: true,
            is_full: true,
            holding: Holding::Held,
        },
        slice: None,
        ..HELD
    };
    assert_eq!(named.next(), Step::Withdraw);
}

#[test]
fn take_of_another_manager_is_not_undone() {
    let seen = View {
        is_being_taken: true,
        slice: Some(Slice::NEW),
        ..HELD
    };
    for (record, slice) in [
        (OURS, Some(Slice::NEW)),
        (Record::Absent, Some(Slice::NEW)),
        (OURS, None),
    ] {
        let view = View {
            record,
            slice,
            ..seen
        };
        assert_eq!(view.next(), Step::Wait, "{view:?}");
        let abandoned = View {
            is_being_taken: false,
            ..view
        };
        assert_ne!(abandoned.next(), Step::Wait, "{view:?}");
    }
    // Another cluster was first.
    let lost = View {
        record: THEIRS,
        ..seen
    };
    assert_eq!(lost.next(), Step::DeleteSlice);
}

#[test]
fn mark_is_removed_while_the_record_is_unknown() {
    let unknown = View {
        record: Record::Unknown,
        slice: Some(MARKED),
        is_needed: true,
        ..HELD
    };
    assert_eq!(unknown.next(), Step::ClearMark);
    for slice in [USABLE, CONFLICTING, Slice::NEW] {
        let view = View {
            slice: Some(slice),
            ..unknown
        };
        assert_eq!(view.next(), Step::Wait, "{view:?}");
    }
    let unneeded = View {
        is_needed: false,
        ..unknown
    };
    assert_eq!(unneeded.next(), Step::Wait);
}

#[test]
fn only_the_confirmation_of_an_own_record_settles() {
    let taking = View {
        slice: Some(Slice::NEW),
        is_needed: true,
        is_settled: false,
        ..HELD
    };
    assert!(taking.is_settling());
    for view in [
        View {
            record: Record::Absent,
            slice: None,
            ..taking
        },
        View {
            record: Record::Unknown,
            ..taking
        },
        View {
            record: THEIRS,
            ..taking
        },
        View {
            slice: Some(USABLE),
            ..taking
        },
    ] {
        assert!(!view.is_settling(), "{view:?}");
    }
}

#[test]
fn returned_block_is_taken_only_if_it_is_wanted() {
    let free = View {
        slice: None,
        ..HELD
    };
    for (record, step) in [(RETURNED, Step::KeepRecord), (FREE, Step::TakeRecord)] {
        let unwanted = View { record, ..free };
        assert_eq!(unwanted.next(), Step::Wait, "{unwanted:?}");
        let needed = View {
            is_needed: true,
            ..unwanted
        };
        assert_eq!(needed.next(), step, "{needed:?}");
    }
    let needed = View {
        record: theirs(Holding::Returned),
        is_needed: true,
        ..free
    };
    assert_eq!(needed.next(), Step::Wait);
}

#[test]
fn slice_of_a_returned_block_is_kept_while_blocks_are_shared() {
    for (record, step) in [(RETURNED, Step::KeepRecord), (FREE, Step::TakeRecord)] {
        let restored = View { record, ..HELD };
        assert_eq!(restored.next(), step);
    }
    // This cluster has contended for the block.
    let contending = View {
        record: FREE,
        slice: Some(CONFLICTING),
        is_used: true,
        ..HELD
    };
    assert_eq!(contending.next(), Step::TakeRecord);
    let unused = View {
        is_used: false,
        ..contending
    };
    assert_eq!(unused.next(), Step::MarkEmpty);
    let ended = View {
        record: FREE,
        is_shared: false,
        ..HELD
    };
    assert_eq!(ended.next(), Step::MarkEmpty);
}

#[test]
fn conflict_ends_with_the_return_of_the_other_cluster() {
    let returned = |names_us| Record::Theirs {
        names_us,
        is_full: false,
        holding: Holding::Returned,
    };
    let contending = View {
        record: returned(true),
        slice: Some(CONFLICTING),
        is_used: true,
        ..HELD
    };
    assert_eq!(contending.next(), Step::AwaitQuarantine);
    let waiting = View {
        slice: Some(Slice::NEW),
        ..contending
    };
    assert_eq!(waiting.next(), Step::Wait);
    let unnamed = View {
        record: returned(false),
        ..waiting
    };
    assert_eq!(unnamed.next(), Step::Contend);
    let unused = View {
        is_used: false,
        ..waiting
    };
    assert_eq!(unused.next(), Step::DeleteSlice);
    let confirmed = View {
        slice: Some(USABLE),
        ..unused
    };
    assert_eq!(confirmed.next(), Step::AwaitQuarantine);
}

/// A block that the registry shows as free, in each of the forms of a free record.
const FREE_RECORDS: [Record; 3] = [Record::Absent, FREE, RETURNED];

/// The step for a needed block without a slice, with an access to the registry.
fn take(record: Record, access: Access) -> Step {
    let needed = View {
        record,
        slice: None,
        is_needed: true,
        access,
        ..HELD
    };
    needed.next()
}

#[test]
fn block_is_taken_only_with_full_access() {
    for record in FREE_RECORDS {
        assert_ne!(take(record, Access::Full), Step::Wait, "{record:?}");
        for access in [
            Access::Limited,
            Access::Unseen,
            Access::Recovering,
            Access::Suspended,
        ] {
            assert_eq!(take(record, access), Step::Wait, "{record:?} {access:?}");
        }
    }
    assert_eq!(take(OURS, Access::Limited), Step::CreateSlice);
    assert_eq!(take(OURS, Access::Unseen), Step::CreateSlice);
}

#[test]
fn lost_record_of_a_slice_is_written_while_no_block_is_taken() {
    for access in [Access::Limited, Access::Unseen, Access::Recovering] {
        for record in FREE_RECORDS {
            let lost = View {
                record,
                access,
                ..HELD
            };
            let step = lost.next();
            assert!(step.is_of_registry(), "{record:?} {access:?}: {step:?}");
        }
    }
}

#[test]
fn take_goes_on_during_a_recovery_only_with_addresses_in_use() {
    let unconfirmed = View {
        slice: Some(Slice::NEW),
        is_needed: true,
        ..HELD
    };
    let received = Slice {
        confirmation: Confirmation::Received,
        ..Slice::NEW
    };
    for (record, slice, expected) in [
        (OURS, None, Step::CreateSlice),
        (OURS, Some(Slice::NEW), Step::ConfirmRecord),
        (OURS, Some(received), Step::ConfirmSlice),
        (RETURNED, Some(Slice::NEW), Step::KeepRecord),
    ] {
        let unused = View {
            record,
            slice,
            access: Access::Recovering,
            ..unconfirmed
        };
        assert_eq!(unused.next(), Step::Wait, "{record:?} {slice:?}");
        assert!(!unused.is_settling());
        let used = View {
            is_used: true,
            ..unused
        };
        assert_eq!(used.next(), expected, "{record:?} {slice:?}");
    }
}

#[test]
fn block_is_returned_only_after_a_sign_of_life() {
    for (access, expected) in [
        (Access::Suspended, Step::Wait),
        (Access::Unseen, Step::Wait),
        (Access::Recovering, Step::ReturnRecord),
        (Access::Limited, Step::ReturnRecord),
        (Access::Full, Step::ReturnRecord),
    ] {
        let unused = View {
            slice: None,
            access,
            ..HELD
        };
        assert_eq!(unused.next(), expected, "{access:?}");
    }
}

#[test]
fn suspended_cluster_only_writes_down_conflicts() {
    let suspended = View {
        access: Access::Suspended,
        ..HELD
    };
    assert_eq!(suspended.next(), Step::Wait);
    let contested = View {
        record: THEIRS,
        is_used: true,
        ..suspended
    };
    assert_eq!(contested.next(), Step::MarkConflict);
    let marked = View {
        slice: Some(CONFLICTING),
        ..contested
    };
    assert_eq!(marked.next(), Step::Wait);
}

/// As after a restore of the registry.
#[test]
fn earlier_record_does_not_show_the_use_of_a_block() {
    let named = Record::Theirs {
        names_us: true,
        is_full: false,
        holding: Holding::Free,
    };
    for (record, expected) in [
        (OURS, true),
        (RETURNED, false),
        (named, true),
        (FREE, false),
        (Record::Absent, false),
    ] {
        let shows_use = record.shows_use(Some(Slice::NEW), true);
        assert_eq!(shows_use, expected, "{record:?}");
        // It is taken later.
        assert!(record.shows_use(None, true), "{record:?}");
    }
    assert!(FREE.shows_use(Some(Slice::NEW), false));
    assert!(!Record::Absent.shows_use(Some(Slice::NEW), false));
}

/// A process that starts without the registry would use it.
#[test]
fn confirmed_slice_is_shown_by_an_own_record_only() {
    let contested = Record::Ours {
        is_returned: false,
        is_contested: true,
    };
    for slice in [USABLE, MARKED] {
        assert!(OURS.shows_use(Some(slice), false));
        for record in [
            contested,
            RETURNED,
            THEIRS,
            theirs(Holding::Returned),
            FREE,
            Record::Unreadable,
        ] {
            assert!(!record.shows_use(Some(slice), false), "{record:?}");
            assert!(record.shows_use(Some(CONFLICTING), false), "{record:?}");
            let recovering = View {
                record,
                slice: Some(slice),
                access: Access::Recovering,
                ..HELD
            };
            assert_ne!(recovering.next(), Step::Wait, "{record:?} {slice:?}");
        }
    }
}
