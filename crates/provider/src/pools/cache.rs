//! The pools as last seen by their watch, the claims that wait for a change of their pool, and the
//! claims that wait for an address.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::{EventHandler, Invalid};
use kube::Resource;
use kube::api::ObjectMeta;
use parking_lot::Mutex;

use crate::api::IPAddressClaim;
use crate::waiting_claims::WaitingClaims;

/// The last seen pools, and the claims that wait.
pub(super) struct PoolCache<K> {
    state: Mutex<State<K>>,
    trigger: Trigger<IPAddressClaim>,
}

struct State<K> {
    pools: Observed<Arc<K>>,
    /// The claims that wait for a change of their pool.
    waiting: WaitingClaims,
    /// The claims that request an address, and those that got none because their pool is exhausted.
    /// A claim that is being deleted is not among them, however long its release takes.
    requesting: WaitingClaims,
}

fn pool_of(claim: &IPAddressClaim) -> NamespacedName {
    NamespacedName::new(
        claim.metadata.namespace.as_deref().unwrap_or_default(),
        &claim.spec.pool_ref.name,
    )
}

impl<K> PoolCache<K> {
    pub(super) fn new(trigger: Trigger<IPAddressClaim>) -> Self {
        let (pools, waiting, requesting) = <(Observed<_>, WaitingClaims, WaitingClaims)>::default();
        Self {
            state: Mutex::new(State {
                pools,
                waiting,
                requesting,
            }),
            trigger,
        }
    }

    /// Returns the pool of a claim. From now on the claim is enqueued when its pool changes, until
    /// [`Self::stop_waiting`] is called.
    pub(super) fn get_or_wait(&self, claim: &IPAddressClaim) -> Option<Arc<K>> {
        let pool = pool_of(claim);
        let mut state = self.state.lock();
        state.waiting.add(&claim.metadata, &pool);
        state.pools.get(pool.namespace(), pool.name()).cloned()
    }

    /// The claim has its address, or is released.
    pub(super) fn stop_waiting(&self, claim: &IPAddressClaim) {
        let name = NamespacedName::of(&claim.metadata);
        let mut state = self.state.lock();
        state.waiting.remove(&name);
        state.requesting.remove(&name);
    }

    /// The claim requests an address now. An address that is released from now on wakes the claim.
    pub(super) fn request<'a>(&'a self, claim: &'a IPAddressClaim) -> AddressRequest<'a, K> {
        self.state
            .lock()
            .requesting
            .add(&claim.metadata, &pool_of(claim));
        AddressRequest {
            cache: self,
            claim,
            is_exhausted: false,
        }
    }

    /// Enqueues the oldest claim that waits for an address of the pool of `released`, which has
    /// released its address.
    pub(super) fn wake_oldest(&self, released: &IPAddressClaim) {
        let oldest = self.state.lock().requesting.take_oldest(&pool_of(released));
        if let Some(claim) = oldest {
            self.trigger.enqueue(claim);
        }
    }

    fn remove(&self, pool: &ObjectMeta) {
        let key = NamespacedName::of(pool);
        self.state.lock().pools.delete(
            key.namespace(),
            key.name(),
            pool.uid.as_deref(),
            Instant::now(),
        );
        self.wake_all(&key);
    }

    fn wake_all(&self, pool: &NamespacedName) {
        let waiting = self.state.lock().waiting.take(pool);
        for claim in waiting {
            self.trigger.enqueue(claim);
        }
    }
}

/// A claim that requests an address. Dropped at the end of the request, also by a panic or a
/// timeout.
pub(super) struct AddressRequest<'a, K> {
    cache: &'a PoolCache<K>,
    claim: &'a IPAddressClaim,
    /// The pool has no free address: the claim waits for one.
    pub(super) is_exhausted: bool,
}

impl<K> Drop for AddressRequest<'_, K> {
    fn drop(&mut self) {
        // A claim that was woken, and does not need or cannot use the released address, wakes the
        // next one.
        if !self.is_exhausted
            && !self
                .cache
                .state
                .lock()
                .requesting
                .remove(&NamespacedName::of(&self.claim.metadata))
        {
            self.cache.wake_oldest(self.claim);
        }
    }
}

/// Whether more than the status of a pool may differ.
fn is_changed(before: &ObjectMeta, after: &ObjectMeta) -> bool {
    let properties = |meta: &ObjectMeta| {
        (
            meta.uid.clone(),
            meta.generation,
            meta.deletion_timestamp.is_some(),
        )
    };
    properties(before) != properties(after)
        || before.annotations != after.annotations
        || before.labels != after.labels
}

