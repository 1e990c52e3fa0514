//! What single pools report.

use capi_ipam_api::{MemberPhase, advice, conditions, counted};
use capi_ipam_provider::api::conditions::Condition;

use super::examination::Examination;
use super::names::network_of;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject, edit, resource_of};
use crate::model::registry::check_command;
use crate::objects::{Kind, PoolRow};

/// What pools report in their conditions.
pub(super) fn reported(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::inspect(objects.pools(), objects.lacking(&Kind::POOLS), |pool| {
        let mut findings: Vec<Finding> = invalid(pool).into_iter().collect();
        let reported = pool.conditions.iter();
        findings.extend(reported.filter_map(|condition| of_condition(pool, condition)));
        findings.extend(stalled(pool));
        findings
    })
}

/// A pool with its network, whose problem can be the cause.
fn subject(pool: &PoolRow) -> Subject {
    let subject = Subject::pool(&pool.key);
    match network_of(pool) {
        Some(network) => subject.of_network(network),
        None => subject,
    }
}

fn invalid(pool: &PoolRow) -> Option<Finding> {
    let problem = pool.usable.as_ref().err()?;
    let finding = Check::PoolNotReady.finding(subject(pool), problem, "correct it");
    Some(finding.with_commands([edit(&pool.key)]))
}

fn of_condition(pool: &PoolRow, condition: &Condition) -> Option<Finding> {
    let reason = condition.reason();
    let (check, repair, command) =
        match (condition.type_.as_ref(), condition.status.as_ref(), reason) {
            (conditions::READY, "False", reason) => {
                let (repair, command) = repair_of_ready(pool, reason)?;
                (Check::PoolNotReady, repair, command)
            }
            (conditions::OUT_OF_RANGE, "True", conditions::ADDRESSES_IN_OTHER_BLOCKS) => (
                Check::AddressesOutOfRange,
                "see which management cluster has the blocks, and what the network reports",
                check_command(network_of(pool).unwrap_or("NETWORK")),
            ),
            (conditions::OUT_OF_RANGE, "True", _) => (
                Check::AddressesOutOfRange,
                "add the addresses again, or replace the machines",
                edit(&pool.key),
            ),
            (conditions::KEPT_IN_NETWORK, "True", _) => (
                Check::KeptInNetwork,
                "restore what the message names, or follow it to leave the network",
                edit(&pool.key),
            ),
            _ => return None,
        };
    let message = condition.message.clone().unwrap_or_default();
    let finding = check.finding(subject(pool), message, repair);
    let since = condition.last_transition_time.as_ref().map(|time| time.0);
    Some(finding.with_commands([command]).since(since))
}

/// What to do about a pool that is not ready, with the command. Other reasons have other findings.
fn repair_of_ready(pool: &PoolRow, reason: &str) -> Option<(&'static str, String)> {
    let edit = edit(&pool.key);
    Some(match reason {
        conditions::INITIALIZATION_FAILED => (
            "correct the webhook or policy that the message names",
            format!("kubectl describe {}", resource_of(&pool.key)),
        ),
        conditions::NETWORK_NOT_FOUND => ("create the IPNetwork, or correct spec.network", edit),
        conditions::NETWORK_NOT_ALLOWED => {
            let network = pool.spec.network().unwrap_or("NAME");
            let command = format!("kubectl edit ipnetworks {network}");
            ("allow the namespace in the network", command)
        }
        conditions::NETWORK_NOT_READY => (
            "correct the network that the message names",
            "kubectl ipam networks".to_owned(),
        ),
        conditions::BLOCK_LENGTH_MISMATCH => ("use another network for the pool", edit),
        _ => return None,
    })
}

/// A pool that joins or leaves a network without progress: the problem states how many reservations
/// are left. The two scopes have the same addresses in use, so the way back is named first: it needs
/// no machine to be replaced.
fn stalled(pool: &PoolRow) -> Option<Finding> {
    let network = pool.moving.as_ref().filter(|_| !pool.paused)?;
    let (action, name, remaining) = (network.phase, &network.name, network.remaining);
    let reservations = counted(remaining, "reservation", "reservations");
    let problem = format!("{action:?} network {name}: {reservations} not moved");
    let is_named = pool.spec.network() == Some(name.as_str());
    let undo = match (action, is_named) {
        (MemberPhase::Joining, true) => "remove spec.network".to_owned(),
        (MemberPhase::Joining, false) => {
            format!("set the labels of the pool back, by which {name} selects it")
        }
        _ => {
            format!("set spec.network to {name}, or the labels of the pool by which it selects it")
        }
    };
    let repair = format!(
        "1. if the pool is not meant to move, undo the change, which ends it without replacing a machine: {undo}; 2. \
         otherwise delete the machine of one of the claims that report DuplicateAddress"
    );
    let commands = [edit(&pool.key), advice::claims_of(&pool.key)];
    let finding = Check::MoveStalled.finding(subject(pool), problem, repair);
    Some(finding.with_commands(commands))
}
