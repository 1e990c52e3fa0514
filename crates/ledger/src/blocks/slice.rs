//! What the ledger keeps of the slice of a block.

use std::sync::Arc;

use capi_ipam_api::IPSlice;
use capi_ipam_contract::Uid;
use capi_ipam_objects::observed::{Known, Stamp};
use capi_ipam_protocol::block::{Confirmation, Mark, Slice};
use kube::core::ObjectMeta;

/// What the ledger keeps of the IPSlice of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct BlockInfo {
    pub(in super::super) uid: Box<str>,
    /// When it was last seen.
    pub(in super::super) stamp: Stamp,
    /// The management cluster that owns it; `None` for an object that is not valid: its name takes
    /// the block, and nobody allocates from it.
    pub(in super::super) cluster: Option<Arc<str>>,
    /// The registry that has the record of the block; `None` if the object does not name it.
    pub(in super::super) registry: Option<Arc<str>>,
    /// When it was created for a take, in seconds since the Unix epoch.
    pub(in super::super) assigned_at: Option<i64>,
    /// When the registry confirmed the block, in seconds since the Unix epoch.
    pub(in super::super) confirmed_at: Option<i64>,
    /// Another management cluster that uses the block.
    pub(in super::super) conflict: Option<Arc<str>>,
    /// Since when no address of it is in use, in seconds since the Unix epoch.
    pub(in super::super) empty_since: Option<i64>,
    pub(in super::super) is_deleting: bool,
    /// Whether it is being returned by this process.
    pub(in super::super) is_returning: bool,
}

impl BlockInfo {
    /// Reads the valid slice of a block.
    pub(in super::super) fn of(slice: &IPSlice) -> Self {
        let spec = &slice.spec;
        let assigned_at = spec.assigned_at.as_ref();
        let confirmed_at = spec.confirmed_at.as_ref();
        let conflict = spec.conflict.as_ref();
        let empty_since = spec.empty_since.as_ref();
        Self {
            cluster: Some(spec.owner.name.as_str().into()),
            registry: spec.registry.as_deref().map(Arc::from),
            assigned_at: assigned_at.map(|time| time.0.as_second()),
            confirmed_at: confirmed_at.map(|time| time.0.as_second()),
            conflict: conflict.map(|conflict| conflict.cluster.as_str().into()),
            empty_since: empty_since.map(|time| time.0.as_second()),
            ..Self::invalid(&slice.metadata)
        }
    }

    /// An object that takes the name of the slice and is none.
    pub(in super::super) fn invalid(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            stamp: Stamp::default(),
            cluster: None,
            registry: None,
            assigned_at: None,
            confirmed_at: None,
            conflict: None,
            empty_since: None,
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_returning: false,
        }
    }

    /// When it was last seen, and its uid.
    pub(in super::super) fn known(&self) -> Known {
        Known {
            uid: Uid::of(&self.uid),
            stamp: self.stamp,
        }
    }

    /// Whether addresses of the block may be allocated if the slice is one of this management
    /// cluster.
    pub(in super::super) fn may_be_usable(&self) -> bool {
        let is_leaving = self.is_deleting || self.is_returning;
        self.cluster.is_some() && !is_leaving && self.slice().is_usable()
    }

    /// Whether the slice says that this management cluster has the block, and no other one uses it. It can be
    /// marked as empty: without the registry, the mark is removed by the next claim.
    pub(in super::super) fn is_confirmed_alone(&self) -> bool {
        self.cluster.is_some() && self.confirmed_at.is_some() && self.conflict.is_none()
    }

    /// The slice for the decisions of the protocol.
    fn slice(&self) -> Slice {
        Slice {
            confirmation: match self.confirmed_at {
                Some(_) => Confirmation::Written,
                None => Confirmation::Missing,
            },
            is_conflicting: self.conflict.is_some(),
            mark: match self.empty_since {
                Some(_) => Mark::Recent,
                None => Mark::None,
            },
        }
    }
}
