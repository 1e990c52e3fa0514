use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::finding::{Check, Finding, Severity};
use super::health::{Manager, Outage};
use super::networks::{NetworkLine, network_line};
use super::pools::{PoolLine, Size};
use super::registry::{block_count, number};
use crate::objects::{Kind, NetworkRow, Objects};

/// What the start page shows, and what every update sends.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    /// Grows with every change.
    pub(crate) version: u64,
    /// Time of this version.
    pub(crate) time: Timestamp,
    /// The API server.
    pub(crate) server: String,
    /// The namespace whose pools and claims are listed, beside the global pools; omitted for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// Why the API server gives no usable answer; omitted if it answers. Then the page shows the
    /// state of its last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outage: Option<Outage>,
    /// Whether a manager processes the objects.
    pub(crate) manager: Manager,
    /// The pools, by kind, namespace and name.
    pub(crate) pools: Vec<OverviewPool>,
    /// The networks, by name.
    pub(crate) networks: Vec<OverviewNetwork>,
    /// Number of claims with an address; `null` if it is unknown.
    pub(crate) bound: Option<u64>,
    /// Number of claims without an address; `null` if it is unknown.
    pub(crate) waiting: Option<u64>,
    /// Number of errors and warnings that `doctor` finds in the objects.
    pub(crate) findings: usize,
    /// The kinds that are being listed.
    pub(crate) listing: Vec<&'static str>,
    /// Permissions without which the page is incomplete.
    pub(crate) missing: Vec<String>,
    /// Failures of watches, and objects that cannot be decoded.
    pub(crate) problems: Vec<String>,
}

/// A pool, with what is wrong with it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OverviewPool {
    #[serde(flatten)]
    pub(crate) line: PoolLine,
    /// The exact numbers; omitted until a provider has written counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Size>,
    /// The entries of the pool, shortened.
    pub(crate) ranges: String,
    /// What is most urgent of what `doctor` finds in the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finding: Option<PoolFinding>,
}

/// Something that is wrong in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct PoolFinding {
    /// How urgent it is: not a note.
    pub(crate) severity: Severity,
    /// The check that found it.
    pub(crate) check: Check,
}

/// Something that is wrong, with the pools that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FoundProblem {
    #[serde(flatten)]
    pub(crate) finding: Finding,
    /// The pools; empty for what is about none.
    pub(crate) pools: Vec<PoolName>,
}

/// A network: pools that never allocate the same address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct OverviewNetwork {
    #[serde(flatten)]
    pub(crate) line: NetworkLine,
    /// Number of waiting claims of its pools; `null` if it is unknown.
    pub(crate) waiting: Option<u64>,
    /// Its blocks, if it shares them with other management clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocks: Option<BlockSummary>,
}

/// The blocks of a network that shares them with other management clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct BlockSummary {
    /// Blocks of this management cluster; `null` until the manager has reported them.
    pub(crate) held: Option<u64>,
    /// Number of blocks of the ranges of its pools, as a decimal number; `null` if it is unknown.
    pub(crate) total: Option<String>,
    /// Blocks that this management cluster and another one use.
    pub(crate) conflicts: u64,
}

impl BlockSummary {
    fn of(network: &NetworkRow, objects: &Objects) -> Option<Self> {
        network.registry()?;
        let total = objects.has(&Kind::POOLS).then(|| {
            let members = objects.members(&network.name);
            block_count(network, members).to_string()
        });
        let counts = network.status.blocks.as_ref();
        Some(Self {
            held: counts.map(|counts| number(counts.held)),
            total,
            conflicts: counts.map_or(0, |counts| number(counts.conflicts)),
        })
    }
}

/// The networks with the claims that wait for their pools.
pub(crate) fn networks(objects: &Objects, pools: &[PoolLine]) -> Vec<OverviewNetwork> {
    let mut networks = Vec::new();
    for row in objects.networks.sorted() {
        let mut waiting = objects.has(&Kind::POOLS).then_some(0_u64);
        for pool in pools {
            if pool.network.as_deref() == Some(row.name.as_str()) {
                let both = waiting.zip(pool.waiting);
                waiting = both.map(|(sum, more)| sum.saturating_add(more));
            }
        }
        networks.push(OverviewNetwork {
            line: network_line(row),
            waiting,
            blocks: BlockSummary::of(row, objects),
        });
    }
    networks
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
