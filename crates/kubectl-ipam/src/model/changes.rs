use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::PoolName;

/// A change of a reservation by `reserve`, `unreserve` or `quarantine`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationChange {
    /// What was done.
    pub action: ReservationAction,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether not even the API server checked it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unchecked: bool,
    /// Name of the IPReservation.
    pub name: String,
    /// The address or prefix.
    pub address: String,
    /// The pool.
    pub pool: PoolName,
    /// The network of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Namespace and name of the claim that gets the address, or has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// End of the quarantine of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What was done to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ReservationAction {
    /// It was created.
    Created,
    /// It was deleted.
    Deleted,
    /// It quarantines the address.
    Quarantined,
    /// It was not changed: its claim has an annotation, and the address is quarantined when the claim
    /// is released.
    Requested,
}
