//! What networks report.

use capi_ipam_api::{advice, conditions};

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::objects::NetworkRow;

pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    Examination::inspect(&snapshot.networks, |network| {
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
    let lacks_registry = reported
        .is_some_and(|ready| ready.reason.as_deref() == Some(conditions::REGISTRY_NOT_FOUND));
    let reported = reported.and_then(|ready| ready.message.clone());
    let problem = network.invalid.clone().or(reported)?;
    let repair = match network.registry() {
        Some(registry) if lacks_registry => advice::missing_registry(registry),
        _ => format!("correct it: kubectl edit ipnetworks {}", network.name),
    };
    Some(Check::NetworkNotReady.finding(format!("IPNetwork {}", network.name), problem, repair))
}
