//! The claims that are being deleted, by pool. A change of `spec.reclaim` of their pool may permit
//! their release.

use std::collections::{BTreeSet, HashMap};

use capi_ipam_api::{NamedPool, Pool, PoolKey};
use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_provider::api::IPAddressClaim;
use parking_lot::Mutex;

/// The claims that are being deleted. It enqueues those of a pool whose specification changes.
pub(super) struct TerminatingClaims {
    pools: Mutex<HashMap<PoolKey, TerminatingOfPool>>,
    trigger: Trigger<IPAddressClaim>,
}

#[derive(Default)]
struct TerminatingOfPool {
    claims: BTreeSet<NamespacedName>,
    /// The last seen generation of the pool.
    generation: Option<i64>,
}

impl TerminatingClaims {
    pub(super) fn new(trigger: Trigger<IPAddressClaim>) -> Self {
        Self {
            pools: Mutex::default(),
            trigger,
        }
    }

    /// Adds a claim that is being deleted. It is removed when its watch reports that it no longer
    /// exists.
    pub(super) fn add(&self, pool: &PoolKey, claim: &NamespacedName) {
        let mut pools = self.pools.lock();
        let known = pools.entry(pool.clone()).or_default();
        if !known.claims.contains(claim) {
            known.claims.insert(claim.clone());
        }
    }

    fn observe(&self, pool: &PoolKey, generation: Option<i64>) {
        let mut pools = self.pools.lock();
        let Some(known) = pools.get_mut(pool) else {
            return;
        };
        if std::mem::replace(&mut known.generation, generation) != generation {
            known
                .claims
                .iter()
                .for_each(|claim| self.trigger.enqueue(claim.clone()));
        }
    }

    fn remove(&self, pool: &PoolKey, claim: &NamespacedName) {
        let mut pools = self.pools.lock();
        let Some(known) = pools.get_mut(pool) else {
            return;
        };
        known.claims.remove(claim);
        if known.claims.is_empty() {
            pools.remove(pool);
        }
    }
}

impl TerminatingClaims {
    /// Removes a claim of which the set of its pool is known only.
    fn remove_from_all(&self, claim: &NamespacedName) {
        self.pools
            .lock()
            .retain(|_, known| !known.claims.remove(claim) || !known.claims.is_empty());
    }
}

impl EventHandler<Pool> for TerminatingClaims {
    fn apply(&self, pool: &Pool) {
        self.observe(&PoolKey::of(pool), pool.metadata.generation);
    }

    fn delete(&self, pool: &Pool) {
        self.observe(&PoolKey::of(pool), None);
    }

    /// The last valid settings stay in force.
    fn apply_invalid(&self, _: &Invalid) {}

    /// The controller reports the last known state as deleted.
    fn delete_invalid(&self, _: &Invalid) {}
}

impl EventHandler<IPAddressClaim> for TerminatingClaims {
    fn apply(&self, _: &IPAddressClaim) {}

    fn delete(&self, claim: &IPAddressClaim) {
        let name = NamespacedName::of(&claim.metadata);
        match NamedPool::of_claim(claim) {
            Some(NamedPool::Pool(pool)) => self.remove(&pool, &name),
            Some(NamedPool::Set(_)) => self.remove_from_all(&name),
            None => {}
        }
    }

    fn apply_invalid(&self, _: &Invalid) {}

    /// The controller reports the last known state as deleted.
    fn delete_invalid(&self, _: &Invalid) {}
}
