//! The addresses and reservations of a pool, and their counts.

use std::collections::HashSet;
use std::sync::Arc;

use capi_ipam_ip::{Block, SpanSet, UsableBlocks};
use capi_ipam_ledger::Ledger;

use super::holders::{HolderState, state};
use super::pools::{Counts, KnownCounts};
use crate::load::Readable;
use crate::objects::{AddressRow, PoolRow, ReservationRow};

/// What a pool contains, and what it counts.
pub(super) struct Contents<'a> {
    pub(super) inside: Readable<Vec<&'a AddressRow>>,
    /// Addresses of the pool that it does not contain.
    pub(super) outside: Readable<Vec<&'a AddressRow>>,
    pub(super) reserved: Readable<Vec<&'a ReservationRow>>,
    /// The addresses that are not free, in their order. Without all IPAddresses and reservations it
    /// is unknown which these are.
    pub(super) held: Option<Vec<(Block, HolderState)>>,
    pub(super) counts: KnownCounts,
    /// The numbers in blocks of the network that this management cluster does not have.
    pub(super) other_blocks: SpanSet,
    usable: Option<Arc<UsableBlocks>>,
}

impl Contents<'_> {
    /// The blocks that the pool can have in use, without what its network excludes; `None` if the
    /// specification is invalid or has no addresses.
    pub(super) fn usable(&self) -> Option<&UsableBlocks> {
        self.usable
            .as_deref()
            .filter(|usable| usable.ranges.iter().any(|range| !range.set.is_empty()))
    }
}

/// Selects what a pool contains. The ledger has the same objects, and those of the network on which
/// the blocks of the pool depend; addresses and reservations may be of any pool.
pub(super) fn contents<'a>(
    pool: &PoolRow,
    ledger: &Readable<&Ledger>,
    addresses: Readable<impl IntoIterator<Item = &'a AddressRow>>,
    reservations: Readable<impl IntoIterator<Item = &'a ReservationRow>>,
) -> Contents<'a> {
    let known = ledger.seen();
    let info = known.pools().pool_info(&pool.key);
    let usable = info.and_then(|info| info.usable.clone().ok());
    let contains = |block: Block| usable.as_ref().is_some_and(|usable| usable.contains(block));
    let split = addresses.map(|rows| {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for row in rows {
            if contains(row.block) {
                inside.push(row);
            } else if row.pool == pool.key {
                outside.push(row);
            }
        }
        (inside, outside)
    });
    let split = split.depends_on(ledger);
    let inside = split.as_ref().map(|(inside, _)| inside.clone());
    let outside = split.map(|(_, outside)| outside);
    let reserved = reservations.map(|rows| {
        let mut reserved = Vec::new();
        for row in rows {
            if contains(row.slot.block) {
                reserved.push(row);
            }
        }
        reserved
    });
    let both = inside.as_ref().and(reserved.as_ref());
    let held = both
        .known()
        .map(|(inside, reserved)| held(pool, known, inside, reserved));
    let other_blocks = known.pools().numbers_in_other_blocks(&pool.key);
    let has_draining = usable
        .as_ref()
        .is_some_and(|usable| !usable.draining.is_empty());
    let found = Counts::from(known.pools().counts(&pool.key));
    let has_all = held.is_some();
    let counts = KnownCounts {
        total: found.total,
        used: inside.known().map(|_| found.used),
        out_of_range: inside.known().map(|_| found.out_of_range),
        in_other_pools: inside.known().map(|rows| used_by_others(pool, rows)),
        free: has_all.then_some(found.free),
        cooling_down: has_all.then_some(found.cooling_down),
        // Without draining parts, no permission matters.
        drained: (has_all || !has_draining).then_some(found.drained),
        reserved: has_all.then_some(found.reserved),
        in_other_blocks: ledger.known().map(|_| capped(other_blocks.len())),
    };
    Contents {
        inside,
        outside,
        reserved,
        held,
        counts,
        other_blocks,
        usable,
    }
}

