//! What a claim of an owner gets of a pool with slices, and why it gets nothing.

use std::sync::Arc;

use capi_ipam_api::{AllocationOrder, SliceOwner};
use capi_ipam_ip::UsableBlocks;

use super::super::outcome::{Outcome, Preparation, Reason};
use super::super::slice_refusal::SliceRefusal;
use super::{Holding, Slices};

/// The number of free addresses that are tried to find one that no claim requests.
const MAX_TRIES: usize = 16;

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
        if let Some(holding) = self
            .owners
            .get_mut(owner)
            .filter(|holding| !holding.free.is_empty())
        {
            let Holding {
                order: state,
                all,
                free,
                ..
            } = holding;
            let number = state.choose(order, usable, || all.spans().collect(), free, 0, draw);
            let above = std::iter::successors(number, |number| free.next_above(*number));
            let tries = usize::try_from(free.len())
                .unwrap_or(usize::MAX)
                .min(MAX_TRIES);
            let other = above.take(tries).find(|number| !is_granted(*number));
            return match other.or(number) {
                Some(number) => self.in_slice(number),
                None => self.refuse(owner),
            };
        }
        let oldest = self.owners.get(owner).and_then(|holding| {
            let mut remembered = holding.remembered.iter().map(|(_, number)| *number);
            remembered.find(|number| !is_granted(*number))
        });
        if let Some(number) = oldest {
            return self.in_slice(number);
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

    /// Chooses a number, which is free, for a claim of an owner.
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
            Some(slice)
                if slice.info.owner.as_deref() == Some(owner) && !slice.info.is_returning =>
            {
                SliceAccess::Own
            }
            None if self.can_assign(owner) && self.assignable.contains(self.group(number)) => {
                SliceAccess::Assignable
            }
            Some(_) | None => SliceAccess::Denied,
        }
    }

    fn can_assign(&self, owner: &SliceOwner) -> bool {
        let holding = self.owners.get(owner);
        let is_pending = holding.is_some_and(|holding| holding.is_pending);
        let count = holding.map(|holding| holding.slices).unwrap_or_default();
        !is_pending
            && !self.assignable.is_empty()
            && self.rules.most_each.is_none_or(|most| count < most)
    }

    /// How many more addresses an owner may have.
    pub(in super::super) fn room(&self, owner: &SliceOwner) -> usize {
        let holding = self.owners.get(owner);
        let free = holding.map(|holding| {
            holding
                .free
                .len()
                .saturating_add(holding.remembered.len() as u128)
        });
        let free = free.unwrap_or_default();
        let more = if self.can_assign(owner) {
            self.rules.size()
        } else {
            0
        };
        usize::try_from(free.saturating_add(more)).unwrap_or(usize::MAX)
    }

    /// Why an owner may have no further address.
    pub(in super::super) fn describe(&self, owner: &Arc<SliceOwner>) -> SliceRefusal {
        let holding = self.owners.get(owner);
        let slices = holding.map(|holding| holding.slices).unwrap_or_default();
        match self.rules.most_each {
            _ if holding.is_some_and(|holding| holding.is_pending) => SliceRefusal::Pending {
                owner: Arc::clone(owner),
            },
            Some(most) if slices >= most => SliceRefusal::Limit {
                owner: Arc::clone(owner),
                most,
            },
            _ => SliceRefusal::NoFreeSlice {
                owner: Arc::clone(owner),
                slices,
            },
        }
    }
}
