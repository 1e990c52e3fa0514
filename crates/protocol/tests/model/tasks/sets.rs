//! Claims that name a set of pools: which member is tried. What follows is as if the claim had named
//! that pool.

use super::Worker;
use crate::mutations::Mutation;
use crate::pool;
use crate::state::{Address, Manager, Member, NAMES, Pool};

impl Worker<'_> {
    /// Starts A2 in the member that is recorded, or else in the first one of the set.
    pub(super) fn allocate_from_set(&mut self) {
        self.task.tried = 0;
        match self.recorded_member() {
            Some(_) if self.has_mutation(Mutation::ChooseAgain) => self.try_next_member(),
            Some(member) => self.try_member(member),
            None => self.try_next_member(),
        }
    }

    /// The member of which the ledger shows a reservation of the claim, or of which an attempt has an
    /// unknown outcome.
    fn recorded_member(&self) -> Option<usize> {
        let (known, name, life) = (self.memory(), self.name, self.life());
        let is_held = |held: &usize| known.ledger[*held].is_some_and(|it| it.is_for(name, life));
        let attempt = known.attempts[name].filter(|(of, _)| *of == life);
        let mut held = (0..known.ledger.len()).filter(is_held);
        held.next().or(attempt.map(|(_, address)| address.into()))
    }

    fn try_next_member(&mut self) {
        let members = self.memory().set.members();
        let Some(member) = members.get(usize::from(self.task.tried)) else {
            return self.fail();
        };
        self.task.tried += 1;
        self.try_member(*member);
    }

    fn try_member(&mut self, member: usize) {
        self.task.member = u8::try_from(member).unwrap_or_default();
        self.task.next_held = 0;
        if self.is_gone(member) {
            self.refused();
        } else {
            self.allocate_from_pool();
        }
    }

    fn is_gone(&self, member: usize) -> bool {
        self.memory().pool == Pool::Gone && self.scope.is_in_pool(member)
    }

    /// The member has no address for the claim.
    pub(super) fn refused(&mut self) {
        let member = usize::from(self.task.member);
        let is_exhausted = pool::proposes(self.scope, self.memory(), member);
        let is_gone = self.is_gone(member) && !self.has_mutation(Mutation::WaitForMissingMember);
        if is_exhausted || is_gone || self.recorded_member().is_none() {
            self.try_next_member();
        } else {
            self.fail();
        }
    }

    /// Whether an address is one of the member that is tried.
    pub(super) fn is_of_member(&self, address: usize) -> bool {
        !self.scope.sets || address == usize::from(self.task.member)
    }

    /// Whether the address of an IPAddress is reserved in the member of which it is. Otherwise its
    /// reservation has another name, which protects nothing.
    pub(super) fn is_right_member(&mut self, existing: Address) -> bool {
        if self.is_gone(existing.address.into()) {
            self.fail();
            return false;
        }
        let held = self.memory().ledger[usize::from(existing.address)];
        let is_held = held.is_some_and(|held| held.is_for(self.name, self.life()));
        let is_listed = self.memory().is_listed(existing.address.into());
        if existing.member == Member::Wrong && !is_held && !is_listed {
            self.allocated();
            return false;
        }
        true
    }
}

impl Manager {
    /// Whether the ledger counts the address as in use.
    pub(crate) fn is_used(&self, address: usize) -> bool {
        (0..NAMES).any(|name| self.is_used_by(name, address))
    }

    /// Whether a member of the set has the address.
    fn is_listed(&self, address: usize) -> bool {
        self.set.members().contains(&address)
    }

    /// Whether it counts the address as that of the IPAddress with this name. The reservation decides
    /// which member has the address. Without it that is a member of the set with this address, or the
    /// one that the annotation names.
    pub(crate) fn is_used_by(&self, name: usize, address: usize) -> bool {
        self.addresses[name].is_some_and(|found| {
            let held = self.ledger[address];
            let is_held = held.is_some_and(|held| held.is_for(name, found.owner));
            let is_known = found.member == Member::Right || is_held || self.is_listed(address);
            usize::from(found.address) == address && is_known
        })
    }
}
