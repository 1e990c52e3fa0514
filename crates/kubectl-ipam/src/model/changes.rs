use schemars::JsonSchema;
use serde::Serialize;

use super::pool_name::PoolName;

/// A change of a reservation by `reserve` or `unreserve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationChange {
    /// What was done.
    pub action: ReservationAction,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether not even the API server checked it.
    #[serde(skip_serializing_if = "is_false")]
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
    /// Namespace and name of the claim that gets the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// What was done to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ReservationAction {
    /// It was created.
    Created,
    /// It was deleted.
    Deleted,
}

/// The output of `import`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportSummary {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether not even the API server checked it.
    #[serde(skip_serializing_if = "is_false")]
    pub unchecked: bool,
    /// Number of objects that were created.
    pub created: u64,
    /// Number of objects that were updated.
    pub updated: u64,
    /// Number of objects that were deleted.
    pub deleted: u64,
    /// Number of objects that were as in the file.
    pub unchanged: u64,
    /// The changes that were made, or that the API server checked.
    pub changes: Vec<ImportChange>,
    /// Number of changes that were not made because another one failed. The same import makes them.
    pub not_made: u64,
    /// What is wrong, by line.
    pub problems: Vec<ImportProblem>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum ChangeAction {
    /// It was created.
    Created,
    /// It was updated.
    Updated,
    /// It was deleted.
    Deleted,
}

/// A change of one object by `import`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportChange {
    /// Line of the file, starting at 1; omitted for an object that the file does not contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What happened to the object.
    pub action: ChangeAction,
    /// Kind, namespace and name of the object, as `InClusterIPPool team-a/web`.
    pub object: String,
}

/// Something that is wrong in a file, or that the API server refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportProblem {
    /// Line of the file, starting at 1; omitted for an object that the file does not contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What is wrong.
    pub problem: String,
}
