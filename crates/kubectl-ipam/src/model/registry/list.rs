//! `registry list`: the registries, the management clusters that use them, and who has how many
//! blocks of each network.

use std::collections::BTreeMap;

use capi_ipam_registry::{Entry, Key, Record, RecordCache};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::facts::RegistryFacts;
use super::liveness::{ClusterState, state, state_by_status};
use crate::objects::{NetworkRow, RegistryRow};

/// One registry in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryLine {
    /// Name of the IPRegistry.
    pub name: String,
    /// Identity of this management cluster; `null` if it is unknown.
    #[serde(rename = "clusterID")]
    pub cluster_id: Option<String>,
    /// Status of the condition Ready: `True`, `False` or `Unknown`.
    pub ready: String,
    /// Why the registry is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Why the records of the registry cannot be read. Then clusters and networks are those that the
    /// manager has reported: at most 50 clusters, and the networks of this management cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// The management clusters that use the registry, by identity.
    pub clusters: Vec<ClusterLine>,
    /// The networks that share blocks, by name.
    pub networks: Vec<NetworkBlocksLine>,
    /// What is not a record, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<RecordProblem>,
}

/// A management cluster that uses a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLine {
    /// Identity of the management cluster.
    pub cluster: String,
    /// Whether it is this one.
    pub this: bool,
    /// Number of its blocks.
    pub blocks: u64,
    /// Time of its last sign of life, which it gives each minute. From the status of the registry,
    /// it is rounded down to 10 minutes. `null` if it is unknown.
    #[schemars(with = "Option<String>")]
    pub last_seen: Option<Timestamp>,
    /// Whether it is alive.
    pub state: ClusterState,
}

/// The blocks of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkBlocksLine {
    /// Name of the network.
    pub network: String,
    /// Number of addresses or prefixes of a block; `null` if it is unknown.
    pub size: Option<u64>,
    /// Blocks of this management cluster; `null` if it is unknown.
    pub held: Option<u64>,
    /// Those without an address in use, as the manager has reported them; `null` if it is unknown.
    pub spare: Option<u64>,
    /// Blocks of other management clusters, and those whose record cannot be decoded; `null` if it
    /// is unknown.
    pub others: Option<u64>,
    /// Blocks that this management cluster and another one use; `null` if it is unknown.
    pub conflicts: Option<u64>,
}

/// Something in a registry that is not a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordProblem {
    /// Its name.
    pub record: String,
    /// What is wrong.
    pub problem: String,
}

impl RecordProblem {
    /// What is wrong with an entry; `None` for a record.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let problem = entry.problem()?;
        Some(Self {
            record: entry.key.clone(),
            problem: problem.to_string(),
        })
    }
}

/// Returns the lines of all registries.
pub(crate) fn registry_lines(
    registries: &[RegistryFacts],
    networks: &[NetworkRow],
    now: Timestamp,
) -> Vec<RegistryLine> {
    let mut lines = Vec::new();
    for facts in registries {
        lines.push(line(facts, networks, now));
    }
    lines
}

fn line(facts: &RegistryFacts, networks: &[NetworkRow], now: Timestamp) -> RegistryLine {
    let row = &facts.row;
    let ready = row.ready();
    let problem = ready.filter(|ready| ready.status != "True");
    let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    let own: Vec<&NetworkRow> = networks
        .iter()
        .filter(|network| network.registry() == Some(row.name.as_str()))
        .collect();
    let (clusters, networks, problems) = match &facts.records {
        Ok(records) => (
            clusters_of_records(records, facts, now),
            networks_of_records(records, facts, &own),
            records
                .problems()
                .iter()
                .filter_map(|entry| RecordProblem::of(entry))
                .collect(),
        ),
        Err(_) => (
            clusters_of_status(&facts.row, facts.cluster.as_deref(), now),
            own.iter()
                .map(|network| NetworkBlocksLine::of_status(network))
                .collect(),
            Vec::new(),
        ),
    };
    RegistryLine {
        name: row.name.clone(),
        cluster_id: facts.cluster.clone(),
        ready: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.to_string()),
        reason: problem.and_then(|problem| text(problem.reason.as_deref())),
        message: problem.and_then(|problem| text(problem.message.as_deref())),
        unread: facts.records.as_ref().err().map(|it| it.reason.clone()),
        clusters,
        networks,
        problems,
    }
}

