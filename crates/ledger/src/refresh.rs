//! Computes the networks of pools again after a change of a network, a namespace, or another pool
//! of the network.
//!
//! A change can affect all pools of a cluster. The pools are computed in several steps, and the
//! lock of the ledger is released between two of them: a claim of another pool does not wait for
//! all of them. To others this looks as if the change had been observed a moment later for some of
//! the pools. A proposal computes its pool first.
//!
//! At a start nothing is known of the pools and networks that are not listed yet. So each pool is
//! computed once, when the initial lists are complete, and nothing is proposed before.

use std::time::{Duration, Instant};

use capi_ipam_api::{PoolKey, Scope};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::Ledger;
use super::networks::Change;
use super::pools::start::{Phase, PoolInput};
use super::wait_queue::ClaimAttributes;

/// How long one step may hold the lock. The pool with which this time is exceeded is the last one
/// of the step.
const MAX_STEP_TIME: Duration = Duration::from_millis(1);

impl Ledger {
    /// Records that a list is complete, and computes all pools if it is the last one of the initial
    /// lists.
    pub(super) fn complete_list(&mut self, input: PoolInput) {
        self.change(|ledger| {
            if ledger.start.end_list(input) {
                ledger.queue_affected(&Change::All);
                ledger.refresh_queued();
            }
        });
    }

    /// Records that the network of a pool has to be computed again.
    pub(super) fn queue_refresh(&mut self, key: &PoolKey) {
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        if !entry.set_needs_refresh(true) {
            self.pools_to_refresh.push_back(key.clone());
        }
    }

    /// Records that the networks of the pools that a change may affect have to be computed again.
    pub(super) fn refresh_pools(&mut self, change: &Change) {
        if *change == Change::None {
            return;
        }
        // Once the initial lists are complete, all pools are computed.
        if self.start.phase != Phase::Listing {
            self.queue_affected(change);
        }
        if let Change::Network(network) = change {
            self.effects.networks.push(network.clone());
        }
    }

    fn queue_affected(&mut self, change: &Change) {
        for (key, entry) in self.pools.iter_mut() {
            if entry.is_affected_by(key, change) && !entry.set_needs_refresh(true) {
                self.pools_to_refresh.push_back(key.clone());
            }
        }
    }

    /// Whether the networks of pools have to be computed again now.
    pub(super) fn has_queued_refreshes(&self) -> bool {
        let has_queued = !self.pools_to_refresh.is_empty() || !self.stale_networks.is_empty();
        has_queued && self.start.phase != Phase::Listing
    }

    /// Computes the networks of some of the queued pools.
    pub(super) fn refresh_queued(&mut self) {
        let started = Instant::now();
        while let Some(key) = self.pools_to_refresh.pop_front() {
            self.refresh_pool(&key);
            if started.elapsed() >= MAX_STEP_TIME {
                break;
            }
        }
        while self.pools_to_refresh.is_empty() && self.queue_next() {}
    }

    /// Queues the pools that are computed after those that were queued before. Returns false if
    /// there is nothing to do.
    fn queue_next(&mut self) -> bool {
        if let Some(network) = self.stale_networks.pop_first() {
            for member in self.addresses.members(&network).to_vec() {
                self.queue_refresh(&member);
            }
            return true;
        }
        match self.start.phase {
            Phase::Listing | Phase::Complete => return false,
            Phase::Placing => {
                self.start.phase = Phase::Excluding;
                self.queue_affected(&Change::All);
            }
            Phase::Excluding => {
                self.start.phase = Phase::Complete;
                // Claims that requested an address before are reconciled.
                for (_, entry) in self.pools.iter_mut() {
                    let waiting = entry.wait_queue.pool_changed();
                    self.effects.claims.extend(waiting);
                }
            }
        }
        true
    }

    /// Computes the network of a pool again if a change may affect it, so that it allocates by its
    /// current state. Returns false before all pools are computed at a start: the claim waits until
    /// then.
    pub(super) fn prepare_to_propose(
        &mut self,
        key: &PoolKey,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
    ) -> bool {
        let Some(entry) = self.pools.get_mut(key) else {
            return true;
        };
        if !self.start.is_complete() {
            entry.wait_queue.wait_for_pool(claim, attributes);
            return false;
        }
        let is_stale = |network| self.stale_networks.contains(network);
        if entry.needs_refresh() || entry.network().is_some_and(is_stale) {
            self.refresh_pool(key);
        }
        true
    }

    /// Computes the network of a pool again. Claims that wait for a change of the pool are
    /// reconciled if there is one.
    fn refresh_pool(&mut self, key: &PoolKey) {
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        entry.set_needs_refresh(false);
        let Some(declared) = entry.shared_declared() else {
            return;
        };
        let placed = self.in_network(key, &declared);
        let Some(placed) = self.pools.entry(key).refresh(placed) else {
            return;
        };
        self.set_placed(key, Some(declared), Some(placed));
        if let Some(entry) = self.pools.get_mut(key) {
            let waiting = entry.wait_queue.pool_changed();
            self.effects.claims.extend(waiting);
        }
    }

    /// A reservation in a network is evidence of the scope of its pool, if nothing else is known of
    /// it: the pool may be restored before its network.
    pub(super) fn reservation_inserted(&mut self, pool: &PoolKey, scope: &Scope) {
        let Scope::Network(_) = scope else { return };
        let Some(entry) = self.pools.get(pool) else {
            return;
        };
        // In the same step: a status that is computed in between would state that the pool leaves
        // the network.
        if entry.has_unknown_scope() {
            self.refresh_pool(pool);
        }
    }
}
