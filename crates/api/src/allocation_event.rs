//! The lines of the allocation log, which the manager writes and the plugin reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ReservationClaim, ReservationPool};

/// A line of the allocation log, as one JSON object: what happened to an address, when, and to
/// whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocationEvent {
    /// When the API server had recorded the change, in microseconds, in UTC.
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub time: MicroTime,
    /// Tells the lines of this log from others on the standard output.
    pub target: AllocationTarget,
    /// What happened.
    pub event: AllocationEventKind,
    /// Why it happened.
    pub cause: AllocationCause,
    /// The address, or the prefix in CIDR notation.
    pub address: String,
    /// The pool of the address.
    pub pool: ReservationPool,
    /// The network of the pool; omitted for a pool without a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The network before a change of scope; omitted if the pool had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_network: Option<String>,
    /// The claim, with its uid and the name of its Cluster; omitted at the end of a quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ReservationClaim>,
    /// The Machine or infrastructure machine that owns the claim, if the claim was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The clusterID of this management cluster; only in a network that shares blocks with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management_cluster: Option<String>,
}

/// The target of the lines of the allocation log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationTarget {
    /// The only one.
    #[serde(rename = "allocations")]
    Allocations,
}

/// What happened to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationEventKind {
    /// A new IPAddress was created for the claim.
    Allocated,
    /// The claim was bound to an IPAddress that existed already.
    Adopted,
    /// The claim no longer has the address.
    Released,
    /// The claim no longer has the address, which is quarantined.
    Quarantined,
    /// The pool joined or left a network, and the claim keeps the address.
    ScopeChanged,
}

/// Why something happened to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationCause {
    /// Allocated: the claim had no address.
    ClaimCreated,
    /// Allocated: somebody had deleted the IPAddress of the bound claim.
    AddressDeleted,
    /// Adopted: of an interrupted attempt, a move, a restore, an earlier manager, or a user.
    AddressExisted,
    /// Released: the claim is being deleted.
    ClaimDeleted,
    /// Released: the claim was removed although it had the finalizer.
    ClaimGone,
    /// Quarantined: the claim has reported a conflict.
    ConflictReported,
    /// Released: the quarantine has ended.
    QuarantineEnded,
    /// Released: the sweeper found a reservation to which its claim is not entitled.
    Abandoned,
    /// ScopeChanged: the pool joined or left a network.
    PoolMoved,
}

impl AllocationCause {
    /// What happens for this cause.
    pub fn event(self) -> AllocationEventKind {
        match self {
            Self::ClaimCreated | Self::AddressDeleted => AllocationEventKind::Allocated,
            Self::AddressExisted => AllocationEventKind::Adopted,
            Self::ClaimDeleted | Self::ClaimGone | Self::QuarantineEnded | Self::Abandoned => {
                AllocationEventKind::Released
            }
            Self::ConflictReported => AllocationEventKind::Quarantined,
            Self::PoolMoved => AllocationEventKind::ScopeChanged,
        }
    }
}
