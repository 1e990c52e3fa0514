//! The API server: it applies one write at a time, if its preconditions hold.

use crate::mutations::Mutation;
use crate::scope::Scope;
use crate::state::{Address, Age, Claim, Member, Pool, Reservation, State, Write};

/// The response of the API server to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The object is marked as deleted and waits for finalizers.
    Waiting,
    Exists,
    Conflict,
    NotFound,
    /// No response was received.
    Unknown,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Answered,
    /// Applied, and the reply is lost.
    ReplyLost,
    /// Timed out in the manager, and applied later.
    Late,
}

impl State {
    /// Sends a write.
    pub(crate) fn send(&mut self, scope: &Scope, write: Write, outcome: Outcome) -> Answer {
        match outcome {
            Outcome::Answered => self.apply(scope, write),
            Outcome::ReplyLost => {
                self.lost_replies_left -= 1;
                self.apply(scope, write);
                Answer::Unknown
            }
            Outcome::Late => {
                self.late_writes_left -= 1;
                let free = self.late.iter_mut().find(|slot| slot.is_none());
                *free.expect("there is room for as many late writes as there may be") = Some(write);
                self.late.sort_unstable();
                Answer::Unknown
            }
        }
    }

    pub(crate) fn apply(&mut self, scope: &Scope, write: Write) -> Answer {
        match write {
            Write::AddFinalizer { name, age } => {
                // A new finalizer on a terminating object is rejected.
                let refused =
                    self.objects.claims[usize::from(name)].is_some_and(|claim| claim.deleting);
                let age = if refused { Age::Gone } else { age };
                self.change_claim(name.into(), age, |claim| claim.finalizer = true)
            }
            Write::Bind { name, address, age } => self.bind(scope, name.into(), address, age),
            Write::RemoveFinalizer { name, age } => self.remove_claim_finalizer(name.into(), age),
            Write::Reserve {
                address,
                name,
                life,
            } => self.reserve(address, name, life),
            Write::Unreserve {
                address,
                age,
                exact,
            } => self.unreserve(scope, address.into(), age, exact),
            Write::TakeReleased {
                address,
                name,
                life,
                age,
            } => {
                let taken = Reservation {
                    name,
                    life,
                    released: false,
                    age: Age::Current,
                };
                self.take_released(scope, taken, address.into(), age)
            }
            Write::TakeOver {
                address,
                name,
                life,
                age,
                exact,
            } => {
                let taken = Reservation {
                    name,
                    life,
                    released: false,
                    age: Age::Current,
                };
                self.take_over(taken, address.into(), age, exact)
            }
            Write::MarkReleased { address, age } => self.mark_released(scope, address.into(), age),
            Write::RemovePoolFinalizer => self.remove_pool(scope),
            Write::CreateAddress {
                name,
                life,
                address,
            } => self.create_address(name.into(), life, address),
            Write::RepairAddress { name, life, age } => {
                self.change_address(name.into(), age, |address| {
                    address.owner = life;
                    address.finalizer |= !address.deleting;
                })
            }
            Write::StripAddress { name, .. }
                if scope.has_mutation(Mutation::DeleteAddressWithoutUid) =>
            {
                self.change_address(name.into(), Age::Current, |address| {
                    address.finalizer = false
                })
            }
            Write::StripAddress { name, age } => self.change_address(name.into(), age, |address| {
                address.finalizer = false;
            }),
            Write::DeleteAddress { name, age } => self.delete_address(scope, name.into(), age),
        }
    }

    fn bind(&mut self, scope: &Scope, name: usize, address: u8, age: Age) -> Answer {
        let age = if scope.has_mutation(Mutation::BindWithoutUid) {
            Age::Current
        } else {
            age
        };
        self.change_claim(name, age, |claim| claim.bound = Some(address))
    }

    /// A patch of a claim with the preconditions uid and resource version.
    fn change_claim(&mut self, name: usize, age: Age, change: impl FnOnce(&mut Claim)) -> Answer {
        let Some(mut claim) = self.objects.claims[name] else {
            return Answer::NotFound;
        };
        if age != Age::Current {
            return Answer::Conflict;
        }
        let before = claim;
        change(&mut claim);
        self.violations.rebound |=
            before.bound.is_some() && before.bound != claim.bound && !before.deleting;
        self.age_claim(name, Age::Changed);
        self.objects.claims[name] = Some(claim);
        Answer::Done
    }

    /// A user promises an address to the claims of the first name.
    pub(crate) fn promise(&mut self, address: usize) -> bool {
        if self.promises_left == 0 || self.objects.reservations[address].is_some() {
            return false;
        }
        self.promises_left -= 1;
        self.objects.reservations[address] = Some(Reservation::default());
        for manager in &mut self.managers {
            manager.phantoms[address] = false;
        }
        true
    }

    /// Another controller removes its finalizer: the machine is gone.
    pub(crate) fn remove_foreign(&mut self, name: usize) -> bool {
        let Some(claim) = self.objects.claims[name] else {
            return false;
        };
        if !claim.foreign {
            return false;
        }
        if claim.finalizer {
            self.change_claim(name, Age::Current, |claim| claim.foreign = false);
        } else {
            self.remove_claim(name);
        }
        true
    }

    fn remove_claim_finalizer(&mut self, name: usize, age: Age) -> Answer {
        let Some(claim) = self.objects.claims[name] else {
            return Answer::NotFound;
        };
        if age != Age::Current {
            return Answer::Conflict;
        }
        let left = self.objects.addresses[name];
        self.violations.left_behind |=
            left.is_some_and(|left| left.owner == claim.life && !left.posthumous);
        if claim.foreign {
            return self.change_claim(name, age, |claim| claim.finalizer = false);
        }
        self.remove_claim(name);
        Answer::Done
    }

