//! Which secondaries belong to deleted keys, and which to keys that the bucket may have lost.

use std::collections::HashMap;

use crate::object::{KvObject, Owner, Record};

/// The last write of a key.
#[derive(Clone, Copy)]
pub(crate) struct Last {
    revision: u64,
    is_deletion: bool,
}

impl Last {
    pub(crate) fn of_record(record: &Record) -> Self {
        Self {
            revision: record.revision,
            is_deletion: record.is_deleted(),
        }
    }

    pub(crate) fn of<T>(object: &KvObject<T>) -> Self {
        Self {
            revision: object.revision,
            is_deletion: object.is_deleted(),
        }
    }
}

/// A complete list of a bucket.
#[derive(Clone)]
pub(crate) struct Listing<V> {
    /// When the bucket was created.
    pub(crate) incarnation: String,
    /// What is known of the last write of each key.
    pub(crate) keys: HashMap<String, V>,
}

/// What a bucket shows of the key of a secondary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The key exists.
    Exists,
    /// The key was deleted after the secondary was last written.
    Deleted,
    /// The key is missing, and the bucket may have lost it.
    Missing,
}

/// Returns what a bucket shows of the key of a secondary. `last` is the last write of the key.
///
/// Only a marker shows a deletion. A key without one can be lost, whatever else the bucket
/// contains: a bucket that was restored from a backup continues with the revisions that it has
/// lost. A marker from before the revision of the secondary is one of an earlier deletion.
pub(crate) fn verdict(owner: &Owner, incarnation: &str, last: Option<&Last>) -> Verdict {
    // What is not known may be another one.
    let is_same_bucket = !incarnation.is_empty() && owner.incarnation == incarnation;
    match last {
        Some(last) if !last.is_deletion => Verdict::Exists,
        Some(marker) if is_same_bucket && marker.revision > owner.revision => Verdict::Deleted,
        _ => Verdict::Missing,
    }
}

/// Whether a secondary belongs to the key of this marker, and was last written before the deletion.
pub(crate) fn is_deleted_by<T>(owner: &Owner, marker: &KvObject<T>) -> bool {
    let incarnation = marker.incarnation.as_deref().unwrap_or_default();
    let last = Last::of(marker);
    owner.key == marker.key && verdict(owner, incarnation, Some(&last)) == Verdict::Deleted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a bucket that was created at this time shows of a key whose secondary was written for
    /// revision 10, in the bucket that was created at 1.
    fn shown(incarnation: &str, last: Option<Last>) -> Verdict {
        let owner = Owner {
            bucket: "ipam".to_owned(),
            key: "a".to_owned(),
            incarnation: "1".to_owned(),
            revision: 10,
        };
        verdict(&owner, incarnation, last.as_ref())
    }

    fn value(revision: u64) -> Last {
        Last {
            revision,
            is_deletion: false,
        }
    }

    fn marker(revision: u64) -> Last {
        Last {
            revision,
            is_deletion: true,
        }
    }

    #[test]
    fn later_marker_shows_a_deletion() {
        assert_eq!(shown("1", Some(marker(11))), Verdict::Deleted);
    }

    /// The key was deleted and created again, and the bucket has lost the second creation.
    #[test]
    fn earlier_marker_shows_nothing() {
        assert_eq!(shown("1", Some(marker(9))), Verdict::Missing);
    }

    #[test]
    fn any_value_shows_that_the_key_exists() {
        for incarnation in ["1", "2"] {
            for revision in [9, 10, 11] {
                assert_eq!(shown(incarnation, Some(value(revision))), Verdict::Exists);
            }
        }
    }

    #[test]
    fn missing_key_is_not_deleted() {
        assert_eq!(shown("1", None), Verdict::Missing);
    }

    #[test]
    fn marker_of_another_bucket_shows_nothing() {
        for revision in [9, 11] {
            assert_eq!(shown("2", Some(marker(revision))), Verdict::Missing);
            assert_eq!(shown("", Some(marker(revision))), Verdict::Missing);
        }
        assert_eq!(shown("2", None), Verdict::Missing);
    }
}
