//! Allocating an address to a claim without an IPAddress (A2): one that is reserved for the claim
//! already, else that of an attempt with an unknown outcome, else the one that the ledger proposes.

/// How many proposed addresses may be taken in one attempt. If all are, the ledger lags far behind.
const MAX_PROPOSALS: u8 = 16;
/// How often the ledger is asked in one attempt, also for a pool that has changed meanwhile or a
/// slice that has to be assigned first.
const MAX_LOOKUPS: u8 = 48;

/// The next request or lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Look up the next address that the ledger shows as reserved for the claim, or promised to its
    /// name. The result is [`Event::Held`].
    FindHeld,
    /// Move the reservation of the held address to the scope of the pool. The result is
    /// [`Event::Held`] with the moved address, [`Event::Taken`] or [`Event::Changed`].
    MoveHeld,
    /// Read the reservation of the held address. The result is [`Event::HeldRead`].
    CheckHeld,
    /// Look up the address of an earlier attempt with an unknown outcome. The result is
    /// [`Event::Attempt`].
    FindAttempt,
    /// Check whether the claim may get an address of the pool. The result is [`Event::Permitted`].
    CheckPermission,
    /// Ask the ledger for an address. The result is [`Event::Proposed`] or [`Event::AskAgain`].
    Propose,
    /// Make the reservation of the released address that of the claim. The result is
    /// [`Event::Reserved`], [`Event::Taken`] or [`Event::Gone`].
    TakeOver(Origin),
    /// Create the reservation of the address. The result is [`Event::Reserved`] or
    /// [`Event::Taken`].
    Reserve(Origin),
    /// Check whether the claim may keep the reserved address. The result is [`Event::Permitted`].
    CheckLimits,
    /// Check whether the reserved address is in a block of this management cluster. The result is
    /// [`Event::Permitted`].
    CheckBlock,
    /// Check whether the pool still has the scope and the block length with which the address is
    /// reserved. The result is [`Event::Permitted`] or [`Event::AskAgain`].
    CheckPool,
    /// List all reservations. The result is [`Event::CaughtUp`].
    CatchUp,
    /// The attempt has ended.
    Done(End),
}

/// Why an address is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// An earlier attempt may have reserved it.
    Attempt,
    /// The ledger proposes it.
    Proposal,
}

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The address is reserved for the claim.
    Allocated,
    /// The address of a bound claim is in use by another claim.
    Duplicate,
    /// The reservation of the held address changes while it is moved.
    HeldChanges,
    /// All proposed addresses were taken.
    AllTaken,
    /// The pool has changed, or keeps changing.
    PoolChanges,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// An address that the ledger shows as held by the claim, or promised to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldAddress {
    /// Whether its reservation has to be moved: the pool has joined or left a network.
    pub is_misplaced: bool,
    /// Whether a user promised it to the name of the claim.
    pub is_promise: bool,
    /// Whether the pool contains it.
    pub is_in_pool: bool,
    /// Whether it is in a draining part of the pool.
    pub is_draining: bool,
    /// Whether another claim has an IPAddress with it.
    pub is_used_by_other: bool,
}

/// An address of an earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EarlierAttempt {
    /// There is none, or the claim may no longer have its address.
    None,
    /// The address is to be reserved.
    Unreserved,
    /// A claim has released the address, and its reservation is kept.
    Released,
}

/// An address that the ledger proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proposed {
    /// The address has no reservation.
    Unreserved,
    /// A claim has released the address, and its reservation is kept.
    Released,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The next held address; `None` if there is no further one.
    Held(Option<HeldAddress>),
    /// Whether the reservation is that of the claim.
    HeldRead {
        /// Whether it is.
        is_ours: bool,
    },
    /// The address of an earlier attempt.
    Attempt(EarlierAttempt),
    /// The claim may have the address, or one of the pool.
    Permitted,
    /// The ledger proposes an address, which is held for the claim.
    Proposed(Proposed),
    /// The pool has changed, or what the ledger has asked for is done.
    AskAgain,
    /// The address is reserved for the claim.
    Reserved,
    /// Another reservation has the name.
    Taken,
    /// The reservation of the held address has changed.
    Changed,
    /// The released reservation is deleted.
    Gone,
    /// The ledger shows all reservations.
    CaughtUp,
}

/// One attempt to allocate an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Allocate {
    is_bound: bool,
    step: Step,
    /// The address that is checked was promised by a user.
    is_promise: bool,
    conflicts: u8,
    lookups: u8,
}

