//! What a registry shows under a name.

use std::sync::Arc;

use crate::record::{Problem, Record};

/// The state of a record, with which a write names what it replaces. The variant is that of the
/// backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// In a NATS bucket.
    Bucket {
        /// When the bucket was created, as the server shows it. `None` in the answer to a request:
        /// only a watch knows it.
        incarnation: Option<Arc<str>>,
        /// The revision. Later writes of a bucket have larger numbers.
        revision: u64,
    },
    /// At an API server.
    Object {
        /// The uid. A recreated record has another one.
        uid: Box<str>,
        /// The resourceVersion. Later writes at an API server have larger numbers.
        number: u64,
    },
}

impl Version {
    /// Whether this state is older than another one of the same name. States of different buckets
    /// have no order.
    pub fn is_older_than(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Bucket {
                    incarnation: ours,
                    revision: earlier,
                },
                Self::Bucket {
                    incarnation: theirs,
                    revision: later,
                },
            ) => (ours == theirs || ours.is_none() || theirs.is_none()) && earlier < later,
            (
                Self::Object {
                    number: earlier, ..
                },
                Self::Object { number: later, .. },
            ) => earlier < later,
            _ => false,
        }
    }
}

/// What a registry shows under a name: a record, something that is no record, or the marker of a
/// deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, see [`Key`](crate::Key). It may be one that is not a key.
    pub key: String,
    /// The state.
    pub version: Version,
    /// The record, or why there is none. Only [`Problem::Deleted`] means that nothing exists.
    pub value: Result<Record, Problem>,
}

impl Entry {
    /// Whether this is the marker of a deletion.
    pub fn is_deleted(&self) -> bool {
        self.value == Err(Problem::Deleted)
    }

    /// The record, if there is one.
    pub fn record(&self) -> Option<&Record> {
        self.value.as_ref().ok()
    }

    /// Whether this is the record of a block that a cluster has, or has contended for.
    pub fn names(&self, cluster: &str) -> bool {
        match self.record() {
            Some(Record::Block(record)) => {
                let mut contenders = record.contenders.iter();
                record.cluster == cluster || contenders.any(|id| id == cluster)
            }
            _ => false,
        }
    }

    /// Why what exists under the name is not a record.
    pub fn problem(&self) -> Option<&Problem> {
        self.value
            .as_ref()
            .err()
            .filter(|problem| **problem != Problem::Deleted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(incarnation: Option<&str>, revision: u64) -> Version {
        Version::Bucket {
            incarnation: incarnation.map(Into::into),
            revision,
        }
    }

    #[test]
    fn versions_of_one_bucket_are_ordered() {
        assert!(bucket(Some("a"), 1).is_older_than(&bucket(Some("a"), 2)));
        assert!(bucket(None, 1).is_older_than(&bucket(Some("a"), 2)));
        assert!(!bucket(Some("a"), 2).is_older_than(&bucket(Some("a"), 2)));
        assert!(!bucket(Some("b"), 1).is_older_than(&bucket(Some("a"), 2)));
    }

    #[test]
    fn recreated_object_is_later() {
        let object = |uid: &str, number| Version::Object {
            uid: uid.into(),
            number,
        };
        assert!(object("a", 1).is_older_than(&object("b", 2)));
        assert!(!object("a", 2).is_older_than(&object("b", 1)));
    }
}
