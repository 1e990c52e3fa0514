//! Releasing the addresses that are reserved for a claim whose IPAddress is deleted (R2).

/// How often the release of a reservation is attempted while it keeps changing.
const MAX_ATTEMPTS: u8 = 3;

/// The next request or lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Look up the next address that the ledger shows as reserved for the claim. Promises are kept.
    /// The result is [`Event::Found`].
    FindHeld,
    /// Look up the next scope in which the address of the deleted IPAddress may be reserved
    /// although the ledger does not show it: it can lag behind, or know a future that a restore of
    /// etcd has undone. The result is [`Event::Found`].
    FindScope,
    /// Read the reservation of the address in this scope. The result is [`Event::Read`].
    ReadReservation,
    /// Release the reservation, in the known version: the rules of its pool decide whether a
    /// cool-down starts. The result is [`Event::Released`] or [`Event::Changed`].
    Release(Origin),
    /// The release has ended.
    Done(End),
}

/// How a reservation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The ledger shows it.
    Held,
    /// A read by the address of the deleted IPAddress shows it.
    Read,
}

/// How a release ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// All addresses are released.
    Released,
    /// A reservation keeps changing.
    KeepsChanging,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Whether there is a further address or scope.
    Found {
        /// Whether there is.
        exists: bool,
    },
    /// Whether the reservation that was read is that of the claim.
    Read {
        /// Whether it is.
        is_ours: bool,
    },
    /// The reservation is released, or there is none.
    Released,
    /// The reservation is not the known one.
    Changed {
        /// Whether it still is that of the claim.
        is_ours: bool,
    },
}

/// The release of the addresses of one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Free {
    step: Step,
    attempts: u8,
}

impl Free {
    /// Starts with the addresses that the ledger shows.
    pub fn start() -> Self {
        Self {
            step: Step::FindHeld,
            attempts: 0,
        }
    }

    /// The next request or lookup.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::FindHeld, Event::Found { exists: true }) => Step::Release(Origin::Held),
            (Step::FindHeld, Event::Found { exists: false }) => Step::FindScope,
            (Step::FindScope, Event::Found { exists: true }) => Step::ReadReservation,
            (Step::FindScope, Event::Found { exists: false }) => Step::Done(End::Released),
            (Step::ReadReservation, Event::Read { is_ours: true }) => Step::Release(Origin::Read),
            (Step::ReadReservation, Event::Read { is_ours: false }) => Step::FindScope,
            (Step::Release(origin), Event::Changed { is_ours: true }) => self.try_again(origin),
            (Step::Release(origin), Event::Released | Event::Changed { is_ours: false }) => {
                self.find_next(origin)
            }
            _ => Step::Done(End::UnexpectedEvent),
        };
        self.step
    }

    fn try_again(&mut self, origin: Origin) -> Step {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts >= MAX_ATTEMPTS {
            Step::Done(End::KeepsChanging)
        } else {
            Step::Release(origin)
        }
    }

    fn find_next(&mut self, origin: Origin) -> Step {
        self.attempts = 0;
        match origin {
            Origin::Held => Step::FindHeld,
            Origin::Read => Step::FindScope,
        }
    }
}
