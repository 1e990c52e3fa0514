//! The ledger: an in-memory index of the addresses in use, the free addresses and the waiting
//! claims.
//!
//! It is updated by watches and by the responses to our own writes, and never stored. It can lag
//! behind the API server: then it proposes an address that is in use, and the API server rejects
//! the reservation.
//!
//! Addresses are indexed by scope, which is a pool, or the network of several pools. An address in
//! use in a scope is in use for all pools of the scope. Single addresses and prefixes are handled
//! alike, as blocks of some length.

mod access;
mod draining;
mod events;
mod exclusions;
mod known_reservation;
mod membership;
mod networks;
mod object_uid;
mod order;
mod overlaps;
mod policy;
mod pool;
mod pool_changes;
mod pool_info;
mod pool_slices;
mod problems;
mod proposals;
mod queries;
mod quota;
mod rechecks;
mod recount;
mod refresh;
mod reservation_changes;
mod scope_preview;
mod scope_rule;
mod shared_names;
mod slice_changes;
mod slices;
mod state;
mod usage;
mod wait_queue;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{ObjectVersion, Origin};
use capi_ipam_controller::watch::Invalid;
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use self::access::LimitCheck;
pub use self::draining::DrainingUse;
pub use self::events::{PoolEventHandler, allocated_block};
pub use self::known_reservation::KnownReservation;
pub use self::membership::{Misplaced, NetworkCounts};
use self::networks::NetworkInfo;
pub use self::overlaps::MAX_OVERLAPS;
pub use self::policy::Unavailable;
use self::pool::PoolEntry;
pub use self::pool_info::PoolInfo;
pub use self::problems::{AbandonedReservation, Conflict, InvalidReservation, Unreserved};
pub use self::proposals::Proposal;
pub use self::queries::{Held, PoolCounts};
pub use self::quota::LimitReached;
use self::refresh::PoolInput;
pub use self::slice_changes::{SliceStep, SliceView};
pub use self::slices::SliceRefusal;
use self::state::State;
pub use self::wait_queue::{ClaimAttributes, Priority, priority};
use capi_ipam_api::{IPNetwork, IPReservation, InClusterKind, Pool, PoolKey, Slot};
use capi_ipam_controller::controller::Trigger;
use capi_ipam_provider::api::{IPAddressClaim, Uid};

/// The in-memory index of pools, addresses and waiting claims. Its methods hold a lock for a short
/// time and never wait for anything else.
pub struct Ledger {
    state: Mutex<State>,
    claims: Box<dyn Fn(&NamespacedName) + Send + Sync>,
    rechecks: Box<dyn Fn(&NamespacedName) + Send + Sync>,
    pools: Box<dyn Fn(&PoolKey) + Send + Sync>,
    networks: Box<dyn Fn(&str) + Send + Sync>,
    cooldowns: Notify,
    scopes: Notify,
    /// Notified when claims have to be rechecked.
    rechecks_added: Notify,
    /// Notified when the watch has reported a reservation.
    reservations_observed: Notify,
    catching_up: AtomicBool,
}

/// The permission to list all reservations, for a ledger that lags far behind. There is only one at
/// a time.
#[derive(Debug)]
pub struct CatchUp<'a>(&'a AtomicBool);

impl Drop for CatchUp<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The result of [`Ledger::pool_or_wait`].
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLookup {
    /// The pool exists.
    Found(Box<PoolInfo>),
    /// The pool does not exist, and this is the first lookup for the claim: if both were created at
    /// the same time, the claim can be observed first.
    NotSeenYet,
    /// The pool did not exist at an earlier lookup either.
    Missing,
}

