//! The released and the quarantined addresses of a pool, and for how long it keeps them.

use std::collections::BTreeSet;

use capi_ipam_api::{STICKY_SECONDS, Slot};
use capi_ipam_ip::UsableBlocks;

use crate::PoolInfo;
use crate::addresses::{Period, Released};
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

/// The addresses of one period.
#[derive(Clone, Debug, Default)]
struct Addresses {
    /// Each with the second in which it was released or in which its quarantine ends, in this order.
    by_second: BTreeSet<(i64, Slot)>,
    /// How many of them are in the range of the pool.
    in_range: usize,
}

impl Addresses {
    /// The addresses up to the first one with a second for which `is_included` returns false.
    fn until(&self, is_included: impl Fn(i64) -> bool) -> impl Iterator<Item = &Slot> {
        let earliest = self.by_second.iter();
        earliest.map_while(move |(second, slot)| is_included(*second).then_some(slot))
    }

    /// The addresses after a second, the latest first.
    fn after(&self, second: i64) -> impl Iterator<Item = &Slot> {
        let latest = self.by_second.iter().rev();
        latest.map_while(move |(of_slot, slot)| (*of_slot > second).then_some(slot))
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.by_second.iter().map(|(_, slot)| slot)
    }

    fn first(&self) -> Option<i64> {
        self.by_second.first().map(|(second, _)| *second)
    }
}

/// The released and the quarantined addresses of a pool that have a reservation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReleasedAddresses {
    cooling_down: Addresses,
    remembered: Addresses,
    /// No reservation of them is deleted.
    in_use: Addresses,
    quarantined: Addresses,
}

impl ReleasedAddresses {
    fn all(&mut self) -> [&mut Addresses; 4] {
        [
            &mut self.cooling_down,
            &mut self.remembered,
            &mut self.in_use,
            &mut self.quarantined,
        ]
    }

    pub(crate) fn is_empty(&self) -> bool {
        let mut slots = self.slots().chain(self.quarantined.slots());
        slots.next().is_none()
    }

    /// How many addresses in the range of the pool cool down.
    pub(crate) fn cooling_down(&self) -> usize {
        self.cooling_down.in_range
    }

    /// How many addresses in the range of the pool are quarantined.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.in_range
    }

    /// Records that an address is released or quarantined, or no longer.
    pub(crate) fn set(
        &mut self,
        slot: &Slot,
        released: &Released,
        is_started: bool,
        is_in_range: bool,
    ) {
        let addresses = match released.period {
            Period::CoolingDown => &mut self.cooling_down,
            Period::Remembered => &mut self.remembered,
            Period::InUse => &mut self.in_use,
            Period::Quarantined => &mut self.quarantined,
        };
        let key = (released.second, slot.clone());
        let is_changed = if is_started {
            addresses.by_second.insert(key)
        } else {
            addresses.by_second.remove(&key)
        };
        if is_changed && is_in_range {
            count(&mut addresses.in_range, is_started);
        }
    }

    /// Counts the addresses in the range of the pool again, after a change of its blocks.
    pub(crate) fn count_in_range(&mut self, usable: &UsableBlocks) {
        for addresses in self.all() {
            let slots = addresses.slots();
            addresses.in_range = slots.filter(|slot| usable.contains(slot.block)).count();
        }
    }

    /// Records that the pool has no usable blocks.
    pub(crate) fn clear_range(&mut self) {
        for addresses in self.all() {
            addresses.in_range = 0;
        }
    }

    /// All released addresses.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        let unused = self.cooling_down.slots().chain(self.remembered.slots());
        unused.chain(self.in_use())
    }

    /// The released addresses that are in use.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Slot> {
        self.in_use.slots()
    }

    /// The addresses that were released after a second and are not in use.
    pub(crate) fn released_after(&self, second: i64) -> impl Iterator<Item = &Slot> {
        let cooling_down = self.cooling_down.after(second);
        cooling_down.chain(self.remembered.after(second))
    }

    /// The addresses whose quarantine ends after a second.
    pub(crate) fn quarantined_after(&self, second: i64) -> impl Iterator<Item = &Slot> {
        self.quarantined.after(second)
    }

    /// The earliest second at which a cool-down ends; `None` if no address is cooling down.
    pub(crate) fn next_cooldown_end(&self, retention: Retention) -> Option<i64> {
        let since = self.cooling_down.first()?;
        Some(retention.cooldown_end(since))
    }

    /// The earliest second at which a reservation of a released or quarantined address is no longer
    /// needed.
    pub(crate) fn next_reservation_end(&self, retention: Retention) -> Option<i64> {
        let memory = self.remembered.first();
        let memory_end = memory.map(|since| retention.memory_end(since));
        let quarantine_end = self.quarantined.first().map(quarantine_end);
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
        let cooling_down = &self.cooling_down;
        cooling_down.until(move |since| retention.cooldown_end(since) <= now)
    }

    /// The addresses whose reservations are no longer needed at the second `now`.
    pub(crate) fn reservations_to_delete(
        &self,
        retention: Retention,
        now: i64,
    ) -> impl Iterator<Item = &Slot> {
        let remembered = &self.remembered;
        let forgotten = remembered.until(move |since| retention.memory_end(since) <= now);
        let quarantined = &self.quarantined;
        let ended = quarantined.until(move |until| quarantine_end(until) <= now);
        self.cooled_down(retention, now)
            .chain(forgotten)
            .chain(ended)
    }
}
