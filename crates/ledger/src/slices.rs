//! The slices of a pool, and the free addresses of each owner: a structure without clock, lock or
//! I/O.

mod choice;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capi_ipam_api::{SliceCounts, SliceOwner, SliceRules};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, FreeSet, Span, SpanSet, UsableBlocks};
use capi_ipam_objects::observed::{Known, Stamp};

pub(super) use self::choice::SliceAccess;
use super::order::Order;

/// What the ledger keeps of an IPSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SliceInfo {
    pub(super) uid: Box<str>,
    /// When it was last seen.
    pub(super) stamp: Stamp,
    /// The owner; `None` for an object that is not valid: its name takes the block, and nobody gets
    /// its addresses.
    pub(super) owner: Option<Arc<SliceOwner>>,
    /// Whether a user created it: it is never returned.
    pub(super) is_pinned: bool,
    /// Since when no address of it is in use, in seconds since the Unix epoch.
    pub(super) empty_since: Option<i64>,
    /// When it was moved or restored to this cluster, in seconds since the Unix epoch.
    pub(super) restored_at: Option<i64>,
    /// Whether it is being deleted by this process: none of its addresses is allocated.
    pub(super) is_returning: bool,
}

impl SliceInfo {
    /// When it was last seen, and its uid.
    pub(super) fn known(&self) -> Known {
        Known {
            uid: Uid::of(&self.uid),
            stamp: self.stamp,
        }
    }
}

/// What a pool contains that is divided into slices.
#[derive(Clone, Copy)]
pub(super) struct Contents<'a> {
    pub(super) usable: &'a UsableBlocks,
    /// The free numbers; `None`: all of them.
    pub(super) free: Option<&'a FreeSet>,
    /// Numbers that are kept for the next claims of the same names, the oldest first.
    pub(super) remembered: &'a BTreeSet<(i64, u128)>,
    /// When the blocks in use were allocated, in microseconds since the Unix epoch; only with
    /// RoundRobin.
    pub(super) allocated: &'a BTreeMap<Block, i64>,
}

/// The slices of one owner, and their free numbers.
#[derive(Default)]
struct Holding {
    slices: usize,
    /// Whether a slice is being assigned to it.
    is_pending: bool,
    /// All numbers of the pool in the slices.
    all: FreeSet,
    free: FreeSet,
    /// Numbers that are kept for the next claims of the same names, the oldest first.
    remembered: BTreeSet<(i64, u128)>,
    order: Order,
}

/// A slice that is being assigned: its IPSlice is being created.
struct Pending {
    owner: Arc<SliceOwner>,
    /// Its number among the groups of the pool.
    group: u128,
}

/// A slice in the range of the pool.
struct Assigned {
    last: u128,
    block: Block,
    info: SliceInfo,
}

/// How a pool is divided into slices.
///
/// The numbers of the pool are divided into groups of the size of a slice. A group can be assigned
/// if it has no slice and all its numbers are free.
pub(super) struct Slices {
    rules: Arc<SliceRules>,
    /// The groups that have a number of the pool.
    groups: SpanSet,
    /// The groups that can be assigned.
    assignable: FreeSet,
    /// The count of numbers of each group that are not free.
    in_use: BTreeMap<u128, u64>,
    /// The slices by their first number.
    assigned: BTreeMap<u128, Assigned>,
    owners: HashMap<Arc<SliceOwner>, Holding>,
    /// The slices that are being assigned. By block, since the pool can number its groups
    /// differently when the assignment ends.
    pending: HashMap<Block, Pending>,
    /// Owners that have more free addresses since this was last taken.
    freed: Vec<Arc<SliceOwner>>,
    /// Whether a group can be assigned that could not be before.
    is_group_freed: bool,
}

