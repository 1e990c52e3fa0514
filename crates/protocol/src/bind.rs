//! Binding a claim to an address, in four steps:
//!
//! - A1: our finalizer is added to the claim.
//! - A2: the provider allocates an address.
//! - A3: the IPAddress is created under the name of the claim, complete with finalizer and owner
//!   references.
//! - A4: the status of the claim refers to the IPAddress. This commits the binding.
//!
//! Each write has the preconditions of what the previous step read. Each step may already be done,
//! by an earlier attempt or another process: an existing IPAddress with the name of the claim is
//! adopted.
//!
//! For a provider that frees addresses of claims that no longer exist, A1 and A2 run concurrently.
//! A3 waits for both.

use crate::{ClaimRead, FoundAddress, Owner};

/// How often in one attempt an IPAddress of another writer may appear under the name of the claim.
const MAX_ROUNDS: u8 = 3;

/// What is known of a claim when the attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Facts {
    /// Whether the claim has our finalizer.
    pub has_finalizer: bool,
    /// Whether the cache shows an IPAddress with its name.
    pub address_is_known: bool,
    /// Whether its status refers to an IPAddress.
    pub is_bound: bool,
    /// Whether the provider allocates before the finalizer is set.
    pub allocates_early: bool,
}

/// The next request or lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A1. The result is [`Event::FinalizerSet`] or [`Event::FinalizerNotSet`].
    AddFinalizer,
    /// A1 and A2 concurrently. The result is that of A1, also after an error; that of A2 is the
    /// result of the next [`Step::Allocate`].
    AddFinalizerAndAllocate,
    /// Read the IPAddress. The result is [`Event::Address`].
    ReadAddress(AddressReason),
    /// Decide whether the claim waits for the IPAddress that it had before it was restored from a
    /// backup. The result is [`Event::Served`] or [`Event::Waits`].
    CheckRestore,
    /// Read the claim, and release what it has if it does not exist. The result is
    /// [`Event::Claim`].
    CheckClaim(ClaimReason),
    /// A2, with the IPAddress that was found, if any. The result is [`Event::Allocated`] or
    /// [`Event::AddressRejected`].
    Allocate,
    /// R1: delete the IPAddress that was found. The result is [`Event::Removed`].
    RemoveAddress(RemovalReason),
    /// A3. The result is [`Event::Created`], or [`Event::NotCreated`] if the name is taken or the
    /// outcome is unknown.
    CreateAddress,
    /// A3 for an IPAddress that exists: set owner references, finalizer and labels. The result is
    /// [`Event::Repaired`].
    RepairAddress,
    /// A4. The result is [`Event::Committed`], or [`Event::NotCommitted`] if the claim has changed
    /// or does not exist.
    Commit,
    /// The attempt has ended.
    Done(End),
}

/// Why the IPAddress is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressReason {
    /// The cache shows it.
    IsKnown,
    /// Its creation has failed, or has an unknown outcome.
    NotCreated,
}

/// Why the claim is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimReason {
    /// The finalizer could not be added: no event may report that the claim was deleted.
    NoFinalizer,
    /// Another claim of the name owns the IPAddress. It is a leftover only if this claim exists.
    OtherOwner,
    /// The claim has changed, or was deleted, before A4.
    NotCommitted,
}

/// Why an IPAddress is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalReason {
    /// It is being deleted, and waits for our finalizer.
    IsDeleting,
    /// The provider does not allocate its address to this claim.
    Rejected,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The claim is bound, or needs no further request: the next change reconciles it.
    AwaitChange,
    /// The IPAddress has changed: another attempt follows soon.
    Retry,
    /// The claim waits for the IPAddress that it had.
    AwaitRestore,
    /// The claim does not exist, and what it had is released.
    CleanedUp,
    /// The error of the last failed request ends the attempt. Without one, the claim is being
    /// deleted.
    Failed,
    /// An IPAddress of another claim or pool has the name.
    NameConflict,
    /// The provider wants to delete the IPAddress of a bound claim, which a machine may use.
    RemovalOfBound,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The claim has our finalizer.
    FinalizerSet,
    /// The claim does not exist, or is being deleted.
    FinalizerNotSet,
    /// What the read of the IPAddress shows.
    Address(Option<FoundAddress>),
    /// The claim is served without the address that it had.
    Served,
    /// The claim waits for the address that it had.
    Waits,
    /// What the read of the claim shows.
    Claim(ClaimRead),
    /// An address is allocated: that of the IPAddress, if there is one.
    Allocated,
    /// The address of the IPAddress is not that of this claim.
    AddressRejected,
    /// The IPAddress has lost our finalizer and is deleted.
    Removed,
    /// The IPAddress is created.
    Created,
    /// The name is taken, or the outcome of the creation is unknown.
    NotCreated,
    /// The IPAddress is that of this claim.
    Repaired,
    /// The status of the claim refers to the IPAddress.
    Committed,
    /// The claim has changed or does not exist.
    NotCommitted,
}

