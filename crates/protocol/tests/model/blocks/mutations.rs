//! Injected errors. Each of them violates a property: the precaution that it leaves out is needed.

use stateright::{Checker, Model};

use super::moves::{MOVED, MOVED_AND_CRASHED};
use super::restore::RESTORED;
use super::{LOST_RECORD, LOST_WRITE_OF_TWO, SMALLEST, Scope, TAKEN_AGAIN, TWO_MANAGERS, explore};

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// An address is bound without a read of the slice after its reservation.
    BindWithoutCheck,
    /// A slice is deleted without a list of the addresses in use.
    DeleteWithoutList,
    /// A block is returned without a read of the slice.
    ReturnWithoutLook,
    /// A record is written at the return of its block in the revision that was read last, not in that of
    /// before the read of the slice.
    ReturnAsLastRead,
    /// A block that was returned is taken before its quarantine is over.
    TakeInQuarantine,
    /// A slice counts as confirmed although the record was not written again.
    ConfirmWithoutRecord,
    /// A record is written whatever its revision is.
    WriteUnconditionally,
    /// The conflict of a slice has no effect.
    IgnoreConflicts,
    /// A claim that has found its block being returned does not go on when the block is kept.
    ForgetReservation,
    /// Addresses of a block are allocated until its slice is marked, although the record shows another
    /// cluster that uses it.
    UseUntilMarked,
    /// The reservation of a moved claim is released although the process has not seen what the registry
    /// contains.
    SweepUnseen,
    /// The same although the slice does not say that another cluster uses the block.
    SweepUnmarked,
}

#[test]
fn each_precaution_of_sharing_a_block_is_needed() {
    for (mutation, scope) in [
        (Mutation::BindWithoutCheck, TWO_MANAGERS),
        (Mutation::DeleteWithoutList, TWO_MANAGERS),
        (Mutation::ReturnWithoutLook, TWO_MANAGERS),
        (Mutation::ReturnAsLastRead, TWO_MANAGERS),
        (Mutation::ConfirmWithoutRecord, TAKEN_AGAIN),
        (Mutation::WriteUnconditionally, SMALLEST),
        (Mutation::IgnoreConflicts, LOST_WRITE_OF_TWO),
        (Mutation::ForgetReservation, TAKEN_AGAIN),
        (Mutation::TakeInQuarantine, RESTORED),
        (Mutation::UseUntilMarked, LOST_RECORD),
        (Mutation::SweepUnseen, MOVED),
        (Mutation::SweepUnmarked, MOVED_AND_CRASHED),
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
