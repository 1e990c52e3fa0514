use std::collections::HashMap;

use capi_ipam_api::{AddressCounts, PoolKey};
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::registry::number;
use crate::objects::{ClaimRow, Kind, Objects, PoolRow};

/// The largest number that a status reports: a larger pool has this one.
const MAX_REPORTED: u64 = i64::MAX.unsigned_abs();

/// One pool in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolLine {
    /// The pool.
    pub pool: PoolName,
    /// The network of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Counts of the status; omitted until a provider has written them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Number of claims without an address; `null` if it is unknown.
    pub waiting: Option<u64>,
    /// Status of the condition Ready: `True`, `False` or `Unknown`. A provider that writes no
    /// conditions has `Unknown`.
    pub ready: String,
    /// Why the pool is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Counts of the addresses of a pool. Pools of prefixes count prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Addresses that claims can get, in use or not.
    pub total: u64,
    /// Addresses with an IPAddress.
    pub used: u64,
    /// Addresses that can be allocated.
    pub free: u64,
    /// Released addresses that cannot be reused yet.
    pub cooling_down: u64,
    /// Quarantined addresses.
    #[serde(skip_serializing_if = "is_zero")]
    pub quarantined: u64,
    /// Addresses of draining parts that are not in use.
    #[serde(skip_serializing_if = "is_zero")]
    pub drained: u64,
    /// Addresses that are excluded by a reservation, being allocated, or in use by another pool of
    /// the network.
    pub reserved: u64,
    /// Addresses in use that the pool does not contain.
    pub out_of_range: u64,
}

/// Counts of the addresses of a pool, as far as the objects that they are computed from may be
/// read; the others are `null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KnownCounts {
    /// Addresses that claims can get, in use or not. Without the permission to list networks and
    /// slices, those that the network excludes are included.
    pub total: u64,
    /// Addresses with an IPAddress.
    pub used: Option<u64>,
    /// Addresses that can be allocated.
    pub free: Option<u64>,
    /// Released addresses that cannot be reused yet.
    pub cooling_down: Option<u64>,
    /// Quarantined addresses.
    #[serde(skip_serializing_if = "is_none_of")]
    pub quarantined: Option<u64>,
    /// Addresses of draining parts that are not in use.
    #[serde(skip_serializing_if = "is_none_of")]
    pub drained: Option<u64>,
    /// Addresses that are excluded by a reservation, being allocated, or in use by another pool of
    /// the network.
    pub reserved: Option<u64>,
    /// Addresses in use by other pools of the network; `reserved` contains them.
    #[serde(skip_serializing_if = "is_none_of")]
    pub in_other_pools: Option<u64>,
    /// Addresses in blocks of the network that this management cluster does not have; `total` does
    /// not contain them.
    #[serde(skip_serializing_if = "is_none_of")]
    pub in_other_blocks: Option<u64>,
    /// Addresses in use that the pool does not contain.
    pub out_of_range: Option<u64>,
}

impl From<AddressCounts> for Counts {
    fn from(counts: AddressCounts) -> Self {
        Self {
            total: number(counts.total),
            used: number(counts.used),
            free: number(counts.free),
            cooling_down: number(counts.cooling_down),
            quarantined: number(counts.quarantined),
            drained: number(counts.drained),
            reserved: number(counts.reserved),
            out_of_range: number(counts.out_of_range),
        }
    }
}

/// Returns the lines of pools. `claims` are those that are counted.
pub(crate) fn pools<'a>(
    pools: &[&PoolRow],
    objects: &Objects,
    claims: impl IntoIterator<Item = &'a ClaimRow>,
) -> Vec<PoolLine> {
    let mut waiting: HashMap<&PoolKey, u64> = HashMap::new();
    for claim in claims {
        if let Some(pool) = claim.named_pool().filter(|_| claim.is_waiting()) {
            let count = waiting.entry(pool).or_default();
            *count = count.saturating_add(1);
        }
    }
    let mut lines = Vec::new();
    for pool in pools {
        // The claims of a namespaced pool are in its namespace.
        let is_known = objects.covers(Kind::Claim, pool.key.namespace.as_deref());
        let waiting = waiting.get(&pool.key).copied().unwrap_or_default();
        lines.push(line(pool, is_known.then_some(waiting)));
    }
    lines
}

