//! References: an object that others use is kept from deletion by a finalizer for each user.
//!
//! The finalizer identifies the user by a hash, so a long name fits, and nobody who reads the used
//! object learns names of another namespace.

use std::collections::BTreeSet;

pub use capi_ipam_objects::references::of;
use kube::Resource;
use sha2::{Digest, Sha256};

/// What the finalizers of references begin with.
pub const PREFIX: &str = "reference.ipam.cluster.x-k8s.io/";

/// The longest part of a finalizer behind the slash.
const MAX_NAME_LENGTH: usize = 63;

/// The length of the hash in hexadecimal digits: 128 bits.
const HASH_LENGTH: usize = 32;

/// The finalizer with which a user keeps other objects: `reference.ipam.cluster.x-k8s.io/`, the
/// kind of the user, and a hash of its group, kind, namespace and name. An object that is created
/// again, or moved to another cluster, has the same one.
pub fn name_of<K: Resource>(user: &K, version: &K::DynamicType) -> String {
    let metadata = user.meta();
    let kind = K::kind(version);
    let mut hasher = Sha256::new();
    for part in [
        &K::group(version),
        &kind,
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    ] {
        hasher.update(part.as_bytes());
        // None of them contains a slash.
        hasher.update(b"/");
    }
    let digest = format!("{:x}", hasher.finalize());
    let hash: String = digest.chars().take(HASH_LENGTH).collect();
    let longest = MAX_NAME_LENGTH - HASH_LENGTH - 1;
    let kind: String = kind.to_lowercase().chars().take(longest).collect();
    format!("{PREFIX}{kind}.{hash}")
}

/// Says by whom an object is used, such as `used by EtcdPool web and 2 other objects`; `None` if
/// nobody uses it. It names only those of `visible`: pass the users that the reader of the text may
/// see, for example those in the namespace of the object.
pub fn describe<K: Resource, U: Resource>(
    object: &K,
    visible: &[&U],
    version: &U::DynamicType,
) -> Option<String> {
    let mut hidden: BTreeSet<&str> = of(object).collect();
    let mut named = Vec::new();
    for user in visible {
        if hidden.remove(name_of(*user, version).as_str()) {
            let name = user.meta().name.as_deref().unwrap_or_default();
            named.push(format!("{} {name}", U::kind(version)));
        }
    }
    let others = match hidden.len() {
        1 => "1 other object".to_owned(),
        count => format!("{count} other objects"),
    };
    match (named.is_empty(), hidden.len()) {
        (true, 0) => None,
        (true, 1) => Some("used by 1 object".to_owned()),
        (true, count) => Some(format!("used by {count} objects")),
        (false, 0) => Some(format!("used by {}", named.join(", "))),
        (false, _) => Some(format!("used by {} and {others}", named.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
    use serde_json::json;

    use super::*;

    fn map(name: &str, finalizers: &[&str]) -> ConfigMap {
        let metadata = json!({"namespace": "team", "name": name, "finalizers": finalizers});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn volume(namespace: &str, name: &str) -> PersistentVolumeClaim {
        let metadata = json!({"namespace": namespace, "name": name});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn name_identifies_the_user_and_is_short() {
        let long = "n".repeat(253);
        let users = [volume("team", "a"), volume("b", "a"), volume("team", &long)];
        let names: BTreeSet<String> = users.iter().map(|user| name_of(user, &())).collect();
        assert_eq!(names.len(), users.len());
        for name in names {
            let name = name.strip_prefix(PREFIX).unwrap();
            assert!(name.starts_with("persistentvolumeclaim."), "{name}");
            assert!(name.len() <= MAX_NAME_LENGTH, "{name}");
        }
        // It is stored in objects, so it never changes.
        let expected = "configmap.31c45a81ec22f310e6a286ade7c8896d";
        let stored = name_of(&map("a", &[]), &());
        assert_eq!(stored, format!("{PREFIX}{expected}"));
    }

    #[test]
    fn only_visible_users_are_named() {
        let (web, api) = (volume("team", "web"), volume("other", "api"));
        let (of_web, of_api) = (name_of(&web, &()), name_of(&api, &()));
        let describe = |finalizers: &[&str]| describe(&map("a", finalizers), &[&web], &());
        let (web, api) = (of_web.as_str(), of_api.as_str());
        for (finalizers, expected) in [
            (&["example.com/other"][..], None),
            (&[web], Some("used by PersistentVolumeClaim web")),
            (&[api], Some("used by 1 object")),
            (
                &[api, web],
                Some("used by PersistentVolumeClaim web and 1 other object"),
            ),
        ] {
            assert_eq!(describe(finalizers).as_deref(), expected);
        }
    }
}
