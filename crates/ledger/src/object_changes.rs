//! Changes of pools, networks and namespaces, from the watch and from responses to our own
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_api::{IPNetwork, InClusterKind, Pool, PoolKey};
use capi_ipam_contract::Uid;
use capi_ipam_objects::maybe_invalid::Invalid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{ObjectVersion, Origin};
use kube::core::ObjectMeta;

use super::membership::status_record;
use super::networks::{Change, NetworkInfo};
use super::pools::start::PoolInput;
use super::{Ledger, PoolInfo};

/// What is known before the definitions are read.
const FIELDS_ARE_LOST: &str = "the API server removes fields of pools: a CustomResourceDefinition was replaced by an older one";

impl Ledger {
    /// Records a pool that a watch has shown.
    pub fn apply_pool(&mut self, pool: &Pool) {
        let info = PoolInfo::updated(
            self.pools.declared_pool(&PoolKey::of(pool)).as_deref(),
            pool,
        );
        self.record_pool(pool, info, Origin::Watch);
    }

    /// Records a pool that a response has shown. Ignored if the ledger has newer information: the
    /// pool was deleted, or a newer version of it or another pool of its name was observed.
    pub fn insert_pool(&mut self, pool: &Pool) {
        let info = PoolInfo::updated(
            self.pools.declared_pool(&PoolKey::of(pool)).as_deref(),
            pool,
        );
        self.record_pool(pool, info, Origin::Response);
    }

    /// Records a pool with its settings, as [`PoolInfo::updated`] has read them. The addresses of a
    /// pool can take long to parse: who shares the ledger does not hold a lock meanwhile.
    pub fn record_pool(&mut self, pool: &Pool, info: PoolInfo, origin: Origin) {
        let waiting = self.change(|ledger| ledger.see_pool(pool, info, origin));
        self.wake(waiting);
    }

    /// Records whether the API server serves definitions with all fields that this program has;
    /// `problem` says which one lacks some, and what to do. Until they are back no pool changes its
    /// scope, and those that are in a network, or may be, do not allocate.
    pub fn set_definitions_problem(&mut self, problem: Option<&str>) {
        if self.networks.definitions_problem.as_deref() == problem {
            return;
        }
        self.change(|ledger| {
            ledger.networks.definitions_problem = problem.map(Into::into);
            ledger.refresh_pools(&Change::All);
        });
    }

    /// Whether a served definition lacks fields: pools, networks and registries must not be written,
    /// since a write removes these fields for good.
    pub fn has_definitions_problem(&self) -> bool {
        self.networks.definitions_problem.is_some()
    }

    /// An object has fewer fields with the same generation: a definition has lost them. The check of
    /// the definitions begins at once.
    pub fn note_lost_fields(&mut self) {
        self.effects.has_lost_fields = true;
        self.set_definitions_problem(Some(FIELDS_ARE_LOST));
    }

    /// Returns the claims that wait for the pool.
    fn see_pool(&mut self, pool: &Pool, info: PoolInfo, origin: Origin) -> Vec<NamespacedName> {
        let key = self.pools.shared_key(PoolKey::of(pool));
        if self.pools.has_lost_fields(&key, pool) {
            self.note_lost_fields();
        }
        let seen = ObjectVersion::of(&pool.metadata);
        let Some(stamp) = self.pools.see(&key, seen, origin) else {
            return Vec::new();
        };
        let entry = self.pools.entry(&key);
        let (has_status, status) = status_record(pool);
        let has_same_status = entry.set_status_record(&info.uid, stamp, has_status, status);
        if entry.declared() == Some(&info) {
            if !has_same_status {
                self.queue_refresh(&key);
            }
            return Vec::new();
        }
        self.set_pool(&key, Some(info));
        self.waiting_for_pool(&key)
    }

    /// Records a pool that exists in a state which cannot be decoded.
    pub fn apply_invalid_pool(&mut self, key: &PoolKey, object: &Invalid) {
        let waiting = self.change(|ledger| ledger.see_undecodable_pool(key, object));
        self.wake(waiting);
    }

    /// Returns the claims that wait for the pool.
    fn see_undecodable_pool(&mut self, key: &PoolKey, object: &Invalid) -> Vec<NamespacedName> {
        let seen = ObjectVersion::of(&object.metadata);
        let key = &self.pools.shared_key(key.clone());
        let Some(stamp) = self.pools.see(key, seen, Origin::Watch) else {
            return Vec::new();
        };
        let entry = self.pools.entry(key);
        // Another pool of this name has other rules.
        let later = match entry.declared() {
            Some(declared) if Uid::of(&declared.uid) == seen.uid => declared.undecodable(object),
            _ => PoolInfo::never_decoded(key, object),
        };
        entry.set_status_record(&later.uid, stamp, false, None);
        if entry.declared() != Some(&later) {
            self.set_pool(key, Some(later));
        }
        self.waiting_for_pool(key)
    }

