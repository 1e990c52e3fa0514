//! What single claims report.

use capi_ipam_api::{conditions, names};

use super::examination::Examination;
use super::names::of_claim;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::objects::{ClaimRow, UnservedClaim};

/// Claims that no provider serves. Nothing else reports them: they have no condition and no event.
/// A claim of a kind whose definition is missing is right; another check reports the definition.
pub(super) fn unknown_kinds(snapshot: &Snapshot) -> Examination {
    let unserved = snapshot.claims.clone().map(|claims| claims.unserved);
    Examination::inspect(&unserved, |claim| {
        if claim.lacks_definition() && !snapshot.is_go_provider {
            Vec::new()
        } else {
            vec![unknown_kind(claim)]
        }
    })
}

fn unknown_kind(claim: &UnservedClaim) -> Finding {
    let (namespace, name) = claim.key.parts();
    let user = claim
        .machine
        .as_deref()
        .map(|machine| format!(" of {machine}"))
        .unwrap_or_default();
    let repair = format!(
        "a claim cannot be changed: correct the pool (apiGroup: {group}, kind: {}) in the template{user} from which the \
         claim was created, and delete the claim so that its controller creates it again: kubectl delete \
         ipaddressclaims.{group} {name} --namespace {namespace}",
        claim.meant,
        group = names::GROUP,
    );
    Check::UnknownPoolKind
        .finding(
            format!("ipaddressclaim {}", claim.key),
            claim.problem(),
            repair,
        )
        .since(claim.created)
}

/// What claims report about the use of their addresses.
pub(super) fn reported(snapshot: &Snapshot) -> Examination {
    let claims = snapshot.claims.clone().map(|claims| claims.served);
    Examination::inspect(&claims, problems)
}

fn problems(claim: &ClaimRow) -> Vec<Finding> {
    let object = of_claim(claim);
    let mut findings = Vec::new();
    let user = claim.machine.as_deref().unwrap_or("its machine");
    if let Some(message) = claim.not_in_use.as_deref().filter(|_| !claim.is_deleting()) {
        let repair = format!("correct the network configuration of {user}, or replace the machine");
        findings.push(Check::AddressNotInUse.finding(object.clone(), message.to_owned(), repair));
    }
    if let Some(message) = claim.replaced.as_deref().filter(|_| !claim.is_deleting()) {
        let (namespace, name) = claim.key.parts();
        let repair = format!(
            "compare the address of {user} with that of the claim: kubectl get ipaddresses.{} {name} --namespace \
             {namespace}; replace the machine if they differ",
            names::GROUP
        );
        let problem = message.to_owned();
        findings.push(Check::RestoredWithoutAddress.finding(object.clone(), problem, repair));
    }
    if claim.is_deleting() && claim.reason.as_deref() == Some(conditions::RELEASED_EARLY) {
        let message = claim.message.as_deref().unwrap_or_default().to_owned();
        let repair = "verify that the machine no longer exists, and then find out why its controller keeps the claim";
        findings.push(Check::ReleasedEarly.finding(object, message, repair.to_owned()));
    }
    findings
}
