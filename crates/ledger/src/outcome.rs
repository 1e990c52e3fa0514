//! What a claim gets that requests an address.

use capi_ipam_ip::Block;

use super::missing_block::MissingBlock;
use super::quota::LimitReached;
use super::slice_refusal::SliceRefusal;
use super::unavailable::Unavailable;

/// What a claim gets that requests an address: `P` is how the address is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<P> {
    /// This address.
    Offer(P),
    /// Nothing before this is done. Request an address again afterwards.
    First(Preparation),
    /// Nothing now, for this reason. The claim is reconciled when this may have changed.
    NotNow(Reason),
}

/// What has to be done before an address can be proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// The owner of the claim has no free address, and this slice can be assigned to it. It is held
    /// for the owner until the slice is observed or
    /// [`Ledger::end_slice_assignment`](super::Ledger::end_slice_assignment) is called.
    AssignSlice(Block),
    /// The next free address is in this slice, which is marked as empty: it can be returned at any
    /// time. Remove the mark.
    ResumeSlice(Block),
}

/// Why a claim gets no address now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No address is free for it. It is in the wait queue, and is granted a turn.
    NoAddress,
    /// No address is free for it in the usable blocks of the network, and the pool has others. It is
    /// in the wait queue, and is granted a turn when a block becomes usable.
    NeedsBlock(MissingBlock),
    /// Its namespace or Cluster may have no further address.
    LimitReached(LimitReached),
    /// The owner of its slices may have no further address.
    SliceUnavailable(SliceRefusal),
    /// It cannot have the address that it requests.
    Unavailable(Unavailable),
}

impl Reason {
    /// Whether the claim could get an address if it were allowed to use the headroom of the pool.
    pub fn may_end_with_headroom(&self) -> bool {
        matches!(
            self,
            Self::NoAddress | Self::Unavailable(Unavailable::NotYet)
        )
    }
}

impl<P> Outcome<P> {
    /// No address is free.
    pub const NO_ADDRESS: Self = Self::NotNow(Reason::NoAddress);

    /// Describes the address in another way.
    pub(super) fn map<Q>(self, describe: impl FnOnce(P) -> Q) -> Outcome<Q> {
        match self {
            Self::Offer(place) => Outcome::Offer(describe(place)),
            Self::First(preparation) => Outcome::First(preparation),
            Self::NotNow(reason) => Outcome::NotNow(reason),
        }
    }
}

impl Outcome<()> {
    /// An outcome that is no offer.
    pub(super) fn without_offer<P>(self) -> Outcome<P> {
        match self {
            Self::Offer(()) => Outcome::NO_ADDRESS,
            Self::First(preparation) => Outcome::First(preparation),
            Self::NotNow(reason) => Outcome::NotNow(reason),
        }
    }
}

impl<P> From<Option<P>> for Outcome<P> {
    fn from(place: Option<P>) -> Self {
        place.map_or(Self::NO_ADDRESS, Self::Offer)
    }
}
