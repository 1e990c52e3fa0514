//! The slices of pools, and what has to be done with them.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPSlice, Scope, SliceOwner, slice_name};
use capi_ipam_ip::Block;
use capi_ipam_objects::absence::Absence;
use capi_ipam_objects::observed::Stamp;
use jiff::Timestamp;
use kube::core::ObjectMeta;

use crate::slices::SliceInfo;
use crate::{PoolInfo, PoolKey};

/// The state of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceView {
    /// The pool of the slice.
    pub pool: PoolKey,
    /// The addresses of the slice.
    pub block: Block,
    /// The uid of the IPSlice.
    pub uid: String,
    /// The latest observed resource version of the IPSlice.
    pub version: String,
    /// The owner of the slice.
    pub owner: Arc<SliceOwner>,
    /// Whether a user created it: it is never returned.
    pub is_pinned: bool,
    /// Since when no address of it is in use, in seconds since the Unix epoch, according to the
    /// IPSlice.
    pub empty_since: Option<i64>,
    /// Why addresses of it can be missing.
    pub absence: Absence,
    /// Whether an address of it is not free.
    pub is_in_use: bool,
    /// How long an empty slice stays with its owner.
    pub retention: SliceRetention,
}

/// How long an empty slice stays with its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceRetention {
    /// The specification of the pool is not valid, and no valid one is known: the slice stays.
    Unknown,
    /// The pool does not exist: the slice is returned.
    NoPool,
    /// The pool has no slices: the slice is returned.
    None,
    /// Until the owner is deleted.
    Owner,
    /// For a number of seconds, or until the owner is deleted.
    Seconds(i64),
}

impl SliceRetention {
    pub(crate) fn of(info: Option<&PoolInfo>) -> Self {
        let Some(info) = info else {
            return Self::NoPool;
        };
        match &info.slices {
            Some(rules) => match rules.keep_seconds {
                Some(seconds) => Self::Seconds(seconds),
                None => Self::Owner,
            },
            None if info.usable.is_err() => Self::Unknown,
            None => Self::None,
        }
    }
}

/// What has to be done with a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceStep {
    /// No address of the slice is in use: record since when.
    MarkEmpty,
    /// An address of the slice is in use: remove the mark.
    ClearMark,
    /// Return the slice to the pool.
    Return,
}

impl SliceView {
    /// The pool as a scope.
    pub fn scope(&self) -> Scope {
        Scope::Pool(self.pool.clone())
    }

    /// The name of the IPSlice.
    pub fn name(&self) -> String {
        slice_name(&self.pool, self.block)
    }

    /// What has to be done with the slice at `now`, in seconds since the Unix epoch. A slice is
    /// returned only after it was marked as empty for `grace` seconds: until then, every manager
    /// has observed the mark. Addresses of a slice that was moved or restored may be restored
    /// later, for `restore_timeout`. `owner_exists` is called if this depends on the owner.
    pub fn next_step(
        &self,
        now: i64,
        grace: i64,
        restore_timeout: Duration,
        owner_exists: impl FnOnce(&SliceOwner) -> bool,
    ) -> Option<SliceStep> {
        if self.is_pinned {
            return None;
        }
        let Some(since) = self.empty_since else {
            return if self.is_in_use {
                None
            } else {
                Some(SliceStep::MarkEmpty)
            };
        };
        if self.is_in_use {
            return Some(SliceStep::ClearMark);
        }
        let age = now.saturating_sub(since);
        let time = Timestamp::from_second(now).unwrap_or_default();
        let is_restoring = self.absence.remaining(restore_timeout, time).is_some();
        if age < grace || is_restoring {
            return None;
        }
        let is_returned = match self.retention {
            SliceRetention::Unknown => false,
            SliceRetention::NoPool | SliceRetention::None => true,
            SliceRetention::Owner => !owner_exists(&self.owner),
            SliceRetention::Seconds(seconds) => age >= seconds || !owner_exists(&self.owner),
        };
        if is_returned {
            Some(SliceStep::Return)
        } else {
            None
        }
    }
}

impl SliceInfo {
    /// Reads a slice of a pool. `slice` is `None` if the object with this metadata is not a valid
    /// one: it takes the name of a slice.
    pub(crate) fn of(metadata: &ObjectMeta, slice: Option<&IPSlice>) -> Self {
        let mut info = Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            stamp: Stamp::default(),
            owner: None,
            is_pinned: true,
            empty_since: None,
            absence: Absence::Deleted,
            is_returning: false,
        };
        if let Some(IPSlice { spec, .. }) = slice {
            info.owner = Some(Arc::new(spec.owner.clone()));
            info.is_pinned = spec.assigned_at.is_none();
            info.empty_since = spec.empty_since.as_ref().map(|time| time.0.as_second());
            info.absence = Absence::of(metadata, spec.assigned_at.as_ref());
        }
        info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capi_ipam_api::{InClusterKind, SliceOwnerKind};

    #[test]
    fn slice_is_returned_only_after_it_was_marked_as_empty() {
        let owner = SliceOwner {
            kind: SliceOwnerKind::Cluster,
            namespace: Some("n".into()),
            name: "a".into(),
        };
        let used = SliceView {
            pool: PoolKey::new(InClusterKind::GlobalIPPool, None, "g"),
            block: Block::new([10, 0, 0, 0].into(), 30),
            uid: "u".into(),
            version: "1".into(),
            owner: Arc::new(owner),
            is_pinned: false,
            empty_since: None,
            absence: Absence::Deleted,
            is_in_use: true,
            retention: SliceRetention::Seconds(100),
        };
        let empty = SliceView {
            is_in_use: false,
            ..used.clone()
        };
        let marked = SliceView {
            empty_since: Some(1_000),
            ..empty.clone()
        };
        let step = |view: &SliceView, now, exists| {
            view.next_step(now, 10, Duration::from_hours(1), |_| exists)
        };
        assert_eq!(step(&used, 5_000, false), None);
        assert_eq!(step(&empty, 5_000, false), Some(SliceStep::MarkEmpty));
        assert_eq!(
            step(
                &SliceView {
                    is_in_use: true,
                    ..marked.clone()
                },
                5_000,
                false
            ),
            Some(SliceStep::ClearMark)
        );
        for (now, exists, expected) in [
            (1_009, false, None),
            (1_010, false, Some(SliceStep::Return)),
            (1_099, true, None),
            (1_100, true, Some(SliceStep::Return)),
        ] {
            assert_eq!(step(&marked, now, exists), expected, "{now} {exists}");
        }
        let kept = SliceView {
            retention: SliceRetention::Owner,
            ..marked.clone()
        };
        assert_eq!(
            (step(&kept, 9_999, true), step(&kept, 9_999, false)),
            (None, Some(SliceStep::Return))
        );
        for retention in [SliceRetention::None, SliceRetention::NoPool] {
            let view = SliceView {
                retention,
                ..marked.clone()
            };
            assert_eq!(
                (step(&view, 1_009, true), step(&view, 1_010, true)),
                (None, Some(SliceStep::Return))
            );
        }
        let restored = SliceView {
            absence: Absence::Restore(Timestamp::from_second(1_000).unwrap()),
            ..marked.clone()
        };
        assert_eq!(
            (step(&restored, 4_599, false), step(&restored, 4_600, false)),
            (None, Some(SliceStep::Return))
        );
        assert_eq!(
            step(
                &SliceView {
                    is_pinned: true,
                    ..marked
                },
                9_999,
                false
            ),
            None
        );
    }
}
