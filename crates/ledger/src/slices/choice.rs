//! What a claim of an owner gets of a pool with slices, and why it gets nothing.

use std::sync::Arc;

use capi_ipam_api::{AllocationOrder, SliceOwner};
use capi_ipam_ip::UsableBlocks;

use super::super::outcome::{Outcome, Preparation, Reason};
use super::super::slice_refusal::SliceRefusal;
use super::{Holding, Slices};

/// The number of free addresses that are tried to find one that no claim requests.
const MAX_TRIES: u128 = 16;

/// Whether an owner may have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum SliceAccess {
    /// It is in one of its slices.
    Own,
    /// It is in a slice that can be assigned to it.
    Assignable,
    /// It is in a slice of another owner, or in one that cannot be assigned.
    Denied,
}

impl Slices {
    /// Chooses what a claim of an owner gets: a free number, else the one that is remembered for
    /// the longest time, else another slice. Numbers for which `is_granted` returns true are
    /// avoided.
    pub(in super::super) fn choose(
        &mut self,
        owner: &Arc<SliceOwner>,
        order: AllocationOrder,
        usable: &UsableBlocks,
        is_granted: impl Fn(u128) -> bool,
        draw: impl FnMut(u128) -> u128,
    ) -> Outcome<u128> {
        if let Some(holding) = self.owners.get_mut(owner) {
            let number = match holding.choose_free(order, usable, &is_granted, draw) {
                Some(number) => Some(number),
                None => holding.oldest_remembered(&is_granted),
            };
            if let Some(number) = number {
                return self.in_slice(number);
            }
        }
        if !self.can_assign(owner) {
            return self.refuse(owner);
        }
        let Some(group) = self.assignable.lowest() else {
            return self.refuse(owner);
        };
        let Some(block) = self.block(usable, group) else {
            return self.refuse(owner);
        };
        self.begin(group, block, Arc::clone(owner));
        Outcome::First(Preparation::AssignSlice(block))
    }

    /// Chooses a number, which is free, for a claim of an owner that requests it.
    pub(in super::super) fn choose_number(
        &mut self,
        owner: &Arc<SliceOwner>,
        number: u128,
        usable: &UsableBlocks,
    ) -> Outcome<u128> {
        match self.access(owner, number) {
            SliceAccess::Own => self.in_slice(number),
            SliceAccess::Denied => self.refuse(owner),
            SliceAccess::Assignable => {
                let group = self.group(number);
                let Some(block) = self.block(usable, group) else {
                    return self.refuse(owner);
                };
                self.begin(group, block, Arc::clone(owner));
                Outcome::First(Preparation::AssignSlice(block))
            }
        }
    }

    /// A number of a slice, unless the slice has to be resumed first.
    fn in_slice(&self, number: u128) -> Outcome<u128> {
        match self.slice_of(number) {
            Some(slice) if slice.info.empty_since.is_some() => {
                Outcome::First(Preparation::ResumeSlice(slice.block))
            }
            _ => Outcome::Offer(number),
        }
    }

    /// The owner gets nothing.
    fn refuse(&self, owner: &Arc<SliceOwner>) -> Outcome<u128> {
        Outcome::NotNow(Reason::SliceUnavailable(self.describe(owner)))
    }

    /// Whether an owner may have a number.
    pub(in super::super) fn access(&self, owner: &SliceOwner, number: u128) -> SliceAccess {
        match self.slice_of(number) {
            Some(slice) if slice.is_of(owner) => SliceAccess::Own,
            None if self.can_assign(owner) && self.assignable.contains(self.group(number)) => {
                SliceAccess::Assignable
            }
            Some(_) | None => SliceAccess::Denied,
        }
    }

    /// Whether another slice can be assigned to an owner. One after the other: the first addresses
    /// of the pending one may be enough.
    fn can_assign(&self, owner: &SliceOwner) -> bool {
        if self.assignable.is_empty() {
            return false;
        }
        let Some(holding) = self.owners.get(owner) else {
            return self.rules.most_each != Some(0);
        };
        let is_at_limit = self
            .rules
            .most_each
            .is_some_and(|most| holding.slices >= most);
        !holding.is_pending && !is_at_limit
    }

    /// How many more addresses an owner may have.
    pub(in super::super) fn room(&self, owner: &SliceOwner) -> usize {
        let mut room = 0_u128;
        if let Some(holding) = self.owners.get(owner) {
            let remembered = holding.remembered.len() as u128;
            room = holding.free.len().saturating_add(remembered);
        }
        if self.can_assign(owner) {
            room = room.saturating_add(self.rules.size());
        }
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Whether an owner has no free address, and only because no slice is free.
    pub(in super::super) fn lacks_addresses(&self, owner: &Arc<SliceOwner>) -> bool {
        let is_refused = matches!(self.describe(owner), SliceRefusal::NoFreeSlice { .. });
        is_refused && self.room(owner) == 0
    }

    /// Why an owner may have no further address.
    pub(in super::super) fn describe(&self, owner: &Arc<SliceOwner>) -> SliceRefusal {
        let owner = Arc::clone(owner);
        let mut slices = 0;
        if let Some(holding) = self.owners.get(&owner) {
            if holding.is_pending {
                return SliceRefusal::Pending { owner };
            }
            slices = holding.slices;
        }
        match self.rules.most_each {
            Some(most) if slices >= most => SliceRefusal::Limit { owner, most },
            _ => SliceRefusal::NoFreeSlice { owner, slices },
        }
    }
}

impl Holding {
    /// A free number by the order of the pool. One that a claim with a turn has requested is chosen
    /// only if all that are tried are.
    fn choose_free(
        &mut self,
        order: AllocationOrder,
        usable: &UsableBlocks,
        is_granted: impl Fn(u128) -> bool,
        draw: impl FnMut(u128) -> u128,
    ) -> Option<u128> {
        if self.free.is_empty() {
            return None;
        }
        let free = &self.free;
        let all = || self.all.spans().collect();
        let chosen = self.order.choose(order, usable, all, free, 0, draw)?;
        // The search goes round: no number is tried twice.
        let tries = free.len().min(MAX_TRIES);
        let mut number = chosen;
        for _ in 0..tries {
            if !is_granted(number) {
                return Some(number);
            }
            number = free.next_above(number)?;
        }
        Some(chosen)
    }

    /// The number that has been remembered for the longest time, and that no claim with a turn has
    /// requested.
    fn oldest_remembered(&self, is_granted: impl Fn(u128) -> bool) -> Option<u128> {
        for (_, number) in &self.remembered {
            if !is_granted(*number) {
                return Some(*number);
            }
        }
        None
    }
}
