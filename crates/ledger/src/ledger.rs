//! The state of the ledger, and what all of its changes have in common.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::PoolKey;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::Versions;

use super::addresses::Addresses;
use super::effects::Effects;
use super::networks::Networks;
use super::pools::Pools;
use super::pools::start::Start;

/// The in-memory index of pools, addresses and waiting claims.
///
/// Its methods are plain computations: they neither lock, wait nor call anybody. What a change asks
/// others to do is recorded until [`Ledger::take_effects`] is called.
#[derive(Default)]
pub struct Ledger {
    pub(super) pools: Pools,
    pub(super) addresses: Addresses,
    pub(super) slice_versions: Versions,
    /// Pools in which waiting claims may get a turn, and whose counts or conditions may have
    /// changed, since the last change was complete.
    pub(super) dirty_pools: Vec<PoolKey>,
    pub(super) effects: Effects,
    /// Claims that wait for an address of a pool which can no longer allocate since this was last
    /// taken.
    pub(super) claims_to_recheck: VecDeque<NamespacedName>,
    pub(super) networks: Networks,
    pub(super) start: Start,
    /// The pools whose network has to be computed again.
    pub(super) pools_to_refresh: VecDeque<PoolKey>,
    /// The networks whose gateways have changed while pools were queued: their members are computed
    /// again after those.
    pub(super) stale_networks: BTreeSet<Arc<str>>,
    /// Whether others use the ledger between two steps of a long computation.
    is_shared: bool,
}

impl Ledger {
    /// Creates an empty ledger that several tasks use. Its owner calls [`Ledger::refresh`] while
    /// [`Effects::has_queued_refreshes`] is set, so that no caller waits for the computation of
    /// all pools. Any other ledger computes them at once.
    pub fn shared() -> Self {
        Self {
            is_shared: true,
            ..Self::default()
        }
    }

    /// The addresses that are not free.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The pools.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Applies a change, and then everything that follows from it.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let result = change(self);
        self.settle();
        while !self.is_shared && self.has_queued_refreshes() {
            self.refresh();
        }
        result
    }

    /// Computes the networks of some of the pools for which a change may have affected them.
    pub fn refresh(&mut self) {
        self.refresh_queued();
        self.settle();
    }

    /// Grants turns in all affected pools, and removes those of which nothing is left.
    pub(super) fn settle(&mut self) {
        if self.dirty_pools.is_empty() {
            return;
        }
        let mut pools = std::mem::take(&mut self.dirty_pools);
        pools.sort_unstable();
        pools.dedup();
        let now = Instant::now();
        for pool in pools {
            let Some(entry) = self.pools.get_mut(&pool) else {
                self.effects.pools.push(pool);
                continue;
            };
            self.effects.claims.extend(entry.grant_turns(now));
            if entry.is_changed_by_use() {
                self.use_changed(&pool);
            }
            let Some(entry) = self.pools.get_mut(&pool) else {
                continue;
            };
            let was_notified = entry.set_notified(true);
            self.pools.remove_if_empty(&pool);
            if !was_notified {
                self.effects.pools.push(pool);
            }
        }
    }

    /// Computes again what depends on whether addresses of a pool are in use.
    fn use_changed(&mut self, pool: &PoolKey) {
        self.count_gateways(pool);
        self.queue_refresh(pool);
    }

    /// Returns what the changes since the last call ask others to do.
    pub fn take_effects(&mut self) -> Effects {
        let mut effects = std::mem::take(&mut self.effects);
        effects.networks.sort_unstable();
        effects.networks.dedup();
        effects.has_rechecks = !self.claims_to_recheck.is_empty();
        effects.has_queued_refreshes = self.has_queued_refreshes();
        effects
    }
}
