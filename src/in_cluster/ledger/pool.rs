//! The ledger's entry of one pool: its settings, counts, free addresses and wait queue.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use capi_ipam_ip::{Block, FreeSet, SpanSet, Usable};

use super::usage::AddressUsage;
use super::{ClaimKey, PoolInfo, Priority, WaitQueue};
use crate::api::{AddressCounts, PoolKey, Scope, Slot};

/// One pool. Its object may be missing: addresses can be in use after the pool is deleted.
#[derive(Default)]
pub(super) struct PoolEntry {
    /// As the pool object declares it; `None` without an object.
    pub(super) declared: Option<PoolInfo>,
    /// The same, with the restrictions of its network.
    pub(super) info: Option<PoolInfo>,
    pub(super) wait_queue: WaitQueue,
    pub(super) listing: u32,
    /// Whether the pool's controller is already enqueued for the latest changes.
    pub(super) notified: bool,
    /// The scope of its addresses; kept while a deleted pool still has addresses in use.
    pub(super) scope: Option<Scope>,
    /// The free numbers of the pool; `None` while all of them are free.
    free: Option<FreeSet>,
    /// Numbers that overlap with a used block of another length.
    other_lengths: SpanSet,
    /// IPAddress objects of the pool with an address in its range.
    used: usize,
    /// IPAddress objects of the pool with another address.
    out_of_range: usize,
    /// Addresses that cool down, ordered by the second in which they were released.
    cooldowns: BTreeSet<(i64, Slot)>,
    /// How many of these are in the pool's range.
    cooling_down: usize,
}

/// How a block that became used or free affects a pool.
pub(super) enum Effect {
    /// Not at all: the block is not in the pool.
    OutOfPool,
    /// The free set was updated.
    Updated,
    /// The block has another length than those of the pool: the pool has to be recounted.
    LengthMismatch,
}

impl PoolEntry {
    fn usable(&self) -> Option<&Usable> {
        self.info.as_ref()?.usable.as_deref().ok()
    }

    pub(super) fn scope(&self, key: &PoolKey) -> Scope {
        self.scope.clone().unwrap_or_else(|| Scope::Pool(key.clone()))
    }

    /// Records that a block of the pool's scope became used or free.
    pub(super) fn set_free(&mut self, block: Block, is_free: bool) -> Effect {
        let Some(usable) = self.info.as_ref().and_then(|info| info.usable.as_deref().ok()) else {
            return Effect::OutOfPool;
        };
        let Some(number) = usable.number(block) else {
            let numbers = usable.numbers_overlapping(block).map(SpanSet::from).unwrap_or_default();
            return if numbers.intersect(&usable.set).is_empty() { Effect::OutOfPool } else { Effect::LengthMismatch };
        };
        if !usable.set.contains(number) {
            return Effect::OutOfPool;
        }
        match &mut self.free {
            Some(free) if !is_free => drop(free.take(number)),
            Some(free) if !self.other_lengths.contains(number) => drop(free.release(number)),
            None if !is_free => self.free = Some(FreeSet::without(&usable.set, std::iter::once(number))),
            Some(_) | None => {}
        }
        Effect::Updated
    }

    /// Counts an IPAddress of this pool that was added or removed.
    pub(super) fn count_address(&mut self, block: Block, is_added: bool) {
        let in_range = self.usable().is_some_and(|usable| usable.contains(block));
        let count = if in_range { &mut self.used } else { &mut self.out_of_range };
        *count = if is_added { count.saturating_add(1) } else { count.saturating_sub(1) };
    }

    /// Records that a cool-down of an address of this pool started or ended.
    pub(super) fn set_cooldown(&mut self, since: i64, slot: Slot, is_started: bool) {
        let in_range = self.usable().is_some_and(|usable| usable.contains(slot.block));
        if is_started {
            let is_new = self.cooldowns.insert((since, slot));
            self.cooling_down = self.cooling_down.saturating_add(usize::from(is_new && in_range));
        } else {
            let was_known = self.cooldowns.remove(&(since, slot));
            self.cooling_down = self.cooling_down.saturating_sub(usize::from(was_known && in_range));
        }
    }

