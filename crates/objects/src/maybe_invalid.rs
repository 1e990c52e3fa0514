//! Objects that may be invalid, for lists and watches in which a single object must not fail the
//! others.

use std::borrow::Cow;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An object, or the reason why it cannot be deserialized.
///
/// Unlike [`kube::core::DeserializeGuard`] it parses an object once and without a copy, which is
/// most of the cost of a large list. It can only be deserialized from JSON text.
#[derive(Clone, Debug)]
pub struct MaybeInvalid<K>(pub Result<K, Invalid>);

/// An object that cannot be deserialized.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Invalid {
    /// The error of the parser.
    pub error: String,
    /// The metadata of the object.
    pub metadata: Box<ObjectMeta>,
    /// The specification as it was sent; null if there is none. Some of its fields may be readable,
    /// see [`readable`].
    pub spec: Value,
}

/// What is read of an object that cannot be deserialized.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Readable {
    metadata: Box<ObjectMeta>,
    spec: Value,
}

/// Reads the fields of an object that have the type which `T` expects; the others have their
/// defaults. All fields of `T` are optional.
pub fn readable<T: DeserializeOwned + Default>(object: &Value) -> T {
    let mut readable = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let mut alone = Map::new();
        alone.insert(name.clone(), value.clone());
        if serde_json::from_value::<T>(Value::Object(alone)).is_ok() {
            readable.insert(name.clone(), value.clone());
        }
    }
    serde_json::from_value(Value::Object(readable)).unwrap_or_default()
}

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for MaybeInvalid<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let read = serde_json::from_str::<K>(text).map(Ok).or_else(|error| {
            // Without metadata it is no object, which is an error of the response.
            let Readable { metadata, spec } =
                serde_json::from_str(text).map_err(D::Error::custom)?;
            Ok(Err(Invalid {
                error: error.to_string(),
                metadata,
                spec,
            }))
        });
        read.map(Self)
    }
}

impl<K: Resource> Resource for MaybeInvalid<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(version: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(version)
    }

    fn group(version: &Self::DynamicType) -> Cow<'_, str> {
        K::group(version)
    }

    fn version(version: &Self::DynamicType) -> Cow<'_, str> {
        K::version(version)
    }

    fn plural(version: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(version)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0
            .as_ref()
            .map_or_else(|invalid| invalid.metadata.as_ref(), K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0
            .as_mut()
            .map_or_else(|invalid| invalid.metadata.as_mut(), K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const INVALID: &str = r#"{"metadata": {"name": "invalid"}, "data": "not a map"}"#;
    const VALID: &str = r#"{"metadata": {"name": "valid"}, "data": {"a": "1"}}"#;

    #[test]
    fn invalid_object_does_not_fail_a_list() {
        let text = format!(
            r#"{{"kind": "ConfigMapList", "metadata": {{}}, "items": [{INVALID}, {VALID}]}}"#
        );
        let list: ObjectList<MaybeInvalid<ConfigMap>> = serde_json::from_str(&text).unwrap();
        let [invalid, valid] = &list.items[..] else {
            panic!("two were sent")
        };
        assert!(
            invalid.0.as_ref().unwrap_err().error.contains("not a map")
                && invalid.name_any() == "invalid"
        );
        assert!(
            valid.0.as_ref().unwrap().data.as_ref().unwrap()["a"] == "1"
                && valid.name_any() == "valid"
        );
    }

    #[test]
    fn invalid_object_does_not_fail_an_event() {
        for (object, name) in [(INVALID, "invalid"), (VALID, "valid")] {
            let text = format!(r#"{{"type": "ADDED", "object": {object}}}"#);
            let event: WatchEvent<MaybeInvalid<ConfigMap>> = serde_json::from_str(&text).unwrap();
            assert!(matches!(event, WatchEvent::Added(object) if object.name_any() == name));
        }
        assert!(serde_json::from_str::<MaybeInvalid<ConfigMap>>("7").is_err());
    }

    #[test]
    fn fields_of_the_right_type_are_readable() {
        let sent = serde_json::json!({"data": "not a map", "immutable": true, "unknown": 1});
        let read: ConfigMap = readable(&sent);
        assert_eq!((read.immutable, read.data), (Some(true), None));
        assert_eq!(readable::<ConfigMap>(&Value::Null), ConfigMap::default());
    }
}
