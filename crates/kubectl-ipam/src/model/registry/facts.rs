//! What is known of a registry.

use std::sync::Arc;

use capi_ipam_registry::RecordCache;

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
