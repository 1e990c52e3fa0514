//! What a claim of an owner gets of a pool with slices, and why it gets nothing.

use std::fmt;
use std::sync::Arc;

use capi_ipam_api::{AllocationOrder, SliceOwner};
use capi_ipam_ip::{Block, UsableBlocks};

use super::{Holding, Slices};

/// The number of free addresses that are tried to find one that no claim requests.
const MAX_TRIES: usize = 16;

/// Why a claim gets no address of a pool with slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SliceRefusal {
    /// A slice is being assigned to the owner.
    Pending {
        /// The owner.
        owner: Arc<SliceOwner>,
    },
    /// The owner has as many slices as it may have.
    Limit {
        /// The owner.
        owner: Arc<SliceOwner>,
        /// The maximum number of slices.
        most: usize,
    },
    /// No slice can be assigned to the owner.
    NoFreeSlice {
        /// The owner.
        owner: Arc<SliceOwner>,
        /// The number of its slices.
        slices: usize,
    },
}

impl fmt::Display for SliceRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending { owner } => write!(formatter, "a slice is being assigned to {owner}"),
            Self::Limit { owner, most } => {
                write!(
                    formatter,
                    "the {most} slices that {owner} may have (spec.slices.mostEach) have no free address"
                )
            }
            Self::NoFreeSlice { owner, slices: 0 } => {
                write!(formatter, "no slice is free for {owner}")
            }
            Self::NoFreeSlice { owner, slices } => {
                write!(
                    formatter,
                    "the {slices} slices of {owner} have no free address, and no slice is free"
                )
            }
        }
    }
}

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

/// What a claim of an owner gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Choice {
    /// The number of a free address.
    Number(u128),
    /// The owner has no free address, and this slice is to be assigned to it.
    Assign(Block),
    /// The address is in this slice, which is marked as empty.
    Resume(Block),
    /// Nothing.
    None,
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
    ) -> Choice {
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
            return other
                .or(number)
                .map_or(Choice::None, |number| self.in_slice(number));
        }
        let oldest = self.owners.get(owner).and_then(|holding| {
            let mut remembered = holding.remembered.iter().map(|(_, number)| *number);
            remembered.find(|number| !is_granted(*number))
        });
        if let Some(number) = oldest {
            return self.in_slice(number);
        }
        if !self.can_assign(owner) {
            return Choice::None;
        }
        let Some(group) = self.assignable.lowest() else {
            return Choice::None;
        };
        let Some(block) = self.block(usable, group) else {
            return Choice::None;
        };
        self.begin(group, block, Arc::clone(owner));
        Choice::Assign(block)
    }

    /// Chooses a number, which is free, for a claim of an owner.
    pub(in super::super) fn choose_number(
        &mut self,
        owner: &Arc<SliceOwner>,
        number: u128,
        usable: &UsableBlocks,
    ) -> Choice {
        match self.access(owner, number) {
            SliceAccess::Own => self.in_slice(number),
            SliceAccess::Denied => Choice::None,
            SliceAccess::Assignable => {
                let group = self.group(number);
                let Some(block) = self.block(usable, group) else {
                    return Choice::None;
                };
                self.begin(group, block, Arc::clone(owner));
                Choice::Assign(block)
            }
        }
    }

    /// A number of a slice, unless the slice has to be resumed first.
    fn in_slice(&self, number: u128) -> Choice {
        match self.slice_of(number) {
            Some(slice) if slice.info.empty_since.is_some() => Choice::Resume(slice.block),
            _ => Choice::Number(number),
        }
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
