//! The released and the quarantined addresses of a pool, and for how long it keeps them.

use std::collections::BTreeSet;

use capi_ipam_api::{STICKY_SECONDS, Slot};
use capi_ipam_ip::UsableBlocks;

use crate::PoolInfo;
use crate::addresses::Released;
use crate::count;

/// For how long a pool keeps released addresses. The default is that of a pool which does not
/// exist: every cool-down ends immediately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// The seconds before any claim can get a released address.
    cooldown_seconds: i64,
    /// Whether released addresses are kept for the next claims of the same names.
    pub(crate) is_sticky: bool,
}

impl Retention {
    /// The retention of a pool. All cool-downs of a pool that is being deleted end immediately.
    pub(crate) fn of(pool: Option<&PoolInfo>) -> Self {
        match pool {
            Some(info) if !info.deleting => Self {
                cooldown_seconds: info.cooldown_seconds,
                is_sticky: info.is_sticky,
            },
            _ => Self::default(),
        }
    }

    /// The first second at which an address released at `since` can be reused.
    pub(crate) fn cooldown_end(self, since: i64) -> i64 {
        if self.cooldown_seconds > 0 {
            first_second_after(since, self.cooldown_seconds)
        } else {
            i64::MIN
        }
    }

    /// The first second at which an address released at `since` is no longer kept for the next
    /// claim of the same name.
    fn memory_end(self, since: i64) -> i64 {
        if self.is_sticky {
            first_second_after(since, self.cooldown_seconds.max(STICKY_SECONDS))
        } else {
            i64::MIN
        }
    }

    /// Whether an address released at `since` is only kept for the next claim of the same name at
    /// the second `now`.
    pub(crate) fn is_remembered(self, since: i64, now: i64) -> bool {
        self.is_sticky && self.cooldown_end(since) <= now
    }
}

/// The first second after a period that begins in the second `since`. Times are truncated to
/// seconds, so the last second of the period has to be over.
fn first_second_after(since: i64, seconds: i64) -> i64 {
    since.saturating_add(seconds).saturating_add(1)
}

/// The first second at which an address can be allocated whose quarantine ends in the second `until`.
pub(crate) fn quarantine_end(until: i64) -> i64 {
    first_second_after(until, 0)
}

/// Addresses, each with the second in which it was released or in which its quarantine ends, in this
/// order.
type BySecond = BTreeSet<(i64, Slot)>;

/// The released and the quarantined addresses of a pool that have a reservation.
#[derive(Debug, Default)]
pub(crate) struct ReleasedAddresses {
    /// Addresses that cool down.
    cooldowns: BySecond,
    /// Addresses that are kept for the next claim of the same name.
    memories: BySecond,
    /// Addresses that are in use by an IPAddress: no reservation of them is deleted.
    in_use: BySecond,
    /// Quarantined addresses.
    quarantines: BySecond,
    /// How many of those that cool down are in the range of the pool.
    cooling_down: usize,
    /// How many of the quarantined ones are in the range of the pool.
    quarantined: usize,
}

impl ReleasedAddresses {
    pub(crate) fn is_empty(&self) -> bool {
        let mut all = [
            &self.cooldowns,
            &self.memories,
            &self.in_use,
            &self.quarantines,
        ]
        .into_iter();
        all.all(BTreeSet::is_empty)
    }

    /// How many addresses in the range of the pool cool down.
    pub(crate) fn cooling_down(&self) -> usize {
        self.cooling_down
    }

