//! Why a claim cannot have the address that it requests.

use capi_ipam_objects::namespaced_name::NamespacedName;

use super::block_supply::MissingBlock;

/// Why a claim cannot have the address that it requests now. The claim waits until this changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The pool does not contain it: it is outside, excluded, or a reserved address of the subnet.
    NotInPool,
    /// The claim of this namespace and name uses it, or has reserved it. `None` if another pool of
    /// the network uses it.
    InUse(Option<NamespacedName>),
    /// A user reserved it for the claim of this namespace and name.
    Promised(NamespacedName),
    /// A user excluded it with a reservation.
    Excluded,
    /// Its IPReservation is being deleted, and waits for a finalizer.
    BeingDeleted,
    /// It was released, and can be reused at this second since the Unix epoch.
    CoolingDown(i64),
    /// It is quarantined, and can be allocated at this second since the Unix epoch.
    Quarantined(i64),
    /// It is in a draining part of the pool.
    Draining,
    /// It is in a slice of another owner, or in one that cannot be assigned.
    InOtherSlice,
    /// It is outside of the usable blocks of the network. The claim is in the wait queue, and is
    /// granted a turn when its block becomes usable.
    NeedsBlock(MissingBlock),
    /// Another claim requested it before.
    RequestedBefore,
    /// It is free, and all free addresses are for claims that have waited longer, or are the
    /// headroom of the pool.
    NotYet,
}
