//! Computes the networks of pools again after a change of a network, a namespace, or another pool of the network.
//!
//! A change can affect all pools of a cluster. The pools are computed in several steps, and the lock of the ledger is
//! released between two of them: a claim of another pool does not wait for all of them. To others this looks as if the
//! change had been observed a moment later for some of the pools.

use std::time::{Duration, Instant};

use capi_ipam_api::{PoolKey, Scope};

use super::networks::Change;
use super::scope_rule::Record;
use super::state::State;

/// How long one step may hold the lock. The pool with which this time is exceeded is the last one of the step.
const MAX_STEP_TIME: Duration = Duration::from_millis(1);

impl State {
    /// Records that the network of a pool has to be computed again.
    pub(super) fn queue_refresh(&mut self, key: &PoolKey) {
        let Some(entry) = self.pools.get_mut(key) else { return };
        if !std::mem::replace(&mut entry.needs_refresh, true) {
            self.pools_to_refresh.push(key.clone());
        }
    }

    /// Records that the networks of the pools that a change may affect have to be computed again.
    pub(super) fn refresh_pools(&mut self, change: &Change) {
        if *change == Change::None {
            return;
        }
        for (key, entry) in &mut self.pools {
            let Some(declared) = &entry.declared else { continue };
            if change.affects(key, declared, &entry.record) && !std::mem::replace(&mut entry.needs_refresh, true) {
                self.pools_to_refresh.push(key.clone());
            }
        }
        if let Change::Network(network) = change {
            self.dirty_networks.push(network.clone());
        }
    }

    /// Computes the networks of some of the queued pools. Returns whether there are more.
    pub(super) fn refresh_queued(&mut self) -> bool {
        let started = Instant::now();
        while let Some(key) = self.pools_to_refresh.pop() {
            self.refresh_pool(&key);
            if started.elapsed() >= MAX_STEP_TIME {
                break;
            }
        }
        !self.pools_to_refresh.is_empty()
    }

    /// Computes the network of a pool again. Claims that wait for a change of the pool are reconciled if there is one.
    fn refresh_pool(&mut self, key: &PoolKey) {
        let Some(entry) = self.pools.get_mut(key) else { return };
        entry.needs_refresh = false;
        let Some(entry) = self.pools.get(key) else { return };
        let Some(declared) = &entry.declared else { return };
        let placed = self.networks.apply(key, declared, &self.past_of(key));
        let is_same = entry.info.as_ref() == Some(&placed.info)
            && entry.record == placed.record
            && entry.awaited == placed.awaited;
        if is_same {
            return;
        }
        let declared = declared.clone();
        self.set_pool(key, Some(declared));
        let waiting = self.pools.get_mut(key).map(|entry| entry.wait_queue.pool_changed());
        self.claims_to_wake.extend(waiting.unwrap_or_default());
    }

    /// A reservation in a network is evidence of the scope of its pool, if nothing else is known of it: the pool may be
    /// restored before its network.
    pub(super) fn reservation_inserted(&mut self, pool: &PoolKey, scope: &Scope) {
        let Scope::Network(_) = scope else { return };
        let is_unknown = self.pools.get(pool).is_some_and(|entry| {
            entry.info.is_some() && entry.record == Record::Unknown && entry.status_record.is_none()
        });
        // In the same step: a status that is computed in between would state that the pool leaves the network.
        if is_unknown {
            self.refresh_pool(pool);
        }
    }
}
