use std::collections::HashMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use crate::objects::{AddressRow, ClaimRow, Key};

/// One claim in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimLine {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// The pool of the claim.
    pub pool: PoolName,
    /// The address or prefix of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The state.
    pub state: ClaimState,
    /// Time of creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub created: Option<Timestamp>,
    /// Reason of the condition Ready, if it is not True.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the condition Ready, if it is not True.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The Cluster of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Kind and name of the owner that is not the Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// The state of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ClaimState {
    /// The claim has an address.
    Bound,
    /// The claim waits for an address.
    Waiting,
    /// The claim is being deleted.
    Deleting,
}

/// Returns the lines of claims, by namespace and name.
pub(crate) fn claims(claims: Vec<ClaimRow>, addresses: &[AddressRow]) -> Vec<ClaimLine> {
    let by_key: HashMap<&Key, &AddressRow> = addresses.iter().map(|address| (&address.key, address)).collect();
    let mut claims = claims;
    claims.sort_by(|a, b| a.key.cmp(&b.key));
    claims.into_iter().map(|claim| line(claim, &by_key)).collect()
}

fn line(claim: ClaimRow, addresses: &HashMap<&Key, &AddressRow>) -> ClaimLine {
    let state = match (claim.deleting, &claim.bound) {
        (true, _) => ClaimState::Deleting,
        (false, Some(_)) => ClaimState::Bound,
        (false, None) => ClaimState::Waiting,
    };
    let bound = claim.bound.clone().map(|name| (claim.key.0.clone(), name));
    let address = bound.and_then(|key| addresses.get(&key).map(|address| address.block.to_string()));
    ClaimLine {
        pool: (&claim.pool).into(),
        namespace: claim.key.0.into(),
        name: claim.key.1.into(),
        address,
        state,
        created: claim.created,
        reason: claim.reason.map(String::from),
        message: claim.message.map(String::from),
        cluster: claim.cluster.map(String::from),
        machine: claim.machine.map(String::from),
    }
}