impl Slices {
    /// Divides a pool into slices. `all` are its numbers, apart from those that overlap with blocks
    /// of another length. What is being assigned, and the positions of RoundRobin, are those of
    /// `previous`.
    pub(super) fn new(
        rules: Arc<SliceRules>,
        contents: Contents<'_>,
        all: &SpanSet,
        objects: &BTreeMap<Block, SliceInfo>,
        previous: Option<&Self>,
    ) -> Self {
        let shift = rules.shift;
        let group = |number: u128| number.checked_shr(shift).unwrap_or_default();
        let group_span = |span: &Span| Span::new(group(span.first()), group(span.last()));
        let allocatable = contents.usable.allocatable();
        let groups: SpanSet = allocatable.spans().iter().filter_map(group_span).collect();
        let mut slices = Self {
            rules,
            assignable: FreeSet::new(&groups),
            groups,
            in_use: BTreeMap::new(),
            assigned: BTreeMap::new(),
            owners: HashMap::new(),
            pending: HashMap::new(),
            freed: Vec::new(),
            is_group_freed: true,
        };
        let taken = contents
            .free
            .map(|free| all.subtract(&free.spans().collect()))
            .unwrap_or_default();
        for span in taken.spans() {
            slices.count_taken(*span);
        }
        for (block, info) in objects {
            slices.insert(contents, *block, info.clone());
        }
        if let Some(previous) = previous {
            slices.continue_from(previous, contents.usable);
        }
        slices
    }

    /// Takes over what does not depend on the blocks of the pool, and the assignments of blocks
    /// that are still groups of it. The owner of any other can be assigned a slice of the pool as
    /// it is now.
    fn continue_from(&mut self, previous: &Self, usable: &UsableBlocks) {
        for (block, pending) in &previous.pending {
            match self.group_of(usable, *block) {
                Some(group) => self.begin(group, *block, Arc::clone(&pending.owner)),
                None => self.freed.push(Arc::clone(&pending.owner)),
            }
        }
        for (owner, holding) in &mut self.owners {
            if let Some(known) = previous.owners.get(owner) {
                holding.order.continue_from(&known.order);
            }
        }
    }

    /// Counts numbers in use, one group after the other.
    fn count_taken(&mut self, span: Span) {
        let mut first = span.first();
        loop {
            let group = self.group(first);
            let last = self
                .numbers(group)
                .map_or(span.last(), |numbers| numbers.last().min(span.last()));
            let count =
                u64::try_from(last.saturating_sub(first).saturating_add(1)).unwrap_or(u64::MAX);
            let known = self.in_use.entry(group).or_default();
            *known = known.saturating_add(count);
            self.assignable.take(group);
            match last.checked_add(1).filter(|next| *next <= span.last()) {
                Some(next) => first = next,
                None => return,
            }
        }
    }

    fn group(&self, number: u128) -> u128 {
        number.checked_shr(self.rules.shift).unwrap_or_default()
    }

    /// The numbers of a group.
    fn numbers(&self, group: u128) -> Option<Span> {
        let first = group.checked_shl(self.rules.shift)?;
        Span::new(
            first,
            first.saturating_add(self.rules.size().saturating_sub(1)),
        )
    }

    /// The block of a group.
    fn block(&self, usable: &UsableBlocks, group: u128) -> Option<Block> {
        let first = usable.block(self.numbers(group)?.first());
        let length = u32::from(usable.length).checked_sub(self.rules.shift)?;
        Some(Block::new(first.base(), u8::try_from(length).ok()?))
    }

    /// The group with exactly this block, if it has no slice.
    fn group_of(&self, usable: &UsableBlocks, block: Block) -> Option<u128> {
        let span = usable.numbers_overlapping(block)?;
        let group = self.group(span.first());
        let is_group = self.groups.contains(group) && self.block(usable, group) == Some(block);
        (is_group && self.overlapping(span).next().is_none()).then_some(group)
    }

    /// Updates which groups of a span can be assigned. Linear in those with an address in use.
    fn refresh(&mut self, span: Span) {
        let Some(groups) = Span::new(self.group(span.first()), self.group(span.last())) else {
            return;
        };
        let before = self.assignable.len();
        let of_pool = self.groups.intersect(&SpanSet::from(groups));
        for span in of_pool.spans() {
            self.assignable.release_span(*span);
        }
        let first = self
            .numbers(groups.first())
            .map_or(span.first(), Span::first);
        let last = self.numbers(groups.last()).map_or(span.last(), Span::last);
        let slices: Vec<Span> = Span::new(first, last)
            .into_iter()
            .flat_map(|span| self.overlapping(span))
            .filter_map(|(slice, _)| Span::new(self.group(slice.first()), self.group(slice.last())))
            .collect();
        let pending = self.pending.values().map(|pending| pending.group);
        let in_use = self
            .in_use
            .range(groups.first()..=groups.last())
            .map(|(group, _)| *group);
        for group in in_use.chain(pending) {
            self.assignable.take(group);
        }
        for slice in slices {
            self.assignable.take_span(slice);
        }
        self.is_group_freed |= self.assignable.len() > before;
    }

