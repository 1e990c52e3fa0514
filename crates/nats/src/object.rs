//! An object of a bucket as a value.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use async_nats::{HeaderMap, HeaderValue};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::Keyed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::{Invalid, KvError};

/// The header with the operation that wrote a message; no header means a put.
pub(crate) const OPERATION: &str = "KV-Operation";
/// The header with the reason for which the server itself wrote a marker.
const MARKER_REASON: &str = "Nats-Marker-Reason";
/// The header with the random identity of a write, by which its author recognizes it.
pub(crate) const WRITE_ID: &str = "Capi-Ipam-Write-Id";

/// The header with the owner of a key, as JSON.
pub(crate) const OWNER: &str = "Capi-Ipam-Owner";

/// The field of a value that its reconciler writes, as in objects of Kubernetes.
const STATUS: &str = "status";

/// A type whose values are stored as JSON. If a reconciler writes its result back into the value,
/// it does so in the field `status`: a change of nothing else does not end the backoff of the key.
pub trait Value: Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static> Value for T {}

/// What the last write of a key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A value was written.
    Put,
    /// The key was deleted. What is left is a marker.
    Delete,
    /// The key and its history were deleted. What is left is a marker.
    Purge,
}

/// The last state of a key: a value, a value that cannot be decoded, or the marker of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct KvObject<T> {
    /// The key, such as `block.backbone.10.0.0.0-26`.
    pub key: String,
    /// The number of the write in the bucket. Later writes have larger numbers.
    pub revision: u64,
    /// What the write was.
    pub operation: Operation,
    /// The value. `None` for a marker, and for a value that cannot be decoded.
    pub value: Option<T>,
    /// Why the value cannot be decoded.
    pub problem: Option<String>,
    /// When the bucket was created in which a watch found the object, as the server shows it.
    /// `None` for the result of a read, and of a write that is not an update of an object of a
    /// watch.
    pub incarnation: Option<String>,
    /// The key of another bucket to which this one belongs, see
    /// [`SecondaryKeys`](crate::SecondaryKeys).
    pub owner: Option<Owner>,
}

impl<T> KvObject<T> {
    /// A state without a value.
    pub(crate) fn new(key: String, revision: u64, operation: Operation) -> Self {
        Self {
            key,
            revision,
            operation,
            value: None,
            problem: None,
            incarnation: None,
            owner: None,
        }
    }

    /// Whether this is the marker of a deletion.
    pub fn is_deleted(&self) -> bool {
        self.operation != Operation::Put
    }
}

/// What a secondary records of its primary.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Owner {
    /// The name of the bucket of the primary.
    pub bucket: String,
    /// The key of the primary.
    pub key: String,
    /// When the bucket was created in which the key was, as the server shows it.
    pub incarnation: String,
    /// The revision of the key for which the secondary was last written.
    pub revision: u64,
}

impl Owner {
    /// A primary as the owner of what is written for it.
    pub(crate) fn new<T>(bucket: &str, primary: &KvObject<T>) -> Self {
        Self {
            bucket: bucket.to_owned(),
            key: primary.key.clone(),
            incarnation: primary.incarnation.clone().unwrap_or_default(),
            revision: primary.revision,
        }
    }

