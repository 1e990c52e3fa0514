//! Registries of blocks that management clusters share: what they and their networks report, the
//! clusters that are gone, and the records that nobody uses.

use std::collections::BTreeSet;

use capi_ipam_api::{advice, conditions, names};
use capi_ipam_ip::Block;
use capi_ipam_provider::api::conditions::Condition;
use capi_ipam_registry::{Key, Record, RecordCache, cidr};

use super::examination::{Examination, Unknown};
use super::names::of_network;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Place, Severity, Subject, counted};
use crate::model::registry::{
    ClusterLine, ClusterState, RegistryFacts, STALE_AFTER, check_command, registry_lines,
};
use crate::objects::{Kind, NetworkRow, Objects, RegistryRow, SliceRow};

/// What registries report.
pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    let registries = &snapshot.registries;
    Examination::inspect(registries.seen(), registries.missing.clone(), |facts| {
        let ready = facts.row.ready().filter(|ready| ready.status == "False");
        ready
            .map(|ready| of_registry(&facts.row, ready))
            .into_iter()
            .collect()
    })
}

fn of_registry(row: &RegistryRow, ready: &Condition) -> Finding {
    let edit = format!("kubectl edit ipregistries {}", row.name);
    let text = ready.message.as_deref().unwrap_or_default();
    let is_missing = text.contains("does not exist");
    let repair = match ready.reason.as_deref() {
        Some(conditions::CLUSTER_ID_IN_USE) => format!(
            "set a different spec.clusterID in the copy: run kubectl annotate ipregistries {name} {annotation}= and \
             kubectl delete ipregistries {name} there, and create it again with another spec.clusterID",
            name = row.name,
            annotation = names::SKIP_VALIDATE_DELETE,
        ),
        Some(conditions::REGISTRY_UNREACHABLE) => {
            "repair the registry, or the connection of the manager to it; addresses of held blocks are allocated meanwhile"
                .to_owned()
        }
        // The message names both cases, and what to do in each.
        Some(conditions::REGISTRY_REPLACED | conditions::REGISTRY_RESTORED) => "do what the message names".to_owned(),
        // A bucket or a Secret: the IPRegistry names the right one.
        _ if is_missing => "create what the message names".to_owned(),
        _ => format!("correct what the message names: {edit}"),
    };
    let problem = message(ready);
    Check::RegistryNotReady.finding(Subject::of_registry(&row.name), problem, repair)
}

/// The reason and the message of a condition.
fn message(condition: &Condition) -> String {
    let reason = condition.reason.as_deref().unwrap_or_default();
    let message = condition.message.as_deref().unwrap_or_default();
    format!("{reason}: {message}")
}

/// What networks report about their blocks.
pub(super) fn of_networks(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let missing = objects.lacking(&[Kind::Network]);
    Examination::inspect(objects.networks.sorted(), missing, |network| {
        let mut findings: Vec<Finding> = conflict(network).into_iter().collect();
        findings.extend(size(network));
        findings.extend(exclusions(network));
        findings
    })
}

fn conflict(network: &NetworkRow) -> Option<Finding> {
    let problem = network.message_of(conditions::BLOCK_CONFLICT)?;
    let repair = advice::BLOCK_CONFLICT.to_owned();
    let finding = Check::BlockConflict.finding(of_network(network), problem, repair);
    Some(finding.with_commands(vec![check_command(&network.name)]))
}

fn exclusions(network: &NetworkRow) -> Option<Finding> {
    let problem = network.message_of(conditions::EXCLUSIONS_DIFFER)?;
    let repair = "apply the same pools and the same IPNetwork to all management clusters";
    let finding = Check::ExclusionsDiffer.finding(of_network(network), problem, repair.to_owned());
    Some(finding.with_commands(vec![check_command(&network.name)]))
}

fn size(network: &NetworkRow) -> Option<Finding> {
    let ready = network.problem()?;
    if ready.reason.as_deref() != Some(conditions::BLOCK_SIZE_DIFFERS) {
        return None;
    }
    let problem = ready.message.clone().unwrap_or_default();
    let repair = format!(
        "use the size of the other management clusters: kubectl edit ipnetworks {}",
        network.name
    );
    Some(Check::BlockSizeDiffers.finding(of_network(network), problem, repair))
}

