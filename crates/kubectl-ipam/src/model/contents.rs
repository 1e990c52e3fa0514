//! The addresses and reservations of a pool, and their counts.

use std::collections::HashSet;

use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use jiff::{SignedDuration, Timestamp};

use super::holders::{HolderState, state};
use super::pools::KnownCounts;
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
}

/// Selects what a pool contains. Addresses and reservations may be of any pool.
pub(super) fn contents<'a>(
    pool: &PoolRow,
    addresses: Readable<impl IntoIterator<Item = &'a AddressRow>>,
    reservations: Readable<impl IntoIterator<Item = &'a ReservationRow>>,
) -> Contents<'a> {
    let split = addresses.map(|rows| {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for row in rows {
            if contains(pool, row.block) {
                inside.push(row);
            } else if row.pool == pool.key {
                outside.push(row);
            }
        }
        (inside, outside)
    });
    let inside = split.as_ref().map(|(inside, _)| inside.clone());
    let outside = split.map(|(_, outside)| outside);
    let reserved = reservations.map(|rows| {
        let mut reserved = Vec::new();
        for row in rows {
            if contains(pool, row.slot.block) {
                reserved.push(row);
            }
        }
        reserved
    });
    let both = inside.as_ref().and(reserved.as_ref());
    let held = both
        .known()
        .map(|(inside, reserved)| held(pool, inside, reserved));
    let counts = counts(pool, inside.known(), outside.known(), held.as_deref());
    Contents {
        inside,
        outside,
        reserved,
        held,
        counts,
    }
}

fn contains(pool: &PoolRow, block: Block) -> bool {
    match &pool.usable {
        Ok(usable) => usable.contains(block),
        Err(_) => false,
    }
}

/// The addresses that are not free, in their order.
fn held(
    pool: &PoolRow,
    inside: &[&AddressRow],
    reserved: &[&ReservationRow],
) -> Vec<(Block, HolderState)> {
    let now = clock::timestamp();
    let mut held = Vec::new();
    let mut allocated = HashSet::new();
    for row in inside {
        held.push((row.block, HolderState::Allocated));
        allocated.insert(row.block);
    }
    for row in reserved {
        let block = row.slot.block;
        if !allocated.contains(&block) && !is_remembered(pool, row, now) {
            held.push((block, state(row)));
        }
    }
    held.sort_by_key(|(block, _)| block.span().first());
    held.dedup_by_key(|(block, _)| *block);
    held
}

/// Counts what may be read. Rows that may not be read are `None`.
fn counts(
    pool: &PoolRow,
    inside: Option<&Vec<&AddressRow>>,
    outside: Option<&Vec<&AddressRow>>,
    held: Option<&[(Block, HolderState)]>,
) -> KnownCounts {
    let (total, draining) = match &pool.usable {
        Ok(usable) => (usable.set.len(), usable.draining.len()),
        Err(_) => (0, 0),
    };
    let mut counts = KnownCounts {
        total: capped(total),
        ..KnownCounts::default()
    };
    if draining == 0 {
        // No permission matters.
        counts.drained = Some(0);
    }
    if let Some(rows) = outside {
        counts.out_of_range = Some(number(rows.len()));
    }
    let mut used = None;
    if let Some(rows) = inside {
        let users = users(pool, rows);
        used = Some(users.own);
        counts.used = Some(number(users.own));
        counts.in_other_pools = Some(number(users.others));
    }
    let Some(held) = held else { return counts };
    let mut cooling = 0_usize;
    let mut drained = draining;
    for (block, state) in held {
        if *state == HolderState::CoolingDown {
            cooling = cooling.saturating_add(1);
        }
        if is_draining(pool, *block) {
            drained = drained.saturating_sub(1);
        }
    }
    let taken = (held.len() as u128).saturating_add(drained);
    counts.free = Some(capped(total.saturating_sub(taken)));
    counts.cooling_down = Some(number(cooling));
    counts.drained = Some(capped(drained));
    if let Some(used) = used {
        let others = used.saturating_add(cooling);
        counts.reserved = Some(number(held.len().saturating_sub(others)));
    }
    counts
}

fn is_draining(pool: &PoolRow, block: Block) -> bool {
    match &pool.usable {
        Ok(usable) => usable.is_draining(block),
        Err(_) => false,
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The count of an object, which is limited to the largest signed integer.
fn capped(count: u128) -> u64 {
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    count.min(i64::MAX.unsigned_abs())
}

/// How many addresses of a pool are in use by its own claims, and how many only by those of other
/// pools of the network.
#[derive(Clone, Copy)]
struct Users {
    own: usize,
    others: usize,
}

fn users(pool: &PoolRow, rows: &[&AddressRow]) -> Users {
    let mut own: HashSet<Block> = HashSet::new();
    let mut all: HashSet<Block> = HashSet::new();
    for row in rows {
        all.insert(row.block);
        if row.pool == pool.key {
            own.insert(row.block);
        }
    }
    Users {
        own: own.len(),
        others: all.len().saturating_sub(own.len()),
    }
}

/// Whether a sticky pool keeps a released address for the next claim of the same name, and other
/// claims can get it.
fn is_remembered(pool: &PoolRow, row: &ReservationRow, now: Timestamp) -> bool {
    let is_kept = pool.spec.is_sticky() && row.pool == pool.key && row.claim.is_some();
    // Times are truncated to seconds: the last second has to be over.
    let seconds = pool.spec.cooldown_seconds();
    let cooldown = SignedDuration::from_secs(if seconds > 0 {
        seconds.saturating_add(1)
    } else {
        0
    });
    is_kept
        && row
            .released
            .is_some_and(|released| now.duration_since(released) >= cooldown)
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_other_pools_of_the_network_are_counted() {
        let pool = json!({
            "kind": "InClusterIPPool", "metadata": { "name": "p", "namespace": "n" },
            "spec": { "addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24, "network": "lab" },
        });
        let pool = PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap());
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
        let counts = contents(&pool, Readable::complete(&rows), Readable::complete([])).counts;
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
            let row = released(seconds);
            let counts = contents(
                &pool(spec),
                Readable::complete([]),
                Readable::complete([&row]),
            )
            .counts;
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
