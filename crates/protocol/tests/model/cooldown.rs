//! Cool-downs: a released reservation is kept until the period of its pool is over.
//!
//! `State::cooling` is the clock: whether the period of the last release of an address has not
//! ended yet. A manager that reads a released reservation knows the period. The period of a stale
//! copy may have ended at any time.
//!
//! A sticky pool keeps the reservation of a released address for the next claim of the same name,
//! and for any claim if no other address is free. It is taken over in one write.

use crate::mutations::Mutation;
use crate::scope::Scope;
use crate::server::{Answer, Outcome};
use crate::state::{Age, Manager, Pool, Reservation, State, Sweep, Write};

impl Scope {
    /// A manager that does not know the pool applies no cool-down.
    fn knows_pool(&self, manager: usize) -> bool {
        manager == 0 || !self.has_mutation(Mutation::EndCooldownOfUnknownPool)
    }

    /// Whether a manager keeps the reservation of an address that it releases.
    pub(crate) fn cools_down(&self, manager: usize, known: &Manager, is_sticky: bool) -> bool {
        (self.cooldown || is_sticky) && self.knows_pool(manager) && known.pool == Pool::Serving
    }
}

impl State {
    /// The API server marks a reservation as released: the patch carries uid and version.
    pub(crate) fn mark_released(&mut self, scope: &Scope, address: usize, age: Age) -> Answer {
        let Some(mut found) = self.objects.reservations[address] else {
            return Answer::NotFound;
        };
        if age != Age::Current {
            return Answer::Conflict;
        }
        self.violations.freed |= self.is_needed(address, found) || found.is_promise();
        found.released = true;
        self.age_reservation(address, Age::Changed);
        self.objects.reservations[address] = Some(found);
        // A pool that is being deleted does not wait for cool-downs.
        self.cooling[address] =
            (scope.cooldown && self.objects.pool == Pool::Serving).then_some(found.name);
        Answer::Done
    }

    /// The API server gives a released reservation to another claim: the patch carries uid and
    /// version.
    pub(crate) fn take_released(
        &mut self,
        scope: &Scope,
        taken: Reservation,
        address: usize,
        age: Age,
    ) -> Answer {
        let Some(found) = self.objects.reservations[address] else {
            return Answer::NotFound;
        };
        if age != Age::Current
            && !(scope.has_mutation(Mutation::TakeReleasedByUid) && age == Age::Changed)
        {
            return Answer::Conflict;
        }
        self.violations.freed |= self.is_needed(address, found);
        let gets_back = self.cooling[address] == Some(taken.name);
        // The claim that uses the address may have it reserved.
        let in_use = self.objects.addresses[usize::from(taken.name)];
        let in_use = in_use
            .is_some_and(|used| usize::from(used.address) == address && used.owner == taken.life);
        self.violations.too_early |= self.cooling[address].is_some() && !gets_back && !in_use;
        self.got_back |= gets_back;
        self.cooling[address] = None;
        self.age_reservation(address, Age::Changed);
        self.objects.reservations[address] = Some(taken);
        Answer::Done
    }

    /// The API server gives a reservation that is not released to a later claim of the same name:
    /// the patch carries uid and version.
    pub(crate) fn take_over(
        &mut self,
        taken: Reservation,
        address: usize,
        age: Age,
        exact: bool,
    ) -> Answer {
        let Some(found) = self.objects.reservations[address] else {
            return Answer::NotFound;
        };
        let hits = if exact {
            age == Age::Current
        } else {
            age != Age::Gone
        };
        if !hits {
            return Answer::Conflict;
        }
        self.violations.freed |= self.is_needed(address, found);
        // It may have been released since it was read.
        self.violations.too_early |= self.cooling[address].is_some();
        self.age_reservation(address, Age::Changed);
        self.objects.reservations[address] = Some(taken);
        Answer::Done
    }

    /// The period of an address ends.
    pub(crate) fn elapse(&mut self, address: usize) -> bool {
        self.cooling[address].take().is_some()
    }

    /// Whether the cool-down of an address is over according to the cache of a manager.
    pub(crate) fn seems_cooled_down(&self, scope: &Scope, manager: usize, address: usize) -> bool {
        let known = &self.managers[manager];
        known.ledger[address].is_some_and(|held| {
            held.released
                && (held.age == Age::Gone
                    || self.cooling[address].is_none()
                    || known.pool != Pool::Serving
                    || !scope.knows_pool(manager))
        })
    }

    /// The name of the bound claim whose IPAddress uses an address that a manager considers
    /// released.
    pub(crate) fn name_that_uses(&self, manager: usize, address: usize) -> Option<u8> {
        let known = &self.managers[manager];
        let held = known.ledger[address].filter(|held| held.released)?;
        let uses = |name: &usize| {
            let bound = known.claims[*name].filter(|claim| claim.bound.is_some());
            let used =
                known.addresses[*name].is_some_and(|found| usize::from(found.address) == address);
            // A later claim with the name of the one that released the address is another claim.
            let released_it = usize::from(held.name) == *name;
            used && bound.is_some_and(|claim| !released_it || claim.life == held.life)
        };
        (0..known.claims.len())
            .find(uses)
            .and_then(|name| u8::try_from(name).ok())
    }