/// The addresses that are not free, in their order.
fn held(
    pool: &PoolRow,
    ledger: &Ledger,
    inside: &[&AddressRow],
    reserved: &[&ReservationRow],
) -> Vec<(Block, HolderState)> {
    let mut held = Vec::new();
    let mut allocated = HashSet::new();
    for row in inside {
        held.push((row.block, HolderState::Allocated));
        allocated.insert(row.block);
    }
    for row in reserved {
        let block = row.slot.block;
        // A sticky pool keeps a released address for the next claim of the same name, but other
        // claims can get it.
        let is_free = row.released.is_some() && ledger.is_available(&pool.key, block);
        if !allocated.contains(&block) && !is_free {
            held.push((block, state(row)));
        }
    }
    held.sort_by_key(|(block, _)| block.span().first());
    held.dedup_by_key(|(block, _)| *block);
    held
}

/// How many addresses of a pool are in use only by claims of other pools of the network.
fn used_by_others(pool: &PoolRow, rows: &[&AddressRow]) -> u64 {
    let mut own: HashSet<Block> = HashSet::new();
    let mut all: HashSet<Block> = HashSet::new();
    for row in rows {
        all.insert(row.block);
        if row.pool == pool.key {
            own.insert(row.block);
        }
    }
    capped(all.len().saturating_sub(own.len()) as u128)
}

/// The count of an object, which is limited to the largest signed integer.
fn capped(count: u128) -> u64 {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    count.min(i64::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::load::test_ledger::ledger_of;

    #[test]
    fn addresses_of_other_pools_of_the_network_are_counted() {
        let pool_of = |name: &str| {
            let pool = json!({
                "kind": "InClusterIPPool", "metadata": { "name": name, "namespace": "n" },
                "spec": { "addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24, "network": "lab" },
            });
            PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap())
        };
        let (pool, other) = (pool_of("p"), pool_of("other"));
        let address = |pool: &str, address: &str| {
            let object = json!({
                "metadata": { "name": address, "namespace": "n" },
                "spec": {
                    "address": address, "prefix": 24, "claimRef": { "name": address },
                    "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": pool },
                },
            });
            AddressRow::of(&serde_json::from_value(object).unwrap()).unwrap()
        };
        let rows = [
            address("p", "10.0.0.1"),
            address("other", "10.0.0.2"),
            address("other", "10.0.0.3"),
        ];
        let ledger = ledger_of([&pool, &other], &rows, []);
        let ledger = Readable::complete(&ledger);
        let none = Readable::complete([]);
        let counts = contents(&pool, &ledger, Readable::complete(&rows), none).counts;
        assert_eq!(
            (counts.used, counts.in_other_pools, counts.reserved),
            (Some(1), Some(2), Some(2))
        );
    }

    #[test]
    fn address_that_a_sticky_pool_keeps_is_free() {
        let pool = |spec: serde_json::Value| {
            let mut pool = json!({
                "kind": "InClusterIPPool", "metadata": { "name": "p", "namespace": "n" },
                "spec": { "addresses": ["10.0.0.1-10.0.0.4"], "prefix": 24, "addressReuseGracePeriodSeconds": 60 },
            });
            json_patch::merge(&mut pool["spec"], &spec);
            PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap())
        };
        let released = |seconds: i64| {
            let at = Timestamp::now() - SignedDuration::from_secs(seconds);
            let reservation = json!({
                "metadata": { "name": "p.n.p.10.0.0.1" },
                "spec": {
                    "scope": "p.n.p", "address": "10.0.0.1", "releasedAt": at,
                    "poolRef": { "kind": "InClusterIPPool", "namespace": "n", "name": "p" },
                    "claimRef": { "namespace": "n", "name": "c", "uid": "u" },
                },
            });
            ReservationRow::of(&serde_json::from_value(reservation).unwrap()).unwrap()
        };
        let counts = |spec: serde_json::Value, seconds| {
            let (pool, row) = (pool(spec), released(seconds));
            let mut ledger = ledger_of([&pool], [], [&row]);
            ledger.end_cooldowns(Timestamp::now().as_second());
            let ledger = Readable::complete(&ledger);
            let (none, rows) = (Readable::complete([]), Readable::complete([&row]));
            let contents = contents(&pool, &ledger, none, rows);
            let counts = contents.counts;
            assert_eq!(counts.free, Some(4 - contents.held.unwrap().len() as u64));
            (counts.free.unwrap(), counts.cooling_down.unwrap())
        };
        let sticky = json!({ "allocation": { "sticky": true } });
        assert_eq!(
            [
                counts(sticky.clone(), 5),
                counts(sticky, 90),
                counts(json!({}), 90)
            ],
            [(3, 1), (4, 0), (3, 1)]
        );
    }
}
