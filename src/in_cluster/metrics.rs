//! The metrics of pools and networks: a snapshot of their counts, which a task takes every few
//! seconds. A scrape reads the snapshot, so it does not lock the ledger.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::PoolKey;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::metrics::{Description, Metrics};
use capi_ipam_ledger::{BlockObstacle, NetworkCounts, PoolCounts, WaitingForBlock};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::gauge::Gauge;

use super::allocation_log;
use super::gauges::{Labels, encode};
use super::shared_ledger::SharedLedger;
use super::{readiness, rollouts};

/// The time between two snapshots.
const INTERVAL: Duration = Duration::from_secs(5);

pub(super) const DUPLICATE_ADDRESSES: Description = Description {
    name: "capi_ipam_duplicate_addresses",
    kind: "gauge",
    labels: &[],
    help: "Addresses in use by more than one bound claim, and prefixes in use that another one contains; as of the last sweep",
};

const SHARED_ADDRESSES: Description = Description {
    name: "capi_ipam_shared_addresses",
    kind: "gauge",
    labels: &[],
    help: "Addresses that claims of two pools have, which overlap and are not in one network; at most 5 seconds old",
};

const POOL_ADDRESSES: Description = Description {
    name: "capi_ipam_pool_addresses",
    kind: "gauge",
    labels: &[
        "kind",
        "namespace",
        "pool",
        "state: total, free, used, reserved, cooling_down, quarantined, drained, out_of_range",
    ],
    help: "Addresses of a pool, or prefixes of a prefix pool; at most 5 seconds old; quarantined and drained: only if there are any",
};

const WAITING_CLAIMS: Description = Description {
    name: "capi_ipam_pool_waiting_claims",
    kind: "gauge",
    labels: &["kind", "namespace", "pool"],
    help: "Claims that wait for an address of a pool; at most 5 seconds old",
};

const OVER_LIMIT: Description = Description {
    name: "capi_ipam_pool_over_limit_addresses",
    kind: "gauge",
    labels: &[
        "kind",
        "namespace",
        "pool",
        "rule: limits, allowed_namespaces",
    ],
    help: "Addresses of a global pool beyond what its rules allow; at most 5 seconds old; only of pools with rules",
};

const POOL_SLICES: Description = Description {
    name: "capi_ipam_pool_slices",
    kind: "gauge",
    labels: &["kind", "namespace", "pool", "state: total, assigned, free"],
    help: "Slices of a pool as in its status; at most 5 seconds old; only of pools with slices",
};

const SHARES_BLOCKS: Description = Description {
    name: "capi_ipam_pool_shares_blocks",
    kind: "gauge",
    labels: &["kind", "namespace", "pool"],
    help: "Pools whose addresses are those of the blocks that their network has taken from a registry; always 1",
};

const INVALID: Description = Description {
    name: "capi_ipam_pool_invalid",
    kind: "gauge",
    labels: &["kind", "namespace", "pool"],
    help: "Pools that allocate nothing since their specification is not valid; always 1; at most 5 seconds old",
};

const NETWORK_ADDRESSES: Description = Description {
    name: "capi_ipam_network_addresses",
    kind: "gauge",
    labels: &["network", "state: total, used, free"],
    help: "Addresses of a network as in its status, each counted once",
};

const NETWORK_POOLS: Description = Description {
    name: "capi_ipam_network_pools",
    kind: "gauge",
    labels: &["network", "phase: joining, member, leaving"],
    help: "Pools of a network as in its status; joining and leaving: at most 50",
};

const NETWORK_BLOCKS: Description = Description {
    name: "capi_ipam_network_blocks",
    kind: "gauge",
    labels: &["network", "state: held, spare, others, conflicts"],
    help: "Blocks of a network as in its status; only of networks that share blocks with other management clusters",
};

const WAITING_FOR_BLOCK: Description = Description {
    name: "capi_ipam_registry_claims_waiting_for_block",
    kind: "gauge",
    labels: &[
        "network",
        "reason: being_taken, no_registry, unreachable, refused, cluster_id_in_use, registry_replaced, registry_restored, all_taken, limit, size_differs, record_invalid, slice_unavailable",
    ],
    help: "Claims that wait until this management cluster has another block of a network; at most 5 seconds old",
};

const NOT_IN_USE: Description = Description {
    name: "capi_ipam_addresses_not_in_use",
    kind: "gauge",
    labels: &["kind", "namespace", "pool"],
    help: "Addresses that the Machine of their claim does not report; only of pools with verify: Report",
};