    /// How many addresses in the range of the pool are quarantined.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined
    }

    /// Records that an address cools down, is remembered, in use or quarantined, or no longer.
    pub(crate) fn set(
        &mut self,
        slot: &Slot,
        released: &Released,
        is_started: bool,
        is_in_range: bool,
    ) {
        let key = (released.since, slot.clone());
        let (addresses, counter) = if released.is_quarantined {
            (&mut self.quarantines, Some(&mut self.quarantined))
        } else if released.is_in_use {
            (&mut self.in_use, None)
        } else if released.is_remembered {
            (&mut self.memories, None)
        } else {
            (&mut self.cooldowns, Some(&mut self.cooling_down))
        };
        let is_changed = if is_started {
            addresses.insert(key)
        } else {
            addresses.remove(&key)
        };
        if let Some(counter) = counter
            && is_changed
            && is_in_range
        {
            count(counter, is_started);
        }
    }

    /// Counts the addresses in the range of the pool again, after a change of its blocks.
    pub(crate) fn count_in_range(&mut self, usable: &UsableBlocks) {
        let in_range = |addresses: &BySecond| {
            let slots = addresses.iter();
            slots
                .filter(|(_, slot)| usable.contains(slot.block))
                .count()
        };
        self.cooling_down = in_range(&self.cooldowns);
        self.quarantined = in_range(&self.quarantines);
    }

    /// Records that the pool has no usable blocks.
    pub(crate) fn clear_range(&mut self) {
        self.cooling_down = 0;
        self.quarantined = 0;
    }

    /// All released addresses.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let unused = self.cooldowns.iter().chain(&self.memories);
        unused.map(|(_, slot)| slot).chain(self.in_use())
    }

    /// The released addresses that are in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Slot> {
        self.in_use.iter().map(|(_, slot)| slot)
    }

    /// The addresses that were released after a second and are not in use.
    pub(crate) fn released_after(&self, second: i64) -> impl Iterator<Item = &Slot> {
        let cooling_down = released_after(&self.cooldowns, second);
        cooling_down.chain(released_after(&self.memories, second))
    }

    /// The addresses whose quarantine ends after a second.
    pub(crate) fn quarantined_after(&self, second: i64) -> impl Iterator<Item = &Slot> {
        released_after(&self.quarantines, second)
    }

    /// The earliest second at which a cool-down ends; `None` if no address is cooling down.
    pub(crate) fn next_cooldown_end(&self, retention: Retention) -> Option<i64> {
        let (since, _) = self.cooldowns.first()?;
        Some(retention.cooldown_end(*since))
    }

    /// The earliest second at which a reservation of a released or quarantined address is no longer
    /// needed.
    pub(crate) fn next_reservation_end(&self, retention: Retention) -> Option<i64> {
        let memory = self.memories.first();
        let memory_end = memory.map(|(since, _)| retention.memory_end(*since));
        let quarantine = self.quarantines.first();
        let quarantine_end = quarantine.map(|(until, _)| quarantine_end(*until));
        let ends = [
            self.next_cooldown_end(retention),
            memory_end,
            quarantine_end,
        ];
        ends.into_iter().flatten().min()
    }

    /// The addresses whose cool-down has ended at the second `now`. In a sticky pool they are
    /// remembered then.
    pub(crate) fn cooled_down(
        &self,
        retention: Retention,
        now: i64,
    ) -> impl Iterator<Item = &Slot> {
        released_while(&self.cooldowns, move |since| {
            retention.cooldown_end(since) <= now
        })
    }

    /// The addresses whose reservations are no longer needed at the second `now`.
    pub(crate) fn reservations_to_delete(
        &self,
        retention: Retention,
        now: i64,
    ) -> impl Iterator<Item = &Slot> {
        let forgotten = released_while(&self.memories, move |since| {
            retention.memory_end(since) <= now
        });
        let ended = released_while(&self.quarantines, move |until| quarantine_end(until) <= now);
        self.cooled_down(retention, now)
            .chain(forgotten)
            .chain(ended)
    }
}

/// The addresses up to the first one that was released at a second for which `is_included` returns
/// false.
fn released_while(
    addresses: &BySecond,
    is_included: impl Fn(i64) -> bool,
) -> impl Iterator<Item = &Slot> {
    let oldest = addresses.iter();
    oldest.map_while(move |(since, slot)| is_included(*since).then_some(slot))
}

/// The addresses that were released after a second, the newest first.
fn released_after(addresses: &BySecond, second: i64) -> impl Iterator<Item = &Slot> {
    let newest = addresses.iter().rev();
    newest.map_while(move |(since, slot)| (*since > second).then_some(slot))
}
