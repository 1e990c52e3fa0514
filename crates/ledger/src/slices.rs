//! The slices of a pool, and the free addresses of each owner: a structure without clock, lock or
//! I/O.

mod choice;
pub(crate) mod view;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capi_ipam_api::{SliceCounts, SliceOwner, SliceRules};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, FreeSet, Span, SpanSet, UsableBlocks};
use capi_ipam_objects::absence::Absence;
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
    /// Why addresses of it can be missing.
    pub(super) absence: Absence,
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
#[derive(Clone, Default)]
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
#[derive(Clone)]
struct Pending {
    owner: Arc<SliceOwner>,
    /// Its number among the groups of the pool.
    group: u128,
}

/// A slice in the range of the pool.
#[derive(Clone)]
struct Assigned {
    last: u128,
    block: Block,
    info: SliceInfo,
}

impl Assigned {
    /// Whether the slice is one of an owner, and not being returned.
    fn is_of(&self, owner: &SliceOwner) -> bool {
        self.info.owner.as_deref() == Some(owner) && !self.info.is_returning
    }
}

/// How a pool is divided into slices.
///
/// The numbers of the pool are divided into groups of the size of a slice. A group can be assigned
/// if it has no slice and all its numbers are free.
#[derive(Clone)]
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
        if let Some(free) = contents.free {
            let taken = all.subtract(&free.spans().collect());
            for span in taken.spans() {
                slices.count_taken(*span);
            }
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
            let last = match self.numbers(group) {
                Some(numbers) => numbers.last().min(span.last()),
                None => span.last(),
            };
            let count = last.saturating_sub(first).saturating_add(1);
            let known = self.in_use.entry(group).or_default();
            *known = known.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            self.assignable.take(group);
            if last >= span.last() {
                return;
            }
            first = last.saturating_add(1);
        }
    }

    /// The group to which a number belongs.
    fn group(&self, number: u128) -> u128 {
        number.checked_shr(self.rules.shift).unwrap_or_default()
    }

    /// The numbers of a group.
    fn numbers(&self, group: u128) -> Option<Span> {
        let first = group.checked_shl(self.rules.shift)?;
        let others = self.rules.size().saturating_sub(1);
        Span::new(first, first.saturating_add(others))
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
        if is_group && !self.has_slice_in(span) {
            Some(group)
        } else {
            None
        }
    }

    /// The groups to which the numbers of a span belong.
    fn groups_of(&self, span: Span) -> Option<Span> {
        Span::new(self.group(span.first()), self.group(span.last()))
    }

    /// Updates which groups of a span can be assigned. Linear in those with an address in use.
    fn refresh(&mut self, span: Span) {
        let Some(groups) = self.groups_of(span) else {
            return;
        };
        let before = self.assignable.len();
        // All groups of the span, then without those that are not free.
        let of_pool = self.groups.intersect(&SpanSet::from(groups));
        for span in of_pool.spans() {
            self.assignable.release_span(*span);
        }
        for (group, _) in self.in_use.range(groups.first()..=groups.last()) {
            self.assignable.take(*group);
        }
        for pending in self.pending.values() {
            self.assignable.take(pending.group);
        }
        for slice in self.groups_with_slices(span, groups) {
            self.assignable.take_span(slice);
        }
        self.is_group_freed |= self.assignable.len() > before;
    }

    /// The groups of the slices that overlap with the groups of a span.
    fn groups_with_slices(&self, span: Span, groups: Span) -> Vec<Span> {
        let first = match self.numbers(groups.first()) {
            Some(numbers) => numbers.first(),
            None => span.first(),
        };
        let last = match self.numbers(groups.last()) {
            Some(numbers) => numbers.last(),
            None => span.last(),
        };
        let mut found = Vec::new();
        if let Some(numbers) = Span::new(first, last) {
            for (slice, _) in self.overlapping(numbers) {
                found.extend(self.groups_of(slice));
            }
        }
        found
    }

    /// The slices that overlap with a span.
    fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, &Assigned)> {
        // The last slice that begins before the span may extend into it.
        let from = match self.assigned.range(..=span.first()).next_back() {
            Some((first, _)) => *first,
            None => span.first(),
        };
        let nearby = self.assigned.range(from..=span.last());
        nearby.filter_map(move |(first, assigned)| {
            let slice = Span::new(*first, assigned.last)?;
            (slice.last() >= span.first()).then_some((slice, assigned))
        })
    }

    /// Whether a slice overlaps with a span.
    fn has_slice_in(&self, span: Span) -> bool {
        self.overlapping(span).next().is_some()
    }

    /// Records a slice. One outside of the pool has no effect, and so has one that overlaps with
    /// another one.
    pub(super) fn insert(&mut self, contents: Contents<'_>, block: Block, info: SliceInfo) {
        let usable = contents.usable;
        let Some(span) = Self::span_in(usable, block) else {
            return;
        };
        // Most updates, such as a mark that it is empty, do not change who gets which addresses.
        if let Some(known) = self.assigned.get_mut(&span.first())
            && known.block == block
            && known.info.owner == info.owner
            && known.info.is_returning == info.is_returning
        {
            known.info = info;
            return;
        }
        self.remove(usable, block);
        if self.has_slice_in(span) {
            return;
        }
        self.end_pending(block);
        let is_returning = info.is_returning;
        let owner = info.owner.clone();
        let assigned = Assigned {
            last: span.last(),
            block,
            info,
        };
        self.assigned.insert(span.first(), assigned);
        if let Some(owner) = owner {
            let holding = self.owners.entry(Arc::clone(&owner)).or_default();
            holding.insert(contents, span, is_returning);
            self.freed.push(owner);
        }
        self.refresh(span);
    }

    /// The numbers of a block, if one of them is in the pool.
    fn span_in(usable: &UsableBlocks, block: Block) -> Option<Span> {
        let span = usable.numbers_overlapping(block)?;
        if usable.set.overlaps(span) {
            Some(span)
        } else {
            None
        }
    }

    /// Removes a slice.
    pub(super) fn remove(&mut self, usable: &UsableBlocks, block: Block) {
        let Some(span) = usable.numbers_overlapping(block) else {
            return;
        };
        let Entry::Occupied(known) = self.assigned.entry(span.first()) else {
            return;
        };
        if known.get().block != block {
            return;
        }
        if let Some(owner) = known.remove().info.owner {
            if let Some(holding) = self.owners.get_mut(&owner) {
                holding.remove(span);
                if holding.slices == 0 && !holding.is_pending {
                    self.owners.remove(&owner);
                }
            }
            self.freed.push(owner);
        }
        self.refresh(span);
    }

    /// Records that a number became free, or is no longer free.
    pub(super) fn set_free(&mut self, number: u128, is_free: bool) {
        self.count_in_use(number, is_free);
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

    /// Counts a number that became free, or is no longer free, in its group.
    fn count_in_use(&mut self, number: u128, is_free: bool) {
        let group = self.group(number);
        if !is_free {
            let count = self.in_use.entry(group).or_default();
            *count += 1;
            self.assignable.take(group);
            return;
        }
        let Some(count) = self.in_use.get_mut(&group) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.in_use.remove(&group);
            self.refresh(Span::single(number));
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
        let Some(number) = usable.number(block) else {
            return;
        };
        let Some(slice) = self.slice_of(number) else {
            return;
        };
        let Some(owner) = slice.info.owner.clone() else {
            return;
        };
        if let Some(holding) = self.owners.get_mut(&owner) {
            holding.order.record(block, at);
        }
    }

    /// The slice with a number.
    fn slice_of(&self, number: u128) -> Option<&Assigned> {
        let (_, slice) = self.assigned.range(..=number).next_back()?;
        if number <= slice.last {
            Some(slice)
        } else {
            None
        }
    }

    /// The owner of the slice with a number, unless the slice is being returned.
    fn owner_of(&self, number: u128) -> Option<Arc<SliceOwner>> {
        let slice = self.slice_of(number)?;
        if slice.info.is_returning {
            return None;
        }
        slice.info.owner.clone()
    }

    /// Records that the slice of a group is being assigned.
    fn begin(&mut self, group: u128, block: Block, owner: Arc<SliceOwner>) {
        self.assignable.take(group);
        let holding = self.owners.entry(Arc::clone(&owner)).or_default();
        holding.is_pending = true;
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
        let owners = std::mem::take(&mut self.freed);
        let is_group_freed = std::mem::take(&mut self.is_group_freed);
        (owners, is_group_freed)
    }

    /// The counts of the slices. One that is being assigned by this process counts as free: all
    /// managers report the same counts, and the others do not know of it.
    pub(super) fn counts(&self) -> SliceCounts {
        let mut free = self.assignable.len();
        for pending in self.pending.values() {
            if self.is_unused(pending.group) {
                free += 1;
            }
        }
        SliceCounts {
            total: capped(self.groups.len()),
            assigned: capped(self.assigned.len() as u128),
            free: capped(free),
        }
    }

    /// Whether a group has neither an address in use nor a slice.
    fn is_unused(&self, group: u128) -> bool {
        if self.in_use.contains_key(&group) {
            return false;
        }
        match self.numbers(group) {
            Some(span) => !self.has_slice_in(span),
            None => true,
        }
    }
}

