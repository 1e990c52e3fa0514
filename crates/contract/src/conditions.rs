//! Conditions, with their types and reasons as constants.
//!
//! `Ready` follows the kstatus convention: True if the object is fully reconciled, otherwise False
//! with a reason.

mod kstatus;

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

pub use self::kstatus::{
    INITIALIZATION_FAILED, INVALID_SPEC, RECONCILING, STALLED, UNPROCESSED_GENERATION,
    observed_generation, set_ready, set_ready_or_retried, written_status,
};

/// Condition type: the object is fully reconciled.
pub const READY: &str = "Ready";
/// Condition type: the object is not reconciled because it, its Cluster or its pool is paused.
pub const PAUSED: &str = "Paused";

/// Condition type of pools: the pool has no free address.
pub const EXHAUSTED: &str = "Exhausted";

/// Condition type of claims: the Machine of the claim reports the address in its status.
pub const IN_USE: &str = "AddressInUse";

/// Condition type of claims: the claim was restored without its IPAddress, or may have been, and
/// has a new address.
pub const RESTORED_WITHOUT_ADDRESS: &str = "RestoredWithoutAddress";

/// Reason of `RestoredWithoutAddress` if the claim was created with the finalizer of the provider.
pub const FINALIZER_AT_CREATION: &str = "FinalizerAtCreation";
/// Reason of `RestoredWithoutAddress` if the claim was restored, and its IPAddress was not restored
/// in time.
pub const ADDRESS_NOT_RESTORED: &str = "AddressNotRestored";
/// Reason of `AddressInUse` if the Machine reports the address.
pub const MACHINE_HAS_ADDRESS: &str = "MachineHasAddress";
/// Reason of `AddressInUse` if the Machine reports other addresses only.
pub const MACHINE_LACKS_ADDRESS: &str = "MachineLacksAddress";
/// Reason of `AddressInUse` if no Machine of the claim is found.
pub const MACHINE_NOT_FOUND: &str = "MachineNotFound";
/// Reason of `AddressInUse` if the Machine reports no IP address.
pub const MACHINE_WITHOUT_ADDRESSES: &str = "MachineWithoutAddresses";
/// Reason of the event on a claim whose Machine reports other addresses only.
pub const ADDRESS_NOT_IN_USE: &str = "AddressNotInUse";
/// Reason of a claim that is bound to its address.
pub const ADDRESS_ALLOCATED: &str = "AddressAllocated";
/// Reason of a claim whose allocation fails.
pub const ALLOCATION_FAILED: &str = "AllocationFailed";
/// Reason of a claim that is being deleted and whose address cannot be released.
pub const RELEASE_FAILED: &str = "ReleaseFailed";
/// Reason of a claim that is being deleted and whose address is released although other finalizers
/// are left on it.
pub const RELEASED_EARLY: &str = "ReleasedEarly";
/// Reason of the event on a claim with an annotation `release-now` that has no effect.
pub const RELEASE_REQUEST_IGNORED: &str = "ReleaseRequestIgnored";
/// Reason of the event on a claim that cannot be decoded.
pub const UNDECODABLE: &str = "Undecodable";
/// Reason of the event on an existing IPAddress that a claim without an address gets.
pub const ADDRESS_ADOPTED: &str = "AddressAdopted";
/// Reason of the event on the IPAddress of a bound claim that lacked something.
pub const ADDRESS_REPAIRED: &str = "AddressRepaired";
/// Reason of the event on an IPAddress that a user deletes while a claim is bound to it.
pub const ADDRESS_IN_USE: &str = "AddressInUse";
/// Reason of a claim whose pool does not exist, is paused, is being deleted or is invalid.
pub const POOL_NOT_READY: &str = "PoolNotReady";
/// Reason of a claim whose pool has no free address.
pub const POOL_EXHAUSTED: &str = "PoolExhausted";
/// Reason of a claim that must not use its pool.
pub const POOL_NOT_ALLOWED: &str = "PoolNotAllowed";
/// Reason of a claim whose namespace or Cluster has as many addresses of the pool as it may have.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// Reason of a claim whose requested address cannot be allocated to it.
pub const REQUESTED_ADDRESS_UNAVAILABLE: &str = "RequestedAddressUnavailable";
/// Reason of a claim whose IPAddress has the address of another claim.
pub const DUPLICATE_ADDRESS: &str = "DuplicateAddress";
/// Reason of a claim whose Cluster does not exist.
pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
/// Reason of a claim that was moved or restored to this cluster and whose IPAddress is not restored
/// yet.
pub const AWAITING_ADDRESS: &str = "AwaitingAddress";
/// Reason of the event on a bound claim whose address is no longer allocated to it.
pub const ADDRESS_LOST: &str = "AddressLost";
/// Reason of the event on an IPAddress without a claim that is kept: a user created it, or nothing
/// is swept.
pub const NO_CLAIM: &str = "NoClaim";
/// Reason of the event on an IPAddress without a claim that is deleted.
pub const ORPHAN_FREED: &str = "OrphanFreed";
/// Reason of a pool without a free address.
pub const NO_FREE_ADDRESS: &str = "NoFreeAddress";
/// Reason of a pool with free addresses, or with an invalid specification.
pub const ADDRESSES_FREE: &str = "AddressesFree";
/// Reason of a pool that serves claims.
pub const POOL_READY: &str = "PoolReady";
/// Reason of an object that is paused.
pub const PAUSED_REASON: &str = "Paused";
/// Reason of an object that is being deleted.
pub const DELETING: &str = "Deleting";

