//! The pools: what their objects declare, their free addresses and counts, and the claims that wait
//! for them.

mod change;
mod draining;
mod entry;
mod overlaps;
mod proposals;
mod recount;
pub(crate) mod released;
mod scope;
mod sliced;
pub(crate) mod start;
pub(crate) mod views;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{AddressCounts, InClusterKind, Pool, Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Extents, SpanSet, UsableBlocks};
use capi_ipam_objects::observed::{Known, ObjectVersion, Origin, Stamp, Versions};

use crate::PoolKey;
use crate::addresses::ReservationInfo;

pub(crate) use self::change::{PoolChange, network_of};
pub(crate) use self::entry::{PoolEntry, PoolGateways};
pub use self::overlaps::{MAX_OVERLAPS, Nearby};
pub(crate) use crate::pool_info::PoolInfo;

/// The pools.
#[derive(Clone, Default)]
pub struct Pools {
    entries: HashMap<PoolKey, PoolEntry>,
    /// The blocks of the existing pools.
    extents: Extents<PoolKey>,
    versions: HashMap<InClusterKind, Versions>,
    /// The number of pools with access rules.
    quotas: usize,
}

impl Pools {
    pub(crate) fn get(&self, key: &PoolKey) -> Option<&PoolEntry> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &PoolKey) -> Option<&mut PoolEntry> {
        self.entries.get_mut(key)
    }

    /// The entry of a pool, which need not exist.
    pub(crate) fn entry(&mut self, key: &PoolKey) -> &mut PoolEntry {
        self.entries.entry(key.clone()).or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PoolKey, &PoolEntry)> {
        self.entries.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&PoolKey, &mut PoolEntry)> {
        self.entries.iter_mut()
    }

    /// Removes the entry of a pool of which nothing is left.
    pub(crate) fn remove_if_empty(&mut self, key: &PoolKey) {
        if self.entries.get(key).is_some_and(PoolEntry::is_empty) {
            self.entries.remove(key);
        }
    }

    /// Records whether the controller of a pool will reconcile it again: changes do not notify it
    /// until it reads its state, and the next change after that does.
    pub fn set_notified(&mut self, pool: &PoolKey, is_notified: bool) {
        if let Some(entry) = self.entries.get_mut(pool) {
            entry.notified = is_notified;
        }
    }

    /// Whether a pool has limits.
    pub(crate) fn have_quotas(&self) -> bool {
        self.quotas > 0
    }

    /// The blocks of a pool are others than before.
    pub(crate) fn move_extents(
        &mut self,
        key: &PoolKey,
        before: Option<&UsableBlocks>,
        after: Option<&UsableBlocks>,
    ) {
        if let Some(usable) = before {
            self.extents.remove(usable, key);
        }
        if let Some(usable) = after {
            self.extents.insert(usable, key.clone());
        }
    }

    /// A list of the pools of a kind begins.
    pub(crate) fn begin_list(&mut self, kind: InClusterKind) {
        self.versions.entry(kind).or_default().begin_list();
    }

    /// Decides on a state of a pool object: returns its stamp, or `None` if a later state is known.
    pub(crate) fn see(
        &mut self,
        key: &PoolKey,
        seen: ObjectVersion,
        origin: Origin,
    ) -> Option<Stamp> {
        let known = self.known(key);
        let versions = self.versions.entry(key.kind).or_default();
        versions.see(origin, known, seen, Instant::now())
    }

    /// Records that a pool object was deleted, the one with that uid or any. Returns false if
    /// another one is known.
    pub(crate) fn see_deleted(&mut self, key: &PoolKey, uid: Option<Uid>) -> bool {
        let known = self.known(key).map(|known| known.uid);
        let Some(uid) = uid.or(known) else {
            return false;
        };
        let versions = self.versions.entry(key.kind).or_default();
        versions.delete(known, uid, Instant::now())
    }

    fn known(&self, key: &PoolKey) -> Option<Known> {
        self.entries.get(key)?.known()
    }

    /// Returns the stored copy of the key, if there is one, to share its memory.
    pub(crate) fn shared_key(&self, key: PoolKey) -> PoolKey {
        let stored = self.entries.get_key_value(&key);
        stored.map_or(key, |(stored, _)| stored.clone())
    }

    /// The scope of the addresses of a pool.
    pub fn scope(&self, pool: &PoolKey) -> Scope {
        match self.entries.get(pool) {
            Some(entry) => entry.scope(pool),
            None => Scope::Pool(pool.clone()),
        }
    }

    /// The settings of a pool that exists.
    pub(crate) fn info(&self, pool: &PoolKey) -> Option<&PoolInfo> {
        self.entries.get(pool)?.info.as_deref()
    }

    /// The settings of a pool, `None` if it does not exist.
    pub fn pool_info(&self, pool: &PoolKey) -> Option<Arc<PoolInfo>> {
        self.entries.get(pool)?.info.clone()
    }

    /// The pools that exist.
    pub fn existing_pools(&self) -> impl Iterator<Item = &PoolKey> {
        let pools = self.entries.iter();
        pools.filter_map(|(key, entry)| entry.info.is_some().then_some(key))
    }

    /// Whether `usable` are still the blocks of the pool, as returned by [`Pools::pool_info`].
    pub fn is_current(&self, pool: &PoolKey, usable: &Arc<UsableBlocks>) -> bool {
        self.info(pool)
            .is_some_and(|info| matches!(&info.usable, Ok(current) if Arc::ptr_eq(current, usable)))
    }

    /// Whether a reservation of this address is in the scope of the pool and has the length of its
    /// blocks.
    pub fn has_place(&self, pool: &PoolKey, slot: &Slot) -> bool {
        let Some(info) = self.info(pool) else {
            return false;
        };
        let has_length = |usable: &Arc<UsableBlocks>| usable.length == slot.block.length();
        info.scope == slot.scope && info.usable.as_ref().is_ok_and(has_length)
    }

    /// The scopes in which addresses of a pool may be reserved, each once: that to which the pool
    /// belongs, its own, that of the network that it names or awaits, and others in which addresses
    /// of it are known. While it joins or leaves a network, its reservations move from one to
    /// another.
    pub fn possible_scopes(&self, pool: &PoolKey) -> Vec<Scope> {
        let mut scopes = self.scopes_with(pool);
        let mut add = |scope: Scope| {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        };
        add(Scope::Pool(pool.clone()));
        let Some(entry) = self.entries.get(pool) else {
            return scopes;
        };
        if let Some(declared) = &entry.declared
            && let Some(network) = &declared.network
        {
            add(Scope::Network(network.clone()));
        }
        if let Some(network) = &entry.recorded.awaited {
            add(Scope::Network(network.clone()));
        }
        scopes
    }

    /// The address counts of a pool.
    pub fn counts(&self, pool: &PoolKey) -> AddressCounts {
        match self.entries.get(pool) {
            Some(entry) => entry.counts(),
            None => AddressCounts::default(),
        }
    }

    /// The numbers of a pool that it could allocate if this management cluster had all blocks of
    /// its network; empty in a network that shares none.
    pub fn numbers_in_other_blocks(&self, pool: &PoolKey) -> SpanSet {
        let Some(entry) = self.entries.get(pool) else {
            return SpanSet::default();
        };
        match (entry.allowed_blocks(), entry.usable()) {
            (Some(allowed), Some(usable)) => allowed.set.subtract(&usable.set),
            _ => SpanSet::default(),
        }
    }

    /// Whether a pool could allocate a block if this management cluster had the block of the
    /// network that contains it.
    pub fn is_in_other_block(&self, pool: &PoolKey, block: Block) -> bool {
        self.entries
            .get(pool)
            .is_some_and(|entry| entry.is_in_missing_block(block))
    }

    /// Whether an address of the pool is in use, or held for a claim whose reservation is being
    /// created.
    pub fn is_in_use(&self, pool: &PoolKey) -> bool {
        self.entries.get(pool).is_some_and(PoolEntry::is_in_use)
    }

    /// The pools whose addresses are compared with those of Machines, in order.
    pub fn verified_pools(&self) -> Vec<PoolKey> {
        let mut pools = Vec::new();
        for (key, entry) in &self.entries {
            if let Some(info) = &entry.info
                && info.reclaim.verifies()
                && !info.paused
            {
                pools.push(key.clone());
            }
        }
        pools.sort_unstable();
        pools
    }

    /// When the next cool-down ends or the next reservation of a released address is no longer
    /// needed, in seconds since the Unix epoch, with the delays of [`Ledger::cooled_down`](crate::Ledger::cooled_down); `None`
    /// without a released address.
    pub fn next_cooldown_end(
        &self,
        is_served: impl Fn(&PoolKey) -> bool,
        delay: i64,
    ) -> Option<i64> {
        let mut next: Option<i64> = None;
        for (pool, entry) in &self.entries {
            let Some(end) = entry.released.next_reservation_end(entry.retention()) else {
                continue;
            };
            let end = if is_served(pool) {
                end
            } else {
                end.saturating_add(delay)
            };
            next = Some(next.map_or(end, |next| next.min(end)));
        }
        next
    }

    /// When the next cool-down of a pool ends, in seconds since the Unix epoch.
    pub fn cooldown_end(&self, pool: &PoolKey) -> Option<i64> {
        let entry = self.entries.get(pool)?;
        entry.released.next_cooldown_end(entry.retention())
    }

    /// The scope of a pool, and others in which addresses of it are reserved.
    pub(crate) fn scopes_with(&self, pool: &PoolKey) -> Vec<Scope> {
        let mut scopes = vec![self.scope(pool)];
        if let Some(entry) = self.entries.get(pool) {
            for (scope, _) in &entry.holds {
                if !scopes.contains(scope) {
                    scopes.push(scope.clone());
                }
            }
        }
        scopes
    }

    /// The settings of a pool as its object declares them, without those of its network.
    pub fn declared_pool(&self, key: &PoolKey) -> Option<Arc<PoolInfo>> {
        self.entries.get(key)?.declared.clone()
    }

    /// Whether a pool has fewer fields than with the same generation before. The version is no
    /// measure: the status may have been written since.
    pub(crate) fn has_lost_fields(&self, key: &PoolKey, pool: &Pool) -> bool {
        self.declared_pool(key)
            .is_some_and(|declared| declared.has_more_fields_than(pool))
    }

    /// The list of the pools of a kind is complete. Returns those that it does not show.
    pub fn unlisted(&mut self, kind: InClusterKind) -> Vec<PoolKey> {
        let unlisted = self.versions.entry(kind).or_default().end_list();
        let mut missing = Vec::new();
        for (key, entry) in &self.entries {
            let exists = key.kind == kind && entry.info.is_some();
            if exists && entry.stamp.is_unlisted(unlisted) {
                missing.push(key.clone());
            }
        }
        missing
    }

    /// etcd was restored to an earlier state: any state of the pools of a kind is accepted from now
    /// on. Another edit can have the generation of one that is lost.
    pub fn restored(&mut self, kind: InClusterKind) {
        self.versions.entry(kind).or_default().restored();
        for (key, entry) in &mut self.entries {
            if let Some(declared) = entry.declared.as_mut().filter(|_| key.kind == kind) {
                Arc::make_mut(declared).generation = None;
            }
        }
    }

    /// Whether a claim has a turn for a block of a pool.
    pub(crate) fn is_granted(&self, pool: &PoolKey, block: Block) -> bool {
        self.entries
            .get(pool)
            .is_some_and(|entry| entry.wait_queue.is_granted(block))
    }

    /// When the cool-down of a reservation ends that was released at `since`.
    pub(crate) fn cooldown_end_of(&self, reservation: &ReservationInfo, since: i64) -> i64 {
        match self.entries.get(&reservation.pool) {
            Some(entry) => entry.retention().cooldown_end(since),
            None => since,
        }
    }

    /// Whether a released address is only kept for the next claim of the same name.
    pub(crate) fn keeps_for_next(&self, reservation: &ReservationInfo, now: i64) -> bool {
        if reservation.claim.is_none() || reservation.is_terminating {
            return false;
        }
        match (self.entries.get(&reservation.pool), reservation.released_at) {
            (Some(entry), Some(since)) => entry.retention().is_remembered(since.get(), now),
            _ => false,
        }
    }
}
