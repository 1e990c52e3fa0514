//! Injected errors. Each of them violates a property: the precaution that it leaves out is needed.

use stateright::{Checker, Model};

use super::moves::MOVED;
use super::restore::RESTORED;
use super::sizes::{JOINING, ONE_HALF};
use super::{
    ENDING_INTERRUPTED, ENDING_LOST_RECORD, LOST_WRITE_OF_TWO, SMALLEST, Scope, TAKEN_AGAIN,
    TWO_MANAGERS, explore,
};

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// An address is bound without a read of the slice after its reservation.
    BindWithoutCheck,
    /// A slice is deleted without a list of the addresses in use.
    DeleteWithoutList,
    /// A record is deleted without a read of the slice.
    DeleteRecordWithoutLook,
    /// A record is deleted in the revision that was read last, not in that of before the read of the
    /// slice.
    DeleteRecordAsLastRead,
    /// A slice counts as confirmed although the record was not written again.
    ConfirmWithoutRecord,
    /// A record is written whatever its revision is.
    WriteUnconditionally,
    /// The conflict of a slice has no effect.
    IgnoreConflicts,
    /// A claim that has found its block being returned does not go on when the block is kept.
    ForgetReservation,
    /// Blocks of different sizes count as different, also if they overlap.
    CompareBlocksForEquality,
    /// A record is confirmed before the watch has shown it.
    ConfirmBeforeWatch,
    /// Whether a block overlaps with another one is decided for all blocks when a pass of the driver
    /// begins, and not for each write.
    DecideAtBeginOfPass,
    /// A cluster writes no record of a block that it uses and that overlaps with a block of another
    /// cluster.
    HideConflict,
    /// A slice does not name its registry.
    OmitRegistry,
    /// A record that is not known counts as one that is lost.
    TakeUnknownForLost,
    /// Addresses of the block of each usable slice are allocated, without a comparison with the record.
    TrustRestoredSlices,
    /// Addresses of a block are allocated until its slice is marked, although the record shows another
    /// cluster that uses it.
    UseUntilMarked,
    /// The reservation of a moved claim is released although the process has not seen what the registry
    /// contains.
    SweepUnseen,
}

#[test]
fn each_precaution_of_sharing_a_block_is_needed() {
    for (mutation, scope) in [
        (Mutation::BindWithoutCheck, TWO_MANAGERS),
        (Mutation::DeleteWithoutList, TWO_MANAGERS),
        (Mutation::DeleteRecordWithoutLook, TWO_MANAGERS),
        (Mutation::DeleteRecordAsLastRead, TWO_MANAGERS),
        (Mutation::ConfirmWithoutRecord, TAKEN_AGAIN),
        (Mutation::WriteUnconditionally, SMALLEST),
        (Mutation::IgnoreConflicts, LOST_WRITE_OF_TWO),
        (Mutation::ForgetReservation, TAKEN_AGAIN),
        (Mutation::CompareBlocksForEquality, ONE_HALF),
        (Mutation::ConfirmBeforeWatch, ONE_HALF),
        (Mutation::DecideAtBeginOfPass, ONE_HALF),
        (Mutation::HideConflict, JOINING),
        (Mutation::OmitRegistry, ENDING_LOST_RECORD),
        (Mutation::TakeUnknownForLost, ENDING_INTERRUPTED),
        (Mutation::TrustRestoredSlices, RESTORED),
        (Mutation::UseUntilMarked, MOVED),
        (Mutation::SweepUnseen, MOVED),
    ] {
        let mutated = Scope {
            mutation: Some(mutation),
            ..scope
        };
        let checker = explore(mutated);
        let failures = checker.discoveries();
        let failed = |name: &&'static str| {
            let property = checker.model().property(name);
            property.expectation.discovery_is_failure()
        };
        assert!(
            failures.keys().any(failed),
            "{mutation:?} violates no property"
        );
    }
}
