//! What is known of one pool.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use capi_ipam_ip::{Block, FreeSet, SpanSet, Usable};

use crate::api::{AddressCounts, PoolKey, Scope, Slot};
use super::usage::AddressUsage;
use super::{ClaimKey, WaitQueue, PoolInfo, Priority};

/// One pool, whether its object exists or not: addresses can be in use without it.
#[derive(Default)]
pub(super) struct PoolEntry {
    /// What the pool object says.
    pub(super) object: Option<PoolInfo>,
    /// The same, and what its network says.
    pub(super) facts: Option<PoolInfo>,
    pub(super) line: WaitQueue,
    pub(super) listing: u32,
    /// Its controller has been told of a change, or will look by itself, and has not looked since.
    pub(super) told: bool,
    /// Where its addresses are looked up; kept when the pool is gone and addresses of it are not.
    pub(super) scope: Option<Scope>,
    /// The free ones of what the pool gives to claims; `None` while all of it is free.
    free: Option<FreeSet>,
    /// Numbers touched by something taken that is longer or shorter than what the pool gives out.
    odd: SpanSet,
    /// Addresses with an IPAddress object, in the pool's range and outside of it.
    used: usize,
    out_of_range: usize,
    /// Addresses that rest, by the second in which they were released.
    cooling_down: BTreeSet<(i64, Slot)>,
    /// How many of these are in the pool's range.
    cooling_down: usize,
}

/// What came of telling a pool that an address is taken or free.
pub(super) enum Marked {
    /// It is none of the pool's.
    NotMine,
    /// The pool has one free address more or less.
    Changed,
    /// It is not of the pool's length: everything has to be looked at again.
    Odd,
}

impl PoolEntry {
    fn usable(&self) -> Option<&Usable> {
        self.facts.as_ref()?.usable.as_deref().ok()
    }

    pub(super) fn scope(&self, key: &PoolKey) -> Scope {
        self.scope.clone().unwrap_or_else(|| Scope::Pool(key.clone()))
    }

    /// An address of the pool's scope became taken or free.
    pub(super) fn mark(&mut self, block: Block, is_free: bool) -> Marked {
        let Some(usable) = self.facts.as_ref().and_then(|facts| facts.usable.as_deref().ok()) else {
            return Marked::NotMine;
        };
        let Some(number) = usable.number(block) else {
            let touched = usable.numbers_touching(block).map(SpanSet::from).unwrap_or_default();
            return if touched.intersect(&usable.set).is_empty() { Marked::NotMine } else { Marked::Odd };
        };
        if !usable.set.contains(number) {
            return Marked::NotMine;
        }
        match &mut self.free {
            Some(free) if !is_free => drop(free.take(number)),
            Some(free) if !self.odd.contains(number) => drop(free.give_back(number)),
            None if !is_free => self.free = Some(FreeSet::without(&usable.set, std::iter::once(number))),
            Some(_) | None => {}
        }
        Marked::Changed
    }

    /// An IPAddress of this pool has come or gone.
    pub(super) fn count(&mut self, block: Block, came: bool) {
        let in_range = self.usable().is_some_and(|usable| usable.contains(block));
        let count = if in_range { &mut self.used } else { &mut self.out_of_range };
        *count = if came { count.saturating_add(1) } else { count.saturating_sub(1) };
    }

    /// An address of this pool begins or ends to rest.
    pub(super) fn rest(&mut self, since: i64, slot: Slot, begins: bool) {
        let in_range = self.usable().is_some_and(|usable| usable.contains(slot.block));
        if begins {
            let is_new = self.cooling_down.insert((since, slot));
            self.cooling_down = self.cooling_down.saturating_add(usize::from(is_new && in_range));
        } else {
            let was_known = self.cooling_down.remove(&(since, slot));
            self.cooling_down = self.cooling_down.saturating_sub(usize::from(was_known && in_range));
        }
    }

