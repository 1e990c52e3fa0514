//! What is known of a registry.

use std::sync::Arc;

use capi_ipam_registry::RecordCache;
use jiff::Timestamp;

use crate::error::MissingRight;
use crate::objects::RegistryRow;

/// A registry, with its records as far as they can be read.
#[derive(Clone, Debug)]
pub(crate) struct RegistryFacts {
    pub(crate) row: RegistryRow,
    /// The identity of this management cluster; `None` if it is unknown.
    pub(crate) cluster: Option<String>,
    /// All records of the registry.
    pub(crate) records: Result<Arc<RecordCache>, Unread>,
}

/// The records of a registry, which `web` reads again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastRecords {
    /// The identity of this management cluster; `None` if it is unknown.
    pub(crate) cluster: Option<String>,
    /// The last known records, and when they were read.
    pub(crate) records: Option<(Timestamp, Arc<RecordCache>)>,
    /// Why the last attempt has read none.
    pub(crate) problem: Option<String>,
}

impl LastRecords {
    /// Records the result of an attempt. Without one, the last known records stay.
    pub(crate) fn apply(&mut self, read: Result<RegistryFacts, String>, now: Timestamp) {
        let facts = match read {
            Ok(facts) => facts,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.cluster = facts.cluster.or(self.cluster.take());
        match facts.records {
            Ok(records) => {
                self.records = Some((now, records));
                self.problem = None;
            }
            Err(unread) => self.problem = Some(unread.reason),
        }
    }
}

/// Why the records of a registry cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) reason: String,
    /// The permission that is missing, if this is the reason.
    pub(crate) missing: Option<MissingRight>,
}

impl Unread {
    pub(crate) fn new(reason: String) -> Self {
        Self {
            reason,
            missing: None,
        }
    }
}

impl From<MissingRight> for Unread {
    fn from(right: MissingRight) -> Self {
        Self {
            reason: right.to_string(),
            missing: Some(right),
        }
    }
}
