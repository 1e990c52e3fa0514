use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;
use super::fact::Fact;
use crate::objects::{Cause, ClaimRow, Kind, Objects};

/// The reason of a claim that no provider serves.
const UNKNOWN_POOL_KIND: &str = "UnknownPoolKind";
/// The reason of a claim for a pool of another provider.
const OTHER_PROVIDER: &str = "OtherProvider";

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
    /// The address or prefix of the claim; `null` if it may not be read.
    #[serde(skip_serializing_if = "Fact::is_absent")]
    pub address: Fact<String>,
    /// The state.
    pub state: ClaimState,
    /// Time of creation.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// Name of the item of a ClusterAddressing for which the claim was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
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
    /// This provider does not serve the claim: the kind of its pool does not exist, or another
    /// provider has it.
    Unserved,
}

/// Returns the lines of claims in their order.
pub(crate) fn claims<'a>(
    claims: impl IntoIterator<Item = &'a ClaimRow>,
    objects: &Objects,
) -> Vec<ClaimLine> {
    let claims = claims.into_iter();
    claims.map(|claim| line(claim, objects)).collect()
}

fn address_of(claim: &ClaimRow, objects: &Objects) -> Fact<String> {
    let Some(key) = claim.address_key() else {
        return Fact::Absent;
    };
    let found = objects.addresses.get(&key);
    let is_complete = objects.covers(Kind::Address, Some(key.namespace()));
    Fact::of(found.map(|it| it.block.to_string()), is_complete)
}

/// The pool of a claim, as the claim has it if this provider does not serve it.
fn pool_name(claim: &ClaimRow) -> PoolName {
    match &claim.pool {
        Ok(named) => named.into(),
        Err(pool) => PoolName {
            kind: pool.kind.clone(),
            namespace: None,
            name: pool.name.clone(),
        },
    }
}

fn line(claim: &ClaimRow, objects: &Objects) -> ClaimLine {
    let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
    let state = match (claim.is_deleting(), &claim.bound) {
        (true, _) => ClaimState::Deleting,
        (false, Some(_)) => ClaimState::Bound,
        (false, None) => ClaimState::Waiting,
    };
    let mut line = ClaimLine {
        pool: pool_name(claim),
        namespace: claim.key.namespace().to_owned(),
        name: claim.key.name().to_owned(),
        address: address_of(claim, objects),
        state,
        created: claim.created,
        reason: text(&claim.reason),
        message: text(&claim.message),
        cluster: text(&claim.cluster),
        item: text(&claim.item),
        machine: text(&claim.machine),
    };
    if let Err(pool) = &claim.pool {
        line.address = Fact::Absent;
        if !claim.is_deleting() {
            line.state = ClaimState::Unserved;
        }
        let reason = match pool.cause {
            Cause::OtherProvider => OTHER_PROVIDER,
            _ => UNKNOWN_POOL_KIND,
        };
        line.reason = Some(reason.to_owned());
        line.message = Some(pool.problem());
    }
    line
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::PoolSetKind;
    use serde_json::json;

    use super::*;
    use crate::objects::ServedKinds;

    #[test]
    fn claim_of_a_set_has_its_own_state() {
        let served = ServedKinds {
            own: PoolSetKind::ALL.map(|kind| kind.name().to_owned()).into(),
            ..ServedKinds::default()
        };
        let line_of = |kind: &str, status: serde_json::Value| {
            let claim = serde_json::from_value(json!({
                "metadata": { "namespace": "n", "name": "a" }, "status": status,
                "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "racks" } },
            }));
            let claim = ClaimRow::of(&claim.unwrap(), &served).unwrap();
            claims([&claim], &Objects::default()).remove(0)
        };
        let full = json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "PoolExhausted" }] });
        let waiting = line_of("IPPoolSet", full);
        assert_eq!(waiting.pool.namespace.as_deref(), Some("n"));
        assert_eq!(waiting.state, ClaimState::Waiting);
        assert_eq!(waiting.reason.as_deref(), Some("PoolExhausted"));
        let bound = line_of("GlobalIPPoolSet", json!({ "addressRef": { "name": "a" } }));
        assert_eq!(
            (&*bound.pool.kind, bound.pool.namespace),
            ("GlobalIPPoolSet", None)
        );
        assert_eq!((bound.state, bound.reason), (ClaimState::Bound, None));
    }
}
