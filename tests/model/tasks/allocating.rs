//! Allocation: steps A1 to A4 and adoption.

use super::Worker;
use crate::mutations::Mutation;
use crate::pool;
use crate::state::{ADDRESSES, Address, Age, Purpose, Reservation, Step};

/// How often an adoption tries to reserve.
const MAX_ATTEMPTS: u8 = 2;

impl Worker<'_> {
    /// After A1: is an IPAddress with the name of the claim known?
    pub(super) fn look_up_address(&mut self) {
        if self.has_mutation(Mutation::AllocateBeforeLookup) {
            self.propose();
        } else if self.memory().addresses[self.name].is_some() {
            self.go_to(Step::ReadExisting);
        } else {
            self.allocate(0);
        }
    }

    pub(super) fn consider(&mut self, found: Option<Address>) {
        self.task.existing = found;
        match found {
            None => self.allocate(0),
            Some(found) if found.deleting => self.remove(found, Purpose::Binding),
            Some(found)
                if found.owner == self.life()
                    || self.has_mutation(Mutation::AdoptWithoutReadingTheClaim) =>
            {
                self.adopt();
            }
            Some(_) => self.go_to(Step::CheckBeforeAdoption),
        }
    }

    /// An address that is already reserved for this claim in the ledger, from that address on; or
    /// else a free one.
    pub(super) fn allocate(&mut self, from: u8) {
        let (name, life) = (self.name, self.life());
        let ignores = self.has_mutation(Mutation::IgnoreOwnReservation)
            || self.has_mutation(Mutation::PickByCache);
        let own = (usize::from(from)..ADDRESSES).find(|&address| {
            let manager = self.memory();
            let used_by_another = (0..manager.addresses.len()).any(|other| {
                other != name
                    && manager.addresses[other]
                        .is_some_and(|held| usize::from(held.address) == address)
            });
            let holds = manager.ledger[address].is_some_and(|held| held.is_for(name, life));
            holds && !used_by_another && self.scope.may_have(address)
        });
        match own.filter(|_| !ignores) {
            Some(address) => {
                self.task.address = u8::try_from(address).unwrap_or_default();
                self.go_to(Step::CheckReservation);
            }
            None => self.propose(),
        }
    }

    /// The address that the last claim of the name has released, if the pool is sticky; else the
    /// lowest address that seems free, marked as proposed; else one that is kept for the claims of
    /// another name.
    pub(super) fn propose(&mut self) {
        if !pool::proposes(self.scope, self.memory()) {
            return self.end();
        }
        let addresses = self.scope.addresses;
        let (scope, name, is_sticky) = (self.scope, self.name, self.state.is_sticky);
        let manager = self.memory();
        let find = |is_candidate: &dyn Fn(usize) -> bool| {
            (0..addresses).find(|&address| {
                let used = manager
                    .addresses
                    .iter()
                    .flatten()
                    .any(|held| usize::from(held.address) == address);
                is_candidate(address)
                    && !manager.proposed[address]
                    && !used
                    && scope.may_have(address)
            })
        };
        let released =
            |address: usize| manager.ledger[address].filter(|held| held.released && is_sticky);
        let former =
            find(&|address| released(address).is_some_and(|held| usize::from(held.name) == name));
        let free = former.or_else(|| find(&|address| manager.ledger[address].is_none()));
        let kept = || find(&|address| released(address).is_some() && self.has_cooled_down(address));
        let Some(chosen) = free.or_else(kept) else {
            return self.end();
        };
        let takes_over = manager.ledger[chosen];
        self.task.address = u8::try_from(chosen).unwrap_or_default();
        if self.has_mutation(Mutation::PickByCache) {
            return self.reserved();
        }
        self.hold_candidate();
        match takes_over {
            Some(released) => {
                self.task.found = released.age;
                self.go_to(Step::TakeReleased);
            }
            None => self.go_to(Step::Reserve),
        }
    }

    /// Whether the cool-down of a released address is over, as the manager knows it.
    fn has_cooled_down(&self, address: usize) -> bool {
        let is_over = self
            .state
            .seems_cooled_down(self.scope, self.manager, address);
        is_over || self.has_mutation(Mutation::TakeCoolingAddress)
    }

    pub(super) fn reservation_checked(&mut self, found: Option<Reservation>) {
        if found.is_some_and(|found| found.is_for(self.name, self.life())) {
            return self.reserved();
        }
        if found.is_some() {
            self.learn(found);
        }
        if self.task.existing.is_some() {
            self.hold_candidate();
            self.go_to(Step::Reserve);
        } else {
            self.allocate(self.task.address + 1);
        }
    }

    pub(super) fn reservation_read(&mut self, found: Option<Reservation>) {
        // Missing, possibly not yet applied: a new attempt decides.
        let Some(held) = found else { return self.end() };
        self.learn(found);
        if held.is_for(self.name, self.life()) {
            self.reserved();
        } else if self.task.existing.is_some() {
            self.go_to(Step::ReadHolder);
        } else {
            self.propose();
        }
    }

    pub(super) fn holder_read(&mut self, found: Option<Reservation>) {
        let Some(found) = found else {
            return self.try_again();
        };
        if usize::from(found.name) == self.name && found.life != self.life() && !found.released {
            (self.task.found, self.task.is_released) = (Age::Current, false);
            let blindly = self.has_mutation(Mutation::TakeOverWithoutReadingTheClaim)
                || self.has_mutation(Mutation::AdoptWithoutReadingTheClaim);
            return self.go_to(if blindly {
                Step::TakeOver
            } else {
                Step::CheckBeforeTakingOver
            });
        }
        let is_kept = found.released && self.state.is_sticky;
        if is_kept
            && (usize::from(found.name) == self.name
                || self.has_cooled_down(self.task.address.into()))
        {
            (self.task.found, self.task.is_released) = (Age::Current, true);
            return self.go_to(Step::CheckBeforeTakingOver);
        }
        match self.task.existing {
            Some(existing) if existing.owner != 0 && existing.owner != self.life() => {
                self.drop_candidate();
                self.remove(existing, Purpose::Discarding);
            }
            // It is reported and not changed.
            _ => self.end(),
        }
    }

    pub(super) fn try_again(&mut self) {
        self.task.attempts += 1;
        if self.task.attempts < MAX_ATTEMPTS {
            self.go_to(Step::Reserve)
        } else {
            self.end()
        }
    }

    /// The address is reserved for this claim.
    pub(super) fn reserved(&mut self) {
        self.drop_candidate();
        if self.task.early {
            self.task.is_reserved = true;
            return self.go_to(Step::AddFinalizer);
        }
        let life = self.life();
        match self.task.existing {
            Some(existing) if existing.owner == life && existing.finalizer => self.bind(),
            Some(_) => self.go_to(Step::Repair),
            None if self.has_mutation(Mutation::BindBeforeCreate) => self.go_to(Step::Bind),
            None => self.go_to(Step::CreateAddress),
        }
    }

    pub(super) fn adopt(&mut self) {
        let Some(existing) = self.task.existing else {
            return self.end();
        };
        self.task.address = existing.address;
        self.task.attempts = 0;
        if self.has_mutation(Mutation::AdoptWithoutReservation)
            || self.has_mutation(Mutation::PickByCache)
        {
            return self.reserved();
        }
        let (name, life) = (self.name, self.life());
        let known = self.memory().ledger[usize::from(existing.address)];
        if known.is_some_and(|known| known.is_for(name, life)) {
            self.go_to(Step::CheckReservation);
        } else {
            self.hold_candidate();
            self.go_to(Step::Reserve);
        }
    }

    pub(super) fn bind(&mut self) {
        if self.task.claim.bound == Some(self.task.address) {
            return self.end();
        }
        let finalizer_is_missing =
            self.has_mutation(Mutation::CreateBeforeFinalizer) && !self.task.claim.finalizer;
        self.go_to(if finalizer_is_missing {
            Step::AddFinalizer
        } else {
            Step::Bind
        });
    }
}
