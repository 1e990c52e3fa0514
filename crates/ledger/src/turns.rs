//! The turns of waiting claims, and the claims that are being reconciled.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::PoolKey;
use capi_ipam_contract::{IPAddressClaim, Uid};
use capi_ipam_ip::UsableBlocks;
use capi_ipam_objects::maybe_invalid::{Invalid, readable};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::events::Observe;
use super::{ClaimAttributes, Ledger, Nearby, PoolInfo, Priority};

/// The result of [`Ledger::pool_or_wait`].
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLookup {
    /// The pool exists.
    Found(Arc<PoolInfo>),
    /// The pool does not exist, and this is the first lookup for the claim: if both were created at
    /// the same time, the claim can be observed first.
    NotSeenYet,
    /// The pool did not exist at an earlier lookup either.
    Missing,
}

impl Ledger {
    /// Returns the pool of a claim if it can allocate. Otherwise the claim waits for a change of
    /// the pool: it is reconciled again when the pool changes, and is enqueued for an address.
    pub fn pool_or_wait(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
    ) -> PoolLookup {
        let entry = self.pools.entry(&pool);
        let info = entry.shared_info();
        if let Some(info) = info.as_ref().filter(|info| info.can_allocate()) {
            return PoolLookup::Found(Arc::clone(info));
        }
        // A claim in the queue has seen the pool.
        let was_known = entry.wait_queue.waits(claim);
        entry.wait_queue.wait_for_pool(claim, &attributes.into());
        match info {
            Some(info) => PoolLookup::Found(info),
            None if !was_known => PoolLookup::NotSeenYet,
            None => PoolLookup::Missing,
        }
    }

    /// The pool, if it still serves the claim. Otherwise the claim waits for a change of the pool.
    pub fn serving_or_wait(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
        serves: impl Fn(&PoolInfo) -> bool,
    ) -> Option<Arc<PoolInfo>> {
        let entry = self.pools.entry(&pool);
        let info = entry.shared_info().filter(|info| serves(info));
        if info.is_none() {
            entry.wait_queue.wait_for_pool(claim, &attributes.into());
        }
        info
    }

    /// Ends the turn of a claim whose reconcile has ended, if the turn was granted before the
    /// reconcile started at `started` and was not used: the next claim is granted one. If another
    /// manager has bound the claim meanwhile, it leaves the wait queue.
    pub fn end_unused_turn(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        uid: Uid,
        started: Instant,
    ) {
        let has_left = self.leave_when_served(pool, claim, uid);
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        if has_left || entry.wait_queue.end_turn(claim, started) {
            self.effects
                .claims
                .extend(entry.grant_turns(Instant::now()));
        }
    }

    /// Removes the claim from the wait queue of the pool.
    pub(super) fn stop_waiting(&mut self, pool: &PoolKey, claim: &NamespacedName) {
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        entry.wait_queue.forget(claim);
        self.effects
            .claims
            .extend(entry.grant_turns(Instant::now()));
        self.pools.remove_if_empty(pool);
    }

    /// Removes claims for which `exists` returns false from all wait queues, and grants the turns
    /// that have expired to the next claims.
    pub fn prune_wait_queues(&mut self, exists: impl Fn(&NamespacedName) -> bool) {
        let now = Instant::now();
        for (_, entry) in self.pools.iter_mut() {
            let waiting = entry.wait_queue.claims();
            let gone: Vec<NamespacedName> =
                waiting.filter(|claim| !exists(claim)).cloned().collect();
            for claim in &gone {
                entry.wait_queue.forget(claim);
            }
            self.effects.claims.extend(entry.grant_turns(now));
        }
    }

    /// As [`Pools::nearby_with`], for the status of a pool. Any change of one of these pools
    /// notifies the controller of the pool until [`Ledger::end_overlap_search`].
    pub fn begin_overlap_search(&mut self, pool: &PoolKey) -> Option<(Arc<UsableBlocks>, Nearby)> {
        self.pools.begin_overlap_search(pool)
    }

    /// Records which pools the status of a pool names, of those that overlap with it.
    pub fn end_overlap_search(&mut self, pool: &PoolKey, found: &[PoolKey]) {
        self.pools.end_overlap_search(pool, found);
    }

    /// Records that the controller of a pool reads its state now: the next change notifies it
    /// again.
    pub fn clear_notified(&mut self, pool: &PoolKey) {
        self.set_notified(pool, false);
    }

    /// Records that the controller of a pool will reconcile it again: changes do not notify it
    /// until then.
    pub fn mark_notified(&mut self, pool: &PoolKey) {
        self.set_notified(pool, true);
    }

    fn set_notified(&mut self, pool: &PoolKey, notified: bool) {
        if let Some(entry) = self.pools.get_mut(pool) {
            entry.set_notified(notified);
        }
    }

    /// Records that a reconcile of a claim without an address starts. Of the claims of a pool whose
    /// reconciles have started, the first one gets the next address, in whatever order they request
    /// one. A claim that holds an address needs no other one.
    pub fn start(&mut self, pool: &PoolKey, claim: &NamespacedName, uid: Uid, priority: Priority) {
        if self.addresses.slots_of(claim, uid).next().is_some() {
            return;
        }
        let entry = self.pools.entry(&pool);
        entry.wait_queue.start(claim, priority);
    }

    /// Records that the reconcile of a claim has ended.
    pub fn end(&mut self, pool: &PoolKey, claim: &NamespacedName) {
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        entry.wait_queue.end(claim);
        self.pools.remove_if_empty(pool);
    }

    /// Takes at most `most` claims that have to be rechecked, because their pool can no longer
    /// allocate. Returns also whether there are others.
    pub fn take_rechecks(&mut self, most: usize) -> (Vec<NamespacedName>, bool) {
        let count = most.min(self.claims_to_recheck.len());
        let claims = self.claims_to_recheck.drain(..count).collect();
        (claims, !self.claims_to_recheck.is_empty())
    }
}

/// Claims that no longer exist leave the wait queues: addresses would be held for them.
impl Observe<IPAddressClaim> for Ledger {
    fn apply(&mut self, _: &IPAddressClaim) {}

    fn delete(&mut self, claim: &IPAddressClaim) {
        if let Some(pool) = PoolKey::of_claim(claim) {
            self.stop_waiting(&pool, &NamespacedName::of(&claim.metadata));
        }
    }

    /// It exists, and waits as before.
    fn apply_invalid(&mut self, _: &Invalid) {}

    fn delete_invalid(&mut self, object: &Invalid) {
        self.delete(&IPAddressClaim {
            metadata: (*object.metadata).clone(),
            spec: readable(&object.spec),
            ..IPAddressClaim::default()
        });
    }
}