    /// The slices that overlap with a span.
    fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, &Assigned)> {
        let before = self
            .assigned
            .range(..=span.first())
            .next_back()
            .map(|(first, _)| *first);
        let from = before.unwrap_or(span.first());
        let range = self.assigned.range(from..=span.last());
        let spans = range
            .filter_map(|(first, assigned)| Some((Span::new(*first, assigned.last)?, assigned)));
        spans.filter(move |(slice, _)| slice.last() >= span.first())
    }

    /// Records a slice. One outside of the pool has no effect, and so has one that overlaps with
    /// another one.
    pub(super) fn insert(&mut self, contents: Contents<'_>, block: Block, info: SliceInfo) {
        let usable = contents.usable;
        let Some(span) = Self::span_in(usable, block) else {
            return;
        };
        if let Some(known) = self.assigned.get_mut(&span.first())
            && known.block == block
            && (&known.info.owner, known.info.is_returning) == (&info.owner, info.is_returning)
        {
            known.info = info;
            return;
        }
        self.remove(usable, block);
        if self.overlapping(span).next().is_some() {
            return;
        }
        self.end_pending(block);
        let Some(owner) = info.owner.clone() else {
            self.assigned.insert(
                span.first(),
                Assigned {
                    last: span.last(),
                    block,
                    info,
                },
            );
            self.refresh(span);
            return;
        };
        let holding = self.owners.entry(Arc::clone(&owner)).or_default();
        holding.slices = holding.slices.saturating_add(1);
        holding.order.reset();
        if !info.is_returning {
            let all: SpanSet = usable.allocatable().intersect(&SpanSet::from(span));
            for span in all.spans() {
                holding.all.release_span(*span);
                if contents.free.is_none() {
                    holding.free.release_span(*span);
                }
            }
            if let Some(free) = contents.free {
                for span in free.within(span) {
                    holding.free.release_span(span);
                }
            }
            let remembered = contents
                .remembered
                .iter()
                .filter(|(_, number)| span.contains(*number));
            holding.remembered.extend(remembered);
        }
        let allocated = contents
            .allocated
            .range(usable.block(span.first())..=usable.block(span.last()));
        for (block, at) in allocated {
            holding.order.record(*block, *at);
        }
        self.assigned.insert(
            span.first(),
            Assigned {
                last: span.last(),
                block,
                info,
            },
        );
        self.freed.push(owner);
        self.refresh(span);
    }

    /// The numbers of a block, if one of them is in the pool.
    fn span_in(usable: &UsableBlocks, block: Block) -> Option<Span> {
        let span = usable.numbers_overlapping(block)?;
        (!usable.set.intersect(&SpanSet::from(span)).is_empty()).then_some(span)
    }

    /// Removes a slice.
    pub(super) fn remove(&mut self, usable: &UsableBlocks, block: Block) {
        let Some(span) = usable.numbers_overlapping(block) else {
            return;
        };
        if self
            .assigned
            .get(&span.first())
            .is_none_or(|known| known.block != block)
        {
            return;
        }
        let Some(known) = self.assigned.remove(&span.first()) else {
            return;
        };
        let Some(owner) = known.info.owner else {
            self.refresh(span);
            return;
        };
        if let Some(holding) = self.owners.get_mut(&owner) {
            holding.slices = holding.slices.saturating_sub(1);
            holding.all.take_span(span);
            holding.free.take_span(span);
            holding
                .remembered
                .retain(|(_, number)| !span.contains(*number));
            holding.order.reset();
            if holding.slices == 0 && !holding.is_pending {
                self.owners.remove(&owner);
            }
        }
        self.freed.push(owner);
        self.refresh(span);
    }

    /// Records that a number became free, or is no longer free.
    pub(super) fn set_free(&mut self, number: u128, is_free: bool) {
        let group = self.group(number);
        if is_free {
            let is_empty = self.in_use.get_mut(&group).is_some_and(|count| {
                *count = count.saturating_sub(1);
                *count == 0
            });
            if is_empty {
                self.in_use.remove(&group);
                self.refresh(Span::single(number));
            }
        } else {
            let count = self.in_use.entry(group).or_default();
            *count = count.saturating_add(1);
            self.assignable.take(group);
        }
        let Some(owner) = self.owner_of(number) else {
            return;
        };
        let Some(holding) = self.owners.get_mut(&owner) else {
            return;
        };
        let is_changed = if is_free {
            holding.free.release(number)
        } else {
            holding.free.take(number)
        };
        if is_changed {
            holding.order.set_free(number, is_free);
            if is_free {
                self.freed.push(owner);
            }
        }
    }

    /// Records that a number is kept for the next claim of a name, or no longer.
    pub(super) fn set_remembered(&mut self, since: i64, number: u128, is_remembered: bool) {
        let Some(owner) = self.owner_of(number) else {
            return;
        };
        let Some(holding) = self.owners.get_mut(&owner) else {
            return;
        };
        if is_remembered {
            holding.remembered.insert((since, number));
            self.freed.push(owner);
        } else {
            holding.remembered.remove(&(since, number));
        }
    }

    /// Records that a block was allocated, also by another process.
    pub(super) fn record(&mut self, usable: &UsableBlocks, block: Block, at: i64) {
        let slice = usable
            .number(block)
            .and_then(|number| self.slice_of(number));
        let owner = slice.and_then(|slice| slice.info.owner.clone());
        if let Some(holding) = owner.and_then(|owner| self.owners.get_mut(&owner)) {
            holding.order.record(block, at);
        }
    }

    fn slice_of(&self, number: u128) -> Option<&Assigned> {
        let (_, slice) = self.assigned.range(..=number).next_back()?;
        (number <= slice.last).then_some(slice)
    }

    /// The owner of the slice with a number, unless the slice is being returned.
    fn owner_of(&self, number: u128) -> Option<Arc<SliceOwner>> {
        let slice = self
            .slice_of(number)
            .filter(|slice| !slice.info.is_returning)?;
        slice.info.owner.clone()
    }

    /// Records that the slice of a group is being assigned.
    fn begin(&mut self, group: u128, block: Block, owner: Arc<SliceOwner>) {
        self.assignable.take(group);
        self.owners
            .entry(Arc::clone(&owner))
            .or_default()
            .is_pending = true;
        self.pending.insert(block, Pending { owner, group });
    }

    /// Records that the request which assigns a slice has ended. The pool can have changed since it
    /// began.
    pub(super) fn end_assignment(&mut self, block: Block) {
        let Some(group) = self.end_pending(block) else {
            return;
        };
        if let Some(numbers) = self.numbers(group) {
            self.refresh(numbers);
        }
    }

    /// Records that a slice is no longer being assigned. Returns its group.
    fn end_pending(&mut self, block: Block) -> Option<u128> {
        let Pending { owner, group } = self.pending.remove(&block)?;
        if let Some(holding) = self.owners.get_mut(&owner) {
            holding.is_pending = false;
            if holding.slices == 0 {
                self.owners.remove(&owner);
            }
        }
        self.freed.push(owner);
        Some(group)
    }

    /// The number of slices that can be assigned.
    pub(super) fn free_slices(&self) -> usize {
        usize::try_from(self.assignable.len()).unwrap_or(usize::MAX)
    }

    /// The number of slices that have an effect.
    pub(super) fn len(&self) -> usize {
        self.assigned.len()
    }

    /// The owners that have more free addresses since the last call, and whether a slice can be
    /// assigned that could not be before.
    pub(super) fn take_freed(&mut self) -> (Vec<Arc<SliceOwner>>, bool) {
        (
            std::mem::take(&mut self.freed),
            std::mem::take(&mut self.is_group_freed),
        )
    }

    /// The counts of the slices. One that is being assigned by this process counts as free: all
    /// managers report the same counts, and the others do not know of it.
    pub(super) fn counts(&self) -> SliceCounts {
        let capped = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
        let has_slice = |group| {
            self.numbers(group)
                .is_some_and(|span| self.overlapping(span).next().is_some())
        };
        let is_free = |pending: &&Pending| {
            !self.in_use.contains_key(&pending.group) && !has_slice(pending.group)
        };
        let pending = self.pending.values().filter(is_free).count();
        SliceCounts {
            total: capped(self.groups.len()),
            assigned: i64::try_from(self.assigned.len()).unwrap_or(i64::MAX),
            free: capped(self.assignable.len().saturating_add(pending as u128)),
        }
    }
}

#[cfg(test)]
mod tests;
