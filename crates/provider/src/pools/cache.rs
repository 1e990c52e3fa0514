//! The pools as last seen by their watch, the claims that wait for a change of their pool, and the
//! claims that wait for an address.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::{Keyed, ObservedCache};
use kube::Resource;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::EnqueuePool;
use crate::api::IPAddressClaim;
use crate::waiting_claims::WaitingClaims;

/// The last seen pools, and the claims that wait.
pub(super) struct PoolCache<K> {
    state: Mutex<State<K>>,
    trigger: Trigger<IPAddressClaim>,
    /// Called with each pool that has become exhausted, or no longer is, and with one that is being
    /// deleted when its last reconcile of a claim has ended.
    on_change: EnqueuePool,
}

struct State<K> {
    pools: Observed<Arc<K>>,
    /// The claims that wait for a change of their pool.
    waiting: WaitingClaims,
    /// The claims that request an address, and those that got none because their pool is exhausted.
    /// A claim that is being deleted is not among them, however long its release takes.
    requesting: WaitingClaims,
    /// The pools without an address for a claim, as the provider last reported.
    exhausted: HashSet<NamespacedName>,
    /// The number of reconciles of claims, for each pool, that may allocate an address of it.
    in_flight: HashMap<NamespacedName, usize>,
}

fn pool_of(claim: &IPAddressClaim) -> NamespacedName {
    NamespacedName::new(
        claim.metadata.namespace.as_deref().unwrap_or_default(),
        &claim.spec.pool_ref.name,
    )
}

impl<K> PoolCache<K> {
    pub(super) fn new(trigger: Trigger<IPAddressClaim>, on_change: EnqueuePool) -> Self {
        Self {
            state: Mutex::new(State {
                pools: Observed::default(),
                waiting: WaitingClaims::default(),
                requesting: WaitingClaims::default(),
                exhausted: HashSet::new(),
                in_flight: HashMap::new(),
            }),
            trigger,
            on_change,
        }
    }

    /// Whether the provider has no address of the pool for a waiting claim.
    pub(super) fn is_exhausted(&self, pool: &NamespacedName) -> bool {
        self.state.lock().exhausted.contains(pool)
    }

    /// Whether a claim may be getting an address of the pool at this moment. A reconcile that
    /// begins later sees the pool in its present state.
    pub(super) fn is_in_flight(&self, pool: &NamespacedName) -> bool {
        self.state.lock().in_flight.contains_key(pool)
    }

    /// Records whether the pool is exhausted.
    fn set_exhausted(&self, pool: &NamespacedName, is_exhausted: bool) {
        let is_changed = {
            let mut state = self.state.lock();
            if is_exhausted {
                state.exhausted.insert(pool.clone())
            } else {
                state.exhausted.remove(pool)
            }
        };
        if is_changed {
            (self.on_change)(pool.clone());
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
        let name = claim.key();
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
            has_address: false,
        }
    }

    /// Enqueues the oldest claim that waits for an address of the pool of `released`, which has
    /// released its address.
    pub(super) fn wake_oldest(&self, released: &IPAddressClaim) {
        let pool = pool_of(released);
        let oldest = self.state.lock().requesting.take_oldest(&pool);
        self.set_exhausted(&pool, false);
        if let Some(claim) = oldest {
            self.trigger.enqueue(claim);
        }
    }

    fn wake_all(&self, pool: &NamespacedName) {
        let waiting = self.state.lock().waiting.take(pool);
        self.set_exhausted(pool, false);
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
    /// The claim has got an address.
    pub(super) has_address: bool,
}

impl<K> Drop for AddressRequest<'_, K> {
    fn drop(&mut self) {
        let pool = pool_of(self.claim);
        if self.is_exhausted {
            self.cache.set_exhausted(&pool, true);
            return;
        }
        let (was_woken, is_awaited) = {
            let requesting = &mut self.cache.state.lock().requesting;
            let was_woken = !requesting.remove(&self.claim.key());
            (was_woken, requesting.is_awaited(&pool))
        };
        if was_woken {
            // It does not need or cannot use the released address: the next claim gets it.
            self.cache.wake_oldest(self.claim);
        } else if self.has_address && !is_awaited {
            self.cache.set_exhausted(&pool, false);
        }
    }
}

/// A reconcile of a claim that may allocate an address of a pool. Dropped at its end.
pub(super) struct InFlight<K: Resource> {
    cache: Arc<PoolCache<K>>,
    pool: NamespacedName,
}