impl Ledger {
    /// Creates an empty ledger. It enqueues claims that were granted a turn with `claims`, and
    /// calls `pools` with pools whose counts or conditions may have changed, and `networks` with
    /// networks for which this is the case.
    pub fn new(
        claims: Trigger<IPAddressClaim>,
        pools: impl Fn(&PoolKey) + Send + Sync + 'static,
        networks: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let recheck = claims.clone();
        let enqueue = move |claim: &NamespacedName| claims.enqueue(claim.clone());
        let recheck = move |claim: &NamespacedName| recheck.recheck(claim.clone());
        Self {
            state: Mutex::default(),
            claims: Box::new(enqueue),
            rechecks: Box::new(recheck),
            pools: Box::new(pools),
            networks: Box::new(networks),
            cooldowns: Notify::new(),
            scopes: Notify::new(),
            rechecks_added: Notify::new(),
            reservations_observed: Notify::new(),
            catching_up: AtomicBool::new(false),
        }
    }

    /// Creates an empty ledger that only answers queries and triggers nothing.
    pub fn read_only() -> Self {
        Self {
            state: Mutex::default(),
            claims: Box::new(|_| {}),
            rechecks: Box::new(|_| {}),
            pools: Box::new(|_| {}),
            networks: Box::new(|_| {}),
            cooldowns: Notify::new(),
            scopes: Notify::new(),
            rechecks_added: Notify::new(),
            reservations_observed: Notify::new(),
            catching_up: AtomicBool::new(false),
        }
    }