fn line(pool: &PoolRow, waiting: Option<u64>) -> PoolLine {
    let (ready, reason) = readiness(pool);
    PoolLine {
        pool: (&pool.key).into(),
        network: pool.network.clone(),
        counts: pool.counts.map(Counts::from),
        waiting,
        ready,
        reason,
    }
}

/// The status of Ready, and the reason if it is not True. The object itself decides if no condition
/// does: the Go provider writes none.
pub(super) fn readiness(pool: &PoolRow) -> (String, Option<String>) {
    let (status, reason) = pool.ready().unwrap_or(("Unknown", None));
    let own = || {
        let cases = [
            (pool.is_deleting(), "Deleting"),
            (pool.paused, "Paused"),
            (pool.usable.is_err(), "InvalidSpec"),
        ];
        let case = cases.into_iter().find(|(applies, _)| *applies)?;
        Some(case.1.to_owned())
    };
    let reason = if status == "True" {
        None
    } else {
        reason.map(str::to_owned).or_else(own)
    };
    (status.to_owned(), reason)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::ref_option, reason = "serde asks for a reference")]
fn is_none_of(count: &Option<u64>) -> bool {
    *count == Some(0)
}

/// The exact numbers of a pool as decimal texts: a pool of IPv6 has up to 2¹²⁸ addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Size {
    /// Addresses that claims can get, in use or not.
    pub(crate) total: String,
    /// Addresses that can be allocated; `null` if it is unknown.
    pub(crate) free: Option<String>,
}

/// The numbers of a pool. What the counts of the status cannot hold is computed from the
/// specification and the other counts.
pub(crate) fn size(pool: &PoolRow, counts: &KnownCounts) -> Size {
    let length = pool.usable.as_ref().map_or(0, |usable| usable.set.len());
    let exact = |reported: u64, computed: u128| {
        if reported < MAX_REPORTED {
            u128::from(reported)
        } else {
            computed
        }
    };
    // The reserved ones contain those in use by other pools of the network.
    let others = [
        counts.used,
        counts.reserved,
        counts.cooling_down,
        counts.quarantined,
    ];
    let drained = counts.drained.map(|drained| {
        let draining = pool
            .usable
            .as_ref()
            .map_or(0, |usable| usable.draining.len());
        exact(drained, draining)
    });
    let mut taken = drained.unwrap_or_default();
    for count in others {
        taken = taken.saturating_add(u128::from(count.unwrap_or_default()));
    }
    let free = counts
        .free
        .map(|free| exact(free, length.saturating_sub(taken)));
    Size {
        total: exact(counts.total, length).to_string(),
        free: free.map(|free| free.to_string()),
    }
}

impl From<Counts> for KnownCounts {
    fn from(counts: Counts) -> Self {
        Self {
            total: counts.total,
            used: Some(counts.used),
            in_other_pools: None,
            in_other_blocks: None,
            free: Some(counts.free),
            cooling_down: Some(counts.cooling_down),
            quarantined: Some(counts.quarantined),
            drained: Some(counts.drained),
            reserved: Some(counts.reserved),
            out_of_range: Some(counts.out_of_range),
        }
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use serde_json::json;

    use super::*;

    fn pool(addresses: &str, prefix: u8) -> PoolRow {
        let pool = json!({
            "kind": "InClusterIPPool", "metadata": { "name": "p", "namespace": "n" },
            "spec": { "addresses": [addresses], "prefix": prefix, "allocateReservedIPAddresses": true },
        });
        PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap())
    }

    #[test]
    fn numbers_beyond_the_status_are_exact() {
        let counts = |number: u64, used: u64| KnownCounts {
            total: number,
            free: Some(number),
            used: Some(used),
            in_other_pools: None,
            in_other_blocks: None,
            reserved: Some(0),
            cooling_down: Some(0),
            quarantined: Some(0),
            drained: Some(0),
            out_of_range: Some(0),
        };
        let large = size(&pool("fd00::/64", 64), &counts(MAX_REPORTED, 9));
        assert_eq!(large.total, "18446744073709551616");
        assert_eq!(large.free.unwrap(), "18446744073709551607");
        let small = size(&pool("10.0.0.0/24", 24), &counts(256, 0));
        assert_eq!(
            (small.total.as_str(), small.free.as_deref()),
            ("256", Some("256"))
        );
        let unknown = KnownCounts {
            free: None,
            ..counts(MAX_REPORTED, 9)
        };
        assert_eq!(size(&pool("fd00::/64", 64), &unknown).free, None);
    }
}
