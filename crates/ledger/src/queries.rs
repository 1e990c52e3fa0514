//! Queries of the ledger. None of them changes it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{AddressCounts, OverLimit, Scope, SliceCounts, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Family, SpanSet, UsableBlocks};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::addresses::AddressUsage;
use super::pool::PoolEntry;
use super::{KnownReservation, Ledger, PoolInfo, PoolKey};

/// The counts of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCounts {
    /// The pool.
    pub key: PoolKey,
    /// The counts of its addresses.
    pub counts: AddressCounts,
    /// The number of claims that wait for one of its addresses.
    pub waiting: usize,
    /// The addresses beyond what its rules allow; `None` without rules.
    pub over_limit: Option<OverLimit>,
    /// The counts of its slices; `None` without slices.
    pub slices: Option<SliceCounts>,
    /// Whether the counts are those of blocks that its network shares with other management
    /// clusters: there can be more addresses.
    pub shares_blocks: bool,
    /// Whether its specification is not valid.
    pub is_invalid: bool,
}

impl Ledger {
    /// The settings of a pool, `None` if it does not exist.
    pub fn pool_info(&self, pool: &PoolKey) -> Option<Arc<PoolInfo>> {
        self.pools.get(pool)?.info.clone()
    }

    /// The pools that exist.
    pub fn existing_pools(&self) -> impl Iterator<Item = &PoolKey> {
        let pools = self.pools.iter();
        pools.filter_map(|(key, entry)| entry.info.is_some().then_some(key))
    }