/// The metrics of the in-cluster provider.
pub const METRICS: &[Description] = &[
    POOL_ADDRESSES,
    WAITING_CLAIMS,
    OVER_LIMIT,
    POOL_SLICES,
    SHARES_BLOCKS,
    INVALID,
    NOT_IN_USE,
    NETWORK_ADDRESSES,
    NETWORK_POOLS,
    NETWORK_BLOCKS,
    WAITING_FOR_BLOCK,
    DUPLICATE_ADDRESSES,
    SHARED_ADDRESSES,
    allocation_log::LOST_LINES,
    allocation_log::WRITE_ERRORS,
    readiness::NOT_READY,
    rollouts::PLANNED,
];

/// Which pools and networks have metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolMetricsMode {
    /// All pools and networks.
    #[default]
    All,
    /// None: with thousands of pools, the number of series can be too large for a monitoring
    /// system.
    None,
}

/// The counts of all pools and networks.
#[derive(Debug, Default)]
struct Snapshot {
    pools: Vec<PoolCounts>,
    networks: Vec<NetworkCounts>,
    waiting_for_blocks: Vec<WaitingForBlock>,
}

/// How many addresses are not in use, of each pool that is checked.
pub(super) type UseCounts = Vec<(PoolKey, usize)>;

/// The last snapshot of all counts. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolMetrics {
    snapshot: Arc<Mutex<Arc<Snapshot>>>,
    not_in_use: Arc<Mutex<Arc<UseCounts>>>,
}

/// The values of a label, and the number of each.
type Counts = Vec<(&'static str, i64)>;

fn labels(key: &PoolKey) -> Labels<'_> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    vec![
        ("kind", key.kind.name()),
        ("namespace", namespace),
        ("pool", &key.name),
    ]
}

impl PoolMetrics {
    /// Registers the metrics of all pools.
    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.register_collector(self.clone());
    }

    /// Replaces the numbers of addresses that are not in use.
    pub(super) fn set_not_in_use(&self, counts: UseCounts) {
        *self.not_in_use.lock() = Arc::new(counts);
    }
}

/// Takes a snapshot of the ledger for the metrics of pools.
pub(super) struct TakeSnapshots {
    pub(super) metrics: PoolMetrics,
    pub(super) ledger: Arc<SharedLedger>,
}

impl BackgroundTask for TakeSnapshots {
    async fn run_once(&mut self) -> NextRun {
        let snapshot = self.ledger.read(|ledger| Snapshot {
            pools: ledger.pool_counts(),
            networks: ledger.networks().counts(),
            waiting_for_blocks: ledger.waiting_for_blocks(),
        });
        *self.metrics.snapshot.lock() = Arc::new(snapshot);
        NextRun::After(INTERVAL)
    }
}

/// Sets the number of addresses that overlapping pools share. The ledger counts them as they
/// change.
pub(super) struct CountSharedAddresses {
    ledger: Arc<SharedLedger>,
    found: Gauge,
}

impl CountSharedAddresses {
    /// Registers the metric.
    pub(super) fn new(metrics: &Metrics, ledger: Arc<SharedLedger>) -> Self {
        let found = Gauge::default();
        metrics.add(&SHARED_ADDRESSES, found.clone());
        Self { ledger, found }
    }
}

impl BackgroundTask for CountSharedAddresses {
    async fn run_once(&mut self) -> NextRun {
        let shared = self
            .ledger
            .read(|ledger| ledger.addresses().shared_addresses());
        self.found.set(saturating(shared));
        NextRun::After(INTERVAL)
    }
}

impl Collector for PoolMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let encoder = &mut encoder;
        let snapshot = Arc::clone(&self.snapshot.lock());
        let not_in_use = Arc::clone(&self.not_in_use.lock());
        let Snapshot {
            pools,
            networks,
            waiting_for_blocks,
        } = snapshot.as_ref();
        let of_pools = |label, counts: fn(&PoolCounts) -> Counts| {
            let pools = pools.iter();
            pools.flat_map(move |pool| rows(labels(&pool.key), label, counts(pool)))
        };
        let of_networks = |label, counts: fn(&NetworkCounts) -> &[(&'static str, i64)]| {
            networks.iter().flat_map(move |network| {
                let labels = vec![("network", network.name.as_str())];
                rows(labels, label, counts(network).to_vec())
            })
        };
        encode(encoder, &POOL_ADDRESSES, of_pools("state", address_counts))?;
        let waiting = pools.iter();
        let waiting = waiting.map(|pool| (labels(&pool.key), saturating(pool.waiting)));
        encode(encoder, &WAITING_CLAIMS, waiting)?;
        encode(encoder, &OVER_LIMIT, of_pools("rule", over_limit_counts))?;
        encode(encoder, &POOL_SLICES, of_pools("state", slice_counts))?;
        let sharing = pools.iter().filter(|pool| pool.shares_blocks);
        encode(
            encoder,
            &SHARES_BLOCKS,
            sharing.map(|pool| (labels(&pool.key), 1)),
        )?;
        let invalid = pools.iter().filter(|pool| pool.is_invalid);
        encode(
            encoder,
            &INVALID,
            invalid.map(|pool| (labels(&pool.key), 1)),
        )?;
        let not_in_use = not_in_use.iter();
        let not_in_use = not_in_use.map(|(key, count)| (labels(key), saturating(*count)));
        encode(encoder, &NOT_IN_USE, not_in_use)?;
        encode(
            encoder,
            &NETWORK_ADDRESSES,
            of_networks("state", |network| &network.addresses),
        )?;
        encode(
            encoder,
            &NETWORK_POOLS,
            of_networks("phase", |network| &network.pools),
        )?;
        encode(
            encoder,
            &NETWORK_BLOCKS,
            of_networks("state", |network| &network.blocks),
        )?;
        encode(
            encoder,
            &WAITING_FOR_BLOCK,
            waiting_for_blocks.iter().flat_map(waiting_rows),
        )
    }
}

