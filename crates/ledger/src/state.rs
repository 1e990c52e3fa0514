//! The state of the ledger: a plain structure without locks and triggers.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{InClusterKind, PoolKey, Scope, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Lists, ObjectVersion, Origin, Stamp, Versions};
use capi_ipam_controller::watch::Invalid;
use capi_ipam_ip::Extents;
use capi_ipam_provider::api::Uid;

use super::PoolInfo;
use super::networks::Networks;
use super::pool::{Effect, PoolEntry};
use super::quota::Consumer;
use super::refresh::Start;
use super::shared_names::SharedNames;
use super::usage::{AddressUsage, CandidateInfo, Holdings, ScopeEntry};

#[derive(Default)]
pub(super) struct State {
    pub(super) pools: HashMap<PoolKey, PoolEntry>,
    /// The blocks of the existing pools.
    pub(super) extents: Extents<PoolKey>,
    pub(super) scopes: HashMap<Scope, ScopeEntry>,
    pub(super) holdings: Holdings,
    /// Reservations that are not valid, by name.
    pub(super) ignored: BTreeMap<String, Ignored>,
    /// Reservations whose creation has an unknown outcome, by the uid of the claim.
    pub(super) attempts: HashMap<Uid, (PoolKey, Slot)>,
    /// Whether the end of a cool-down may have changed since this was last reset.
    pub(super) cooldowns_changed: bool,
    /// Only the watch shows IPAddresses.
    pub(super) address_lists: Lists,
    pub(super) reservation_versions: Versions,
    pub(super) slice_versions: Versions,
    pub(super) pool_versions: HashMap<InClusterKind, Versions>,
    /// Pools whose counts or conditions may have changed since this was last taken.
    pub(super) dirty_pools: Vec<PoolKey>,
    /// Claims to reconcile again because what they wait for has changed since this was last taken.
    pub(super) claims_to_wake: Vec<NamespacedName>,
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
    /// Networks whose counts or members may have changed since this was last taken.
    pub(super) dirty_networks: Vec<Arc<str>>,
    /// Whether reservations may have to be moved to another scope since this was last reset.
    pub(super) scopes_changed: bool,
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

impl State {
    /// Records that a pool exists in a state which cannot be decoded. Returns the claims that wait
    /// for it.
    pub(super) fn set_undecodable_pool(
        &mut self,
        key: &PoolKey,
        object: &Invalid,
    ) -> Vec<NamespacedName> {
        let seen = ObjectVersion::of(&object.metadata);
        let key = &self.shared_key(key.clone());
        let known = self.pools.get(key).and_then(PoolEntry::known);
        let versions = self.pool_versions.entry(key.kind).or_default();
        let Some(stamp) = versions.see(Origin::Watch, known, seen, Instant::now()) else {
            return Vec::new();
        };
        let entry = self.pools.entry(key.clone()).or_default();
        entry.stamp = stamp;
        // Another pool of this name has other rules.
        let later = match &entry.declared {
            Some(declared) if Uid::of(&declared.uid) == seen.uid => declared.undecodable(object),
            _ => PoolInfo::never_decoded(key, object),
        };
        entry.set_status_record(&later.uid, false, None);
        if entry.declared.as_ref() != Some(&later) {
            self.set_pool(key, Some(later));
        }
        self.pools
            .get_mut(key)
            .map(|entry| entry.wait_queue.pool_changed())
            .unwrap_or_default()
    }

    /// Removes a pool: the one with this uid, or any. Its addresses in use are kept. Returns the
    /// claims that wait for it.
    pub(super) fn remove_pool(&mut self, key: &PoolKey, uid: Option<Uid>) -> Vec<NamespacedName> {
        let known = self
            .pools
            .get(key)
            .and_then(PoolEntry::known)
            .map(|known| known.uid);
        let Some(uid) = uid.or(known) else {
            return Vec::new();
        };
        if !self
            .pool_versions
            .entry(key.kind)
            .or_default()
            .delete(known, uid, Instant::now())
        {
            return Vec::new();
        }
        self.set_pool(key, None);
        self.pools
            .get_mut(key)
            .map(|entry| entry.wait_queue.pool_changed())
            .unwrap_or_default()
    }