    /// Whether `usable` are still the blocks of the pool, as returned by [`Ledger::pool_info`].
    pub fn is_current(&self, pool: &PoolKey, usable: &Arc<UsableBlocks>) -> bool {
        match self.info(pool) {
            Some(info) => matches!(&info.usable, Ok(current) if Arc::ptr_eq(current, usable)),
            None => false,
        }
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

    /// The scope within which the addresses of a pool are unique.
    pub fn scope(&self, pool: &PoolKey) -> Scope {
        self.scope_of(pool)
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
        let Some(entry) = self.pools.get(pool) else {
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

    /// The length of the blocks that the pools of a network allocate, once it is set.
    pub fn network_length(&self, network: &str, family: Family) -> Option<u8> {
        self.networks.block_length(network, family)
    }

    /// Whether an address is the gateway of a pool of the network to which this pool belongs.
    pub fn is_gateway_in_network(&self, pool: &PoolKey, address: IpAddr) -> bool {
        let scope = self.scope_of(pool);
        let Some(entry) = self.addresses.scope(&scope) else {
            return false;
        };
        let mut members = entry.members.iter();
        members.any(|member| match self.pools.get(member) {
            Some(member) => member
                .declared_blocks()
                .is_some_and(|usable| usable.gateways().any(|gateway| gateway == address)),
            None => false,
        })
    }

    /// An address of the pool that is reserved for a claim, if there is one.
    pub(super) fn held_in(&self, pool: &PoolKey) -> Option<Slot> {
        let is_held = |usage: &AddressUsage| match &usage.reservation {
            Some(reservation) => reservation.pool == *pool && reservation.is_held(),
            None => false,
        };
        for scope in self.scopes_with(pool) {
            let found = self
                .addresses
                .usage_in(&scope)
                .find(|(_, usage)| is_held(usage));
            if let Some(block) = found.map(|(block, _)| block) {
                return Some(Slot { scope, block });
            }
        }
        None
    }

    /// The address counts of a pool.
    pub fn counts(&self, pool: &PoolKey) -> AddressCounts {
        match self.pools.get(pool) {
            Some(entry) => entry.counts(),
            None => AddressCounts::default(),
        }
    }

    /// The numbers of a pool that it could allocate if this management cluster had all blocks of its
    /// network; empty in a network that shares none.
    pub fn numbers_in_other_blocks(&self, pool: &PoolKey) -> SpanSet {
        let Some(entry) = self.pools.get(pool) else {
            return SpanSet::default();
        };
        match (entry.allowed_blocks(), entry.usable()) {
            (Some(allowed), Some(usable)) => allowed.set.subtract(&usable.set),
            _ => SpanSet::default(),
        }
    }

    /// Whether a pool could allocate a block if this management cluster had the block of the network
    /// that contains it.
    pub fn is_in_other_block(&self, pool: &PoolKey, block: Block) -> bool {
        self.pools
            .get(pool)
            .is_some_and(|entry| entry.is_in_missing_block(block))
    }

    /// Whether a pool can allocate a block: it is free, or kept for the next claim of a name.
    pub fn is_available(&self, pool: &PoolKey, block: Block) -> bool {
        let Some(entry) = self.pools.get(pool) else {
            return false;
        };
        let scope = entry.scope(pool);
        entry.can_allocate_block(block, self.addresses.usage(&Slot { scope, block }))
    }

    /// Whether an address of the pool is in use, or held for a claim whose reservation is being
    /// created.
    pub fn is_in_use(&self, pool: &PoolKey) -> bool {
        self.pools.get(pool).is_some_and(PoolEntry::is_in_use)
    }

    /// The addresses of a pool that are in use and for which `filter` returns true, in ascending
    /// order. An address that is reserved for a claim is in use, also if this process does not
    /// watch the namespace of the claim.
    pub fn in_use(&self, pool: &PoolKey, filter: &dyn Fn(Block) -> bool) -> Vec<Block> {
        let mut blocks = Vec::new();
        for scope in self.scopes_with(pool) {
            for (block, usage) in self.addresses.usage_in(&scope) {
                if filter(block) && usage.is_in_use_of(pool) {
                    blocks.push(block);
                }
            }
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The counts of all existing pools.
    pub fn pool_counts(&self) -> Vec<PoolCounts> {
        let mut counts = Vec::new();
        for (key, entry) in &self.pools {
            if entry.info.is_none() {
                continue;
            }
            counts.push(PoolCounts {
                key: key.clone(),
                counts: entry.counts(),
                waiting: entry.wait_queue.waiting(),
                over_limit: self.over_limit_of(entry),
                slices: entry.slice_counts(),
                shares_blocks: entry.shares_blocks(),
                is_invalid: entry.declared.is_some() && entry.declared_blocks().is_none(),
            });
        }
        counts
    }

    /// The pools whose addresses are compared with those of Machines, in order.
    pub fn verified_pools(&self) -> Vec<PoolKey> {
        let mut pools = Vec::new();
        for (key, entry) in &self.pools {
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

    /// The IPAddress objects of some pools: the index of the pool and the address, by namespace and
    /// name.
    pub fn addresses_of(
        &self,
        pools: &[PoolKey],
    ) -> BTreeMap<String, HashMap<String, (usize, Block)>> {
        let mut found = BTreeMap::<_, HashMap<_, _>>::new();
        let mut indexes = HashMap::new();
        // Two pools of one network have the same scope.
        let mut scopes = HashSet::new();
        for (index, pool) in pools.iter().enumerate() {
            indexes.insert(pool, index);
            scopes.extend(self.scopes_with(pool));
        }
        for scope in &scopes {
            for (block, usage) in self.addresses.usage_in(scope) {
                for owner in &usage.owners {
                    let Some(index) = indexes.get(&owner.pool) else {
                        continue;
                    };
                    let (namespace, name) = owner.name.parts();
                    let of_namespace = found.entry(namespace.to_owned()).or_default();
                    of_namespace.insert(name.to_owned(), (*index, block));
                }
            }
        }
        found
    }

    /// The reservations of released addresses that are not in use and no longer needed at `now`, in
    /// seconds since the Unix epoch: their cool-down has ended, or their pool is deleted. Sticky pools keep them
    /// for longer. For pools for which `is_served` returns false, the cool-down ends `delay`
    /// seconds later.
    pub fn cooled_down(
        &self,
        now: i64,
        is_served: impl Fn(&PoolKey) -> bool,
        delay: i64,
    ) -> Vec<KnownReservation> {
        let mut found = Vec::new();
        for (pool, entry) in &self.pools {
            let until = if is_served(pool) {
                now
            } else {
                now.saturating_sub(delay)
            };
            let retention = entry.retention();
            for slot in entry.released.reservations_to_delete(retention, until) {
                let Some(reservation) = self.addresses.reservation(slot) else {
                    continue;
                };
                // It is not recorded yet that the cool-down has ended: a sticky pool keeps the
                // address.
                if reservation.is_remembered || !self.keeps_for_next(reservation, now) {
                    found.push(self.addresses.known_version(slot, reservation));
                }
            }
        }
        found
    }

    /// The released addresses whose release is after `second`, in seconds since the Unix epoch.
    pub fn released_after(&self, second: i64) -> Vec<KnownReservation> {
        let mut found = Vec::new();
        for entry in self.pools.values() {
            for slot in entry.released.released_after(second) {
                if let Some(reservation) = self.addresses.reservation(slot) {
                    found.push(self.addresses.known_version(slot, reservation));
                }
            }
        }
        found
    }

    /// When the next cool-down ends or the next reservation of a released address is no longer
    /// needed, in seconds since the Unix epoch, with the delays of [`Self::cooled_down`]; `None`
    /// without a released address.
    pub fn next_cooldown_end(
        &self,
        is_served: impl Fn(&PoolKey) -> bool,
        delay: i64,
    ) -> Option<i64> {
        let mut next: Option<i64> = None;
        for (pool, entry) in &self.pools {
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
        let entry = self.pools.get(pool)?;
        entry.released.next_cooldown_end(entry.retention())
    }

    /// The addresses that cool down although a claim has an IPAddress with them, and that claim.
    /// The uid is set if the reservation names this claim: the claim released the address unless it
    /// still exists with this uid.
    pub fn cooling_down_in_use(&self) -> Vec<(Slot, NamespacedName, Option<Uid>)> {
        let mut found = Vec::new();
        for entry in self.pools.values() {
            for slot in entry.released.in_use() {
                if let Some((claim, uid)) = self.addresses.usage(slot).and_then(user_of_released) {
                    found.push((slot.clone(), claim.clone(), uid));
                }
            }
        }
        found
    }

    /// The scope of a pool, and others in which addresses of it are reserved.
    pub(super) fn scopes_with(&self, pool: &PoolKey) -> Vec<Scope> {
        let mut scopes = vec![self.scope_of(pool)];
        if let Some(entry) = self.pools.get(pool) {
            for (scope, _) in &entry.holds {
                if !scopes.contains(scope) {
                    scopes.push(scope.clone());
                }
            }
        }
        scopes
    }
}

/// The claim that uses a released address: another one than that which has released it, if there
/// is one. The uid is set if it is that claim.
fn user_of_released(usage: &AddressUsage) -> Option<(&NamespacedName, Option<Uid>)> {
    let reservation = usage.reservation.as_ref()?;
    let is_releaser = |name: &NamespacedName| Some(name) == reservation.claim.as_ref();
    let other = usage.owners.iter().find(|owner| !is_releaser(&owner.name));
    let name = &other.or(usage.owners.first())?.name;
    let uid = reservation.claim_uid.filter(|_| is_releaser(name));
    Some((name, uid))
}
