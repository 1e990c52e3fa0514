use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::pools::{Counts, PoolLine};
use crate::load::Readable;

/// What the start page shows, and what every update sends.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    /// Grows with every change.
    pub(crate) version: u64,
    /// Time of this version.
    #[schemars(with = "String")]
    pub(crate) time: Timestamp,
    /// The API server.
    pub(crate) server: String,
    /// The pools, by kind, namespace and name.
    pub(crate) pools: Vec<OverviewPool>,
    /// The networks, by name.
    pub(crate) networks: Vec<NetworkSummary>,
    /// Number of claims with an address; `null` if it is unknown.
    pub(crate) bound: Option<u64>,
    /// Number of claims without an address; `null` if it is unknown.
    pub(crate) waiting: Option<u64>,
    /// The kinds that are being listed.
    pub(crate) listing: Vec<&'static str>,
    /// Permissions without which the page is incomplete.
    pub(crate) missing: Vec<String>,
    /// Failures of watches, and objects that cannot be decoded.
    pub(crate) problems: Vec<String>,
}

/// A pool, with its history.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OverviewPool {
    #[serde(flatten)]
    pub(crate) line: PoolLine,
    /// The entries of the pool, shortened.
    pub(crate) ranges: String,
    /// Addresses in use, once a minute since the start of the program, at most an hour.
    pub(crate) trend: Vec<u64>,
}

/// A network: pools that never allocate the same address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct NetworkSummary {
    /// Name of the network.
    pub(crate) name: String,
    /// Number of its pools; `null` if it is unknown.
    pub(crate) pools: Option<u64>,
    /// Sum of the addresses in use in its pools; `null` if it is unknown.
    pub(crate) used: Option<u64>,
    /// Number of waiting claims; `null` if it is unknown.
    pub(crate) waiting: Option<u64>,
}

/// The networks of pools. Pools of a network can share addresses, so their totals are not added.
pub(crate) fn networks(pools: &Readable<&[PoolLine]>) -> Vec<NetworkSummary> {
    // A network can have pools of each kind and namespace.
    let zero = pools.is_complete().then_some(0);
    let add = |sum: Option<u64>, part: Option<u64>| Some(sum?.saturating_add(part?));
    let mut found: BTreeMap<&str, NetworkSummary> = BTreeMap::new();
    for pool in *pools.seen() {
        let Some(name) = pool.network.as_deref() else {
            continue;
        };
        let new = || NetworkSummary {
            name: name.to_owned(),
            pools: zero,
            used: zero,
            waiting: zero,
        };
        let line = found.entry(name).or_insert_with(new);
        line.pools = add(line.pools, Some(1));
        line.used = add(
            line.used,
            Some(pool.counts.map_or(0, |counts: Counts| counts.used)),
        );
        line.waiting = add(line.waiting, pool.waiting);
    }
    found.into_values().collect()
}

/// The entries of a pool in one line.
pub(crate) fn ranges(entries: &[String]) -> String {
    const MAX: usize = 3;
    let shown: Vec<&str> = entries.iter().take(MAX).map(String::as_str).collect();
    let more = entries.len().saturating_sub(MAX);
    if more > 0 {
        format!("{}, {more} more", shown.join(", "))
    } else {
        shown.join(", ")
    }
}
