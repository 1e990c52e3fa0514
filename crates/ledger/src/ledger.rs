//! The state of the ledger, and what all of its changes have in common.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{InClusterKind, PoolKey, Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Extents};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{Lists, Stamp, Versions};

use super::effects::Effects;
use super::in_use::InUse;
use super::networks::Networks;
use super::pool::PoolEntry;
use super::pool_info::PoolInfo;
use super::shared_names::SharedNames;
use super::start::Start;
use super::usage::{AddressUsage, Holdings, ReservationInfo, ScopeEntry};

/// The in-memory index of pools, addresses and waiting claims.
///
/// Its methods are plain computations: they neither lock, wait nor call anybody. What a change asks
/// others to do is recorded until [`Ledger::take_effects`] is called.
#[derive(Default)]
pub struct Ledger {
    pub(super) pools: HashMap<PoolKey, PoolEntry>,
    /// The blocks of the existing pools.
    pub(super) extents: Extents<PoolKey>,
    pub(super) scopes: HashMap<Scope, ScopeEntry>,
    pub(super) holdings: Holdings,
    pub(super) in_use: InUse,
    /// Reservations that are not valid, by name.
    pub(super) ignored: BTreeMap<String, Ignored>,
    /// Reservations whose creation has an unknown outcome, by the uid of the claim.
    pub(super) attempts: HashMap<Uid, (PoolKey, Slot)>,
    /// Only the watch shows IPAddresses.
    pub(super) address_lists: Lists,
    pub(super) reservation_versions: Versions,
    pub(super) slice_versions: Versions,
    pub(super) pool_versions: HashMap<InClusterKind, Versions>,
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
    /// The number of pools with access rules.
    pub(super) quotas: usize,
    /// The names of Clusters, shared by their addresses.
    pub(super) clusters: SharedNames,
}

/// A reservation that is not valid. The API server creates no other one of its name.
pub(super) struct Ignored {
    /// The address that its name reserves, if it is known.
    pub(super) slot: Option<Slot>,
    pub(super) uid: Box<str>,
    pub(super) problem: String,
    pub(super) stamp: Stamp,
    pub(super) lacks_label: bool,
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
            let was_notified = std::mem::replace(&mut entry.notified, true);
            if entry.is_empty() {
                self.pools.remove(&pool);
            }
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

    /// Returns the stored copy of the key, if there is one, to share its memory.
    pub(super) fn shared_key(&self, key: PoolKey) -> PoolKey {
        let stored = self.pools.get_key_value(&key);
        stored.map_or(key, |(stored, _)| stored.clone())
    }

    /// Returns the stored copy of the scope, if there is one, to share its memory.
    pub(super) fn shared_scope(&self, scope: Scope) -> Scope {
        let stored = self.scopes.get_key_value(&scope);
        stored.map_or(scope, |(stored, _)| stored.clone())
    }

    /// The scope of the addresses of a pool.
    pub(super) fn scope_of(&self, pool: &PoolKey) -> Scope {
        match self.pools.get(pool) {
            Some(entry) => entry.scope(pool),
            None => Scope::Pool(pool.clone()),
        }
    }

    /// The settings of a pool that exists.
    pub(super) fn info(&self, pool: &PoolKey) -> Option<&PoolInfo> {
        self.pools.get(pool)?.info.as_deref()
    }

    /// The reservation of an address.
    pub(super) fn reservation(&self, slot: &Slot) -> Option<&ReservationInfo> {
        self.usage(slot)?.reservation.as_ref()
    }

    /// The usage of all addresses of a scope that are not free.
    pub(super) fn usage_in(&self, scope: &Scope) -> impl Iterator<Item = (Block, &AddressUsage)> {
        let scope = self.scopes.get(scope).into_iter();
        scope.flat_map(|scope| scope.usage.iter())
    }

    pub(super) fn usage(&self, slot: &Slot) -> Option<&AddressUsage> {
        self.scopes.get(&slot.scope)?.usage.get(&slot.block)
    }
}