    /// etcd was restored to an earlier state: any state of the pools of a kind is accepted from now
    /// on. Another edit can have the generation of one that is lost.
    pub(super) fn pools_restored(&mut self, kind: InClusterKind) {
        self.pool_versions.entry(kind).or_default().restored();
        for (key, entry) in &mut self.pools {
            if let Some(declared) = entry.declared.as_mut().filter(|_| key.kind == kind) {
                declared.generation = None;
            }
        }
    }

    /// Removes a network: the one with this uid, or any. Its reservations are kept.
    pub(super) fn remove_network(&mut self, name: &str, uid: Option<Uid>) {
        let change = self.networks.remove(name, uid);
        self.refresh_pools(&change);
    }

    /// Returns the stored copy of the key, if there is one, to share its memory.
    pub(super) fn shared_key(&self, key: PoolKey) -> PoolKey {
        self.pools
            .get_key_value(&key)
            .map_or(key, |(stored, _)| stored.clone())
    }

    pub(super) fn shared_scope(&self, scope: Scope) -> Scope {
        self.scopes
            .get_key_value(&scope)
            .map_or(scope, |(stored, _)| stored.clone())
    }

    /// The scope of the addresses of a pool.
    pub(super) fn scope_of(&self, pool: &PoolKey) -> Scope {
        self.pools
            .get(pool)
            .map_or_else(|| Scope::Pool(pool.clone()), |entry| entry.scope(pool))
    }

    pub(super) fn usage(&self, slot: &Slot) -> Option<&AddressUsage> {
        self.scopes.get(&slot.scope)?.usage.get(&slot.block)
    }

    /// Changes the usage of an address, and updates the counts of all affected pools.
    pub(super) fn update(&mut self, slot: &Slot, change: impl FnOnce(&mut AddressUsage)) {
        let Self {
            pools,
            scopes,
            dirty_pools,
            claims_to_wake,
            cooldowns_changed,
            quotas,
            ..
        } = self;
        let scope = scopes.entry(slot.scope.clone()).or_default();
        let usage = scope.usage.get_or_insert(slot.block);
        let availability_before = usage.availability();
        let (pools_before, release_before) = (usage.pools(), usage.release());
        let candidate_before = usage.candidate_pool().cloned();
        let reserved_before = usage
            .reservation
            .as_ref()
            .map(|reservation| reservation.pool.clone());
        let has_quotas = *quotas > 0;
        let charged_before = if has_quotas {
            usage.charges()
        } else {
            Vec::new()
        };
        change(usage);
        let charged_after = if has_quotas {
            usage.charges()
        } else {
            Vec::new()
        };
        let candidate_after = usage.candidate_pool().cloned();
        let reserved_after = usage
            .reservation
            .as_ref()
            .map(|reservation| reservation.pool.clone());
        let availability_after = usage.availability();
        let (pools_after, release_after, is_free) =
            (usage.pools(), usage.release(), usage.is_free());
        if pools_after.is_empty() && !pools_before.is_empty() {
            // Another claim had the promised address: the promise can be kept now.
            claims_to_wake.extend(usage.promised_to().cloned());
        }
        for member in &scope.members {
            let pool = pools
                .get_mut(member)
                .filter(|pool| pool.is_draining(slot.block));
            if let Some(pool) = pool {
                pool.draining
                    .set_in_use(slot.block, usage.is_in_use_of(member));
            }
        }
        if is_free {
            scope.usage.remove(&slot.block);
        }
        for (pool, is_added) in differences(&pools_before, &pools_after) {
            pools
                .entry(pool.clone())
                .or_default()
                .count_address(slot.block, is_added);
            dirty_pools.push(pool.clone());
        }
        if charged_before != charged_after {
            let removed = charged_before.into_iter().map(|charge| (charge, false));
            for ((pool, consumer), is_added) in
                removed.chain(charged_after.into_iter().map(|charge| (charge, true)))
            {
                let Some(entry) = pools.get_mut(&pool) else {
                    continue;
                };
                let Some(quota) = &mut entry.quota else {
                    continue;
                };
                quota.charge(&consumer, is_added);
                dirty_pools.push(pool);
            }
        }
        let (mut elsewhere, mut holders) = (Vec::new(), Vec::new());
        let candidates = (candidate_before, candidate_after);
        for (is_candidate, (before, after)) in [
            (false, (reserved_before, reserved_after)),
            (true, candidates),
        ] {
            if before == after {
                continue;
            }
            for (pool, is_added) in before
                .map(|pool| (pool, false))
                .into_iter()
                .chain(after.map(|pool| (pool, true)))
            {
                let entry = pools.entry(pool.clone()).or_default();
                if entry.count_hold(&slot.scope, is_added)
                    && matches!(slot.scope, Scope::Network(_))
                {
                    holders.push((pool.clone(), is_added));
                }
                elsewhere.extend(
                    entry
                        .other_scope(&slot.scope)
                        .map(|scope| (scope, is_added)),
                );
                if is_candidate {
                    entry.count_candidate(is_added);
                }
                if is_candidate || entry.info.is_none() {
                    dirty_pools.push(pool);
                }
            }
        }
        if release_before != release_after {
            *cooldowns_changed = true;
            let ended = release_before.map(|release| (release, false));
            let started = release_after.map(|release| (release, true));
            for ((pool, since, is_remembered), is_started) in ended.into_iter().chain(started) {
                let entry = pools.entry(pool.clone()).or_default();
                entry.set_release(since, slot.clone(), is_remembered, is_started);
                dirty_pools.push(pool);
            }
        }
        for member in &scope.members {
            let Some(pool) = pools.get_mut(member) else {
                continue;
            };
            match pool.set_availability(slot.block, availability_before, availability_after) {
                Effect::OutOfPool => continue,
                Effect::Updated => {}
                Effect::LengthMismatch => pool.recount(member, &scope.usage),
            }
            dirty_pools.push(member.clone());
        }
        for (pool, is_added) in holders {
            scope.set_holder(&pool, is_added);
        }
        if scope.is_empty() {
            scopes.remove(&slot.scope);
        }
        if let Scope::Network(network) = &slot.scope {
            self.dirty_networks.push(network.clone());
        }
        for (scope, is_added) in elsewhere {
            self.scopes_changed = true;
            self.count_hold_elsewhere(
                &Slot {
                    scope,
                    block: slot.block,
                },
                is_added,
            );
        }
    }

