//! Objects of a listing of which single ones may be unreadable.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object, or why it cannot be read. A listing with one unreadable object is read all the same.
///
/// Unlike [`kube::core::DeserializeGuard`] it takes an object apart once and keeps no copy: what a listing of many
/// objects costs is mostly that. It can only be read from JSON text.
#[derive(Clone, Debug)]
pub struct MaybeInvalid<K>(pub Result<K, Invalid>);

/// Why an object cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct Invalid {
    /// What is wrong with it.
    pub error: String,
    /// Its metadata.
    pub metadata: Box<ObjectMeta>,
}

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for MaybeInvalid<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let read = serde_json::from_str::<K>(text).map(Ok).or_else(|error| {
            // Without metadata it is no object at all.
            let PartialObjectMeta::<K> { metadata, .. } = serde_json::from_str(text).map_err(D::Error::custom)?;
            Ok(Err(Invalid { error: error.to_string(), metadata: Box::new(metadata) }))
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
        self.0.as_ref().map_or_else(|unreadable| unreadable.metadata.as_ref(), K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| unreadable.metadata.as_mut(), K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const ODD: &str = r#"{"metadata": {"name": "odd"}, "data": "not a map"}"#;
    const GOOD: &str = r#"{"metadata": {"name": "good"}, "data": {"a": "1"}}"#;

    #[test]
    fn an_unreadable_object_is_told_apart_in_a_listing() {
        let text = format!(r#"{{"kind": "ConfigMapList", "metadata": {{}}, "items": [{ODD}, {GOOD}]}}"#);
        let list: ObjectList<MaybeInvalid<ConfigMap>> = serde_json::from_str(&text).unwrap();
        let [odd, good] = &list.items[..] else { panic!("two were sent") };
        assert!(odd.0.as_ref().unwrap_err().error.contains("not a map") && odd.name_any() == "odd");
        assert!(good.0.as_ref().unwrap().data.as_ref().unwrap()["a"] == "1" && good.name_any() == "good");
    }

    #[test]
    fn an_unreadable_object_is_told_apart_in_an_event() {
        for (object, name) in [(ODD, "odd"), (GOOD, "good")] {
            let text = format!(r#"{{"type": "ADDED", "object": {object}}}"#);
            let event: WatchEvent<MaybeInvalid<ConfigMap>> = serde_json::from_str(&text).unwrap();
            assert!(matches!(event, WatchEvent::Added(object) if object.name_any() == name));
        }
        assert!(serde_json::from_str::<MaybeInvalid<ConfigMap>>("7").is_err());
    }
}
