//! What the status of a registry says: its condition Ready, and its management clusters.

use std::sync::Arc;

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{IPRegistry, LAST_SEEN_PRECISION, RegistryCluster, names};
use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::Record;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::in_cluster::blocks::open_registry::{ConnectError, MAX_CLUSTERS, OpenRegistry, Trouble};
use crate::in_cluster::blocks::recovery::RECOVERY_TIMEOUT;

/// What an operator has to do about slow requests.
const SLOW: &str = "the last request to the registry took more than 2 s, and claims that need another block wait as long; \
                    check the load of the registry, and the network";

pub(super) fn conditions_of(registry: &IPRegistry) -> Vec<Condition> {
    match &registry.status {
        Some(status) => status.conditions.clone(),
        None => Vec::new(),
    }
}

/// Whether a condition reports a problem.
pub(super) fn is_problem(condition: &Condition) -> bool {
    let is_requested = condition.reason() == conditions::DELETING;
    condition.type_ == conditions::READY && condition.status == "False" && !is_requested
}

pub(super) fn is_ready(list: &[Condition]) -> bool {
    conditions::find(list, conditions::READY).is_some_and(|ready| ready.status == "True")
}

/// The condition Ready of a registry in deletion that waits, and would have another one.
pub(super) fn deleting(waits_for: &str, otherwise: &Condition) -> Condition {
    let problem = otherwise.message();
    let message = if problem.is_empty() {
        waits_for.to_owned()
    } else {
        format!("{waits_for}; {problem}")
    };
    Condition::new(conditions::READY, false, conditions::DELETING, message)
}

/// The condition Ready of a registry.
pub(super) fn ready(
    opened: &Result<Arc<OpenRegistry>, ConnectError>,
    known: Option<&str>,
) -> Condition {
    let (reason, message) = match opened {
        Ok(opened) => match opened.trouble() {
            Some(trouble) => described(opened, &trouble, known),
            None => {
                let message = if opened.backend.is_slow() { SLOW } else { "" };
                return Condition::new(
                    conditions::READY,
                    true,
                    conditions::REGISTRY_READY,
                    message,
                );
            }
        },
        Err(error) if error.is_of_settings() => (conditions::INVALID_SPEC, error_chain(error)),
        Err(error) => (conditions::REGISTRY_UNREACHABLE, error_chain(error)),
    };
    Condition::new(conditions::READY, false, reason, message)
}

/// The reason and the message of the condition Ready.
fn described(
    opened: &OpenRegistry,
    trouble: &Trouble,
    known: Option<&str>,
) -> (&'static str, String) {
    let (name, cluster) = (&opened.name, &opened.cluster);
    match trouble {
        Trouble::Replaced => (
            conditions::REGISTRY_REPLACED,
            replaced_message(opened, known),
        ),
        Trouble::IdInUse(Some(uid)) => (
            conditions::CLUSTER_ID_IN_USE,
            format!(
                "clusterID {cluster} belongs to the management cluster whose namespace kube-system has the UID {uid}: no block \
                 is taken, returned or used; set a different spec.clusterID here, or if that cluster no longer exists, take \
                 over its blocks with kubectl ipam registry adopt --registry {name}"
            ),
        ),
        Trouble::IdInUse(None) => (
            conditions::CLUSTER_ID_IN_USE,
            format!(
                "another process writes with the clusterID {cluster}: no block is taken, returned or used; set a different \
                 spec.clusterID in each management cluster, including a copy that was restored from a backup"
            ),
        ),
        Trouble::Unreachable(problem) => (
            conditions::REGISTRY_UNREACHABLE,
            format!(
                "{problem}; addresses of held blocks are still allocated and released, and no block is taken or returned"
            ),
        ),
        Trouble::Restored(awaited) => (conditions::REGISTRY_RESTORED, restored_message(awaited)),
        Trouble::Listing => (
            conditions::REGISTRY_UNREACHABLE,
            "the records of the registry are being listed".to_owned(),
        ),
    }
}

/// What a registry that has lost writes waits for.
fn restored_message(awaited: &[String]) -> String {
    let wait = if awaited.is_empty() {
        "its records are written".to_owned()
    } else {
        format!(
            "waiting for these management clusters: {}",
            awaited.join(", ")
        )
    };
    format!(
        "the registry has lost writes, as after a restore from a backup, or replaces another one: no block is taken until all \
         management clusters have written their records to it, at most for {} minutes; {wait}; start the managers of all \
         of them; addresses of held blocks are still allocated and released",
        RECOVERY_TIMEOUT.as_secs() / 60
    )
}

/// What an operator has to do about a registry that is not the one of the status.
fn replaced_message(opened: &OpenRegistry, known: Option<&str>) -> String {
    let known = known.unwrap_or_default();
    let found = match opened.records.registry_id() {
        Some(found) => format!("has the identity {found} instead of {known}"),
        None => format!("has no record of its identity, which was {known}"),
    };
    format!(
        "the registry {found}: it is another one, or has lost its records. Nothing is written to it; addresses of held \
         blocks are still allocated and released. Correct the servers or the Secret, or restore the records; if all \
         management clusters of the network use this registry from now on, run kubectl annotate ipregistries {} {}={known}",
        opened.name,
        names::REPLACED_REGISTRY_ANNOTATION
    )
}

/// The management clusters of a registry, in order of their identities.
pub(super) fn clusters_of(opened: &OpenRegistry) -> Vec<RegistryCluster> {
    let mut found = Vec::new();
    for (id, entry) in opened.records.clusters() {
        let (blocks, seen) = match entry.record() {
            Some(Record::Cluster(record)) => (record.blocks, record.seen.clone()),
            _ => (0, None),
        };
        found.push(RegistryCluster {
            id: id.into(),
            blocks: blocks.into(),
            last_seen: seen.map(rounded),
        });
    }
    found.truncate(MAX_CLUSTERS);
    found
}

/// A time as the status shows it.
fn rounded(time: Time) -> Time {
    let second = time.0.as_second();
    let second = second.saturating_sub(second.rem_euclid(LAST_SEEN_PRECISION));
    match k8s_openapi::jiff::Timestamp::from_second(second) {
        Ok(rounded) => Time(rounded),
        Err(_) => time,
    }
}