    fn wake<'a>(&self, claims: impl IntoIterator<Item = &'a NamespacedName>) {
        claims.into_iter().for_each(|claim| (self.claims)(claim));
    }

    /// Changes the state, and computes the networks of the pools that this affects.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, mut has_more) = self.change_once(change);
        while has_more {
            ((), has_more) = self.change_once(State::refresh_queued);
        }
        result
    }

    /// Changes the state, then grants turns in all affected pools, and enqueues the claims that got
    /// one. The pools are enqueued as well, unless their controller is already notified. Returns
    /// whether networks of pools have to be computed again.
    fn change_once<R>(&self, change: impl FnOnce(&mut State) -> R) -> (R, bool) {
        let (result, claims, pools, networks, changed, has_more) = {
            let mut state = self.state.lock();
            let result = change(&mut state);
            let changed = (
                std::mem::take(&mut state.cooldowns_changed),
                std::mem::take(&mut state.scopes_changed),
            );
            if !state.claims_to_recheck.is_empty() {
                self.rechecks_added.notify_one();
            }
            let mut networks = std::mem::take(&mut state.dirty_networks);
            networks.sort_unstable();
            networks.dedup();
            let mut pools = std::mem::take(&mut state.dirty_pools);
            pools.sort_unstable();
            pools.dedup();
            let mut claims = std::mem::take(&mut state.claims_to_wake);
            let now = Instant::now();
            pools.retain(|pool| {
                let Some(entry) = state.pools.get_mut(pool) else {
                    return true;
                };
                claims.extend(entry.grant_turns(now));
                let is_new = !std::mem::replace(&mut entry.notified, true);
                if entry.is_empty() {
                    state.pools.remove(pool);
                }
                is_new
            });
            (
                result,
                claims,
                pools,
                networks,
                changed,
                state.has_queued_refreshes(),
            )
        };
        let (cooldowns_changed, scopes_changed) = changed;
        if cooldowns_changed {
            self.cooldowns.notify_one();
        }
        if scopes_changed {
            self.scopes.notify_one();
        }
        self.wake(&claims);
        pools.iter().for_each(|pool| (self.pools)(pool));
        networks.iter().for_each(|network| (self.networks)(network));
        (result, has_more)
    }

    /// Permits a list of all reservations, until the returned value is dropped; `None` while
    /// another list is permitted.
    pub fn begin_catch_up(&self) -> Option<CatchUp<'_>> {
        let was_idle = !self.catching_up.swap(true, Ordering::AcqRel);
        was_idle.then_some(CatchUp(&self.catching_up))
    }

    /// Waits until a cool-down has started or ended, or its end may have changed. Returns
    /// immediately if this happened since the last call.
    pub async fn cooldowns_changed(&self) {
        self.cooldowns.notified().await;
    }

    /// Waits until reservations may have to be moved to another scope. Returns immediately if this
    /// happened since the last call.
    pub async fn scopes_changed(&self) {
        self.scopes.notified().await;
    }

    /// Returns the pool of a claim if it can allocate. Otherwise the claim waits for a change of
    /// the pool: it is reconciled again when the pool changes, and is enqueued for an address.
    pub fn pool_or_wait(
        &self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
    ) -> PoolLookup {
        let mut state = self.state.lock();
        let entry = state.pools.entry(pool.clone()).or_default();
        let info = entry.info.clone();
        if let Some(info) = info.as_ref().filter(|info| info.can_allocate()) {
            return PoolLookup::Found(Box::new(info.clone()));
        }
        // A claim in the queue has seen the pool.
        let was_known = entry.wait_queue.waits(claim);
        entry.wait_queue.wait_for_pool(claim, &attributes.into());
        match info {
            Some(info) => PoolLookup::Found(Box::new(info)),
            None if !was_known => PoolLookup::NotSeenYet,
            None => PoolLookup::Missing,
        }
    }

    /// The pool, if it still serves the claim. Otherwise the claim waits for a change of the pool.
    pub fn serving_or_wait(
        &self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
        serves: impl Fn(&PoolInfo) -> bool,
    ) -> Option<PoolInfo> {
        let mut state = self.state.lock();
        let entry = state.pools.entry(pool.clone()).or_default();
        let info = entry.info.clone().filter(serves);
        if info.is_none() {
            entry.wait_queue.wait_for_pool(claim, &attributes.into());
        }
        info
    }

    /// Ends the turn of a claim whose reconcile has ended, if the turn was granted before the
    /// reconcile started at `started` and was not used: the next claim is granted one. If another
    /// manager has bound the claim meanwhile, it leaves the wait queue.
    pub fn end_unused_turn(
        &self,
        pool: &PoolKey,
        claim: &NamespacedName,
        uid: Uid,
        started: Instant,
    ) {
        let granted = {
            let mut state = self.state.lock();
            let has_left = state.leave_when_served(pool, claim, uid);
            let Some(entry) = state.pools.get_mut(pool) else {
                return;
            };
            if !has_left && !entry.wait_queue.end_turn(claim, started) {
                return;
            }
            entry.grant_turns(Instant::now())
        };
        self.wake(&granted);
    }

    /// Removes the claim from the wait queue of the pool.
    fn stop_waiting(&self, pool: &PoolKey, claim: &NamespacedName) {
        let granted = {
            let mut state = self.state.lock();
            let Some(entry) = state.pools.get_mut(pool) else {
                return;
            };
            entry.wait_queue.forget(claim);
            let granted = entry.grant_turns(Instant::now());
            if entry.is_empty() {
                state.pools.remove(pool);
            }
            granted
        };
        self.wake(&granted);
    }

    /// Removes claims for which `exists` returns false from all wait queues, and grants the turns
    /// that have expired to the next claims.
    pub fn prune_wait_queues(&self, exists: impl Fn(&NamespacedName) -> bool) {
        let granted: Vec<NamespacedName> = {
            let mut state = self.state.lock();
            let entries = state.pools.values_mut();
            let now = Instant::now();
            entries
                .flat_map(|entry| {
                    let gone: Vec<NamespacedName> = entry
                        .wait_queue
                        .claims()
                        .filter(|claim| !exists(claim))
                        .cloned()
                        .collect();
                    gone.iter().for_each(|claim| entry.wait_queue.forget(claim));
                    entry.grant_turns(now)
                })
                .collect()
        };
        self.wake(&granted);
    }

    /// Records that the controller of a pool reads its state now: the next change enqueues the pool
    /// again.
    pub fn clear_notified(&self, pool: &PoolKey) {
        self.set_notified(pool, false);
    }

    /// Records that the controller of a pool will reconcile it again: changes do not enqueue the
    /// pool until then.
    pub fn mark_notified(&self, pool: &PoolKey) {
        self.set_notified(pool, true);
    }

    fn set_notified(&self, pool: &PoolKey, notified: bool) {
        if let Some(entry) = self.state.lock().pools.get_mut(pool) {
            entry.notified = notified;
        }
    }

    /// Records a reservation that a response has shown. Ignored if the ledger has newer
    /// information: the reservation was deleted, or a newer version of it was observed.
    pub fn insert_reservation(&self, reservation: &IPReservation) {
        self.insert(reservation, Origin::Response);
    }

    /// Records a reservation that the watch has reported.
    fn observe_reservation(&self, reservation: &IPReservation) {
        self.insert(reservation, Origin::Watch);
    }

    fn insert(&self, reservation: &IPReservation, origin: Origin) {
        let claim = self.change(|state| state.insert(reservation, origin));
        self.wake(&claim);
    }

    /// Removes a reservation, unless another one of its name was created since. Claims that have an
    /// IPAddress with its address are reconciled again: they may be waiting for the deletion of the
    /// reservation.
    pub fn remove_reservation(&self, reservation: &IPReservation) {
        if let Some(slot) = self.change(|state| state.remove(reservation)) {
            self.wake(&self.owners(&slot));
        }
    }

    /// Removes the reservation of an address if it has that uid.
    pub fn remove_reservation_of(&self, slot: &Slot, uid: &str) {
        self.change(|state| state.remove_at(slot, Some(Uid::of(uid))));
        self.wake(&self.owners(slot));
    }

    /// Records a pool that a watch has shown.
    pub fn apply_pool(&self, pool: &Pool) {
        self.record_pool(pool, Origin::Watch);
    }

    /// Records a pool that a response has shown. Ignored if the ledger has newer information: the
    /// pool was deleted, or a newer version of it or another pool of its name was observed.
    pub fn insert_pool(&self, pool: &Pool) {
        self.record_pool(pool, Origin::Response);
    }

    fn record_pool(&self, pool: &Pool, origin: Origin) {
        let key = PoolKey::of(pool);
        let known = self
            .state
            .lock()
            .pools
            .get(&key)
            .and_then(|entry| entry.declared.clone());
        let info = PoolInfo::updated(known.as_ref(), pool);
        let waiting = self.change(|state| {
            let key = state.shared_key(key);
            let known = state.pools.get(&key).and_then(PoolEntry::known);
            let versions = state.pool_versions.entry(pool.kind).or_default();
            let seen = ObjectVersion::of(&pool.metadata);
            let Some(stamp) = versions.see(origin, known, seen, Instant::now()) else {
                return Vec::new();
            };
            let entry = state.pools.entry(key.clone()).or_default();
            entry.stamp = stamp;
            let (has_status, status) = membership::status_record(pool);
            let has_same_status = entry.set_status_record(&info.uid, has_status, status);
            if entry.declared.as_ref() == Some(&info) {
                if !has_same_status {
                    state.queue_refresh(&key);
                }
                return Vec::new();
            }
            state.set_pool(&key, Some(info));
            state
                .pools
                .get_mut(&key)
                .map(|entry| entry.wait_queue.pool_changed())
                .unwrap_or_default()
        });
        self.wake(&waiting);
    }

    /// Records a pool that exists in a state which cannot be decoded.
    fn apply_invalid_pool(&self, key: &PoolKey, object: &Invalid) {
        let waiting = self.change(|state| state.set_undecodable_pool(key, object));
        self.wake(&waiting);
    }

    /// Removes a pool whose last state cannot be decoded, unless another one of its name was
    /// created since.
    fn delete_invalid_pool(&self, key: &PoolKey, object: &Invalid) {
        let uid = ObjectVersion::of(&object.metadata).uid;
        let waiting = self.change(|state| state.remove_pool(key, Some(uid)));
        self.wake(&waiting);
    }

    /// Removes a pool. Its addresses in use are kept.
    pub fn remove_pool(&self, key: &PoolKey) {
        let waiting = self.change(|state| state.remove_pool(key, None));
        self.wake(&waiting);
    }

    /// Removes a pool, unless another one of its name was created since.
    fn delete_pool(&self, pool: &Pool) {
        let uid = ObjectVersion::of(&pool.metadata).uid;
        let waiting = self.change(|state| state.remove_pool(&PoolKey::of(pool), Some(uid)));
        self.wake(&waiting);
    }

    /// Records a network that a watch has shown.
    pub fn apply_network(&self, network: &IPNetwork) {
        self.record_network(network, Origin::Watch);
    }

    /// Records a network that a response has shown. Ignored if the ledger has newer information, as
    /// for pools.
    pub fn insert_network(&self, network: &IPNetwork) {
        self.record_network(network, Origin::Response);
    }

    /// Records a network that exists and cannot be decoded: its pools stay in it, and do not
    /// allocate.
    fn apply_invalid_network(&self, metadata: &ObjectMeta) {
        let name = metadata.name.as_deref().unwrap_or_default();
        let (info, seen) = (
            NetworkInfo::undecodable(metadata),
            ObjectVersion::of(metadata),
        );
        self.record_network_info(&name.into(), info, seen, Origin::Watch);
    }

    fn record_network(&self, network: &IPNetwork, origin: Origin) {
        let name = network.metadata.name.as_deref().unwrap_or_default();
        let (info, seen) = (
            NetworkInfo::of(network),
            ObjectVersion::of(&network.metadata),
        );
        self.record_network_info(&name.into(), info, seen, origin);
    }

    fn record_network_info(
        &self,
        name: &Arc<str>,
        info: NetworkInfo,
        seen: ObjectVersion,
        origin: Origin,
    ) {
        self.change(|state| {
            let change = state.networks.see(name, info, seen, origin);
            state.refresh_pools(&change);
        });
    }

    /// Removes a network. Its reservations are kept.
    pub fn remove_network(&self, name: &str) {
        self.change(|state| state.remove_network(name, None));
    }

    /// Removes a network, unless another one of its name was created since.
    fn delete_network(&self, metadata: &ObjectMeta) {
        let (name, uid) = (
            metadata.name.as_deref().unwrap_or_default(),
            ObjectVersion::of(metadata).uid,
        );
        self.change(|state| state.remove_network(name, Some(uid)));
    }

    fn apply_namespace(&self, name: &str, labels: &BTreeMap<String, String>) {
        self.change(|state| {
            let change = state.networks.set_namespace(name, labels);
            state.refresh_pools(&change);
            state.wake_refused(name);
        });
    }

    fn remove_namespace(&self, name: &str) {
        self.change(|state| {
            let change = state.networks.remove_namespace(name);
            state.refresh_pools(&change);
        });
    }

    /// Begins a list of the pools of a kind: [`Ledger::apply_pool`] is called for each of them.
    pub fn begin_pool_list(&self, kind: InClusterKind) {
        let mut state = self.state.lock();
        state.pool_versions.entry(kind).or_default().begin_list();
        state.start.begin_list(PoolInput::Pools(kind));
    }

    /// Removes the pools of a kind that the list, which is complete now, has not shown. The last
    /// one of the initial lists computes all pools: before, nothing is proposed.
    pub fn end_pool_list(&self, kind: InClusterKind) {
        let missing: Vec<PoolKey> = {
            let mut state = self.state.lock();
            let unlisted = state.pool_versions.entry(kind).or_default().end_list();
            let concerned = state
                .pools
                .iter()
                .filter(|(key, entry)| key.kind == kind && entry.info.is_some());
            concerned
                .filter(|(_, entry)| entry.stamp.is_unlisted(unlisted))
                .map(|(key, _)| key.clone())
                .collect()
        };
        missing.iter().for_each(|key| self.remove_pool(key));
        self.end_list(PoolInput::Pools(kind));
    }
}

#[cfg(test)]
mod tests;
