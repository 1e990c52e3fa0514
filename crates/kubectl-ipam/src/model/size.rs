use schemars::JsonSchema;
use serde::Serialize;

use super::pools::{Counts, KnownCounts};
use crate::objects::PoolRow;

/// The largest number that a status reports: a larger pool has this one.
const MAX_REPORTED: u64 = i64::MAX.unsigned_abs();

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
    let others = [counts.used, counts.reserved, counts.cooling_down];
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