/// Management clusters that give no sign of life.
pub(super) fn stale(snapshot: &Snapshot) -> Examination {
    let registries = &snapshot.registries;
    Examination::inspect(registries.seen(), registries.missing.clone(), |facts| {
        let mut findings = Vec::new();
        for line in registry_lines(std::slice::from_ref(facts), &[], snapshot.now) {
            let clusters = line.clusters.iter();
            let stale = clusters.filter(|it| it.state == ClusterState::Stale && !it.this);
            findings.extend(stale.map(|cluster| of_cluster(&facts.row, cluster)));
        }
        findings
    })
}

fn of_cluster(row: &RegistryRow, cluster: &ClusterLine) -> Finding {
    let blocks = usize::try_from(cluster.blocks).unwrap_or(usize::MAX);
    let problem = format!(
        "management cluster {} has given no sign of life for more than {} minutes, and has {}",
        cluster.cluster,
        STALE_AFTER.as_mins(),
        counted(blocks, "block")
    );
    let repair = "start its manager; if the cluster no longer exists and none of its machines runs, release its blocks";
    let command = format!(
        "kubectl ipam registry release --registry {} --cluster-id {}",
        row.name, cluster.cluster
    );
    let finding = Check::StaleCluster
        .finding(Subject::of_registry(&row.name), problem, repair.to_owned())
        .since(cluster.last_seen)
        .with_commands(vec![command]);
    // It keeps no address from anybody.
    if blocks == 0 {
        return finding.at(Severity::Note);
    }
    finding
}

/// Records of this management cluster without an IPSlice: nobody allocates addresses of the block.
pub(super) fn without_slice(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let mut missing = snapshot.registries.missing.clone();
    missing.extend(objects.lacking(&[Kind::Slice]));
    let mut examination = Examination::compare(missing, || {
        let mut findings = Vec::new();
        for facts in snapshot.registries.seen() {
            if let (Ok(records), Some(own)) = (&facts.records, &facts.cluster) {
                findings.extend(unused_records(&facts.row, records, own, objects));
            }
        }
        findings
    });
    if examination.unknown.is_none() {
        examination.unknown = unread(snapshot.registries.seen());
    }
    examination
}

/// The first registry that cannot be read.
fn unread(registries: &[RegistryFacts]) -> Option<Unknown> {
    let is_read = |facts: &RegistryFacts| facts.records.is_ok() && facts.cluster.is_some();
    let facts = registries.iter().find(|facts| !is_read(facts))?;
    let partly = registries.iter().any(is_read);
    let name = &facts.row.name;
    Some(match &facts.records {
        Err(unread) => match &unread.missing {
            Some(right) => Unknown {
                reason: unread.reason.clone(),
                missing: vec![right.clone()],
                partly,
            },
            None => Unknown {
                reason: format!(
                    "the records of IPRegistry {name} cannot be read from here: {}",
                    unread.reason
                ),
                missing: Vec::new(),
                partly,
            },
        },
        Ok(_) => Unknown {
            reason: format!(
                "the identity of this management cluster in IPRegistry {name} is unknown"
            ),
            missing: Vec::new(),
            partly,
        },
    })
}

fn unused_records(
    row: &RegistryRow,
    records: &RecordCache,
    own: &str,
    objects: &Objects,
) -> Vec<Finding> {
    let slices = objects.slices.iter();
    let known: BTreeSet<(&str, Block)> = slices.filter_map(SliceRow::shared_block).collect();
    let mut findings = Vec::new();
    for entry in records.entries() {
        let Some(Key::Block { network, block }) = Key::parse(&entry.key) else {
            continue;
        };
        let is_own = match entry.record() {
            Some(Record::Block(record)) => record.cluster == own && record.returned_at.is_none(),
            _ => false,
        };
        if !is_own || known.contains(&(&*network, block)) {
            continue;
        }
        let problem = format!(
            "IPRegistry {} has a record of this management cluster ({own}), which has no IPSlice of the block, so nobody \
             allocates its addresses",
            row.name
        );
        let repair = advice::RECORD_WITHOUT_SLICE;
        let subject = Subject::from(format!("block {} of IPNetwork {network}", cidr(block)))
            .at(Place::Network(network.to_string()))
            .at(Place::Registry(row.name.clone()));
        findings.push(Check::RecordWithoutSlice.finding(subject, problem, repair.to_owned()));
    }
    findings
}
