//! Overlapping pools: they can allocate the same address because they are not in one network.

use std::sync::Arc;

use capi_ipam_api::Scope;
use capi_ipam_ip::UsableBlocks;

use super::state::State;
use super::{Ledger, PoolKey};

/// The maximum number of overlapping pools that are searched: a message names a few of them and
/// counts the rest.
pub const MAX_OVERLAPS: usize = 20;

/// The scope and the blocks with which a pool allocates.
type Allocation = (Scope, Arc<UsableBlocks>);

impl State {
    /// The scope and the blocks with which a pool allocates. A pool that waits until a network is
    /// initialized does not allocate before it belongs to the network.
    pub(super) fn allocation(&self, pool: &PoolKey) -> Option<Allocation> {
        let entry = self.pools.get(pool)?;
        let info = entry.info.as_ref()?;
        let scope = entry
            .awaited
            .clone()
            .map_or_else(|| info.scope.clone(), Scope::Network);
        Some((scope, Arc::clone(info.usable.as_ref().ok()?)))
    }

    /// The pools of other scopes whose address ranges intersect with the bounds of this one, and
    /// their blocks.
    fn nearby(
        &self,
        pool: &PoolKey,
        scope: &Scope,
        usable: &UsableBlocks,
    ) -> Vec<(PoolKey, Arc<UsableBlocks>)> {
        let near = self
            .extents
            .overlapping(usable)
            .filter(|other| *other != pool);
        let of_another_scope = |other: &PoolKey| {
            let (_, usable) = self
                .allocation(other)
                .filter(|(theirs, _)| theirs != scope)?;
            Some((other.clone(), usable))
        };
        near.filter_map(of_another_scope).collect()
    }

    /// All pools of other scopes that can allocate an address of this one.
    pub(super) fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        let Some((scope, usable)) = self.allocation(pool) else {
            return Vec::new();
        };
        let near = self.nearby(pool, &scope, &usable).into_iter();
        near.filter(|(_, theirs)| usable.overlaps(theirs))
            .map(|(other, _)| other)
            .collect()
    }
}

impl Ledger {
    /// The pools of other scopes that can allocate an address of this one: the first
    /// [`MAX_OVERLAPS`], ordered by kind, namespace and name.
    pub fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        let allocation = self.state.lock().allocation(pool);
        allocation
            .map(|(scope, usable)| self.overlapping_with(pool, &scope, &usable))
            .unwrap_or_default()
    }

    /// Whether all these pools allocate blocks of this length, so that one network can have them.
    pub fn have_length(&self, pools: &[PoolKey], length: u8) -> bool {
        let state = self.state.lock();
        let has_length = |pool: &PoolKey| {
            let usable = state
                .pools
                .get(pool)
                .and_then(|entry| entry.info.as_ref()?.usable.as_ref().ok());
            usable.is_none_or(|usable| usable.length == length)
        };
        pools.iter().all(has_length)
    }

    /// As [`Ledger::overlapping`], for a pool that is not stored yet.
    pub fn overlapping_with(
        &self,
        pool: &PoolKey,
        scope: &Scope,
        usable: &UsableBlocks,
    ) -> Vec<PoolKey> {
        // Compared without holding the lock: the lists of many pools can be long.
        let mut near = self.state.lock().nearby(pool, scope, usable);
        near.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let overlapping = near
            .into_iter()
            .filter(|(_, theirs)| usable.overlaps(theirs));
        overlapping
            .map(|(other, _)| other)
            .take(MAX_OVERLAPS)
            .collect()
    }
}