impl<K: Resource> InFlight<K> {
    /// Begins before the pool of the claim is looked up.
    pub(super) fn begin(cache: &Arc<PoolCache<K>>, claim: &IPAddressClaim) -> Self {
        let (cache, pool) = (Arc::clone(cache), pool_of(claim));
        let mut state = cache.state.lock();
        let count = state.in_flight.entry(pool.clone()).or_default();
        *count = count.saturating_add(1);
        drop(state);
        Self { cache, pool }
    }
}

impl<K: Resource> Drop for InFlight<K> {
    fn drop(&mut self) {
        let is_awaited = {
            let mut state = self.cache.state.lock();
            if let Some(count) = state.in_flight.get_mut(&self.pool) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    state.in_flight.remove(&self.pool);
                }
            }
            let pool = state.pools.get(self.pool.namespace(), self.pool.name());
            pool.is_some_and(|pool| pool.meta().deletion_timestamp.is_some())
                && !state.in_flight.contains_key(&self.pool)
        };
        if is_awaited {
            (self.cache.on_change)(self.pool.clone());
        }
    }
}

impl<K: Resource + Keyed> PoolCache<K> {
    /// Records a state of a pool, and wakes the claims that wait for a change of it.
    pub(super) fn record(&self, origin: Origin, pool: &K) {
        let value = Arc::new(pool.clone());
        let change = self
            .observed()
            .see(origin, pool.meta(), value, Instant::now());
        let Some(change) = change else { return };
        // Its status wakes no claim.
        let before = change.before;
        if before.is_none_or(|before| pool.has_changed_since(&before)) {
            self.wake_all(&pool.key());
        }
    }
}

impl<K: Resource + Keyed> ObservedCache for PoolCache<K> {
    type Object = K;
    type Value = Arc<K>;

    fn observed(&self) -> MappedMutexGuard<'_, Observed<Arc<K>>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.pools)
    }

    fn see(&self, pool: &K) {
        self.record(Origin::Watch, pool);
    }

    fn removed(&self, pool: &NamespacedName, _: Option<Arc<K>>) {
        self.wake_all(pool);
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::controller::ControllerBuilder;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use capi_ipam_controller::watch::EventHandler;

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

    fn new_cache() -> PoolCache<ConfigMap> {
        let trigger = ControllerBuilder::<_, ()>::new("claims").trigger();
        PoolCache::new(trigger, Box::new(|_| {}))
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
        let cache = new_cache();
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
        let cache = new_cache();
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
    fn pool_is_exhausted_until_an_address_is_released() {
        let changed = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&changed);
        let trigger = ControllerBuilder::<_, ()>::new("claims").trigger();
        let cache: PoolCache<ConfigMap> =
            PoolCache::new(trigger, Box::new(move |_| *seen.lock() += 1));
        let pool = NamespacedName::new("n", "p");
        for name in ["a", "b"] {
            cache.request(&claim(name, 1)).is_exhausted = true;
        }
        assert!(cache.is_exhausted(&pool));
        assert_eq!(*changed.lock(), 1);
        cache.wake_oldest(&claim("x", 0));
        assert!(!cache.is_exhausted(&pool));
        cache.request(&claim("b", 1)).is_exhausted = true;
        cache.apply(&self::pool(2));
        assert!(!cache.is_exhausted(&pool));
        assert_eq!(*changed.lock(), 4);
    }

    #[test]
    fn pool_is_not_exhausted_after_the_last_claim_has_an_address() {
        let (cache, pool) = (new_cache(), NamespacedName::new("n", "p"));
        for name in ["a", "b"] {
            cache.request(&claim(name, 1)).is_exhausted = true;
        }
        cache.request(&claim("a", 1)).has_address = true;
        assert!(cache.is_exhausted(&pool), "b waits");
        drop(cache.request(&claim("b", 1)));
        assert!(cache.is_exhausted(&pool), "the request failed");
        cache.request(&claim("b", 1)).has_address = true;
        assert!(!cache.is_exhausted(&pool));
    }

    #[test]
    fn reconcile_in_flight_is_counted_until_it_ends() {
        let (cache, pool) = (Arc::new(new_cache()), NamespacedName::new("n", "p"));
        let first = InFlight::begin(&cache, &claim("a", 1));
        let second = InFlight::begin(&cache, &claim("b", 1));
        drop(first);
        assert!(cache.is_in_flight(&pool));
        drop(second);
        assert!(!cache.is_in_flight(&pool));
    }

    #[test]
    fn unused_address_wakes_the_next_claim() {
        let cache = new_cache();
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
