use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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
    /// All changes of the import, in the order in which they are made. Empty if the file has
    /// problems.
    pub changes: Vec<ImportChange>,
    /// Number of changes that were not made because of a problem. The same import makes them after
    /// the problem is corrected.
    pub not_made: u64,
    /// What is wrong, by line.
    pub problems: Vec<ImportProblem>,
}

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum ChangeAction {
    /// It is created.
    Created,
    /// It is updated.
    Updated,
    /// It is deleted.
    Deleted,
}

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum ChangeResult {
    /// It was made.
    Made,
    /// The API server has checked it in a dry run, and accepts it.
    Checked,
    /// It failed, or the API server refuses it; a problem has the reason.
    Failed,
    /// It was not made, or in a dry run not checked, because of the problem of another change.
    NotMade,
}

/// A change of one object by `import`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImportChange {
    /// Line of the file, starting at 1; omitted for an object that the file does not contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What happens to the object.
    pub action: ChangeAction,
    /// How far the change has come.
    pub result: ChangeResult,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object; omitted for an object without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
    /// The fields that change, without the label of the import. Of a created object all fields of
    /// the file, of a deleted one all fields of its specification.
    pub fields: Vec<FieldChange>,
}

/// A change of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Path of the field, such as `spec.gateway`.
    pub field: String,
    /// The value before the change; omitted if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The value after the change; omitted if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
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
    /// Kind, namespace and name of the object whose change failed or is refused, as
    /// `InClusterIPPool team-a/web`; omitted for a problem of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

impl ImportProblem {
    /// A problem of a line of the file.
    pub(crate) fn of_line(line: u64, problem: String) -> Self {
        Self {
            line: Some(line),
            problem,
            object: None,
        }
    }

    /// A problem of no line.
    pub(crate) fn general(problem: String) -> Self {
        Self {
            line: None,
            problem,
            object: None,
        }
    }

    /// The problem without the name of the object, which the API server quotes: equal for objects
    /// with the same problem.
    pub(crate) fn pattern(&self) -> String {
        let object = self.object.as_deref().unwrap_or_default();
        match object.rsplit([' ', '/']).next() {
            Some(name) if !name.is_empty() => self.problem.replace(&format!("\"{name}\""), "NAME"),
            _ => self.problem.clone(),
        }
    }
}
