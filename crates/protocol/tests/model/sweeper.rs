//! The sweeper of a manager, request by request.
//!
//! The real sweeper waits until an object has seemed orphaned in two passes and for a grace period.
//! The model has no time: an object that seems orphaned in memory, however old the memory is, may
//! be inspected immediately. Which reads decide whether a reservation is released, and in which
//! order, is decided by the code of the product, `capi_ipam_protocol::abandoned`.

use capi_ipam_protocol::abandoned::{Check, Event, FoundAddress, FoundClaim, Step, Verdict};

use crate::mutations::Mutation;
use crate::scope::Scope;
use crate::server::{Answer, Outcome};
use crate::state::{Address, Age, Member, Reservation, State, Sweep, Write};

/// The subject of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Suspect {
    Reservation(u8),
    Address(u8),
    /// An IPAddress of that name without reservation.
    Unreserved(u8),
    /// The cool-down of an address seems to be over.
    CooledDown(u8),
    /// An address that cools down seems to be in use.
    Used(u8),
}

pub(crate) fn all_suspects(scope: &Scope) -> impl Iterator<Item = Suspect> + use<> {
    let cooldowns = (0..2)
        .map(Suspect::CooledDown)
        .chain((0..2).map(Suspect::Used))
        .filter({
            let has_cooldown = scope.cooldown || scope.sticky;
            move |_| has_cooldown
        });
    let reservations = (0..2).map(Suspect::Reservation);
    reservations
        .chain((0..2).map(Suspect::Address))
        .chain((0..2).map(Suspect::Unreserved))
        .chain(cooldowns)
}

impl State {
    /// Whether a subject seems orphaned, without a reservation, or allocatable again.
    pub(crate) fn suspects(&self, scope: &Scope, manager: usize, suspect: Suspect) -> bool {
        let known = &self.managers[manager];
        match suspect {
            Suspect::CooledDown(address) => self.seems_cooled_down(scope, manager, address.into()),
            Suspect::Used(address) => self.name_that_uses(manager, address.into()).is_some(),
            Suspect::Reservation(address) => {
                known.ledger[usize::from(address)].is_some_and(|held| {
                    let name = usize::from(held.name);
                    if held.released || held.is_promise() {
                        return false;
                    }
                    let used = known.addresses[name].is_some_and(|found| found.address == address);
                    let claim = known.claims[name].filter(|claim| claim.life == held.life);
                    claim.is_none_or(|claim| !used && claim.bound.is_some())
                })
            }
            Suspect::Address(name) => {
                known.addresses[usize::from(name)].is_some()
                    && known.claims[usize::from(name)].is_none()
            }
            Suspect::Unreserved(name) => {
                let name = usize::from(name);
                let claim = known.claims[name].filter(|claim| scope.serves(manager, name, *claim));
                let bound = claim.is_some_and(|claim| claim.bound.is_some() && !claim.deleting);
                let unreserved =
                    |address: usize| known.ledger[address].is_none() && !known.proposed[address];
                let is_known = |found: Address| found.member == Member::Right;
                let found = known.addresses[name].filter(|found| is_known(*found));
                bound && found.is_some_and(|found| unreserved(found.address.into()))
            }
        }
    }
}

impl State {
    /// Begins a sweep with its first request.
    pub(crate) fn begin_sweep(
        &mut self,
        scope: &Scope,
        manager: usize,
        suspect: Suspect,
        outcome: Outcome,
    ) -> bool {
        if self.managers[manager].sweep != Sweep::Idle || !self.suspects(scope, manager, suspect) {
            return false;
        }
        match suspect {
            Suspect::Unreserved(name) => self.reserve_missing(scope, manager, name, outcome),
            _ if outcome != Outcome::Answered => false,
            Suspect::CooledDown(address) => self.begin_to_end_cooldown(scope, manager, address),
            Suspect::Used(address) => match self.name_that_uses(manager, address.into()) {
                Some(name) => self.begin_to_end_for_use(scope, manager, address, name),
                None => false,
            },
            Suspect::Address(name) => {
                let found = self.objects.addresses[usize::from(name)];
                self.managers[manager].sweep = match found {
                    Some(found) if scope.has_mutation(Mutation::SweepAddressByCache) => {
                        removal(name, found)
                    }
                    Some(found) => Sweep::CheckClaim { name, found },
                    None => return false,
                };
                true
            }
            Suspect::Reservation(address) => {
                let Some(held) = self.managers[manager].ledger[usize::from(address)] else {
                    return false;
                };
                if scope.has_mutation(Mutation::SweepByCache) {
                    self.managers[manager].sweep = Sweep::Unreserve {
                        address,
                        age: held.age,
                    };
                    return true;
                }
                self.begin_check(scope, manager, address, held)
            }
        }
    }

    /// Reads a reservation that seems abandoned.
    fn begin_check(
        &mut self,
        scope: &Scope,
        manager: usize,
        address: u8,
        held: Reservation,
    ) -> bool {
        let found = self.objects.reservations[usize::from(address)];
        let still_held = found.filter(|found| found.is_for(held.name.into(), held.life));
        let mut check = Check::start();
        check.next(Event::Reservation {
            is_held: still_held.is_some(),
        });
        let Some(found) = still_held else {
            // The ledger is wrong, and possibly no event will correct it.
            if scope.has_mutation(Mutation::SweepKeepsLedger) {
                return false;
            }
            self.managers[manager].learn(address.into(), found);
            return true;
        };
        self.managers[manager].sweep = Sweep::Check {
            address,
            name: found.name,
            life: found.life,
            age: found.age,
            check,
        };
        true
    }

