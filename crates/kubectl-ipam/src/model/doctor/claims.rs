//! What single claims report.

use capi_ipam_api::{conditions, names};

use super::examination::Examination;
use super::names::{claim_resource, claims_wait, grouped, of_claim, oldest, resource};
use super::snapshot::Snapshot;
use super::waiting::is_old;
use crate::model::finding::{Check, Finding, Severity, Subject};
use crate::objects::{Cause, ClaimRow, Kind, Objects, UnservedPool};

/// Claims that no provider serves. Nothing else reports them: they have no condition and no event.
/// A claim of a kind whose definition is missing is right; another check reports the definition.
/// Claims in deletion need nothing.
pub(super) fn unknown_kinds(snapshot: &Snapshot) -> Examination {
    let mut findings = Vec::new();
    let mut of_others = Vec::new();
    let objects = &snapshot.objects;
    for claim in objects.claims.sorted() {
        let Err(pool) = &claim.pool else { continue };
        match pool.cause {
            _ if !claim.is_waiting() => {}
            Cause::MissingDefinition if !snapshot.is_go_provider => {}
            Cause::OtherProvider if !is_old(claim.created, snapshot.now) => {}
            Cause::OtherProvider => of_others.push((pool, claim)),
            Cause::MissingDefinition | Cause::Misspelt(_) | Cause::UnknownGroup => {
                findings.push(unknown_kind(claim, pool));
            }
        }
    }
    for of_kind in grouped(of_others, |(pool, _)| pool.full_kind()).values() {
        let claims: Vec<&ClaimRow> = of_kind.iter().map(|(_, claim)| *claim).collect();
        let first = of_kind.first();
        findings.extend(first.map(|(pool, _)| of_other_provider(pool, &claims)));
    }
    let has_claims = objects.claims.iter().next().is_some();
    Examination::complete(findings).with_unknown(objects.lacking(&[Kind::Claim]), has_claims)
}

/// Claims that wait for a pool of another provider, which may not run. One finding for each kind.
fn of_other_provider(pool: &UnservedPool, claims: &[&ClaimRow]) -> Finding {
    let problem = format!("{}: {}", claims_wait(claims), pool.problem());
    let repair = "nothing, if the other provider serves them; otherwise correct the pool in the template from which they \
                  were created, and delete the claims";
    let mut subject = Subject::from(format!("claims of {}", pool.full_kind()));
    for claim in claims {
        subject = subject.in_namespace(claim.key.namespace());
    }
    let finding = Check::UnknownPoolKind.finding(subject, problem, repair);
    finding.at(Severity::Note).since(oldest(claims))
}

fn unknown_kind(claim: &ClaimRow, unserved: &UnservedPool) -> Finding {
    let user = match &claim.machine {
        Some(machine) => format!(" of {machine}"),
        None => String::new(),
    };
    let (install, pool) = match unserved.cause {
        Cause::Misspelt(meant) => (
            String::new(),
            format!(" (apiGroup: {}, kind: {meant})", names::GROUP),
        ),
        Cause::MissingDefinition | Cause::UnknownGroup | Cause::OtherProvider => (
            format!(
                "install the provider that has {}; or, since ",
                unserved.full_kind()
            ),
            String::new(),
        ),
    };
    let repair = format!(
        "{install}a claim cannot be changed: correct the pool{pool} in the template{user} from which the claim was \
         created, and delete the claim so that its controller creates it again",
    );
    Check::UnknownPoolKind
        .finding(Subject::claim(&claim.key), unserved.problem(), repair)
        .with_commands([format!("kubectl delete {}", claim_resource(&claim.key))])
        .since(claim.created)
}

/// What claims report about the use of their addresses.
pub(super) fn reported(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::inspect(objects.served(), objects.lacking(&[Kind::Claim]), |claim| {
        problems(claim, objects)
    })
}

fn problems(claim: &ClaimRow, objects: &Objects) -> Vec<Finding> {
    let find = |check: Check, problem: &str, repair: String| {
        check.finding(of_claim(claim, objects), problem, repair)
    };
    let mut findings = Vec::new();
    if claim.is_deleting() {
        if claim.reason.as_deref() == Some(conditions::RELEASED_EARLY) {
            let message = claim.message.as_deref().unwrap_or_default();
            let repair = "verify that the machine no longer exists, and then find out why its controller keeps the claim";
            findings.push(find(Check::ReleasedEarly, message, repair.to_owned()));
        }
        return findings;
    }
    let user = claim.machine.as_deref().unwrap_or("its machine");
    if let Some(message) = &claim.not_in_use {
        let repair = format!("correct the network configuration of {user}, or replace the machine");
        findings.push(find(Check::AddressNotInUse, message, repair));
    }
    if let Some(reason) = &claim.conflict {
        let problem = format!("it reports a conflict of its address: {reason}");
        let repair =
            format!("find the other host, and replace {user}: then the address is quarantined");
        findings.push(find(Check::AddressConflict, &problem, repair));
    }
    if let Some(message) = &claim.replaced {
        let repair = format!(
            "compare the address of {user} with that of the claim, and replace the machine if they differ"
        );
        let command = format!("kubectl get {}", resource("ipaddresses", &claim.key));
        let finding = find(Check::RestoredWithoutAddress, message, repair);
        findings.push(finding.with_commands([command]));
    }
    findings
}
