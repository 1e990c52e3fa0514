//! The addresses and reservations of a pool, and their counts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use capi_ipam_api::PoolKey;
use capi_ipam_ip::{Block, SpanSet, UsableBlocks};
use capi_ipam_ledger::Ledger;

use super::holders::{HolderState, state};
use super::pools::{Counts, KnownCounts};
use crate::objects::{AddressRow, Kind, Objects, PoolRow, ReservationRow};

/// What a pool contains, and what it counts.
pub(super) struct Contents<'a> {
    pub(super) inside: Vec<&'a AddressRow>,
    /// Addresses of the pool that it does not contain.
    pub(super) outside: Vec<&'a AddressRow>,
    /// Whether these are all.
    pub(super) has_addresses: bool,
    pub(super) reserved: Vec<&'a ReservationRow>,
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

/// Whether all objects are known that decide which blocks a pool can allocate.
pub(crate) fn has_supply(pool: &PoolRow, objects: &Objects) -> bool {
    let Some(network) = &pool.network else {
        // It leaves a network, or names one of which its status does not know yet.
        let has_pools = pool.moving.is_none() || objects.has(&Kind::POOLS);
        let is_alone = pool.moving.is_none() && pool.spec.network().is_none();
        return has_pools && (is_alone || objects.has(&[Kind::Network]));
    };
    let network = objects.network(network);
    let shares_blocks = network.is_some_and(|network| network.registry().is_some());
    objects.has(&Kind::POOLS)
        && objects.has(&[Kind::Network])
        && (!shares_blocks || objects.has(&[Kind::Slice, Kind::Registry]))
}

/// Selects what a pool contains. The ledger has the same objects.
pub(super) fn contents<'a>(pool: &PoolRow, objects: &'a Objects, ledger: &Ledger) -> Contents<'a> {
    let usable = ledger
        .pools()
        .pool_info(&pool.key)
        .and_then(|info| info.usable.clone().ok());
    let contains = |block: Block| usable.as_ref().is_some_and(|usable| usable.contains(block));
    let mut scopes: HashMap<&PoolKey, bool> = HashMap::new();
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for row in objects.addresses.iter() {
        let is_here = *scopes
            .entry(&row.pool)
            .or_insert_with(|| row.pool == pool.key || objects.scope_of(&row.pool) == pool.scope);
        if is_here && contains(row.block) {
            inside.push(row);
        } else if row.pool == pool.key {
            outside.push(row);
        }
    }
    let mut reserved = Vec::new();
    for row in objects.reservations.iter() {
        if row.slot.scope == pool.scope && contains(row.slot.block) {
            reserved.push(row);
        }
    }
    let has_supply = has_supply(pool, objects);
    let has_addresses = has_supply && objects.covers(Kind::Address, pool.namespace_of_users());
    let has_all = has_addresses && objects.has(&[Kind::Reservation]);
    let held = has_all.then(|| held(pool, ledger, &inside, &reserved));
    let other_blocks = ledger.pools().numbers_in_other_blocks(&pool.key);
    let has_draining = usable
        .as_ref()
        .is_some_and(|usable| !usable.draining.is_empty());
    let found = Counts::from(ledger.pools().counts(&pool.key));
    let others = used_by_others(pool, &inside);
    let counts = KnownCounts {
        total: found.total,
        used: has_addresses.then_some(found.used),
        out_of_range: has_addresses.then_some(found.out_of_range),
        in_other_pools: has_addresses.then_some(others),
        free: has_all.then_some(found.free),
        cooling_down: has_all.then_some(found.cooling_down),
        quarantined: has_all.then_some(found.quarantined),
        // Without draining parts, no permission matters.
        drained: (has_all || !has_draining).then_some(found.drained),
        reserved: has_all.then_some(found.reserved),
        in_other_blocks: has_supply.then(|| capped(other_blocks.len())),
    };
    Contents {
        inside,
        outside,
        has_addresses,
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
pub(super) fn capped(count: u128) -> u64 {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    count.min(i64::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::objects::samples::ledger_of;

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
        let objects = Objects::of([pool.clone(), other], rows, [], []);
        let counts = contents(&pool, &objects, &ledger_of(&objects)).counts;
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
            let objects = Objects::of([pool.clone()], [], [row], []);
            let mut ledger = ledger_of(&objects);
            ledger.end_cooldowns(Timestamp::now().as_second());
            let contents = contents(&pool, &objects, &ledger);
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