    fn reserve_missing(
        &mut self,
        scope: &Scope,
        manager: usize,
        name: u8,
        outcome: Outcome,
    ) -> bool {
        let known = &self.managers[manager];
        let (claim, found) = (
            known.claims[usize::from(name)],
            known.addresses[usize::from(name)],
        );
        let Some((claim, found)) = claim.zip(found) else {
            return false;
        };
        let address = found.address;
        let answer = self.send(
            scope,
            Write::Reserve {
                address,
                name,
                life: claim.life,
            },
            outcome,
        );
        if matches!(answer, Answer::Done | Answer::Exists) {
            let found = self.objects.reservations[usize::from(address)];
            self.managers[manager].learn(address.into(), found);
        }
        true
    }

    /// The next request of a sweep.
    pub(crate) fn sweep_on(&mut self, scope: &Scope, manager: usize, outcome: Outcome) -> bool {
        let is_write = matches!(
            self.managers[manager].sweep,
            Sweep::Unreserve { .. }
                | Sweep::MarkReleased { .. }
                | Sweep::Strip { .. }
                | Sweep::Delete { .. }
                | Sweep::EndCooldown { .. }
                | Sweep::TakeForUse { .. }
        );
        if outcome != Outcome::Answered && !is_write {
            return false;
        }
        let next = match self.managers[manager].sweep {
            Sweep::Idle => return false,
            Sweep::Check {
                address,
                name,
                life,
                age,
                mut check,
            } => {
                let event = match check.step() {
                    Step::ReadAddress => self.read_address(scope, name, address),
                    _ => self.read_claim(scope, name, life),
                };
                match check.next(event) {
                    Step::Done(Verdict::Keep(_)) => Sweep::Idle,
                    Step::Done(Verdict::Release) => self.release_of(scope, manager, address, age),
                    Step::ReadAddress if scope.has_mutation(Mutation::SweepByFirstRead) => {
                        self.release_of(scope, manager, address, age)
                    }
                    _ => Sweep::Check {
                        address,
                        name,
                        life,
                        age,
                        check,
                    },
                }
            }
            Sweep::MarkReleased { address, age } => {
                match self.send(scope, Write::MarkReleased { address, age }, outcome) {
                    Answer::Done => {
                        let released = self.objects.reservations[usize::from(address)];
                        self.managers[manager].learn(address.into(), released);
                    }
                    Answer::NotFound => self.managers[manager].forget(address.into()),
                    _ => {}
                }
                Sweep::Idle
            }
            Sweep::Unreserve { address, age } => {
                // As it was read: it may have been released since, and cool down.
                let exact = !scope.has_mutation(Mutation::SweepByUid);
                let answer = self.send(
                    scope,
                    Write::Unreserve {
                        address,
                        age,
                        exact,
                    },
                    outcome,
                );
                if matches!(answer, Answer::Done | Answer::NotFound) {
                    self.managers[manager].forget(address.into());
                }
                Sweep::Idle
            }
            Sweep::CheckClaim { name, found } => match self.objects.claims[usize::from(name)] {
                None => removal(name, found),
                Some(_) => Sweep::Idle,
            },
            Sweep::Strip { name, found } => {
                match self.send(
                    scope,
                    Write::StripAddress {
                        name,
                        age: found.age,
                    },
                    outcome,
                ) {
                    Answer::Done => match self.objects.addresses[usize::from(name)] {
                        Some(stripped) => Sweep::Delete {
                            name,
                            age: stripped.age,
                        },
                        None => Sweep::Idle,
                    },
                    _ => Sweep::Idle,
                }
            }
            Sweep::Delete { name, age } => {
                self.send(scope, Write::DeleteAddress { name, age }, outcome);
                Sweep::Idle
            }
            sweep => self.end_cooldown(scope, manager, sweep, outcome),
        };
        self.managers[manager].sweep = next;
        true
    }

    /// Reads the IPAddress of the claim whose reservation seems abandoned.
    fn read_address(&self, scope: &Scope, name: u8, address: u8) -> Event {
        let found = self.objects.addresses[usize::from(name)];
        // An IPAddress of a set can be of any member, whatever its annotation names.
        let reads_member = scope.has_mutation(Mutation::SweepByAnnotation);
        let may_be_of = |found: Address| found.member == Member::Right || !reads_member;
        Event::Address(match found {
            None => FoundAddress::Missing,
            Some(found) if found.address == address && may_be_of(found) => FoundAddress::Reserved,
            Some(_) => FoundAddress::Other,
        })
    }

    /// Reads the claim whose reservation seems abandoned.
    fn read_claim(&self, scope: &Scope, name: u8, life: u8) -> Event {
        let found = self.objects.claims[usize::from(name)];
        Event::Claim(match found.filter(|claim| claim.life == life) {
            None => FoundClaim::Gone,
            Some(_) if scope.has_mutation(Mutation::SweepUnboundClaims) => FoundClaim::Gone,
            Some(claim) if claim.bound.is_some() => FoundClaim::Bound,
            Some(_) => FoundClaim::Unbound,
        })
    }

    /// The write that releases an abandoned reservation.
    fn release_of(&self, scope: &Scope, manager: usize, address: u8, age: Age) -> Sweep {
        let cools_down = scope.cools_down(manager, &self.managers[manager], self.is_sticky)
            && !scope.has_mutation(Mutation::SweepWithoutCooldown)
            && !scope.has_mutation(Mutation::SweepByUid);
        if cools_down {
            Sweep::MarkReleased { address, age }
        } else {
            Sweep::Unreserve { address, age }
        }
    }
}

fn removal(name: u8, found: crate::state::Address) -> Sweep {
    if found.finalizer {
        Sweep::Strip { name, found }
    } else {
        Sweep::Delete {
            name,
            age: found.age,
        }
    }
}
