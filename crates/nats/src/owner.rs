//! Owners in a bucket: a Kubernetes object that belongs to a key names it by labels and
//! annotations, since an owner reference can only name a Kubernetes object. A key of another bucket
//! names it by a header of its message.
//!
//! Keys and names of buckets are longer than labels, and have other characters. So the labels
//! contain hashes, by which secondaries are selected, and an annotation contains the text: bucket,
//! key, the revision of the key for which the secondary was last written, and when the bucket was
//! created. By these [`Garbage`](crate::Garbage) tells a deleted key from one that
//! the bucket has lost.

use std::collections::BTreeMap;

use kube::Resource;
use kube::core::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::object::{KvObject, Owner};

/// Label with the hash of the name of the bucket: selects the secondaries of all keys.
pub const BUCKET_LABEL: &str = "nats.ipam.cluster.x-k8s.io/owner-bucket";
/// Label with the hash of the bucket and the key: selects the secondaries of one key.
pub const KEY_LABEL: &str = "nats.ipam.cluster.x-k8s.io/owner-key";
/// Annotation with the [`Owner`] as JSON.
pub const OWNER_ANNOTATION: &str = "nats.ipam.cluster.x-k8s.io/owner";

/// The length of a hash in hexadecimal digits.
const HASH_LENGTH: usize = 40;

/// The labels of a secondary of a key.
pub fn labels(bucket: &str, key: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (BUCKET_LABEL.to_owned(), hash(&[bucket])),
        (KEY_LABEL.to_owned(), hash(&[bucket, key])),
    ])
}

/// The selector of the secondaries of all keys of a bucket.
pub(crate) fn selector(bucket: &str) -> String {
    format!("{BUCKET_LABEL}={}", hash(&[bucket]))
}

/// Makes an object a secondary of a key. Call it with the object of the key that is reconciled,
/// whenever the secondary is written: only what is recorded here shows later that the key was
/// deleted, and not lost.
pub fn set<K: Resource, T>(secondary: &mut K, bucket: &str, primary: &KvObject<T>) {
    let metadata = secondary.meta_mut();
    let found = metadata.labels.get_or_insert_default();
    found.extend(labels(bucket, &primary.key));
    let annotations = metadata.annotations.get_or_insert_default();
    let owner = Owner::new(bucket, primary).to_json();
    annotations.insert(OWNER_ANNOTATION.to_owned(), owner);
}

/// The key in this bucket to which a secondary belongs. `None` if it belongs to none, or if its
/// labels and its annotation contradict each other.
pub fn key_of<K: Resource>(secondary: &K, bucket: &str) -> Option<String> {
    of(secondary.meta(), bucket).map(|owner| owner.key)
}

/// What a secondary of this bucket records; `None` for other objects.
pub(crate) fn of(metadata: &ObjectMeta, bucket: &str) -> Option<Owner> {
    let owner = Owner::parse(metadata.annotations.as_ref()?.get(OWNER_ANNOTATION)?)?;
    let found = metadata.labels.as_ref()?;
    let has_label = |(name, value): (String, String)| found.get(&name) == Some(&value);
    let is_owned = labels(bucket, &owner.key).into_iter().all(has_label);
    is_owned.then_some(owner)
}

/// A hash of several texts that fits into a label.
fn hash(texts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.as_bytes());
        hasher.update([0]);
    }
    let mut hexadecimal = format!("{:x}", hasher.finalize());
    hexadecimal.truncate(HASH_LENGTH);
    hexadecimal
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::Operation;

    fn primary(key: &str) -> KvObject<u8> {
        let mut primary = KvObject::new(key.to_owned(), 7, Operation::Put);
        primary.incarnation = Some("1".to_owned());
        primary
    }

    fn secondary(bucket: &str, key: &str) -> ConfigMap {
        let mut secondary = ConfigMap::default();
        set(&mut secondary, bucket, &primary(key));
        secondary
    }

    #[test]
    fn key_is_found_in_its_bucket_only() {
        let key = "block.backbone.10.0.0.0-26=/";
        let secondary = secondary("ipam", key);
        assert_eq!(key_of(&secondary, "ipam").as_deref(), Some(key));
        assert_eq!(key_of(&secondary, "other"), None);
        assert_eq!(key_of(&ConfigMap::default(), "ipam"), None);
    }

    #[test]
    fn changed_annotation_names_no_owner() {
        let mut secondary = secondary("ipam", "a");
        let annotations = secondary.metadata.annotations.get_or_insert_default();
        let other = Owner::new("ipam", &primary("b")).to_json();
        annotations.insert(OWNER_ANNOTATION.to_owned(), other);
        assert_eq!(key_of(&secondary, "ipam"), None);
    }

    #[test]
    fn secondary_records_the_revision_of_its_key() {
        let secondary = secondary("ipam", "a");
        let expected = Owner {
            bucket: "ipam".to_owned(),
            key: "a".to_owned(),
            incarnation: "1".to_owned(),
            revision: 7,
        };
        assert_eq!(of(&secondary.metadata, "ipam"), Some(expected));
    }

    #[test]
    fn labels_fit_for_every_key() {
        let long = "a/=".repeat(500);
        for (name, value) in labels("bucket_", &long) {
            assert!(value.len() <= 63, "{name}");
            assert!(value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        }
        let [own, other] = ["ab", "b"].map(|key| labels("a", key));
        assert_ne!(own, other);
    }
}
