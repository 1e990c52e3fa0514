//! The released addresses of a pool, and for how long it keeps them.

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

/// Addresses, each with the second in which it was released, in this order.
type BySecond = BTreeSet<(i64, Slot)>;

/// The released addresses of a pool that have a reservation.
#[derive(Debug, Default)]
pub(crate) struct ReleasedAddresses {
    /// Addresses that cool down.
    cooldowns: BySecond,
    /// Addresses that are kept for the next claim of the same name.
    memories: BySecond,
    /// Addresses that are in use by an IPAddress: no reservation of them is deleted.
    in_use: BySecond,
    /// How many of those that cool down are in the range of the pool.
    cooling_down: usize,
}

impl ReleasedAddresses {
    pub(crate) fn is_empty(&self) -> bool {
        self.cooldowns.is_empty() && self.memories.is_empty() && self.in_use.is_empty()
    }

    /// How many addresses in the range of the pool cool down.
    pub(crate) fn cooling_down(&self) -> usize {
        self.cooling_down
    }

    /// Records that a released address cools down, is remembered or in use, or no longer.
    pub(crate) fn set(
        &mut self,
        slot: &Slot,
        released: &Released,
        is_started: bool,
        is_in_range: bool,
    ) {
        let key = (released.since, slot.clone());
        let (addresses, is_counted) = if released.is_in_use {
            (&mut self.in_use, false)
        } else if released.is_remembered {
            (&mut self.memories, false)
        } else {
            (&mut self.cooldowns, is_in_range)
        };
        let is_changed = if is_started {
            addresses.insert(key)
        } else {
            addresses.remove(&key)
        };
        if is_changed && is_counted {
            count(&mut self.cooling_down, is_started);
        }
    }

    /// Counts the addresses in the range of the pool again, after a change of its blocks.
    pub(crate) fn count_in_range(&mut self, usable: &UsableBlocks) {
        self.cooling_down = 0;
        for (_, slot) in &self.cooldowns {
            if usable.contains(slot.block) {
                self.cooling_down += 1;
            }
        }
    }

    /// Records that the pool has no usable blocks.
    pub(crate) fn clear_range(&mut self) {
        self.cooling_down = 0;
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

    /// The earliest second at which a cool-down ends; `None` if no address is cooling down.
    pub(crate) fn next_cooldown_end(&self, retention: Retention) -> Option<i64> {
        let (since, _) = self.cooldowns.first()?;
        Some(retention.cooldown_end(*since))
    }

    /// The earliest second at which a reservation of a released address is no longer needed.
    pub(crate) fn next_reservation_end(&self, retention: Retention) -> Option<i64> {
        let cooldown_end = self.next_cooldown_end(retention);
        let Some((since, _)) = self.memories.first() else {
            return cooldown_end;
        };
        let memory_end = retention.memory_end(*since);
        Some(match cooldown_end {
            Some(cooldown_end) => memory_end.min(cooldown_end),
            None => memory_end,
        })
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
        self.cooled_down(retention, now).chain(forgotten)
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