    /// Looks at everything that is taken in the pool's scope anew.
    pub(super) fn recount(&mut self, key: &PoolKey, taken: &HashMap<Block, AddressUsage>) {
        let Some(usable) = self.facts.as_ref().and_then(|facts| facts.usable.as_ref().ok()) else {
            (self.free, self.odd, self.used, self.cooling_down) = (None, SpanSet::default(), 0, 0);
            self.out_of_range = taken.values().filter(|taken| taken.users().contains(key)).count();
            return;
        };
        let mut numbers = taken
            .keys()
            .filter_map(|block| usable.number(*block))
            .filter(|number| usable.set.contains(*number))
            .peekable();
        let odd = taken.keys().filter(|block| usable.number(**block).is_none());
        let odd: SpanSet = odd.filter_map(|block| usable.numbers_touching(*block)).collect();
        let is_all_free = odd.is_empty() && numbers.peek().is_none();
        let free = (!is_all_free).then(|| FreeSet::without(&usable.set.subtract(&odd), numbers));
        let mine = taken.iter().filter(|(_, taken)| taken.holders.iter().any(|holder| holder.pool == *key));
        let (inside, outside): (Vec<_>, Vec<_>) = mine.partition(|(block, _)| usable.contains(**block));
        (self.used, self.out_of_range) = (inside.len(), outside.len());
        self.cooling_down = self.cooling_down.iter().filter(|(_, slot)| usable.contains(slot.block)).count();
        (self.free, self.odd) = (free, odd);
    }

    fn free_count(&self) -> u128 {
        let serves = self.facts.as_ref().is_some_and(PoolInfo::serves);
        if serves { self.free_addresses() } else { 0 }
    }

    fn free_addresses(&self) -> u128 {
        let all = || self.usable().map(|usable| usable.set.len()).unwrap_or_default();
        self.free.as_ref().map_or_else(all, FreeSet::len)
    }

    pub(super) fn grant_turns(&mut self, now: Instant) -> Vec<ClaimKey> {
        let free = self.free_count();
        self.line.call(free, now)
    }

    /// The lowest free address, if it is the claim's turn; otherwise the claim stands in line.
    pub(super) fn propose(&mut self, claim: &ClaimKey, priority: Priority, now: Instant) -> Option<Block> {
        let free = self.free_count();
        if !self.line.admit(claim, priority, free, now) {
            return None;
        }
        let usable = self.usable()?;
        let lowest = self.free.as_ref().map_or_else(|| usable.set.lowest(), FreeSet::lowest)?;
        let block = usable.block(lowest);
        self.line.leave(claim);
        Some(block)
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
        self.facts.is_none() && !self.has_addresses() && self.cooling_down.is_empty() && self.line.is_empty()
    }

    pub(super) fn has_cooldowns(&self) -> bool {
        !self.cooling_down.is_empty()
    }

    pub(super) fn cooling_down(&self) -> impl Iterator<Item = &Slot> {
        self.cooling_down.iter().map(|(_, slot)| slot)
    }

    /// The first second at which an address released at `since` may be used again. Times are kept in whole seconds, cut
    /// off: the last one has to be over. Nobody waits for the cool-down of a pool that does not stay.
    fn cooldown_end(&self, since: i64) -> i64 {
        let stays = self.facts.as_ref().filter(|facts| !facts.deleting && facts.rest > 0);
        stays.map_or(i64::MIN, |facts| since.saturating_add(facts.rest).saturating_add(1))
    }

    /// The earliest second at which a cool-down ends, `None` when no address cools down.
    pub(super) fn next_cooldown_end(&self) -> Option<i64> {
        self.cooling_down.first().map(|(since, _)| self.cooldown_end(*since))
    }

    pub(super) fn cooled_down(&self, now: i64) -> impl Iterator<Item = &Slot> {
        let over = move |(since, _): &&(i64, Slot)| self.cooldown_end(*since) <= now;
        self.cooling_down.iter().take_while(over).map(|(_, slot)| slot)
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
