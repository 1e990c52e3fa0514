//! What networks report.

use capi_ipam_api::conditions;

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::objects::NetworkRow;

pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    Examination::inspect(&snapshot.networks, |network| {
        finding(network).into_iter().collect()
    })
}

/// A network that is being deleted is not ready until its pools are deleted.
fn finding(network: &NetworkRow) -> Option<Finding> {
    let reported = network
        .problem()
        .filter(|ready| ready.reason.as_deref() != Some(conditions::DELETING));
    let reported = reported.and_then(|ready| ready.message.clone());
    let problem = network.invalid.clone().or(reported)?;
    let repair = format!("correct it: kubectl edit ipnetworks {}", network.name);
    Some(Check::NetworkNotReady.finding(format!("IPNetwork {}", network.name), problem, repair))
}
