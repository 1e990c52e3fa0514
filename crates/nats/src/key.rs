//! The names of buckets and keys, and the subjects and names that the server uses for them.

use crate::error::Invalid;

/// Returns whether a text is the name of a bucket.
fn is_bucket_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !name.is_empty() && name.bytes().all(is_allowed)
}

/// Returns whether a text is a key, or a prefix of keys that ends between two parts.
fn is_key(key: &str) -> bool {
    let is_allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b'=');
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_allowed);
    key.split('.').all(is_part)
}

/// The names of one bucket at the server.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The name of the bucket.
    pub(crate) bucket: String,
    /// The stream that stores it.
    pub(crate) stream: String,
    /// What the subjects of its keys start with.
    subject: String,
}

impl Names {
    /// The names of the bucket `bucket`.
    pub(crate) fn new(bucket: &str) -> Result<Self, Invalid> {
        if !is_bucket_name(bucket) {
            return Err(Invalid::BucketName {
                name: bucket.to_owned(),
            });
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            stream: format!("KV_{bucket}"),
            subject: format!("$KV.{bucket}."),
        })
    }

    /// The subject of a key.
    pub(crate) fn subject_of(&self, key: &str) -> Result<String, Invalid> {
        if !is_key(key) {
            return Err(Invalid::Key {
                key: key.to_owned(),
            });
        }
        Ok(format!("{}{key}", self.subject))
    }

    /// The subjects of all keys below a prefix; of all keys if the prefix is empty.
    pub(crate) fn subjects_below(&self, prefix: &str) -> Result<String, Invalid> {
        if prefix.is_empty() {
            return Ok(format!("{}>", self.subject));
        }
        Ok(format!("{}.>", self.subject_of(prefix)?))
    }

    /// The key of a subject, if it belongs to this bucket.
    pub(crate) fn key_of<'a>(&self, subject: &'a str) -> Option<&'a str> {
        subject.strip_prefix(&self.subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_subjects_without_wildcards() {
        let names = Names::new("ipam").expect("it is a name");
        let subject = names.subject_of("block.backbone.10.0.0.0-26");
        assert_eq!(
            subject.expect("it is a key"),
            "$KV.ipam.block.backbone.10.0.0.0-26"
        );
        for key in [
            "", ".", "a.", ".a", "a..b", "a.*", ">", "a b", "ä", "fd00::1",
        ] {
            assert!(names.subject_of(key).is_err(), "{key}");
        }
    }

    #[test]
    fn prefix_ends_between_two_parts() {
        let names = Names::new("ipam").expect("it is a name");
        let below = |prefix| names.subjects_below(prefix).expect("it is a prefix");
        assert_eq!(below(""), "$KV.ipam.>");
        assert_eq!(below("block.backbone"), "$KV.ipam.block.backbone.>");
        assert!(names.subjects_below("block.").is_err());
    }

    #[test]
    fn subjects_of_other_buckets_have_no_key() {
        let names = Names::new("ipam").expect("it is a name");
        assert_eq!(names.key_of("$KV.ipam.a.b"), Some("a.b"));
        assert_eq!(names.key_of("$KV.ipam2.a.b"), None);
    }

    #[test]
    fn bucket_names_have_no_dots() {
        for name in ["", "a.b", "a b", "*", "ä"] {
            assert!(Names::new(name).is_err(), "{name}");
        }
        assert_eq!(
            Names::new("a-B_1").expect("it is a name").stream,
            "KV_a-B_1"
        );
    }
}
