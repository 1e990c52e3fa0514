//! Pools that can allocate the same address, though no network keeps them apart.

use std::sync::Arc;

use capi_ipam_ip::Usable;

use crate::api::Scope;
use super::state::State;
use super::{Ledger, PoolKey};

/// The search ends after this many overlapping pools: a text names a few of them and counts the rest.
pub const MAX_OVERLAPS: usize = 20;

impl State {
    /// The other pools of another scope whose addresses lie between the same ends, with what they give to claims.
    fn candidates(&self, pool: &PoolKey, scope: &Scope, usable: &Usable) -> Vec<(PoolKey, Arc<Usable>)> {
        let is_near = |other: &PoolKey| {
            let facts = self.pools.get(other)?.facts.as_ref().filter(|facts| facts.scope != *scope)?;
            let theirs = facts.usable.as_ref().ok()?;
            (other != pool && usable.is_near(theirs)).then(|| (other.clone(), Arc::clone(theirs)))
        };
        self.pools.keys().filter_map(is_near).collect()
    }

    /// All other pools that could allocate an address of this one, though they are not of its network.
    pub(super) fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        let facts = self.pools.get(pool).and_then(|entry| entry.facts.as_ref());
        let Some((scope, usable)) = facts.and_then(|facts| Some((&facts.scope, facts.usable.as_ref().ok()?))) else {
            return Vec::new();
        };
        let near = self.candidates(pool, scope, usable).into_iter();
        near.filter(|(_, theirs)| usable.overlaps(theirs)).map(|(other, _)| other).collect()
    }
}

impl Ledger {
    /// The other pools that could allocate an address of this one, though they are not of its network; at most
    /// [`MAX_OVERLAPS`], the first by kind, namespace and name.
    pub fn overlapping(&self, pool: &PoolKey) -> Vec<PoolKey> {
        let facts = self.facts(pool);
        let extent = facts.and_then(|facts| Some((facts.scope, facts.usable.ok()?)));
        extent.map(|(scope, usable)| self.would_overlap(pool, &scope, &usable)).unwrap_or_default()
    }

    /// The same for a pool as it would be.
    pub fn would_overlap(&self, pool: &PoolKey, scope: &Scope, usable: &Usable) -> Vec<PoolKey> {
        // Compared without the lock: the lists of many pools may be long.
        let mut near = self.lock().candidates(pool, scope, usable);
        near.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let overlapping = near.into_iter().filter(|(_, theirs)| usable.overlaps(theirs));
        overlapping.map(|(other, _)| other).take(MAX_OVERLAPS).collect()
    }
}
