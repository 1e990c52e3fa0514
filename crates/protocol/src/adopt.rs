//! Reserving the address of an IPAddress that exists already (A2): of an earlier attempt, an
//! upgrade or a restore, or created by a user.

use crate::ClaimRead;

/// How often the reservation may change in one attempt.
const MAX_ATTEMPTS: u8 = 2;

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Read the reservation that the ledger shows as that of the claim. The result is
    /// [`Event::HeldRead`].
    CheckHeld,
    /// Create the reservation of the address. The result is [`Event::Reserved`] or
    /// [`Event::Taken`].
    Reserve,
    /// Read the reservation of the address. The result is [`Event::Holder`].
    ReadHolder,
    /// Read the claim, after the reservation: if this claim still exists, the other one of its name
    /// is an earlier claim. The result is [`Event::Claim`].
    CheckClaim(Holder),
    /// Make the reservation, in the version that was read, that of the claim. It may have been
    /// released since, which starts a cool-down. The result is [`Event::Reserved`] or
    /// [`Event::Taken`].
    TakeOver(Holder),
    /// The attempt has ended.
    Done(End),
}

/// Whose reservation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// That of an earlier claim of the name.
    EarlierClaim,
    /// No claim has it: it is released, and this claim may take it over.
    Released,
    /// That of another claim, or the address is excluded or cools down.
    Other,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The address is reserved for the claim.
    Allocated,
    /// The address is reserved for another claim.
    Conflict,
    /// The claim was deleted, and another one of its name may exist.
    ClaimReplaced,
    /// The reservation keeps changing.
    KeepsChanging,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Whether the reservation is that of the claim.
    HeldRead {
        /// Whether it is.
        is_ours: bool,
    },
    /// The address is reserved for the claim.
    Reserved,
    /// Another reservation has the name, or the reservation is not the one that was read.
    Taken,
    /// Whose reservation it is; `None` if there is none.
    Holder(Option<Holder>),
    /// What the read of the claim shows.
    Claim(ClaimRead),
}

/// One attempt to reserve the address of an IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Adopt {
    step: Step,
    attempts: u8,
}

impl Adopt {
    /// Starts an attempt. `is_held` is whether the ledger shows the address as reserved for the
    /// claim.
    pub fn start(is_held: bool) -> Self {
        let step = if is_held {
            Step::CheckHeld
        } else {
            Step::Reserve
        };
        Self { step, attempts: 0 }
    }

    /// The next request.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::CheckHeld, Event::HeldRead { is_ours: true })
            | (Step::Reserve | Step::TakeOver(_), Event::Reserved) => Step::Done(End::Allocated),
            (Step::CheckHeld, Event::HeldRead { is_ours: false }) => Step::Reserve,
            (Step::Reserve, Event::Taken) => Step::ReadHolder,
            (Step::ReadHolder, Event::Holder(Some(Holder::Other))) => Step::Done(End::Conflict),
            (Step::ReadHolder, Event::Holder(Some(holder))) => Step::CheckClaim(holder),
            (Step::CheckClaim(holder), Event::Claim(ClaimRead::Exists)) => Step::TakeOver(holder),
            (Step::CheckClaim(_), Event::Claim(ClaimRead::Gone)) => Step::Done(End::ClaimReplaced),
            (Step::ReadHolder, Event::Holder(None)) | (Step::TakeOver(_), Event::Taken) => {
                self.try_again()
            }
            _ => Step::Done(End::UnexpectedEvent),
        };
        self.step
    }

    fn try_again(&mut self) -> Step {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts >= MAX_ATTEMPTS {
            Step::Done(End::KeepsChanging)
        } else {
            Step::Reserve
        }
    }
}