/// Maximum length of the message of a condition, in bytes; a longer message is truncated. The
/// `v1beta1` conditions of the contract allow 10,240.
pub const MAX_MESSAGE_LENGTH: usize = 2048;

/// A condition as in metav1 or, with a severity, as in `v1beta1` of the contract. All fields are
/// optional when it is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type of the condition; unique in a list.
    #[serde(rename = "type")]
    pub type_: Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: Cow<'static, str>,
    /// `Error`, `Warning`, `Info` or empty; only in `v1beta1` of the contract, and only if the
    /// status is False.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Cow<'static, str>>,
    /// Machine-readable reason for the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// Human-readable details.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the status last changed. A text that is no time is read as `None`: it does not make the
    /// object unreadable.
    #[serde(
        deserialize_with = "readable_time",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_transition_time: Option<Time>,
    /// The generation of the object that the condition refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The definitions of the contract accept times that no calendar has, such as `+99:99` as offset.
fn readable_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let time = text.and_then(|text| text.parse().ok());
    Ok(time.map(Time))
}

impl Condition {
    /// Creates a condition as in metav1. `message` is truncated to [`MAX_MESSAGE_LENGTH`].
    pub fn new(
        type_: &'static str,
        status: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status: if status { "True" } else { "False" }.into(),
            severity: None,
            reason: Some(reason.into()),
            message: Some(truncate(message.into())),
            last_transition_time: None,
            observed_generation: None,
        }
    }

    /// The reason, or an empty text.
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// The message, or an empty text.
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }

    /// Sets the generation of the object that the condition refers to.
    #[must_use]
    pub fn with_observed_generation(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }

    /// Converts the condition to the form of `v1beta1` of the contract: reason, message and
    /// severity only if it is False, and no empty message.
    #[must_use]
    pub fn to_v1beta1(&self, severity: &'static str) -> Self {
        let failed = self.status == "False";
        Self {
            severity: failed.then(|| severity.into()),
            reason: self.reason.clone().filter(|_| failed),
            message: self
                .message
                .clone()
                .filter(|text| failed && !text.is_empty()),
            observed_generation: None,
            ..self.clone()
        }
    }

    /// Returns whether both conditions are equal apart from the transition time.
    pub fn equals_ignoring_time(&self, other: &Self) -> bool {
        let timeless = |condition: &Self| Self {
            last_transition_time: None,
            ..condition.clone()
        };
        timeless(self) == timeless(other)
    }
}

/// Returns the condition of a type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Adds `condition` to the list, or replaces the condition of the same type. The last transition
/// time becomes `now` if the status changes. Returns whether the list changed.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition, now: Time) -> bool {
    let Some(present) = conditions
        .iter_mut()
        .find(|present| present.type_ == condition.type_)
    else {
        condition.last_transition_time = Some(now);
        conditions.push(condition);
        return true;
    };
    if present.equals_ignoring_time(&condition) && present.last_transition_time.is_some() {
        return false;
    }
    let unchanged = (present.status == condition.status)
        .then(|| present.last_transition_time.clone())
        .flatten();
    condition.last_transition_time = Some(unchanged.unwrap_or(now));
    *present = condition;
    true
}

/// Removes the condition of a type. Returns whether the list changed.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

fn truncate(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_LENGTH {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_LENGTH - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// The schema of a list of conditions in a CustomResourceDefinition, with the limits of metav1.
pub fn list_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string", "format": "date-time", "description": "When the status last changed."
                },
                "message": { "type": "string", "maxLength": 32768, "description": "Human-readable details." },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "Generation of the object that the condition refers to."
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Machine-readable reason for the status."
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."
                },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "Type of the condition."
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn transition_time_changes_with_the_status_only() {
        let mut list = vec![];
        assert!(set(
            &mut list,
            Condition::new(READY, false, POOL_NOT_READY, "a"),
            at(1)
        ));
        assert!(!set(
            &mut list,
            Condition::new(READY, false, POOL_NOT_READY, "a"),
            at(2)
        ));
        assert!(set(
            &mut list,
            Condition::new(READY, false, POOL_EXHAUSTED, "b"),
            at(3)
        ));
        assert_eq!(list[0].last_transition_time, Some(at(1)));
        assert!(set(
            &mut list,
            Condition::new(READY, true, ADDRESS_ALLOCATED, ""),
            at(4)
        ));
        assert_eq!(list[0].last_transition_time, Some(at(4)));
        assert!(remove(&mut list, READY));
        assert!(!remove(&mut list, READY));
    }

    #[test]
    fn v1beta1_form_has_no_empty_text() {
        let ready = Condition::new(READY, true, ADDRESS_ALLOCATED, "").to_v1beta1("Warning");
        assert_eq!(
            (ready.severity, ready.reason, ready.message),
            (None, None, None)
        );
        let failed =
            Condition::new(READY, false, POOL_EXHAUSTED, "none left").to_v1beta1("Warning");
        assert_eq!(failed.severity.as_deref(), Some("Warning"));
        assert_eq!(failed.message.as_deref(), Some("none left"));
    }

    #[test]
    fn long_message_is_truncated_at_a_character() {
        let condition =
            Condition::new(READY, false, POOL_NOT_READY, "ü".repeat(MAX_MESSAGE_LENGTH));
        assert!(condition.message.unwrap().len() <= MAX_MESSAGE_LENGTH);
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let condition: Condition =
            serde_json::from_value(serde_json::json!({"type": "Ready", "new": 1})).unwrap();
        assert_eq!(condition.type_, READY);
    }
}