/// The clusters that have a record, and those that have a block.
fn clusters_of_records(
    records: &RecordCache,
    facts: &RegistryFacts,
    now: Timestamp,
) -> Vec<ClusterLine> {
    let mut found: BTreeMap<String, (u64, Option<Timestamp>)> = BTreeMap::new();
    for (id, entry) in records.clusters() {
        let seen = match entry.record() {
            Some(Record::Cluster(record)) => record.seen.as_ref().map(|time| time.0),
            _ => None,
        };
        found.insert(id.into(), (0, seen));
    }
    for entry in records.entries() {
        if let Some(Record::Block(record)) = entry.record()
            && record.returned_at.is_none()
        {
            let (blocks, _) = found.entry(record.cluster.clone()).or_default();
            *blocks = blocks.saturating_add(1);
        }
    }
    let mut lines = Vec::new();
    for (cluster, (blocks, last_seen)) in found {
        lines.push(ClusterLine {
            this: facts.cluster.as_ref() == Some(&cluster),
            cluster,
            blocks,
            last_seen,
            state: state(last_seen, now),
        });
    }
    lines
}

/// The clusters that the manager has reported.
pub(super) fn clusters_of_status(
    row: &RegistryRow,
    own: Option<&str>,
    now: Timestamp,
) -> Vec<ClusterLine> {
    let mut lines = Vec::new();
    for cluster in &row.status.clusters {
        let last_seen = cluster.last_seen.as_ref().map(|time| time.0);
        lines.push(ClusterLine {
            cluster: cluster.id.clone(),
            this: own == Some(cluster.id.as_str()),
            blocks: number(cluster.blocks),
            last_seen,
            state: state_by_status(last_seen, now),
        });
    }
    lines
}

/// The networks of this management cluster, and those that have a record.
fn networks_of_records(
    records: &RecordCache,
    facts: &RegistryFacts,
    own: &[&NetworkRow],
) -> Vec<NetworkBlocksLine> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for network in own {
        tallies.entry(network.name.clone()).or_default();
    }
    for entry in records.entries() {
        match Key::parse(&entry.key) {
            Some(Key::Block { network, .. }) => {
                let tally = tallies.entry(network.into()).or_default();
                tally.add(&entry, facts.cluster.as_deref());
            }
            Some(Key::Network { name }) => {
                tallies.entry(name.into()).or_default();
            }
            _ => {}
        }
    }
    let is_known = facts.cluster.is_some();
    let known = |count: u64| is_known.then_some(count);
    let mut lines = Vec::new();
    for (name, tally) in tallies {
        let row = own.iter().find(|row| row.name == name);
        let size = match (records.network(&name), row) {
            (Some(record), _) => Some(record.size),
            (None, Some(row)) => row.block_size(),
            (None, None) => None,
        };
        let spare = match row {
            Some(row) => row.status.blocks.as_ref().map(|it| number(it.spare)),
            None => known(tally.held).filter(|held| *held == 0),
        };
        lines.push(NetworkBlocksLine {
            network: name,
            size,
            held: known(tally.held),
            spare,
            others: known(tally.others),
            conflicts: known(tally.conflicts),
        });
    }
    lines
}

/// The blocks of a network, by who has them.
#[derive(Default)]
struct Tally {
    held: u64,
    others: u64,
    conflicts: u64,
}

impl Tally {
    fn add(&mut self, entry: &Entry, own: Option<&str>) {
        let Some(Record::Block(record)) = entry.record() else {
            self.others = self.others.saturating_add(1);
            return;
        };
        let is_own = own == Some(record.cluster.as_str());
        if is_own && record.returned_at.is_some() {
            return;
        }
        let is_wanted = record.contenders.iter().any(|id| own == Some(id.as_str()));
        if is_own {
            self.held = self.held.saturating_add(1);
        } else {
            self.others = self.others.saturating_add(1);
        }
        if is_own && !record.contenders.is_empty() || is_wanted {
            self.conflicts = self.conflicts.saturating_add(1);
        }
    }
}

impl NetworkBlocksLine {
    /// The blocks that the manager has reported.
    pub(super) fn of_status(row: &NetworkRow) -> Self {
        let blocks = row.status.blocks.as_ref();
        Self {
            network: row.name.clone(),
            size: row.block_size(),
            held: blocks.map(|it| number(it.held)),
            spare: blocks.map(|it| number(it.spare)),
            others: blocks.map(|it| number(it.others)),
            conflicts: blocks.map(|it| number(it.conflicts)),
        }
    }
}

/// A number of a status.
pub(super) fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