impl Allocate {
    /// Starts an attempt. `is_bound` is whether the status of the claim refers to an IPAddress,
    /// which was deleted then.
    pub fn start(is_bound: bool) -> Self {
        Self {
            is_bound,
            step: Step::FindHeld,
            is_promise: false,
            conflicts: 0,
            lookups: 0,
        }
    }

    /// The next request or lookup.
    pub fn step(&self) -> Step {
        self.step
    }

    /// The number of proposed addresses that were taken.
    pub fn conflicts(&self) -> u8 {
        self.conflicts
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::FindHeld, Event::Held(None)) => Step::FindAttempt,
            (Step::FindHeld | Step::MoveHeld, Event::Held(Some(held))) => self.held(held),
            (Step::MoveHeld, Event::Taken) => Step::FindHeld,
            (Step::MoveHeld, Event::Changed) => Step::Done(End::HeldChanges),
            (Step::CheckHeld, Event::HeldRead { is_ours: false }) => Step::FindHeld,
            (Step::CheckHeld, Event::HeldRead { is_ours: true }) => self.held_is_ours(),
            (Step::FindAttempt, Event::Attempt(attempt)) => earlier_attempt(attempt),
            (Step::CheckPermission, Event::Permitted) | (Step::Propose, Event::AskAgain) => {
                self.propose()
            }
            (Step::Propose, Event::Proposed(Proposed::Unreserved)) => {
                Step::Reserve(Origin::Proposal)
            }
            (Step::Propose, Event::Proposed(Proposed::Released)) => {
                Step::TakeOver(Origin::Proposal)
            }
            (Step::TakeOver(origin), Event::Gone) => Step::Reserve(origin),
            (Step::TakeOver(_) | Step::Reserve(_), Event::Reserved) => Step::CheckLimits,
            (Step::TakeOver(origin) | Step::Reserve(origin), Event::Taken) => self.taken(origin),
            (Step::CheckLimits, Event::Permitted) => Step::CheckBlock,
            (Step::CheckBlock, Event::Permitted) => Step::CheckPool,
            (Step::CheckPool, Event::Permitted) => Step::Done(End::Allocated),
            // Another process may allocate the address in the scope, or as a part of another block,
            // that the pool has now. The reservation stays: another process may bind the claim to
            // it. The next attempt moves it, or reserves another address.
            (Step::CheckPool, Event::AskAgain) => Step::Done(End::PoolChanges),
            (Step::CatchUp, Event::CaughtUp) => Step::Done(End::AllTaken),
            _ => Step::Done(End::UnexpectedEvent),
        };
        self.step
    }

    fn held(&mut self, held: HeldAddress) -> Step {
        if held.is_misplaced {
            return Step::MoveHeld;
        }
        // A provider without reservations may have allocated it to another claim.
        if held.is_used_by_other {
            return if self.is_bound {
                Step::Done(End::Duplicate)
            } else {
                Step::FindHeld
            };
        }
        // An address that was removed from the pool would be combined with the gateway of another
        // subnet. A promise of an address outside of the pool has no effect.
        let is_lost = !held.is_in_pool && (!self.is_bound || held.is_promise);
        // A promise is no allocation yet: nothing is allocated where the pool drains.
        let drains = held.is_draining && held.is_promise && !self.is_bound;
        if is_lost || drains {
            return Step::FindHeld;
        }
        self.is_promise = held.is_promise;
        Step::CheckHeld
    }

    /// What is promised or in use does not depend on limits. A block with an address in use is not
    /// returned, but a user can promise an address of a block that is being returned.
    fn held_is_ours(self) -> Step {
        if self.is_promise {
            Step::CheckBlock
        } else if self.is_bound {
            Step::Done(End::Allocated)
        } else {
            Step::CheckLimits
        }
    }

    fn propose(&mut self) -> Step {
        self.lookups = self.lookups.saturating_add(1);
        if self.lookups > MAX_LOOKUPS {
            Step::Done(End::PoolChanges)
        } else {
            Step::Propose
        }
    }

    /// Another reservation has the address.
    fn taken(&mut self, origin: Origin) -> Step {
        if origin == Origin::Attempt {
            return Step::CheckPermission;
        }
        self.conflicts = self.conflicts.saturating_add(1);
        if self.conflicts >= MAX_PROPOSALS {
            Step::CatchUp
        } else {
            self.propose()
        }
    }
}

fn earlier_attempt(attempt: EarlierAttempt) -> Step {
    match attempt {
        EarlierAttempt::None => Step::CheckPermission,
        EarlierAttempt::Unreserved => Step::Reserve(Origin::Attempt),
        EarlierAttempt::Released => Step::TakeOver(Origin::Attempt),
    }
}