/// The reasons for which claims wait for a block.
const REASONS: [&str; 12] = [
    "being_taken",
    "no_registry",
    "unreachable",
    "refused",
    "cluster_id_in_use",
    "registry_replaced",
    "registry_restored",
    "all_taken",
    "limit",
    "size_differs",
    "record_invalid",
    "slice_unavailable",
];

fn reason_of(obstacle: Option<&BlockObstacle>) -> &'static str {
    match obstacle {
        None => "being_taken",
        Some(BlockObstacle::NoRegistry) => "no_registry",
        Some(BlockObstacle::Unreachable) => "unreachable",
        Some(BlockObstacle::Refused) => "refused",
        Some(BlockObstacle::Suspended) => "cluster_id_in_use",
        Some(BlockObstacle::Replaced) => "registry_replaced",
        Some(BlockObstacle::Restored) => "registry_restored",
        Some(BlockObstacle::AllTaken) => "all_taken",
        Some(BlockObstacle::Limit(_)) => "limit",
        Some(BlockObstacle::SizeDiffers { .. }) => "size_differs",
        Some(BlockObstacle::RecordUndecodable) => "record_invalid",
        Some(BlockObstacle::SliceUnavailable(_)) => "slice_unavailable",
    }
}

/// The claims of a network that wait for a block. The numbers for reasons for which none waits are
/// 0: so a series does not end with its reason.
fn waiting_rows(waiting: &WaitingForBlock) -> impl Iterator<Item = (Labels<'_>, i64)> {
    let mut counts = BTreeMap::from(REASONS.map(|reason| (reason, 0_usize)));
    for (obstacle, claims) in &waiting.claims {
        *counts.entry(reason_of(obstacle.as_ref())).or_default() += claims;
    }
    let counts = counts.into_iter();
    let counts = counts.map(|(reason, count)| (reason, saturating(count)));
    rows(
        vec![("network", &*waiting.network)],
        "reason",
        counts.collect(),
    )
}

fn address_counts(pool: &PoolCounts) -> Counts {
    let counts = &pool.counts;
    let mut states = vec![
        ("total", counts.total),
        ("free", counts.free),
        ("used", counts.used),
        ("reserved", counts.reserved),
        ("cooling_down", counts.cooling_down),
        ("out_of_range", counts.out_of_range),
    ];
    // Few pools have draining parts or quarantined addresses.
    let optional = [
        ("quarantined", counts.quarantined),
        ("drained", counts.drained),
    ];
    states.extend(optional.into_iter().filter(|(_, count)| *count > 0));
    states
}

/// Empty for a pool without rules.
fn over_limit_counts(pool: &PoolCounts) -> Counts {
    match &pool.over_limit {
        Some(over) => vec![
            ("limits", saturating(over.addresses)),
            ("allowed_namespaces", saturating(over.not_allowed)),
        ],
        None => Vec::new(),
    }
}

/// Empty for a pool without slices.
fn slice_counts(pool: &PoolCounts) -> Counts {
    match &pool.slices {
        Some(slices) => vec![
            ("total", slices.total),
            ("assigned", slices.assigned),
            ("free", slices.free),
        ],
        None => Vec::new(),
    }
}

