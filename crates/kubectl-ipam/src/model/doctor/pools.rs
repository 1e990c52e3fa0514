//! What single pools report.

use capi_ipam_api::conditions;
use capi_ipam_provider::api::conditions::Condition;

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, edit, full};
use crate::objects::PoolRow;

/// What pools report in their conditions.
pub(super) fn reported(snapshot: &Snapshot) -> Examination {
    Examination::inspect(&snapshot.pools, |pool| {
        let mut findings: Vec<Finding> = invalid(pool).into_iter().collect();
        let reported = pool.conditions.iter();
        findings.extend(reported.filter_map(|condition| of_condition(pool, condition)));
        findings.extend(stalled(pool));
        findings
    })
}

fn invalid(pool: &PoolRow) -> Option<Finding> {
    let problem = pool.usable.as_ref().err()?;
    let repair = format!("correct it: {}", edit(&pool.key));
    Some(Check::PoolNotReady.finding(full(&pool.key), problem.clone(), repair))
}

fn of_condition(pool: &PoolRow, condition: &Condition) -> Option<Finding> {
    let edit = edit(&pool.key);
    let is = |status: &str| condition.status == status;
    let (check, repair) = match (condition.type_.as_ref(), condition.reason.as_deref()) {
        (conditions::READY, Some(conditions::INITIALIZATION_FAILED)) if is("False") => (
            Check::PoolNotReady,
            "correct the webhook or policy that the message names".to_owned(),
        ),
        (conditions::READY, Some(conditions::NETWORK_NOT_FOUND)) if is("False") => (
            Check::PoolNotReady,
            format!("create the IPNetwork, or correct spec.network: {edit}"),
        ),
        (conditions::READY, Some(conditions::NETWORK_NOT_ALLOWED)) if is("False") => {
            let network = pool.spec.network().unwrap_or("NAME");
            let repair =
                format!("allow the namespace in the network: kubectl edit ipnetworks {network}");
            (Check::PoolNotReady, repair)
        }
        (conditions::READY, Some(conditions::NETWORK_NOT_READY)) if is("False") => (
            Check::PoolNotReady,
            "correct the network that the message names: kubectl ipam networks".to_owned(),
        ),
        (conditions::READY, Some(conditions::BLOCK_LENGTH_MISMATCH)) if is("False") => (
            Check::PoolNotReady,
            format!("use another network for the pool: {edit}"),
        ),
        (conditions::OUT_OF_RANGE, _) if is("True") => (
            Check::AddressesOutOfRange,
            format!("add the addresses again, or replace the machines: {edit}"),
        ),
        _ => return None,
    };
    let message = condition.message.clone().unwrap_or_default();
    Some(check.finding(full(&pool.key), message, repair))
}

/// A pool that joins or leaves a network: the problem states how many reservations are left.
fn stalled(pool: &PoolRow) -> Option<Finding> {
    let network = pool.moving.as_ref().filter(|_| !pool.paused)?;
    let (action, name, remaining) = (network.phase, &network.name, network.remaining);
    let problem = format!("{action:?} network {name}: {remaining} reservations are not moved");
    let repair = "recreate the machine of one of the claims that report DuplicateAddress: kubectl ipam claims -A";
    Some(Check::MoveStalled.finding(full(&pool.key), problem, repair.to_owned()))
}
