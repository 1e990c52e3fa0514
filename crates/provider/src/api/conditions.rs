//! Conditions: how an object tells people and programs how it stands.
//!
//! Types and reasons are constants here and nowhere else. `Ready` follows the kstatus convention: True when there is
//! nothing left to do, False with a reason otherwise.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{json_schema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Condition type: everything the object asks for has been done.
pub const READY: &str = "Ready";
/// Condition type: the object is left alone until something is no longer paused.
pub const PAUSED: &str = "Paused";

/// Reason of a claim that has its address.
pub const ADDRESS_ALLOCATED: &str = "AddressAllocated";
/// Reason of a claim for which allocation fails.
pub const ALLOCATION_FAILED: &str = "AllocationFailed";
/// Reason of a claim that is being deleted and whose address cannot be released.
pub const RELEASE_FAILED: &str = "ReleaseFailed";
/// Reason of the event about an IPAddress that was deleted while its claim is bound to it.
pub const ADDRESS_IN_USE: &str = "AddressInUse";
/// Reason of a claim whose pool is missing, paused, being deleted or not understood.
pub const POOL_NOT_READY: &str = "PoolNotReady";
/// Reason of a claim whose pool has no address left.
pub const POOL_EXHAUSTED: &str = "PoolExhausted";
/// Reason of a claim whose IPAddress has an address that another claim holds.
pub const DUPLICATE_ADDRESS: &str = "DuplicateAddress";
/// Reason of a claim whose Cluster is not there.
pub const CLUSTER_NOT_FOUND: &str = "ClusterNotFound";
/// Reason of a claim that was moved or restored here before its IPAddress.
pub const AWAITING_ADDRESS: &str = "AwaitingAddress";
/// Reason of an object that is paused.
pub const PAUSED_REASON: &str = "Paused";
/// Reason of an object that is being deleted.
pub const DELETING: &str = "Deleting";

/// Longest message of a condition, in bytes; what is longer is cut. The contract's `v1beta1` list allows 10,240.
pub const MAX_MESSAGE_LENGTH: usize = 2048;

/// A condition, either as in metav1 or, with a severity, as in the contract's `v1beta1`. Reads anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What the condition is about; one of a kind in a list.
    #[serde(rename = "type")]
    pub type_: Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: Cow<'static, str>,
    /// `Error`, `Warning`, `Info` or empty; only in the contract's `v1beta1`, only with status False.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Cow<'static, str>>,
    /// Why, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The generation of the object that the condition speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition as in metav1. `message` is cut at [`MAX_MESSAGE_LENGTH`].
    pub fn new(type_: &'static str, status: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            type_: type_.into(),
            status: if status { "True" } else { "False" }.into(),
            severity: None,
            reason: Some(reason.into()),
            message: Some(shorten(message.into())),
            last_transition_time: None,
            observed_generation: None,
        }
    }

    /// Says which generation of the object the condition speaks of.
    #[must_use]
    pub fn observed(mut self, generation: Option<i64>) -> Self {
        self.observed_generation = generation;
        self
    }

    /// The same condition in the form of the contract's `v1beta1`: a severity when False, and no empty texts.
    #[must_use]
    pub fn legacy(&self, severity: &'static str) -> Self {
        let failed = self.status == "False";
        Self {
            severity: failed.then(|| severity.into()),
            reason: self.reason.clone().filter(|_| failed),
            message: self.message.clone().filter(|text| failed && !text.is_empty()),
            observed_generation: None,
            ..self.clone()
        }
    }

    /// Whether the two say the same, the times aside.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let timeless = |condition: &Self| Self { last_transition_time: None, ..condition.clone() };
        timeless(self) == timeless(other)
    }
}

/// The condition of a type, if there is one.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Puts `condition` into the list in place of the one of its type. The time of the last transition is `now`, unless
/// the status is what it was. Returns whether the list changed.
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition, now: Time) -> bool {
    let Some(present) = conditions.iter_mut().find(|present| present.type_ == condition.type_) else {
        condition.last_transition_time = Some(now);
        conditions.push(condition);
        return true;
    };
    if present.says_the_same(&condition) && present.last_transition_time.is_some() {
        return false;
    }
    let unchanged = (present.status == condition.status).then(|| present.last_transition_time.clone()).flatten();
    condition.last_transition_time = Some(unchanged.unwrap_or(now));
    *present = condition;
    true
}

/// Removes the condition of a type. Returns whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_LENGTH {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_LENGTH - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// Schema of a list of conditions, with the bounds of metav1.
pub(super) fn list_schema(_: &mut SchemaGenerator) -> Schema {
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
                "message": { "type": "string", "maxLength": 32768, "description": "Why, for people." },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "The generation that the condition speaks of."
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Why, for programs."
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."
                },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "What the condition is about."
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
    fn the_transition_time_moves_with_the_status_alone() {
        let mut list = vec![];
        assert!(set(&mut list, Condition::new(READY, false, POOL_NOT_READY, "a"), at(1)));
        assert!(!set(&mut list, Condition::new(READY, false, POOL_NOT_READY, "a"), at(2)));
        assert!(set(&mut list, Condition::new(READY, false, POOL_EXHAUSTED, "b"), at(3)));
        assert_eq!(list[0].last_transition_time, Some(at(1)));
        assert!(set(&mut list, Condition::new(READY, true, ADDRESS_ALLOCATED, ""), at(4)));
        assert_eq!(list[0].last_transition_time, Some(at(4)));
        assert!(remove(&mut list, READY));
        assert!(!remove(&mut list, READY));
    }

    #[test]
    fn the_legacy_form_has_no_empty_text() {
        let ready = Condition::new(READY, true, ADDRESS_ALLOCATED, "").legacy("Warning");
        assert_eq!((ready.severity, ready.reason, ready.message), (None, None, None));
        let failed = Condition::new(READY, false, POOL_EXHAUSTED, "none left").legacy("Warning");
        assert_eq!(failed.severity.as_deref(), Some("Warning"));
        assert_eq!(failed.message.as_deref(), Some("none left"));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let condition = Condition::new(READY, false, POOL_NOT_READY, "ü".repeat(MAX_MESSAGE_LENGTH));
        assert!(condition.message.unwrap().len() <= MAX_MESSAGE_LENGTH);
    }

    #[test]
    fn anything_is_read() {
        let odd: Condition = serde_json::from_value(serde_json::json!({"type": "Ready", "new": 1})).unwrap();
        assert_eq!(odd.type_, READY);
    }
}
