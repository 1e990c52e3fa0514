//! What the ledger keeps of the slice of a block.

use std::sync::Arc;

use capi_ipam_api::IPSlice;
use capi_ipam_contract::Uid;
use capi_ipam_ip::Block;
use capi_ipam_objects::observed::{Known, Stamp};
use capi_ipam_protocol::block::{Confirmation, Mark, Slice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;

use super::Ours;

/// The slice of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSlice {
    /// The uid of the IPSlice.
    pub uid: String,
    /// The latest observed resource version of the IPSlice.
    pub version: String,
    /// The management cluster that owns it; empty if the object is not valid.
    pub cluster: Arc<str>,
    /// The registry that has the record of the block; `None` if the object does not name it.
    pub registry: Option<Arc<str>>,
    /// Whether the object is a valid slice. If not, its name takes the block, and nobody allocates
    /// from it.
    pub is_valid: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether [`Ledger::begin_slice_return`](crate::Ledger::begin_slice_return) was called for it.
    pub is_returning: bool,
    /// Whether addresses of the block are allocated.
    pub is_usable: bool,
    /// When it was created for a take, in seconds since the Unix epoch.
    pub assigned_at: Option<i64>,
    /// When the registry confirmed the block, in seconds since the Unix epoch.
    pub confirmed_at: Option<i64>,
    /// Another management cluster that uses the block.
    pub conflict: Option<Arc<str>>,
    /// Since when no address of it is in use, in seconds since the Unix epoch.
    pub empty_since: Option<i64>,
}

/// What the ledger keeps of the IPSlice of a block.
#[derive(Clone, Debug)]
pub(in super::super) struct BlockInfo {
    /// Without the version, which depends on whether etcd was restored since.
    pub(in super::super) slice: BlockSlice,
    /// When it was last seen.
    pub(in super::super) stamp: Stamp,
    /// Whether it counts as a slice of this management cluster: it is one, or no identity is known.
    pub(super) is_counted: bool,
    /// Whether the registry shows no other user of the block, as far as it is known.
    may_use: bool,
}

impl BlockInfo {
    /// Reads the slice of a block. `slice` is `None` if the object with this metadata is not a
    /// valid one.
    pub(in super::super) fn of(
        metadata: &ObjectMeta,
        slice: Option<&IPSlice>,
        stamp: Stamp,
        is_returning: bool,
    ) -> Self {
        let mut known = BlockSlice {
            uid: metadata.uid.clone().unwrap_or_default(),
            version: String::new(),
            cluster: Arc::default(),
            registry: None,
            is_valid: slice.is_some(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            is_returning,
            is_usable: false,
            assigned_at: None,
            confirmed_at: None,
            conflict: None,
            empty_since: None,
        };
        if let Some(slice) = slice {
            let spec = &slice.spec;
            let second = |time: &Option<Time>| Some(time.as_ref()?.0.as_second());
            known.cluster = spec.owner.name.as_str().into();
            known.registry = spec.registry.as_deref().map(Arc::from);
            known.assigned_at = second(&spec.assigned_at);
            known.confirmed_at = second(&spec.confirmed_at);
            known.empty_since = second(&spec.empty_since);
            if let Some(conflict) = &spec.conflict {
                known.conflict = Some(conflict.cluster.as_str().into());
            }
        }
        Self {
            slice: known,
            stamp,
            is_counted: false,
            may_use: false,
        }
    }

    /// When it was last seen, and its uid.
    pub(in super::super) fn known(&self) -> Known {
        Known {
            uid: Uid::of(&self.slice.uid),
            stamp: self.stamp,
        }
    }

    /// Finds out whether it is a slice of this management cluster, and usable. Returns whether this
    /// has changed.
    pub(super) fn refresh(&mut self, block: Block, ours: &Ours<'_>) -> bool {
        let before = (self.is_counted, self.slice.is_usable);
        let is_own = ours.has(&self.slice);
        self.may_use = ours.may_use(block, &self.slice);
        self.is_counted = is_own || self.slice.is_valid && ours.ids.is_empty();
        self.slice.is_usable = is_own && self.may_use && self.slice.may_be_usable();
        before != (self.is_counted, self.slice.is_usable)
    }

    /// Whether the registry shows another user of the block, or no record of it, and the slice does
    /// not say so yet: a process that starts without the registry would use the block. The slice
    /// can be marked as empty: without the registry, the mark is removed by the next claim.
    pub(in super::super) fn has_unmarked_conflict(&self) -> bool {
        let is_confirmed = self.slice.is_valid && self.slice.confirmed_at.is_some();
        is_confirmed && self.slice.conflict.is_none() && !self.may_use
    }
}

impl BlockSlice {
    /// Whether addresses of the block may be allocated if the slice is one of this management
    /// cluster.
    pub(super) fn may_be_usable(&self) -> bool {
        let is_leaving = self.is_deleting || self.is_returning;
        self.is_valid && !is_leaving && self.state().is_usable()
    }

    /// The slice for the decisions of the protocol.
    pub fn state(&self) -> Slice {
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