    pub(crate) fn parse(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Three texts and a number can always be written.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl<T: Value> KvObject<T> {
    /// Whether the value is this one, as JSON.
    pub(crate) fn has_value(&self, value: &T) -> Result<bool, KvError> {
        Ok(self.own_value()? == Some(self.encode(value)?))
    }

    /// A value with the field `status` of this object: that is of the reconciler of its bucket.
    pub(crate) fn with_own_status(&self, value: &T) -> Result<T, KvError> {
        let mut wanted = self.encode(value)?;
        let own = self.own_value()?;
        let status = own.and_then(|own| own.get(STATUS).cloned());
        if let (Some(fields), Some(status)) = (wanted.as_object_mut(), status) {
            fields.insert(STATUS.to_owned(), status);
        }
        Ok(serde_json::from_value(wanted).unwrap_or_else(|_| value.clone()))
    }

    fn own_value(&self) -> Result<Option<Json>, KvError> {
        let own = self.value.as_ref();
        own.map(|own| self.encode(own)).transpose()
    }

    /// A value of this key as JSON.
    pub(crate) fn encode(&self, value: &T) -> Result<Json, KvError> {
        let encoded = serde_json::to_value(value).map_err(|source| Invalid::Encode {
            key: self.key.clone(),
            source,
        });
        Ok(encoded?)
    }
}

/// A stored value with the fields that differ between two states of what its type has of it.
pub(crate) fn with_changed_fields(stored: Json, before: &Json, after: Json) -> Json {
    let (Json::Object(mut stored), Json::Object(before), Json::Object(fields)) =
        (stored, before, &after)
    else {
        return after;
    };
    stored.retain(|name, _| fields.contains_key(name) || !before.contains_key(name));
    for (name, value) in fields {
        if before.get(name) != Some(value) {
            stored.insert(name.clone(), value.clone());
        }
    }
    Json::Object(stored)
}

/// The key is the name of the object, without a namespace. The marker of a deletion is the object
/// that is gone. One of [`Bucket::delete`](crate::Bucket::delete) expires
/// ([`BucketOptions::marker_ttl`](crate::BucketOptions)), those of other programs stay.
impl<T: Value> Keyed for KvObject<T> {
    const HAS_MARKERS: bool = true;

    fn key(&self) -> NamespacedName {
        NamespacedName::new("", &self.key)
    }

    fn is_deleting(&self) -> bool {
        false
    }

    fn is_gone(&self) -> bool {
        self.is_deleted()
    }

    fn fingerprint(&self, mut hasher: &mut dyn Hasher) {
        self.operation.hash(&mut hasher);
        let Some(value) = &self.value else {
            return;
        };
        // What cannot be written as JSON was not read as JSON.
        let Ok(mut json) = serde_json::to_value(value) else {
            return;
        };
        if let Some(fields) = json.as_object_mut() {
            fields.remove(STATUS);
        }
        json.to_string().hash(&mut hasher);
    }
}

/// A message of the stream of a bucket.
pub(crate) struct Record {
    pub(crate) key: String,
    pub(crate) revision: u64,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Vec<u8>,
}

impl Record {
    /// The identity of the write.
    pub(crate) fn write_id(&self) -> Option<&str> {
        self.headers.get(WRITE_ID).map(HeaderValue::as_str)
    }

    /// The owner of the key.
    pub(crate) fn owner(&self) -> Option<Owner> {
        Owner::parse(self.headers.get(OWNER)?.as_str())
    }

    /// Whether this is the marker of a deletion.
    pub(crate) fn is_deleted(&self) -> bool {
        operation(&self.headers) != Operation::Put
    }

    /// The object. A value that cannot be decoded becomes a problem of the object.
    pub(crate) fn into_object<T: Value>(self) -> KvObject<T> {
        let operation = operation(&self.headers);
        let owner = self.owner();
        let mut object = KvObject::new(self.key, self.revision, operation);
        object.owner = owner;
        if operation == Operation::Put {
            match serde_json::from_slice(&self.payload) {
                Ok(value) => object.value = Some(value),
                Err(error) => object.problem = Some(error.to_string()),
            }
        }
        object
    }
}

/// The operation that wrote a message. An operation that is not known here deletes nothing.
fn operation(headers: &HeaderMap) -> Operation {
    let of_client = headers.get(OPERATION).map(HeaderValue::as_str);
    let of_server = headers.get(MARKER_REASON).map(HeaderValue::as_str);
    match (of_client, of_server) {
        (Some("DEL"), _) | (_, Some("Remove")) => Operation::Delete,
        (Some("PURGE"), _) | (_, Some("MaxAge" | "Purge")) => Operation::Purge,
        _ => Operation::Put,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(headers: &[(&str, &str)], payload: &str) -> Record {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, *value);
        }
        Record {
            key: "a".to_owned(),
            revision: 7,
            headers: map,
            payload: payload.as_bytes().to_vec(),
        }
    }

    #[test]
    fn value_is_decoded() {
        let object: KvObject<u8> = record(&[], "12").into_object();
        assert_eq!((object.revision, object.value), (7, Some(12)));
        assert_eq!(object.operation, Operation::Put);
    }

    #[test]
    fn undecodable_value_is_a_problem_of_the_object() {
        for payload in ["", "{", "300", "\"a\""] {
            let object: KvObject<u8> = record(&[], payload).into_object();
            assert!(!object.is_deleted(), "{payload}");
            assert_eq!(object.value, None, "{payload}");
            assert!(object.problem.is_some(), "{payload}");
        }
    }

    /// The hash of what ends the backoff of a value.
    fn fingerprint(payload: &str) -> u64 {
        let object: KvObject<serde_json::Value> = record(&[], payload).into_object();
        let mut hasher = std::hash::DefaultHasher::new();
        object.fingerprint(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn status_does_not_end_a_backoff() {
        let before = fingerprint(r#"{"size": 1, "status": {"problem": "full"}}"#);
        assert_eq!(before, fingerprint(r#"{"size": 1}"#));
        assert_ne!(before, fingerprint(r#"{"size": 2}"#));
    }

    #[test]
    fn fields_that_the_type_does_not_have_stay() {
        let stored = json!({"size": 1, "comment": "x", "status": "old", "problem": "full"});
        let before = json!({"size": 1, "status": "old", "problem": "full"});
        let after = json!({"size": 1, "status": "ready"});
        let written = with_changed_fields(stored, &before, after);
        let expected = json!({"size": 1, "comment": "x", "status": "ready"});
        assert_eq!(written, expected);
        assert_eq!(with_changed_fields(json!(1), &json!(1), json!(2)), json!(2));
    }

    #[test]
    fn status_of_a_secondary_stays() {
        let with = |text: &str| {
            let record = record(&[], text);
            let object: KvObject<serde_json::Value> = record.into_object();
            object.with_own_status(&json!({"size": 2})).unwrap()
        };
        let written = with(r#"{"size": 1, "status": "ready"}"#);
        assert_eq!(written, json!({"size": 2, "status": "ready"}));
        assert_eq!(with("1"), json!({"size": 2}));
    }

    #[test]
    fn owner_is_read_from_a_header() {
        let object: KvObject<u8> = record(&[], "1").into_object();
        assert_eq!(object.owner, None);
        let owner = Owner::new("ipam", &object);
        let secondary: KvObject<u8> = record(&[(OWNER, &owner.to_json())], "1").into_object();
        assert_eq!(secondary.owner, Some(owner));
    }

    #[test]
    fn markers_of_clients_and_server_are_recognized() {
        let cases = [
            (OPERATION, "DEL", Operation::Delete),
            (OPERATION, "PURGE", Operation::Purge),
            (MARKER_REASON, "MaxAge", Operation::Purge),
            (MARKER_REASON, "Purge", Operation::Purge),
            (MARKER_REASON, "Remove", Operation::Delete),
            (OPERATION, "of a later client", Operation::Put),
        ];
        for (name, value, expected) in cases {
            let object: KvObject<u8> = record(&[(name, value)], "1").into_object();
            assert_eq!(object.operation, expected, "{name}: {value}");
            assert_eq!(
                object.is_deleted(),
                object.value.is_none(),
                "{name}: {value}"
            );
        }
    }
}
