//! Registries of blocks that management clusters share: what they and their networks report, the
//! clusters that are gone, and the records that nobody uses.

use std::collections::BTreeSet;

use capi_ipam_api::{advice, conditions, counted, names};
use capi_ipam_ip::Block;
use capi_ipam_provider::api::conditions::Condition;
use capi_ipam_registry::{Key, Record, cidr};

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject};
use crate::model::registry::{ClusterLine, ClusterState, RegistryFacts, STALE_AFTER, clusters_of};
use crate::objects::{Kind, RegistryRow, SliceRow};

/// What registries report.
pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    Examination::inspect_list(&snapshot.registries, |facts| {
        let ready = facts.row.ready().filter(|ready| ready.status == "False");
        ready.map(|ready| of_registry(&facts.row, ready))
    })
}

fn of_registry(row: &RegistryRow, ready: &Condition) -> Finding {
    let edit = format!("kubectl edit ipregistries {}", row.name);
    let text = ready.message();
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
    let reason = ready.reason();
    let problem = format!("{reason}: {text}");
    Check::RegistryNotReady.finding(Subject::registry(&row.name), problem, repair)
}

/// Management clusters that give no sign of life.
pub(super) fn stale(snapshot: &Snapshot) -> Examination {
    Examination::inspect_list(&snapshot.registries, |facts| {
        let mut stale = clusters_of(facts, snapshot.now);
        stale.retain(|it| it.state == ClusterState::Stale && !it.this);
        stale
            .into_iter()
            .map(|cluster| of_cluster(&facts.row, &cluster))
    })
}

fn of_cluster(row: &RegistryRow, cluster: &ClusterLine) -> Finding {
    let problem = format!(
        "management cluster {} has given no sign of life for more than {} minutes, and has {}",
        cluster.cluster,
        STALE_AFTER.as_mins(),
        counted(cluster.blocks, "block", "blocks")
    );
    let repair = "start its manager; if the cluster no longer exists and none of its machines runs, release its blocks";
    let command = format!(
        "kubectl ipam registry release --registry {} --cluster-id {}",
        row.name, cluster.cluster
    );
    let finding = Check::StaleCluster
        .finding(Subject::registry(&row.name), problem, repair)
        .since(cluster.last_seen)
        .with_commands([command]);
    // It keeps no address from anybody.
    if cluster.blocks == 0 {
        return finding.at(Severity::Note);
    }
    finding
}

/// Records of this management cluster without an IPSlice: nobody allocates addresses of the block.
pub(super) fn without_slice(snapshot: &Snapshot) -> Examination {
    let registries = &snapshot.registries;
    let slices = snapshot.objects.lacking(&[Kind::Slice]);
    let missing = [registries.missing.clone(), slices].concat();
    if !missing.is_empty() {
        return Examination::default().with_unknown(missing, false);
    }
    let slices = snapshot.objects.slices.iter();
    let known: BTreeSet<(&str, Block)> = slices.filter_map(SliceRow::shared_block).collect();
    let mut readable = registries.seen().iter();
    let partly = readable.any(|it| it.records.is_ok() && it.cluster.is_some());
    Examination::of_each(registries, |facts| unused_records(facts, &known, partly))
}

/// The records of a registry of this management cluster without one of the known blocks. `partly`:
/// whether any registry can be read.
fn unused_records(
    facts: &RegistryFacts,
    known: &BTreeSet<(&str, Block)>,
    partly: bool,
) -> Examination {
    let name = &facts.row.name;
    let records = match &facts.records {
        Ok(records) => records,
        Err(unread) => {
            return match &unread.missing {
                Some(right) => Examination::default().with_unknown(vec![right.clone()], partly),
                None => Examination::not_visible(
                    format!(
                        "the records of IPRegistry {name} cannot be read from here: {}",
                        unread.reason
                    ),
                    partly,
                ),
            };
        }
    };
    let Some(own) = &facts.cluster else {
        let reason =
            format!("the identity of this management cluster in IPRegistry {name} is unknown");
        return Examination::not_visible(reason, partly);
    };
    let mut findings = Vec::new();
    for entry in records.entries() {
        if let Some(Key::Block { network, block }) = Key::parse(&entry.key)
            && let Some(Record::Block(record)) = entry.record()
            && record.cluster == *own
            && record.returned_at.is_none()
            && !known.contains(&(&*network, block))
        {
            let problem = format!(
                "IPRegistry {name} has a record of this management cluster ({own}), which has no IPSlice of the block, so \
                 nobody allocates its addresses"
            );
            let object = format!("block {} of IPNetwork {network}", cidr(block));
            let subject = Subject::from(object).of_network(&network).of_registry(name);
            let repair = advice::RECORD_WITHOUT_SLICE;
            findings.push(Check::RecordWithoutSlice.finding(subject, problem, repair));
        }
    }
    Examination::complete(findings)
}