impl<K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static> EventHandler<K>
    for PoolCache<K>
{
    fn init(&self) {
        self.state.lock().pools.begin_list();
    }

    fn init_done(&self) {
        let removed = self.state.lock().pools.end_list(Instant::now());
        for (pool, _) in removed {
            self.wake_all(&pool);
        }
    }

    fn apply(&self, pool: &K) {
        let key = NamespacedName::of(pool.meta());
        let value = Arc::new(pool.clone());
        let change = self
            .state
            .lock()
            .pools
            .see(Origin::Watch, pool.meta(), value, Instant::now());
        let Some(change) = change else { return };
        if change
            .before
            .is_none_or(|before| is_changed(before.meta(), pool.meta()))
        {
            self.wake_all(&key);
        }
    }

    fn delete(&self, pool: &K) {
        self.remove(pool.meta());
    }

    fn restored(&self) {
        self.state.lock().pools.restored();
    }

    fn apply_invalid(&self, pool: &Invalid) {
        self.state
            .lock()
            .pools
            .see_undecodable(Origin::Watch, &pool.metadata, Instant::now());
    }

    fn delete_invalid(&self, pool: &Invalid) {
        self.remove(&pool.metadata);
    }
}

/// Removes deleted claims from a cache. A separate type, since the compiler does not know that the
/// pools of a provider are no claims: the two implementations for the cache would conflict.
pub(super) struct DeletedClaims<K>(pub(super) Arc<PoolCache<K>>);

impl<K: Send + Sync + 'static> EventHandler<IPAddressClaim> for DeletedClaims<K> {
    fn apply(&self, _: &IPAddressClaim) {}

    fn delete(&self, claim: &IPAddressClaim) {
        self.0.stop_waiting(claim);
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::controller::ControllerBuilder;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn claim(name: &str, second: u8) -> IPAddressClaim {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "creationTimestamp": format!("2026-01-01T12:00:{second:02}Z")},
            "spec": {"poolRef": {"kind": "ConfigMap", "name": "p"}}}))
        .unwrap()
    }

    fn pool(generation: i64) -> ConfigMap {
        let metadata = json!({"namespace": "n", "name": "p", "generation": generation, "resourceVersion": "7"});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn waiting(cache: &PoolCache<ConfigMap>) -> Vec<String> {
        let claims = cache
            .state
            .lock()
            .waiting
            .take(&NamespacedName::new("n", "p"));
        claims.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn claims_wait_until_their_pool_changes() {
        let cache = PoolCache::new(ControllerBuilder::<_, ()>::new("claims").trigger());
        assert!(cache.get_or_wait(&claim("a", 1)).is_none());
        cache.apply(&pool(1));
        assert_eq!(waiting(&cache), Vec::<String>::new());
        assert_eq!(
            cache
                .get_or_wait(&claim("a", 1))
                .unwrap()
                .metadata
                .generation,
            Some(1)
        );
        // Its status changed.
        cache.apply(&ConfigMap {
            data: Some([("a".to_owned(), "b".to_owned())].into()),
            ..pool(1)
        });
        assert_eq!(waiting(&cache), ["n/a"]);
        for change in [pool(2), pool(3)] {
            cache.get_or_wait(&claim("a", 1));
            cache.apply(&change);
            assert_eq!(waiting(&cache), Vec::<String>::new());
        }
        cache.get_or_wait(&claim("a", 1));
        cache.delete(&pool(3));
        assert_eq!(waiting(&cache), Vec::<String>::new());
        assert!(cache.get_or_wait(&claim("a", 1)).is_none());
    }

    fn requesting(cache: &PoolCache<ConfigMap>) -> Vec<String> {
        let claims = cache
            .state
            .lock()
            .requesting
            .take(&NamespacedName::new("n", "p"));
        claims.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn release_wakes_the_oldest_claim_without_an_address() {
        let cache =
            PoolCache::<ConfigMap>::new(ControllerBuilder::<_, ()>::new("claims").trigger());
        let exhausted = |name, second| cache.request(&claim(name, second)).is_exhausted = true;
        // A claim that is being deleted.
        cache.get_or_wait(&claim("d", 1));
        exhausted("c", 4);
        exhausted("a", 3);
        exhausted("b", 2);
        cache.wake_oldest(&claim("x", 0));
        cache.stop_waiting(&claim("c", 4));
        assert_eq!(requesting(&cache), ["n/a"]);
    }

    #[test]
    fn unused_address_wakes_the_next_claim() {
        let cache =
            PoolCache::<ConfigMap>::new(ControllerBuilder::<_, ()>::new("claims").trigger());
        let (a, b, c) = (claim("a", 1), claim("b", 2), claim("c", 3));
        for waiting in [&b, &c] {
            cache.request(waiting).is_exhausted = true;
        }
        drop(cache.request(&a));
        assert_eq!(
            cache.state.lock().requesting.take_oldest(&pool_of(&b)),
            Some(NamespacedName::new("n", "b"))
        );
        let request = cache.request(&a);
        cache.wake_oldest(&b);
        drop(request);
        assert_eq!(
            requesting(&cache),
            Vec::<String>::new(),
            "a was woken, and then c"
        );
    }
}
