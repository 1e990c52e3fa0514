//! What networks report.

use capi_ipam_api::{advice, conditions};
use capi_ipam_provider::api::conditions::Condition;

use super::examination::Examination;
use super::names::of_network;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::objects::{Kind, NetworkRow};

pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let missing = objects.lacking(&[Kind::Network]);
    Examination::inspect(objects.networks.sorted(), missing, |network| {
        finding(network).into_iter().collect()
    })
}

/// A network that is being deleted is not ready until its pools are deleted. Another size of blocks
/// is a separate finding.
fn finding(network: &NetworkRow) -> Option<Finding> {
    let others = [conditions::DELETING, conditions::BLOCK_SIZE_DIFFERS];
    let reported = network
        .problem()
        .filter(|ready| !others.contains(&ready.reason.as_deref().unwrap_or_default()));
    // The last condition of one that cannot be decoded says nothing about it.
    let ready = reported.filter(|_| network.invalid.is_none());
    let repair = repair(network, ready);
    let reported = reported.and_then(|ready| ready.message.clone());
    let problem = network.invalid.clone().or(reported)?;
    Some(Check::NetworkNotReady.finding(of_network(network), problem, repair))
}

/// What to do about a network that is not ready.
fn repair(network: &NetworkRow, ready: Option<&Condition>) -> String {
    let reason = ready.and_then(|ready| ready.reason.as_deref());
    match (reason, network.registry()) {
        (Some(conditions::REGISTRY_NOT_FOUND), Some(registry)) => {
            advice::missing_registry(registry)
        }
        (Some(conditions::NETWORK_RECORD_INVALID), _) => {
            advice::repair_network_record(&network.name)
        }
        _ => format!("correct it: kubectl edit ipnetworks {}", network.name),
    }
}
