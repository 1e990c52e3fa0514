//! The allocation protocol: which request follows which response, when an address is allocated,
//! bound and released.
//!
//! Each operation is a step machine. Its [`step`](bind::Bind::step) names the next request or
//! lookup. A driver performs it, keeps the objects, and reports the result as an event to
//! [`next`](bind::Bind::next). A machine sees no objects, only what the protocol depends on:
//! whether an IPAddress exists and who owns it, whether a reservation is that of the claim. So it
//! is a plain value, without input and output.
//!
//! Each machine has two drivers: the provider, which sends the requests to the API server, and the
//! model in `tests/model`, which explores all interleavings, crashes, lost replies and late writes.
//! Both run the same code: what is checked is what runs.
//!
//! | machine | steps | driver |
//! |---|---|---|
//! | [`bind::Bind`] | A1 to A4 | `ClaimReconciler::bind` |
//! | [`release::Release`] | R1 to R3 | `ClaimReconciler::release` |
//! | [`clean_up::CleanUp`] | R1 and R2 for a claim that is gone | `ClaimReconciler::clean_up_if_gone` |
//! | [`allocate::Allocate`] | A2 for a claim without an IPAddress | `in_cluster/handler.rs` |
//! | [`adopt::Adopt`] | A2 for a claim with an IPAddress | `in_cluster/adoption.rs` |
//! | [`free::Free`] | R2 | `in_cluster/release.rs` |
//! | [`abandoned::Check`] | the live reads before the sweeper releases a reservation | `in_cluster/repairs/abandoned_reservations.rs` |
//!
//! [`mod@write`] has the rules for answers and unknown outcomes, and [`decision`] decides which
//! operation a claim needs. `docs/design/allocation.md` explains why the protocol is safe.
//!
//! An event that a machine does not expect ends it with an error: a driver that reports one has a
//! bug, and nothing further is written.

#![allow(
    clippy::match_same_arms,
    reason = "one arm a transition, in the order of the steps"
)]

pub mod abandoned;
pub mod adopt;
pub mod allocate;
pub mod bind;
pub mod block;
pub mod clean_up;
pub mod decision;
pub mod free;
pub mod release;
pub mod write;

#[cfg(test)]
mod tests;

/// An IPAddress with the name of the claim, as the response to a read shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FoundAddress {
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether it refers to the name and the pool of the claim. If not, it is not ours.
    pub is_for_claim: bool,
    /// The claim that owns it.
    pub owner: Owner,
}

/// The owner of an IPAddress, as seen by a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// This claim, by its uid.
    ThisClaim,
    /// Another claim of its name, by its uid.
    OtherClaim,
    /// No claim: the garbage collector has removed a deleted owner, or there never was one.
    NoClaim,
}

/// What a read of the claim shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimRead {
    /// The claim exists, with the uid of this one.
    Exists,
    /// It does not exist: what it has is released.
    Gone,
}
