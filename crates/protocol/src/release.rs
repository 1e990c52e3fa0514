//! Releasing the address of a claim that is being deleted, in three steps:
//!
//! - R1: our finalizer is removed from the IPAddress, and the IPAddress is deleted.
//! - R2: the provider releases the address. This is safe because the address can no longer be read
//!   from the cluster.
//! - R3: our finalizer is removed from the claim. The API server must have confirmed before that no
//!   IPAddress exists: in its response to the deletion or, if a pending creation may still be
//!   applied, in its response to a read.

use crate::{ClaimRead, FoundAddress, Owner};

/// What is known of a claim when the attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Facts {
    /// Whether the cache shows a complete IPAddress of the claim: it is deleted in this version,
    /// without a read.
    pub address_is_known: bool,
    /// Whether the claim has our finalizer.
    pub has_finalizer: bool,
    /// Whether finalizers of other controllers are passed over, which the claim reports.
    pub is_early: bool,
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// R1: delete the IPAddress in the version that the cache shows. The result is
    /// [`Event::Removed`], [`Event::Blocked`] or [`Event::AddressChanged`].
    RemoveKnownAddress,
    /// Read the IPAddress. The result is [`Event::Address`].
    ReadAddress,
    /// Read the claim, and release what it has if it does not exist. The result is
    /// [`Event::Claim`].
    CheckClaim,
    /// R1: delete the IPAddress that was read. The result is [`Event::Removed`] or
    /// [`Event::Blocked`].
    RemoveAddress,
    /// R2. The result is [`Event::Released`] or [`Event::Later`].
    Release,
    /// Read the IPAddress once more: an earlier creation may have been applied since. The result is
    /// [`Event::Address`].
    ReadLateAddress,
    /// Complete the report of an early release. The result is [`Event::Reported`].
    Report,
    /// R3. The result is [`Event::FinalizerRemoved`].
    RemoveFinalizer,
    /// The attempt has ended.
    Done(End),
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The claim needs no further request.
    AwaitChange,
    /// Another attempt follows soon.
    Retry,
    /// The provider releases the address later.
    Later,
    /// Finalizers of other controllers keep the IPAddress.
    Blocked,
    /// The claim does not exist, and what it had is released.
    CleanedUp,
    /// The claim is released.
    Released,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The IPAddress is deleted.
    Removed,
    /// The IPAddress has lost our finalizer and waits for those of other controllers.
    Blocked,
    /// The IPAddress is not that of the cache.
    AddressChanged,
    /// What the read of the IPAddress shows.
    Address(Option<FoundAddress>),
    /// What the read of the claim shows.
    Claim(ClaimRead),
    /// The provider has released the address.
    Released {
        /// Whether an earlier creation of the IPAddress may still be applied.
        creation_may_apply: bool,
    },
    /// The provider releases the address later.
    Later,
    /// The claim shows the report of its early release.
    Reported {
        /// Whether the claim was written, and so is not the one that was read.
        is_written: bool,
    },
    /// The claim has lost our finalizer.
    FinalizerRemoved,
}

/// One attempt to release a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    facts: Facts,
    step: Step,
}

impl Release {
    /// Starts an attempt.
    pub fn start(facts: Facts) -> Self {
        let step = if facts.address_is_known {
            Step::RemoveKnownAddress
        } else {
            Step::ReadAddress
        };
        Self { facts, step }
    }

    /// The next request.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::RemoveKnownAddress | Step::RemoveAddress, Event::Removed) => Step::Release,
            (Step::RemoveKnownAddress | Step::RemoveAddress, Event::Blocked) => {
                Step::Done(End::Blocked)
            }
            (Step::RemoveKnownAddress, Event::AddressChanged) => Step::ReadAddress,
            (Step::ReadAddress, Event::Address(found)) => address_read(found),
            (Step::CheckClaim, Event::Claim(ClaimRead::Exists)) => Step::RemoveAddress,
            (Step::CheckClaim, Event::Claim(ClaimRead::Gone)) => Step::Done(End::CleanedUp),
            (
                Step::Release,
                Event::Released {
                    creation_may_apply: true,
                },
            ) => Step::ReadLateAddress,
            (
                Step::Release,
                Event::Released {
                    creation_may_apply: false,
                },
            ) => self.released(),
            (Step::Release, Event::Later) => Step::Done(End::Later),
            (Step::ReadLateAddress, Event::Address(found)) => match found {
                Some(found) if found.is_for_claim => Step::Done(End::Retry),
                _ => self.released(),
            },
            (Step::Report, Event::Reported { is_written: true }) => Step::Done(End::Retry),
            (Step::Report, Event::Reported { is_written: false }) => Step::RemoveFinalizer,
            (Step::RemoveFinalizer, Event::FinalizerRemoved) => Step::Done(End::Released),
            _ => Step::Done(End::UnexpectedEvent),
        };
        self.step
    }

    /// After R2.
    fn released(self) -> Step {
        if !self.facts.has_finalizer {
            return Step::Done(End::AwaitChange);
        }
        if self.facts.is_early {
            Step::Report
        } else {
            Step::RemoveFinalizer
        }
    }
}

fn address_read(found: Option<FoundAddress>) -> Step {
    let Some(found) = found.filter(|found| found.is_for_claim) else {
        return Step::Release;
    };
    match found.owner {
        Owner::ThisClaim => Step::RemoveAddress,
        // The IPAddress of a newer claim is kept: another manager may have released this claim long
        // ago. That of an older claim is deleted, since two claims of one name never exist at the
        // same time.
        Owner::OtherClaim | Owner::NoClaim => Step::CheckClaim,
    }
}
