//! Whether a reservation that seems abandoned is released, by live reads.
//!
//! Caches and ledgers lag behind, so they only name candidates. The reads have an order:
//!
//! 1. The reservation. It is released in the version of this read, so nothing that happens to it
//!    afterwards is lost.
//! 2. The IPAddress with the name of the claim. If it has the address, the address is in use,
//!    whatever happened to the claim.
//! 3. The claim: one that is missing after the reservation was read cannot have got the reservation
//!    since.
//! 4. The IPAddress again, if the claim is bound to another address: the first read can have shown
//!    that of an earlier claim of the name.

/// The next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Read the reservation. The result is [`Event::Reservation`].
    ReadReservation,
    /// Read the IPAddress with the name of the claim. The result is [`Event::Address`].
    ReadAddress,
    /// Read the claim. The result is [`Event::Claim`].
    ReadClaim {
        /// Whether the IPAddress has another address than the reserved one.
        has_other_address: bool,
    },
    /// The check has ended.
    Done(Verdict),
}

/// What happens to the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is released in the version that was read.
    Release,
    /// It is kept.
    Keep(KeepReason),
}

/// Why a reservation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeepReason {
    /// The claim does not hold it, or has released it.
    NotHeld,
    /// The IPAddress with the name of the claim has the address.
    AddressInUse,
    /// The claim exists and is not bound: it may be getting this address.
    ClaimUnbound,
    /// The claim is bound and its IPAddress is missing: it is created again with the reserved
    /// address.
    AddressMissing,
    /// The driver has reported an event that does not belong to the step.
    UnexpectedEvent,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// What the read of the reservation shows.
    Reservation {
        /// Whether the claim holds it, by its uid, and has not released it.
        is_held: bool,
    },
    /// What the read of the IPAddress shows.
    Address(FoundAddress),
    /// What the read of the claim shows.
    Claim(FoundClaim),
}

/// The IPAddress with the name of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FoundAddress {
    /// It does not exist.
    Missing,
    /// It has the reserved address, from the pool of the reservation.
    Reserved,
    /// It has another address.
    Other,
}

/// The claim that the reservation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FoundClaim {
    /// No claim has its uid.
    Gone,
    /// It exists and is not bound.
    Unbound,
    /// It exists and is bound.
    Bound,
}

/// The check of one reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Check {
    step: Step,
    /// The claim was read, and is bound.
    is_bound: bool,
}

impl Check {
    /// Starts with the read of the reservation.
    pub fn start() -> Self {
        Self {
            step: Step::ReadReservation,
            is_bound: false,
        }
    }

    /// The next read.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Takes in the result of the current step, and returns the next one.
    pub fn next(&mut self, event: Event) -> Step {
        self.step = match (self.step, event) {
            (Step::ReadReservation, Event::Reservation { is_held: true }) => Step::ReadAddress,
            (Step::ReadReservation, Event::Reservation { is_held: false }) => {
                keep(KeepReason::NotHeld)
            }
            (Step::ReadAddress, Event::Address(FoundAddress::Reserved)) => {
                keep(KeepReason::AddressInUse)
            }
            (Step::ReadAddress, Event::Address(FoundAddress::Other)) if self.is_bound => {
                Step::Done(Verdict::Release)
            }
            (Step::ReadAddress, Event::Address(FoundAddress::Missing)) if self.is_bound => {
                keep(KeepReason::AddressMissing)
            }
            (Step::ReadAddress, Event::Address(found)) => Step::ReadClaim {
                has_other_address: found == FoundAddress::Other,
            },
            (Step::ReadClaim { has_other_address }, Event::Claim(claim)) => {
                self.claim_read(claim, has_other_address)
            }
            _ => keep(KeepReason::UnexpectedEvent),
        };
        self.step
    }

    /// Decides for an address that no IPAddress of the claim has.
    fn claim_read(&mut self, claim: FoundClaim, has_other_address: bool) -> Step {
        match claim {
            FoundClaim::Gone => Step::Done(Verdict::Release),
            FoundClaim::Unbound => keep(KeepReason::ClaimUnbound),
            // The IPAddress can have been that of an earlier claim of the name, which is deleted, and
            // the claim was bound to the reserved address since.
            FoundClaim::Bound if has_other_address => {
                self.is_bound = true;
                Step::ReadAddress
            }
            FoundClaim::Bound => keep(KeepReason::AddressMissing),
        }
    }
}

fn keep(reason: KeepReason) -> Step {
    Step::Done(Verdict::Keep(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict after these reads.
    fn verdict(is_held: bool, address: FoundAddress, claim: FoundClaim) -> Verdict {
        let mut check = Check::start();
        loop {
            let event = match check.step() {
                Step::ReadReservation => Event::Reservation { is_held },
                Step::ReadAddress => Event::Address(address),
                Step::ReadClaim { .. } => Event::Claim(claim),
                Step::Done(verdict) => return verdict,
            };
            check.next(event);
        }
    }

    #[test]
    fn reads_decide_whether_a_reservation_is_released() {
        use {FoundAddress as Address, FoundClaim as Claim};
        let release = Verdict::Release;
        let unbound = Verdict::Keep(KeepReason::ClaimUnbound);
        let in_use = Verdict::Keep(KeepReason::AddressInUse);
        let table = [
            (Address::Missing, Claim::Gone, release),
            (Address::Missing, Claim::Unbound, unbound),
            (
                Address::Missing,
                Claim::Bound,
                Verdict::Keep(KeepReason::AddressMissing),
            ),
            (Address::Other, Claim::Gone, release),
            (Address::Other, Claim::Unbound, unbound),
            (Address::Other, Claim::Bound, release),
            (Address::Reserved, Claim::Gone, in_use),
            (Address::Reserved, Claim::Unbound, in_use),
            (Address::Reserved, Claim::Bound, in_use),
        ];
        for (address, claim, expected) in table {
            assert_eq!(verdict(true, address, claim), expected);
            let kept = Verdict::Keep(KeepReason::NotHeld);
            assert_eq!(verdict(false, address, claim), kept);
        }
    }

    #[test]
    fn address_that_the_claim_gets_meanwhile_is_kept() {
        for (address, kept) in [
            (FoundAddress::Reserved, KeepReason::AddressInUse),
            (FoundAddress::Missing, KeepReason::AddressMissing),
        ] {
            let mut check = Check::start();
            check.next(Event::Reservation { is_held: true });
            check.next(Event::Address(FoundAddress::Other));
            let next = check.next(Event::Claim(FoundClaim::Bound));
            assert_eq!(next, Step::ReadAddress);
            assert_eq!(check.next(Event::Address(address)), keep(kept));
        }
    }

    #[test]
    fn unexpected_event_keeps_the_reservation() {
        let next = Check::start().next(Event::Claim(FoundClaim::Gone));
        assert_eq!(next, keep(KeepReason::UnexpectedEvent));
    }
}