impl Holding {
    /// Adds a slice. The addresses of one that is being returned are not allocated.
    fn insert(&mut self, contents: Contents<'_>, slice: Span, is_returning: bool) {
        let usable = contents.usable;
        self.slices += 1;
        self.order.reset();
        if !is_returning {
            let all: SpanSet = usable.allocatable().intersect(&SpanSet::from(slice));
            for span in all.spans() {
                self.all.release_span(*span);
            }
            match contents.free {
                Some(free) => {
                    for span in free.within(slice) {
                        self.free.release_span(span);
                    }
                }
                // All numbers are free.
                None => {
                    for span in all.spans() {
                        self.free.release_span(*span);
                    }
                }
            }
            for (since, number) in contents.remembered {
                if slice.contains(*number) {
                    self.remembered.insert((*since, *number));
                }
            }
        }
        // The order of the owner continues above its latest address.
        let first = usable.block(slice.first());
        let last = usable.block(slice.last());
        for (block, at) in contents.allocated.range(first..=last) {
            self.order.record(*block, *at);
        }
    }

    /// Removes a slice.
    fn remove(&mut self, slice: Span) {
        self.slices = self.slices.saturating_sub(1);
        self.all.take_span(slice);
        self.free.take_span(slice);
        self.remembered
            .retain(|(_, number)| !slice.contains(*number));
        self.order.reset();
    }
}

/// A count for a status.
fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
