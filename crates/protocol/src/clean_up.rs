//! Releasing what was allocated to a claim that no longer exists: R1 and R2, after a read of the
//! claim.
//!
//! The API server may remove a claim at the moment at which its finalizer is added. No event then
//! triggers the release. Absence from a watch does not prove that a claim is deleted, so nothing is
//! changed if the read finds the claim.

use crate::{ClaimRead, FoundAddress, Owner};

/// How often the clean-up is attempted while the IPAddress keeps changing.
const MAX_ATTEMPTS: u8 = 5;

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Read the claim. The result is [`Event::Claim`].
    CheckClaim,
    /// Read the IPAddress of its name. The result is [`Event::Address`].
    ReadAddress,
    /// Read whether any claim has the name: the IPAddress has no owner, and a newer claim adopts
    /// it. The result is [`Event::Successor`].
    CheckSuccessor,
    /// R1: delete the IPAddress that was read. The result is [`Event::Removed`] or
    /// [`Event::AddressChanged`].
    RemoveAddress,
    /// R2. The result is [`Event::Released`] or [`Event::Later`].
    Release,
    /// The clean-up has ended.
    Done(End),
}

/// How a clean-up ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The claim exists: nothing has changed.
    ClaimExists,
    /// What the claim had is released.
    Released,
    /// The provider releases the address later.
    Later,
    /// The IPAddress keeps changing: the error of the last request ends the clean-up.
    Failed,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// What the read of the claim shows.
    Claim(ClaimRead),
    /// What the read of the IPAddress shows.
    Address(Option<FoundAddress>),
    /// Whether any claim has the name.
    Successor {
        /// Whether there is one.
        exists: bool,
    },
    /// The IPAddress has lost our finalizer and is deleted.
    Removed,
    /// The IPAddress is not the one that was read.
    AddressChanged,
    /// The provider has released the address.
    Released,
    /// The provider releases the address later.
    Later,
}

/// The clean-up of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CleanUp {
    step: Step,
    attempts: u8,
}

impl CleanUp {
    /// Starts with the read of the claim.
    pub fn start() -> Self {
        Self {
            step: Step::CheckClaim,
            attempts: 0,
        }
    }

    /// The next request.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::CheckClaim, Event::Claim(ClaimRead::Exists)) => Step::Done(End::ClaimExists),
            (Step::CheckClaim, Event::Claim(ClaimRead::Gone)) => Step::ReadAddress,
            (Step::ReadAddress, Event::Address(found)) => address_read(found),
            (Step::CheckSuccessor, Event::Successor { exists: true }) => Step::Release,
            (Step::CheckSuccessor, Event::Successor { exists: false }) => Step::RemoveAddress,
            (Step::RemoveAddress, Event::Removed) => Step::Release,
            (Step::RemoveAddress, Event::AddressChanged) => self.try_again(),
            (Step::Release, Event::Released) => Step::Done(End::Released),
            (Step::Release, Event::Later) => Step::Done(End::Later),
            _ => Step::Done(End::UnexpectedEvent),
        };
        self.step
    }

    /// The garbage collector changes the IPAddress concurrently. There is no claim left to retry
    /// for later.
    fn try_again(&mut self) -> Step {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts >= MAX_ATTEMPTS {
            Step::Done(End::Failed)
        } else {
            Step::ReadAddress
        }
    }
}

fn address_read(found: Option<FoundAddress>) -> Step {
    let Some(found) = found.filter(|found| found.is_for_claim) else {
        return Step::Release;
    };
    match found.owner {
        Owner::ThisClaim => Step::RemoveAddress,
        // The garbage collector removes deleted owners.
        Owner::NoClaim => Step::CheckSuccessor,
        Owner::OtherClaim => Step::Release,
    }
}
