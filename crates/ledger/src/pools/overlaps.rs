//! Overlapping pools: they can allocate the same address because they are not in one network.

use std::sync::Arc;

use capi_ipam_api::Scope;
use capi_ipam_ip::{SpanSet, UsableBlocks};

use crate::PoolKey;

use super::Pools;

/// The maximum number of overlapping pools that are searched: a message names a few of them and
/// counts the rest.
pub const MAX_OVERLAPS: usize = 20;

/// Pools that may overlap with another one, and their blocks. To compare them can take long: who
/// shares the ledger does not hold a lock meanwhile.
pub struct Nearby(Vec<(PoolKey, Arc<UsableBlocks>)>);

/// The scope and the blocks with which a pool allocates.
pub(crate) type Allocation = (Scope, Arc<UsableBlocks>);

impl Pools {
    /// The scope and the blocks with which a pool allocates. A pool that waits until a network is
    /// initialized does not allocate before it belongs to the network.
    pub(crate) fn allocation(&self, pool: &PoolKey) -> Option<Allocation> {
        let entry = self.entries.get(pool)?;
        let info = entry.info.as_ref()?;
        let scope = match &entry.recorded.awaited {
            Some(network) => Scope::Network(network.clone()),
            None => info.scope.clone(),
        };
        Some((scope, Arc::clone(info.blocks()?)))
    }

    /// The pools of other scopes whose address ranges intersect with the bounds of blocks of a
    /// pool, and their blocks.
    fn others<'a>(
        &'a self,
        pool: &'a PoolKey,
        scope: &'a Scope,
        usable: &'a UsableBlocks,
    ) -> impl Iterator<Item = (&'a PoolKey, Arc<UsableBlocks>)> {
        let nearby = self.extents.overlapping(usable);
        nearby.filter_map(move |other| {
            let (theirs, usable) = self.allocation(other)?;
            (other != pool && theirs != *scope).then_some((other, usable))
        })
    }

    /// The pools of other scopes whose address ranges intersect with the bounds of a pool, which
    /// may not be stored yet.
    pub fn nearby_with(&self, pool: &PoolKey, scope: &Scope, usable: &UsableBlocks) -> Nearby {
        let others = self.others(pool, scope, usable);
        Nearby(
            others
                .map(|(other, usable)| (other.clone(), usable))
                .collect(),
        )
    }

    /// The blocks of a pool, and the pools of other scopes whose address ranges intersect with
    /// their bounds.
    fn nearby(&self, pool: &PoolKey) -> Option<(Arc<UsableBlocks>, Nearby)> {
        let (scope, usable) = self.allocation(pool)?;
        let nearby = self.nearby_with(pool, &scope, &usable);
        Some((usable, nearby))
    }

    /// As [`Pools::nearby_with`], for the status of a pool. Any change of one of these pools
    /// notifies the controller of the pool until [`Pools::end_overlap_search`].
    pub fn begin_overlap_search(&mut self, pool: &PoolKey) -> Option<(Arc<UsableBlocks>, Nearby)> {
        self.entries.get_mut(pool)?.last_overlap = None;
        self.nearby(pool)
    }

    /// Records which pools the status of a pool names, of those that overlap with it.
    pub fn end_overlap_search(&mut self, pool: &PoolKey, found: &[PoolKey]) {
        if found.len() >= MAX_OVERLAPS
            && let Some(entry) = self.entries.get_mut(pool)
        {
            entry.last_overlap = found.last().cloned();
        }
    }

    /// The pools whose status may change with the blocks or the scope of another pool: they can
    /// allocate an address that it has got or lost.
    pub(crate) fn with_changed_overlaps(
        &self,
        pool: &PoolKey,
        before: Option<&Allocation>,
        after: Option<&Allocation>,
    ) -> Vec<PoolKey> {
        let mut affected = Vec::new();
        for (one, other) in [(before, after), (after, before)] {
            let Some((scope, usable)) = one else { continue };
            let changed = without_common(usable, other.filter(|(theirs, _)| theirs == scope));
            for (key, usable) in self.others(pool, scope, &changed) {
                if self.may_name(key, pool) && usable.overlaps(&changed) {
                    affected.push(key.clone());
                }
            }
        }
        affected
    }

    /// Whether the status of a pool can name another one.
    fn may_name(&self, pool: &PoolKey, other: &PoolKey) -> bool {
        let entry = self.entries.get(pool);
        let last = entry.and_then(|entry| entry.last_overlap.as_ref());
        last.is_none_or(|last| other <= last)
    }

    /// The pools of other scopes that can allocate an address of this one: the first
    /// [`MAX_OVERLAPS`], ordered by kind, namespace and name.
    pub fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        match self.nearby(pool) {
            Some((usable, nearby)) => nearby.overlapping(&usable),
            None => Vec::new(),
        }
    }

    /// Whether all these pools allocate blocks of this length, so that one network can have them.
    pub(crate) fn have_length(&self, pools: &[PoolKey], length: u8) -> bool {
        for pool in pools {
            // A pool that does not exist, or is not valid, can have any blocks later.
            if let Some(entry) = self.entries.get(pool)
                && let Some(usable) = entry.usable()
                && usable.length != length
            {
                return false;
            }
        }
        true
    }
}

impl Nearby {
    /// The pools that can allocate one of these blocks: the first [`MAX_OVERLAPS`], ordered by
    /// kind, namespace and name.
    pub fn overlapping(mut self, usable: &UsableBlocks) -> Vec<PoolKey> {
        self.0
            .sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let pools = self.0.into_iter();
        let overlapping = pools.filter(|(_, theirs)| usable.overlaps(theirs));
        overlapping
            .map(|(pool, _)| pool)
            .take(MAX_OVERLAPS)
            .collect()
    }
}

/// The blocks without those that `other` has, too. Blocks of another length are not compared.
fn without_common(usable: &UsableBlocks, other: Option<&Allocation>) -> UsableBlocks {
    let mut set = usable.set.clone();
    if let Some((_, other)) = other
        && (other.family, other.length) == (usable.family, usable.length)
    {
        set = set.subtract(&other.set);
    }
    UsableBlocks {
        family: usable.family,
        length: usable.length,
        ranges: Vec::new(),
        set,
        draining: SpanSet::default(),
    }
}
