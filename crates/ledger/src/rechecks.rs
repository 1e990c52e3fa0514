//! Claims that are being reconciled, and claims that have to be reconciled since their pool can no
//! longer allocate.

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::api::Uid;

use super::{Ledger, PoolKey, Priority};

impl Ledger {
    /// Waits until claims have to be rechecked, because their pool can no longer allocate. Returns
    /// immediately if this happened since the last call.
    pub async fn rechecks_added(&self) {
        self.rechecks_added.notified().await;
    }

    /// Enqueues at most `most` claims that have to be rechecked, at low priority. Returns whether
    /// there are others.
    pub fn recheck(&self, most: usize) -> bool {
        let (claims, has_others) = {
            let mut state = self.state.lock();
            let count = most.min(state.claims_to_recheck.len());
            let claims: Vec<NamespacedName> = state.claims_to_recheck.drain(..count).collect();
            (claims, !state.claims_to_recheck.is_empty())
        };
        claims.iter().for_each(|claim| (self.rechecks)(claim));
        has_others
    }

    /// Records that a reconcile of a claim without an address starts. Of the claims of a pool whose
    /// reconciles have started, the first one gets the next address, in whatever order they request
    /// one. A claim that holds an address needs no other one.
    pub fn start(&self, pool: &PoolKey, claim: &NamespacedName, uid: Uid, priority: Priority) {
        let mut state = self.state.lock();
        if state.holdings.of(claim, uid).next().is_some() {
            return;
        }
        state
            .pools
            .entry(pool.clone())
            .or_default()
            .wait_queue
            .start(claim, priority);
    }

    /// Records that the reconcile of a claim has ended.
    pub fn end(&self, pool: &PoolKey, claim: &NamespacedName) {
        let mut state = self.state.lock();
        let Some(entry) = state.pools.get_mut(pool) else {
            return;
        };
        entry.wait_queue.end(claim);
        if entry.is_empty() {
            state.pools.remove(pool);
        }
    }
}