    pub(crate) fn remove_claim(&mut self, name: usize) {
        self.objects.claims[name] = None;
        self.age_claim(name, Age::Gone);
    }

    /// The consumer deletes a claim.
    pub(crate) fn delete_claim(&mut self, name: usize) -> bool {
        if self.objects.claims[name].is_some_and(|claim| claim.finalizer || claim.foreign) {
            self.change_claim(name, Age::Current, |claim| claim.deleting = true);
        } else {
            self.remove_claim(name);
        }
        true
    }

    /// The label of a claim changes.
    pub(crate) fn relabel(&mut self, name: usize) -> bool {
        self.relabels_left -= 1;
        self.change_claim(name, Age::Current, |claim| claim.label = !claim.label) == Answer::Done
    }

    fn reserve(&mut self, address: u8, name: u8, life: u8) -> Answer {
        let slot = usize::from(address);
        if self.objects.reservations[slot].is_some() {
            return Answer::Exists;
        }
        // The claim that uses the address may have it reserved.
        let in_use = self.objects.addresses[usize::from(name)];
        let in_use = in_use.is_some_and(|found| found.address == address && found.owner == life);
        self.violations.too_early |= self.cooling[slot].is_some() && !in_use;
        self.objects.reservations[slot] = Some(Reservation {
            name,
            life,
            released: false,
            age: Age::Current,
        });
        self.managers
            .iter_mut()
            .for_each(|manager| manager.phantoms[slot] = false);
        Answer::Done
    }

    /// Whether the claim of a reservation exists and may use the address.
    pub(crate) fn is_needed(&self, address: usize, held: Reservation) -> bool {
        self.objects.claims[usize::from(held.name)].is_some_and(|claim| {
            let needs_it = claim
                .bound
                .is_none_or(|bound| usize::from(bound) == address);
            let may_be_used = !claim.deleting || claim.foreign;
            held.is_for(held.name.into(), claim.life) && may_be_used && needs_it
        })
    }

    fn unreserve(&mut self, scope: &Scope, address: usize, age: Age, exact: bool) -> Answer {
        let Some(found) = self.objects.reservations[address] else {
            return Answer::NotFound;
        };
        let hits = if exact {
            age == Age::Current
        } else {
            age != Age::Gone
        };
        if !hits && !scope.has_mutation(Mutation::UnreserveWithoutUid) {
            return Answer::Conflict;
        }
        self.violations.freed |= self.is_needed(address, found) || found.is_promise();
        // Every release of an address has to wait for the period, however the claim has ended.
        if !found.released && scope.cooldown && self.objects.pool == Pool::Serving {
            self.cooling[address] = Some(found.name);
        }
        self.objects.reservations[address] = None;
        self.age_reservation(address, Age::Gone);
        Answer::Done
    }

    fn create_address(&mut self, name: usize, owner: u8, address: u8) -> Answer {
        if self.objects.addresses[name].is_some() {
            return Answer::Exists;
        }
        let claim = self.objects.claims[name];
        self.violations.unprotected |=
            claim.is_some_and(|claim| claim.life == owner && !claim.finalizer);
        let posthumous = claim.is_none_or(|claim| claim.life != owner || claim.deleting);
        self.objects.addresses[name] = Some(Address {
            owner,
            address,
            finalizer: true,
            deleting: false,
            posthumous,
            member: Member::Right,
            age: Age::Current,
        });
        Answer::Done
    }

    /// A patch of an IPAddress with the preconditions uid and resource version. A terminating
    /// object is removed with its last finalizer.
    pub(crate) fn change_address(
        &mut self,
        name: usize,
        age: Age,
        change: impl FnOnce(&mut Address),
    ) -> Answer {
        let Some(mut address) = self.objects.addresses[name] else {
            return Answer::NotFound;
        };
        if age != Age::Current {
            return Answer::Conflict;
        }
        change(&mut address);
        if address.deleting && !address.finalizer {
            self.remove_address(name);
        } else {
            self.age_address(name, Age::Changed);
            self.objects.addresses[name] = Some(address);
        }
        Answer::Done
    }

    /// Deletes the IPAddress with that uid and resource version.
    fn delete_address(&mut self, scope: &Scope, name: usize, age: Age) -> Answer {
        let Some(mut address) = self.objects.addresses[name] else {
            return Answer::NotFound;
        };
        let hits = match scope.mutation {
            Some(Mutation::DeleteAddressWithoutVersion) => age != Age::Gone,
            Some(Mutation::DeleteAddressWithoutUid) => true,
            _ => age == Age::Current,
        };
        if !hits {
            return Answer::Conflict;
        }
        if !address.finalizer {
            self.remove_address(name);
            return Answer::Done;
        }
        if !address.deleting {
            self.age_address(name, Age::Changed);
            address.deleting = true;
            self.objects.addresses[name] = Some(address);
        }
        Answer::Waiting
    }

    fn remove_address(&mut self, name: usize) {
        self.objects.addresses[name] = None;
        self.age_address(name, Age::Gone);
    }

    /// The garbage collector removes a deleted owner.
    pub(crate) fn collect(&mut self, name: usize) -> bool {
        let Some(address) = self.objects.addresses[name] else {
            return false;
        };
        let alive = self.objects.claims[name].is_some_and(|claim| claim.life == address.owner);
        if alive || address.owner == 0 {
            return false;
        }
        self.change_address(name, Age::Current, |address| address.owner = 0);
        true
    }
}
