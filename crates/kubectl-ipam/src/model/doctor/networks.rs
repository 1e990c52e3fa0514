//! What networks report.

use capi_ipam_api::{advice, conditions};
use capi_ipam_provider::api::conditions::Condition;

use super::examination::Examination;
use super::names::of_network;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::model::registry::check_command;
use crate::objects::{Kind, NetworkRow};

pub(super) fn reported(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let missing = objects.lacking(&[Kind::Network]);
    Examination::inspect(objects.networks.sorted(), missing, problems)
}

fn problems(network: &NetworkRow) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The last condition of one that cannot be decoded says nothing about it.
    findings.extend(match &network.invalid {
        Some(problem) => Some(not_ready(network, problem, None)),
        None => network.problem().and_then(|ready| of_ready(network, ready)),
    });
    let exclude_the_same = "apply the same pools and the same IPNetwork to all management clusters";
    for (check, type_, repair) in [
        (
            Check::BlockConflict,
            conditions::BLOCK_CONFLICT,
            advice::BLOCK_CONFLICT,
        ),
        (
            Check::ExclusionsDiffer,
            conditions::EXCLUSIONS_DIFFER,
            exclude_the_same,
        ),
    ] {
        if let Some(problem) = network.message_of(type_) {
            let finding = check.finding(of_network(network), problem, repair);
            findings.push(finding.with_commands([check_command(&network.name)]));
        }
    }
    findings
}

/// A network that is being deleted is not ready until its pools are deleted.
fn of_ready(network: &NetworkRow, ready: &Condition) -> Option<Finding> {
    let problem = ready.message.as_deref()?;
    let reason = ready.reason.as_deref();
    match reason {
        Some(conditions::DELETING) => None,
        Some(conditions::BLOCK_SIZE_DIFFERS) => {
            let edit = edit(network);
            let repair = format!("use the size of the other management clusters: {edit}");
            Some(Check::BlockSizeDiffers.finding(of_network(network), problem, repair))
        }
        reason => Some(not_ready(network, problem, reason)),
    }
}

fn not_ready(network: &NetworkRow, problem: &str, reason: Option<&str>) -> Finding {
    let repair = match (reason, network.registry()) {
        (Some(conditions::REGISTRY_NOT_FOUND), Some(registry)) => {
            advice::missing_registry(registry)
        }
        (Some(conditions::NETWORK_RECORD_INVALID), _) => {
            advice::repair_network_record(&network.name)
        }
        _ => format!("correct it: {}", edit(network)),
    };
    Check::NetworkNotReady.finding(of_network(network), problem, repair)
}

fn edit(network: &NetworkRow) -> String {
    format!("kubectl edit ipnetworks {}", network.name)
}
