//! Overlapping pools: they can allocate the same address because they are not in one network.

use std::sync::Arc;

use capi_ipam_api::Scope;
use capi_ipam_ip::UsableBlocks;

use super::{Ledger, PoolKey};

/// The maximum number of overlapping pools that are searched: a message names a few of them and
/// counts the rest.
pub const MAX_OVERLAPS: usize = 20;

/// Pools that may overlap with another one, and their blocks. To compare them can take long: who
/// shares the ledger does not hold a lock meanwhile.
pub struct Nearby(Vec<(PoolKey, Arc<UsableBlocks>)>);

/// The scope and the blocks with which a pool allocates.
type Allocation = (Scope, Arc<UsableBlocks>);

impl Ledger {
    /// The scope and the blocks with which a pool allocates. A pool that waits until a network is
    /// initialized does not allocate before it belongs to the network.
    pub(super) fn allocation(&self, pool: &PoolKey) -> Option<Allocation> {
        let entry = self.pools.get(pool)?;
        let info = entry.info.as_ref()?;
        let scope = match &entry.recorded.awaited {
            Some(network) => Scope::Network(network.clone()),
            None => info.scope.clone(),
        };
        Some((scope, Arc::clone(info.blocks()?)))
    }

    /// The pools of other scopes whose address ranges intersect with the bounds of a pool, which may
    /// not be stored yet.
    pub fn nearby_with(&self, pool: &PoolKey, scope: &Scope, usable: &UsableBlocks) -> Nearby {
        let mut pools = Vec::new();
        for other in self.extents.overlapping(usable) {
            if other == pool {
                continue;
            }
            if let Some((theirs, usable)) = self.allocation(other)
                && theirs != *scope
            {
                pools.push((other.clone(), usable));
            }
        }
        Nearby(pools)
    }

    /// The blocks of a pool, and the pools of other scopes whose address ranges intersect with
    /// their bounds.
    pub fn nearby(&self, pool: &PoolKey) -> Option<(Arc<UsableBlocks>, Nearby)> {
        let (scope, usable) = self.allocation(pool)?;
        let nearby = self.nearby_with(pool, &scope, &usable);
        Some((usable, nearby))
    }

    /// The pools of other scopes that can allocate an address of this one: the first
    /// [`MAX_OVERLAPS`], ordered by kind, namespace and name.
    pub fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        match self.nearby(pool) {
            Some((usable, nearby)) => nearby.overlapping(&usable),
            None => Vec::new(),
        }
    }

    /// All pools of other scopes that can allocate an address of this one.
    pub(super) fn all_overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        match self.nearby(pool) {
            Some((usable, nearby)) => nearby.all_overlapping(&usable),
            None => Vec::new(),
        }
    }

    /// The number of addresses and prefixes that IPAddresses of several scopes have: of pools that
    /// overlap, at most one of which is in a network. It is counted with each change, so to read it
    /// costs nothing.
    pub fn shared_addresses(&self) -> usize {
        self.in_use.shared()
    }

    /// Whether all these pools allocate blocks of this length, so that one network can have them.
    pub fn have_length(&self, pools: &[PoolKey], length: u8) -> bool {
        for pool in pools {
            // A pool that does not exist, or is not valid, can have any blocks later.
            if let Some(entry) = self.pools.get(pool)
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
        let overlapping = self.overlapping_in_order(usable);
        overlapping.take(MAX_OVERLAPS).collect()
    }

    fn all_overlapping(self, usable: &UsableBlocks) -> Vec<PoolKey> {
        self.overlapping_in_order(usable).collect()
    }

    fn overlapping_in_order(self, usable: &UsableBlocks) -> impl Iterator<Item = PoolKey> {
        let pools = self.0.into_iter();
        pools
            .filter(|(_, theirs)| usable.overlaps(theirs))
            .map(|(pool, _)| pool)
    }
}