    /// Counts an address as held in another scope, or no longer.
    pub(super) fn count_hold_elsewhere(&mut self, slot: &Slot, is_added: bool) {
        self.update(slot, |usage| usage.count_elsewhere(is_added));
    }

    pub(super) fn hold_candidate(&mut self, pool: &PoolKey, slot: &Slot) -> bool {
        self.hold(slot, pool, None)
    }

    /// Holds an address that is not held, and counts it for `consumer` in pools with limits.
    pub(super) fn hold(&mut self, slot: &Slot, pool: &PoolKey, consumer: Option<Consumer>) -> bool {
        let is_free = !self.is_candidate(slot);
        if is_free {
            self.update(slot, |usage| {
                usage.candidate = Some(Box::new(CandidateInfo {
                    pool: pool.clone(),
                    consumer,
                }));
            });
        }
        is_free
    }

    pub(super) fn drop_candidate(&mut self, slot: &Slot) {
        if self.is_candidate(slot) {
            self.update(slot, AddressUsage::drop_candidate);
        }
    }

    fn is_candidate(&self, slot: &Slot) -> bool {
        self.usage(slot)
            .is_some_and(|usage| usage.candidate.is_some())
    }
}

/// The pools that are in one list only: `false` for removed ones, `true` for added ones.
fn differences<'a>(
    before: &'a [PoolKey],
    after: &'a [PoolKey],
) -> impl Iterator<Item = (&'a PoolKey, bool)> {
    let removed = before
        .iter()
        .filter(|pool| !after.contains(pool))
        .map(|pool| (pool, false));
    removed.chain(
        after
            .iter()
            .filter(|pool| !before.contains(pool))
            .map(|pool| (pool, true)),
    )
}