    /// Computes the free set and the counts again from all used blocks of the pool's scope.
    pub(super) fn recount(&mut self, key: &PoolKey, usage: &HashMap<Block, AddressUsage>) {
        let Some(usable) = self.info.as_ref().and_then(|info| info.usable.as_ref().ok()) else {
            (self.free, self.other_lengths, self.used, self.cooling_down) = (None, SpanSet::default(), 0, 0);
            self.out_of_range = usage.values().filter(|usage| usage.pools().contains(key)).count();
            return;
        };
        let mut numbers = usage
            .keys()
            .filter_map(|block| usable.number(*block))
            .filter(|number| usable.set.contains(*number))
            .peekable();
        let other_lengths = usage.keys().filter(|block| usable.number(**block).is_none());
        let other_lengths: SpanSet = other_lengths.filter_map(|block| usable.numbers_overlapping(*block)).collect();
        let is_all_free = other_lengths.is_empty() && numbers.peek().is_none();
        let free = (!is_all_free).then(|| FreeSet::without(&usable.set.subtract(&other_lengths), numbers));
        let mine = usage.iter().filter(|(_, usage)| usage.owners.iter().any(|owner| owner.pool == *key));
        let (inside, outside): (Vec<_>, Vec<_>) = mine.partition(|(block, _)| usable.contains(**block));
        (self.used, self.out_of_range) = (inside.len(), outside.len());
        self.cooling_down = self.cooldowns.iter().filter(|(_, slot)| usable.contains(slot.block)).count();
        (self.free, self.other_lengths) = (free, other_lengths);
    }

    fn free_count(&self) -> u128 {
        let can_allocate = self.info.as_ref().is_some_and(PoolInfo::can_allocate);
        if can_allocate { self.free_addresses() } else { 0 }
    }

    fn free_addresses(&self) -> u128 {
        let all = || self.usable().map(|usable| usable.set.len()).unwrap_or_default();
        self.free.as_ref().map_or_else(all, FreeSet::len)
    }

    pub(super) fn grant_turns(&mut self, now: Instant) -> Vec<ClaimKey> {
        let free = self.free_count();
        self.wait_queue.grant(free, now)
    }

    /// Returns the lowest free block if it is the claim's turn; otherwise enqueues the claim.
    pub(super) fn propose(&mut self, claim: &ClaimKey, priority: Priority) -> Option<Block> {
        let free = self.free_count();
        if !self.wait_queue.request(claim, priority, free) {
            return None;
        }
        let usable = self.usable()?;
        let lowest = self.free.as_ref().map_or_else(|| usable.set.lowest(), FreeSet::lowest)?;
        Some(usable.block(lowest))
    }

    pub(super) fn counts(&self) -> AddressCounts {
        let total = self.usable().map(|usable| usable.set.len()).unwrap_or_default();
        let free = self.free_addresses();
        let (used, cooling_down) = (self.used as u128, self.cooling_down as u128);
        AddressCounts {
            total: capped(total),
            free: capped(free),
            used: capped(used),
            out_of_range: capped(self.out_of_range as u128),
            cooling_down: capped(cooling_down),
            reserved: capped(total.saturating_sub(free).saturating_sub(used).saturating_sub(cooling_down)),
        }
    }

    #[cfg(test)]
    pub(super) fn has_free_list(&self) -> bool {
        self.free.is_some()
    }

    pub(super) fn has_addresses(&self) -> bool {
        self.used > 0 || self.out_of_range > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.info.is_none() && !self.has_addresses() && self.cooldowns.is_empty() && self.wait_queue.is_empty()
    }

    pub(super) fn has_cooldowns(&self) -> bool {
        !self.cooldowns.is_empty()
    }

    pub(super) fn cooling_down(&self) -> impl Iterator<Item = &Slot> {
        self.cooldowns.iter().map(|(_, slot)| slot)
    }

    /// The first second at which an address released at `since` can be reused. Times are truncated to seconds, so the
    /// last second of the cool-down has to be over. In a pool that is deleted or has no grace period, a cool-down ends
    /// immediately.
    fn cooldown_end(&self, since: i64) -> i64 {
        let pool = self.info.as_ref().filter(|info| !info.deleting && info.cooldown_seconds > 0);
        pool.map_or(i64::MIN, |info| since.saturating_add(info.cooldown_seconds).saturating_add(1))
    }

    /// The earliest second at which a cool-down ends; `None` if no address is cooling down.
    pub(super) fn next_cooldown_end(&self) -> Option<i64> {
        self.cooldowns.first().map(|(since, _)| self.cooldown_end(*since))
    }

    /// The addresses whose cool-down has ended at the second `now`.
    pub(super) fn cooled_down(&self, now: i64) -> impl Iterator<Item = &Slot> {
        let over = move |(since, _): &&(i64, Slot)| self.cooldown_end(*since) <= now;
        self.cooldowns.iter().take_while(over).map(|(_, slot)| slot)
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
