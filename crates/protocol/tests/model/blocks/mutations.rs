//! Injected errors. Each of them violates a property: the precaution that it leaves out is needed.

use capi_ipam_protocol::block::Access;
use stateright::{Checker, HasDiscoveries, Model};

use super::moves::{MOVED, MOVED_AND_CRASHED};
use super::properties::NO_ADDRESS_TWICE;
use super::rebuilt::REBUILT_CLUSTER;
use super::registry::{
    REGISTRY_RESTORED, REGISTRY_RESTORED_AFTER_A_RETURN, REGISTRY_RESTORED_AND_CRASHED,
};
use super::restore::RESTORED;
use super::{Blocks, LOST_RECORD, LOST_WRITE_OF_TWO, SMALLEST, Scope, TAKEN_AGAIN, TWO_MANAGERS};
use crate::checks::assert_violated;

/// An injected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    /// An address is bound without a read of the slice after its reservation.
    BindWithoutCheck,
    /// A slice is deleted without a list of the addresses in use.
    DeleteWithoutList,
    /// A block is returned without a read of the slice.
    ReturnWithoutLook,
    /// A record is written at the return of its block in the revision that was read last, not in
    /// that of before the read of the slice.
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
    /// Addresses of a block are allocated until its slice is marked, although the record shows
    /// another cluster that uses it.
    UseUntilMarked,
    /// The reservation of a moved claim is released although the process has not seen what the
    /// registry contains.
    SweepUnseen,
    /// The same although the slice does not say that another cluster uses the block.
    SweepUnmarked,
    /// A block is taken that a restored registry shows as free, before all clusters have written
    /// again.
    TakeDuringRecovery,
    /// The take of a block that has begun before the registry was restored goes on.
    GoOnDuringRecovery,
    /// A block is taken before the last sign of life was seen.
    TakeUnseen,
    /// A second sign of life is written before the records are listed that a restored registry
    /// shows.
    ShowLifeUnlisted,
    /// One sign of life of each cluster is waited for.
    AwaitOneSign,
    /// Only the clusters that a restored registry shows are waited for, not those that have joined since.
    AwaitShownClusters,
    /// A sign of life is written before the records are written that a restored registry has lost.
    ShowLifeUnrecorded,
    /// A sign of life is written before the slices are marked of which a restored registry shows
    /// that another cluster has the block.
    ShowLifeUnmarked,
    /// A cluster uses and takes blocks although the registry shows another one under its identity.
    IgnoreIdentity,
}

impl Mutation {
    /// What a cluster believes that it may do.
    pub(super) fn access(self, access: Access) -> Access {
        match (self, access) {
            (Self::TakeDuringRecovery, Access::Recovering) => Access::Full,
            (Self::GoOnDuringRecovery, Access::Recovering) => Access::Limited,
            (Self::TakeUnseen, Access::Unseen) => Access::Full,
            _ => access,
        }
    }
}

impl Scope {
    pub(super) fn ignores_identity(&self) -> bool {
        self.mutation == Some(Mutation::IgnoreIdentity)
    }
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
        (Mutation::TakeDuringRecovery, REGISTRY_RESTORED),
        (
            Mutation::GoOnDuringRecovery,
            REGISTRY_RESTORED_AFTER_A_RETURN,
        ),
        (Mutation::TakeUnseen, REGISTRY_RESTORED),
        (Mutation::ShowLifeUnlisted, REGISTRY_RESTORED),
        (Mutation::AwaitOneSign, REGISTRY_RESTORED),
        (Mutation::AwaitShownClusters, REGISTRY_RESTORED),
        (Mutation::ShowLifeUnrecorded, REGISTRY_RESTORED),
        (Mutation::ShowLifeUnmarked, REGISTRY_RESTORED_AND_CRASHED),
        (Mutation::IgnoreIdentity, REBUILT_CLUSTER),
    ] {
        let mutated = Scope {
            mutation: Some(mutation),
            ..scope
        };
        assert_violated(&mutation, Blocks(mutated));
    }
}

/// A claim that waits for a block of the other one is the smaller harm.
#[test]
fn one_identity_in_two_clusters_doubles_an_address() {
    let mutated = Scope {
        mutation: Some(Mutation::IgnoreIdentity),
        ..REBUILT_CLUSTER
    };
    let checker = Blocks(mutated)
        .checker()
        .finish_when(HasDiscoveries::AllOf([NO_ADDRESS_TWICE].into()))
        .threads(2);
    let checker = checker.spawn_bfs().join();
    assert!(checker.discovery(NO_ADDRESS_TWICE).is_some());
}