fn saturating(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Several values of one object, which a label tells apart.
fn rows<'a>(
    labels: Labels<'a>,
    label: &'static str,
    counts: Counts,
) -> impl Iterator<Item = (Labels<'a>, i64)> {
    counts.into_iter().map(move |(value, count)| {
        let mut labels = labels.clone();
        labels.push((label, value));
        (labels, count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use capi_ipam_api::{AddressCounts, InClusterKind, OverLimit, SliceCounts};

    #[test]
    fn counts_of_pools_are_encoded() {
        let (pools, metrics) = (PoolMetrics::default(), Metrics::default());
        pools.register(&metrics);
        let local = PoolKey::new(InClusterKind::IPPool, Some("n"), "web");
        let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "shared");
        let counts = AddressCounts {
            total: 14,
            free: 2,
            used: 4,
            reserved: 1,
            cooling_down: 2,
            quarantined: 6,
            drained: 5,
            out_of_range: 3,
        };
        let all = vec![
            PoolCounts {
                key: local,
                counts,
                waiting: 7,
                over_limit: None,
                slices: None,
                shares_blocks: true,
                is_invalid: true,
            },
            PoolCounts {
                key: global.clone(),
                counts: AddressCounts::default(),
                waiting: 0,
                over_limit: Some(OverLimit {
                    groups: 1,
                    addresses: 4,
                    not_allowed: 2,
                }),
                slices: Some(SliceCounts {
                    total: 8,
                    assigned: 5,
                    free: 2,
                }),
                shares_blocks: false,
                is_invalid: false,
            },
        ];
        let network = NetworkCounts {
            name: "backbone".to_owned(),
            addresses: [("total", 90), ("used", 30), ("free", 55)],
            pools: [("joining", 1), ("member", 2), ("leaving", 0)],
            blocks: vec![("held", 3), ("conflicts", 1)],
        };
        let waiting = WaitingForBlock {
            network: "backbone".into(),
            claims: vec![
                (Some(BlockObstacle::Limit(3)), 5),
                (None, 1),
                (Some(BlockObstacle::Limit(3)), 3),
            ],
        };
        *pools.snapshot.lock() = Arc::new(Snapshot {
            pools: all,
            networks: vec![network],
            waiting_for_blocks: vec![waiting],
        });
        pools.set_not_in_use(vec![(global, 6)]);
        let text = metrics.encode().unwrap();
        let local = r#"kind="InClusterIPPool",namespace="n",pool="web""#;
        let states = [
            ("total", 14),
            ("free", 2),
            ("used", 4),
            ("reserved", 1),
            ("cooling_down", 2),
            ("drained", 5),
            ("quarantined", 6),
        ];
        for (state, count) in states.into_iter().chain([("out_of_range", 3)]) {
            let line = format!("capi_ipam_pool_addresses{{{local},state=\"{state}\"}} {count}\n");
            assert!(text.contains(&line), "{text}");
        }
        assert!(
            text.contains(&format!("capi_ipam_pool_waiting_claims{{{local}}} 7\n")),
            "{text}"
        );
        let sharing: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("capi_ipam_pool_shares_blocks"))
            .collect();
        assert_eq!(
            sharing,
            [format!("capi_ipam_pool_shares_blocks{{{local}}} 1")]
        );
        let lines = text.lines();
        let invalid: Vec<&str> = lines
            .filter(|it| it.starts_with("capi_ipam_pool_invalid"))
            .collect();
        assert_eq!(invalid, [format!("capi_ipam_pool_invalid{{{local}}} 1")]);
        let global = r#"capi_ipam_pool_waiting_claims{kind="GlobalInClusterIPPool",namespace="",pool="shared"} 0"#;
        assert!(text.contains(global), "{text}");
        let global = r#"capi_ipam_addresses_not_in_use{kind="GlobalInClusterIPPool",namespace="",pool="shared"} 6"#;
        assert!(text.contains(global), "{text}");
        assert_eq!(text.matches("state=\"drained\"").count(), 1, "{text}");
        for (rule, count) in [("limits", 4), ("allowed_namespaces", 2)] {
            let line = format!(r#"namespace="",pool="shared",rule="{rule}"}} {count}"#);
            assert!(text.contains(&line), "{text}");
        }
        let line = r#"capi_ipam_pool_slices{kind="GlobalInClusterIPPool",namespace="",pool="shared",state="assigned"} 5"#;
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("capi_ipam_network_addresses{network=\"backbone\",state=\"free\"} 55\n"),
            "{text}"
        );
        assert!(
            text.contains("capi_ipam_network_pools{network=\"backbone\",phase=\"joining\"} 1\n"),
            "{text}"
        );
        let line = "capi_ipam_network_blocks{network=\"backbone\",state=\"conflicts\"} 1\n";
        assert!(text.contains(line), "{text}");
        for (reason, count) in [("limit", 8), ("unreachable", 0)] {
            let line = format!("{{network=\"backbone\",reason=\"{reason}\"}} {count}\n");
            assert!(text.contains(&line), "{line} in\n{text}");
        }
    }
}