    /// Reads a reservation whose cool-down seems to be over.
    pub(crate) fn begin_to_end_cooldown(
        &mut self,
        scope: &Scope,
        manager: usize,
        address: u8,
    ) -> bool {
        let slot = usize::from(address);
        let Some(found) = self.read_released(scope, manager, slot) else {
            return true;
        };
        let is_over = self.cooling[slot].is_none() || self.managers[manager].pool != Pool::Serving;
        if is_over
            || !scope.knows_pool(manager)
            || scope.has_mutation(Mutation::EndCooldownByLedger)
        {
            self.managers[manager].sweep = Sweep::EndCooldown {
                address,
                age: found,
            };
        }
        true
    }

    /// The live reservation, if it is released; the ledger takes in the result.
    fn read_released(&mut self, scope: &Scope, manager: usize, address: usize) -> Option<Age> {
        let found = self.objects.reservations[address];
        if found.is_some() || !scope.has_mutation(Mutation::SweepKeepsLedger) {
            self.managers[manager].learn(address, found);
        }
        found.filter(|found| found.released).map(|found| found.age)
    }

    /// Reads a released reservation whose address a cached IPAddress uses.
    pub(crate) fn begin_to_end_for_use(
        &mut self,
        scope: &Scope,
        manager: usize,
        address: u8,
        name: u8,
    ) -> bool {
        if scope.has_mutation(Mutation::ReadUseBeforeReservation) {
            if self.user_of(name, address).is_some() {
                self.managers[manager].sweep = Sweep::ReadReleased { address };
            }
            return true;
        }
        let Some(age) = self.read_released(scope, manager, address.into()) else {
            return true;
        };
        self.managers[manager].sweep = if scope.has_mutation(Mutation::EndCooldownInUseByCache) {
            Sweep::EndCooldown { address, age }
        } else {
            Sweep::CheckUse { address, name, age }
        };
        true
    }

    /// The owner of the IPAddress of that name, if it has that address.
    fn user_of(&self, name: u8, address: u8) -> Option<u8> {
        let found =
            self.objects.addresses[usize::from(name)].filter(|found| found.address == address);
        found.map(|found| found.owner)
    }

    /// The next call of a sweep that ends a cool-down.
    pub(crate) fn end_cooldown(
        &mut self,
        scope: &Scope,
        manager: usize,
        sweep: Sweep,
        outcome: Outcome,
    ) -> Sweep {
        match sweep {
            Sweep::CheckUse { address, name, age } => match self.user_of(name, address) {
                Some(_) if scope.has_mutation(Mutation::EndCooldownForLeftover) => {
                    Sweep::EndCooldown { address, age }
                }
                Some(owner) => Sweep::CheckUser {
                    address,
                    name,
                    owner,
                    age,
                },
                None => Sweep::Idle,
            },
            Sweep::CheckUser {
                address,
                name,
                owner,
                age,
            } => {
                let claim =
                    self.objects.claims[usize::from(name)].filter(|claim| claim.life == owner);
                let stays = |deleting: bool| {
                    !deleting || scope.has_mutation(Mutation::EndCooldownDuringRelease)
                };
                match claim.filter(|claim| claim.bound == Some(address) && stays(claim.deleting)) {
                    Some(claim) if claim.deleting => Sweep::EndCooldown { address, age },
                    Some(_) => Sweep::TakeForUse {
                        address,
                        name,
                        owner,
                        age,
                    },
                    None => Sweep::Idle,
                }
            }
            Sweep::TakeForUse {
                address,
                name,
                owner,
                age,
            } => {
                let answer = self.send(
                    scope,
                    Write::TakeReleased {
                        address,
                        name,
                        life: owner,
                        age,
                    },
                    outcome,
                );
                if answer == Answer::Done {
                    let taken = self.objects.reservations[usize::from(address)];
                    self.managers[manager].learn(address.into(), taken);
                }
                Sweep::Idle
            }
            Sweep::ReadReleased { address } => {
                match self.read_released(scope, manager, address.into()) {
                    Some(age) => Sweep::EndCooldown { address, age },
                    None => Sweep::Idle,
                }
            }
            Sweep::EndCooldown { address, age } => {
                let answer = self.send(
                    scope,
                    Write::Unreserve {
                        address,
                        age,
                        exact: true,
                    },
                    outcome,
                );
                if matches!(answer, Answer::Done | Answer::NotFound) {
                    self.managers[manager].forget(address.into());
                }
                Sweep::Idle
            }
            _ => Sweep::Idle,
        }
    }
}