/// One attempt to bind a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bind {
    facts: Facts,
    step: Step,
    /// The IPAddress that was found last and not removed since.
    existing: Option<FoundAddress>,
    rounds: u8,
}

impl Bind {
    /// Starts an attempt.
    pub fn start(facts: Facts) -> Self {
        let mut bind = Self {
            facts,
            step: Step::AddFinalizer,
            existing: None,
            rounds: 0,
        };
        if facts.has_finalizer {
            bind.step = bind.look_up();
        } else if facts.allocates_early && !facts.address_is_known {
            bind.step = Step::AddFinalizerAndAllocate;
        }
        bind
    }

    /// The next request or lookup.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Whether the IPAddress that is adopted is that of an earlier claim of the name: the claim has
    /// the address that it had before it was restored.
    pub fn adopts_from_other_claim(&self) -> bool {
        self.existing
            .is_some_and(|existing| existing.owner != Owner::ThisClaim)
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::AddFinalizer | Step::AddFinalizerAndAllocate, Event::FinalizerSet) => {
                self.look_up()
            }
            (Step::AddFinalizer, Event::FinalizerNotSet) => Step::Done(End::AwaitChange),
            (Step::AddFinalizerAndAllocate, Event::FinalizerNotSet) => {
                Step::CheckClaim(ClaimReason::NoFinalizer)
            }
            (Step::ReadAddress(reason), Event::Address(found)) => self.address_read(reason, found),
            (Step::CheckRestore, Event::Served) => self.consider(),
            (Step::CheckRestore, Event::Waits) => Step::Done(End::AwaitRestore),
            (Step::CheckClaim(reason), Event::Claim(read)) => claim_read(reason, read),
            (Step::Allocate, Event::Allocated) if self.existing.is_some() => Step::RepairAddress,
            (Step::Allocate, Event::Allocated) => Step::CreateAddress,
            (Step::Allocate, Event::AddressRejected) => self.address_rejected(),
            (Step::RemoveAddress(RemovalReason::IsDeleting), Event::Removed) => {
                Step::Done(End::Retry)
            }
            (Step::RemoveAddress(RemovalReason::Rejected), Event::Removed) => self.next_round(None),
            (Step::CreateAddress, Event::Created) | (Step::RepairAddress, Event::Repaired) => {
                Step::Commit
            }
            (Step::CreateAddress, Event::NotCreated) => {
                Step::ReadAddress(AddressReason::NotCreated)
            }
            (Step::Commit, Event::Committed) => Step::Done(End::AwaitChange),
            (Step::Commit, Event::NotCommitted) => Step::CheckClaim(ClaimReason::NotCommitted),
            _ => Step::Done(End::UnexpectedEvent),
        };
        self.step
    }

    /// After A1: an IPAddress of an earlier attempt is read before an address is allocated.
    fn look_up(&mut self) -> Step {
        if self.facts.address_is_known {
            return Step::ReadAddress(AddressReason::IsKnown);
        }
        self.address_read(AddressReason::IsKnown, None)
    }

    fn address_read(&mut self, reason: AddressReason, found: Option<FoundAddress>) -> Step {
        match (reason, found) {
            // It does not exist, or not yet: the next attempt adopts it.
            (AddressReason::NotCreated, None) => Step::Done(End::Failed),
            (AddressReason::NotCreated, Some(_)) => self.next_round(found),
            // A claim that has our finalizer had an IPAddress, or may have had one.
            (AddressReason::IsKnown, None) if self.facts.has_finalizer => Step::CheckRestore,
            (AddressReason::IsKnown, _) => {
                self.existing = found;
                self.consider()
            }
        }
    }

    fn next_round(&mut self, existing: Option<FoundAddress>) -> Step {
        self.existing = existing;
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds >= MAX_ROUNDS {
            return Step::Done(End::Retry);
        }
        self.consider()
    }

    /// Decides what happens with the IPAddress that was found.
    fn consider(&self) -> Step {
        let Some(existing) = self.existing else {
            return Step::Allocate;
        };
        if existing.is_deleting {
            return Step::RemoveAddress(RemovalReason::IsDeleting);
        }
        if !existing.is_for_claim {
            return Step::Done(End::NameConflict);
        }
        match existing.owner {
            Owner::ThisClaim => Step::Allocate,
            Owner::OtherClaim | Owner::NoClaim => Step::CheckClaim(ClaimReason::OtherOwner),
        }
    }

    fn address_rejected(&mut self) -> Step {
        if self.facts.is_bound {
            return Step::Done(End::RemovalOfBound);
        }
        if self.existing.is_none() {
            return self.next_round(None);
        }
        Step::RemoveAddress(RemovalReason::Rejected)
    }
}

fn claim_read(reason: ClaimReason, read: ClaimRead) -> Step {
    match (read, reason) {
        (ClaimRead::Gone, _) => Step::Done(End::CleanedUp),
        (ClaimRead::Exists, ClaimReason::OtherOwner) => Step::Allocate,
        (ClaimRead::Exists, ClaimReason::NoFinalizer | ClaimReason::NotCommitted) => {
            Step::Done(End::Failed)
        }
    }
}