    /// Removes a pool. Its addresses in use are kept.
    pub fn remove_pool(&mut self, key: &PoolKey) {
        self.remove_pool_of(key, None);
    }

    /// Removes a pool, unless another one of its name was created since.
    pub fn delete_pool(&mut self, pool: &Pool) {
        let uid = ObjectVersion::of(&pool.metadata).uid;
        self.remove_pool_of(&PoolKey::of(pool), Some(uid));
    }

    /// Removes a pool whose last state cannot be decoded, unless another one of its name was
    /// created since.
    pub fn delete_invalid_pool(&mut self, key: &PoolKey, object: &Invalid) {
        let uid = ObjectVersion::of(&object.metadata).uid;
        self.remove_pool_of(key, Some(uid));
    }

    /// Removes a pool: the one with this uid, or any.
    fn remove_pool_of(&mut self, key: &PoolKey, uid: Option<Uid>) {
        if !self.pools.see_deleted(key, uid) {
            return;
        }
        let waiting = self.change(|ledger| {
            ledger.set_pool(key, None);
            ledger.waiting_for_pool(key)
        });
        self.wake(waiting);
    }

    /// The claims that wait for a change of the pool, which has changed.
    fn waiting_for_pool(&mut self, key: &PoolKey) -> Vec<NamespacedName> {
        match self.pools.get_mut(key) {
            Some(entry) => entry.wait_queue.pool_changed(),
            None => Vec::new(),
        }
    }

    /// Begins a list of the pools of a kind: [`Ledger::apply_pool`] is called for each of them.
    pub fn begin_pool_list(&mut self, kind: InClusterKind) {
        self.pools.begin_list(kind);
        self.start.begin_list(PoolInput::Pools(kind));
    }

    /// Removes the pools of a kind that the list, which is complete now, has not shown. The last
    /// one of the initial lists computes all pools: before, nothing is proposed.
    pub fn end_pool_list(&mut self, kind: InClusterKind) {
        for key in self.unlisted_pools(kind) {
            self.remove_pool(&key);
        }
        self.complete_pool_list(kind);
    }

    /// The first step of [`Ledger::end_pool_list`]: returns the pools to remove.
    pub fn unlisted_pools(&mut self, kind: InClusterKind) -> Vec<PoolKey> {
        self.pools.unlisted(kind)
    }

    /// etcd was restored to an earlier state: any state of the pools of a kind is accepted from now
    /// on. Another edit can have the generation of one that is lost.
    pub fn pools_restored(&mut self, kind: InClusterKind) {
        self.pools.restored(kind);
    }

    /// The last step of [`Ledger::end_pool_list`].
    pub fn complete_pool_list(&mut self, kind: InClusterKind) {
        self.complete_list(PoolInput::Pools(kind));
    }

    /// Records a network that a watch has shown.
    pub fn apply_network(&mut self, network: &IPNetwork) {
        let info = NetworkInfo::of(network);
        self.record_network(&network.metadata, info, Origin::Watch);
    }

    /// Records a network that a response has shown. Ignored if the ledger has newer information, as
    /// for pools.
    pub fn insert_network(&mut self, network: &IPNetwork) {
        let info = NetworkInfo::of(network);
        self.record_network(&network.metadata, info, Origin::Response);
    }

    pub(super) fn record_network(
        &mut self,
        metadata: &ObjectMeta,
        info: NetworkInfo,
        origin: Origin,
    ) {
        let name: Arc<str> = metadata.name.as_deref().unwrap_or_default().into();
        let seen = ObjectVersion::of(metadata);
        self.change(|ledger| {
            if ledger.networks.has_lost_fields(&name, &info) {
                ledger.note_lost_fields();
            }
            let change = ledger.networks.see(&name, info, seen, origin);
            ledger.refresh_pools(&change);
        });
    }

    /// Removes a network. Its reservations are kept.
    pub fn remove_network(&mut self, name: &str) {
        self.remove_network_of(name, None);
    }

    /// Removes a network: the one with this uid, or any.
    pub(super) fn remove_network_of(&mut self, name: &str, uid: Option<Uid>) {
        self.change(|ledger| {
            let change = ledger.networks.remove(name, uid);
            ledger.refresh_pools(&change);
        });
    }

    pub(super) fn set_namespace(&mut self, name: &str, labels: &BTreeMap<String, String>) {
        self.change(|ledger| {
            let change = ledger.networks.set_namespace(name, labels);
            ledger.refresh_pools(&change);
            ledger.wake_refused(name);
        });
    }

    pub(super) fn remove_namespace(&mut self, name: &str) {
        self.change(|ledger| {
            let change = ledger.networks.remove_namespace(name);
            ledger.refresh_pools(&change);
        });
    }

    /// Asks to reconcile claims.
    pub(super) fn wake(&mut self, claims: impl IntoIterator<Item = NamespacedName>) {
        self.effects.claims.extend(claims);
    }
}
