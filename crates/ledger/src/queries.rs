//! Queries of the ledger. None of them changes it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use capi_ipam_api::{AddressCounts, OverLimit, SliceCounts, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, Family};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::addresses::AddressUsage;
use super::{KnownReservation, Ledger, PoolKey};

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
    /// The length of the blocks that the pools of a network allocate, once it is set.
    pub fn network_length(&self, network: &str, family: Family) -> Option<u8> {
        self.networks.block_length(network, family)
    }

    /// Whether an address is the gateway of a pool of the network to which this pool belongs.
    pub fn is_gateway_in_network(&self, pool: &PoolKey, address: IpAddr) -> bool {
        let scope = self.pools.scope(pool);
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
        for scope in self.pools.scopes_with(pool) {
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

    /// Whether a pool can allocate a block: it is free, or kept for the next claim of a name.
    pub fn is_available(&self, pool: &PoolKey, block: Block) -> bool {
        let Some(entry) = self.pools.get(pool) else {
            return false;
        };
        let scope = entry.scope(pool);
        entry.can_allocate_block(block, self.addresses.usage(&Slot { scope, block }))
    }

    /// The addresses of a pool that are in use and for which `filter` returns true, in ascending
    /// order. An address that is reserved for a claim is in use, also if this process does not
    /// watch the namespace of the claim.
    pub fn in_use(&self, pool: &PoolKey, filter: &dyn Fn(Block) -> bool) -> Vec<Block> {
        let mut blocks = Vec::new();
        for scope in self.pools.scopes_with(pool) {
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
        for (key, entry) in self.pools.iter() {
            if entry.info().is_none() {
                continue;
            }
            counts.push(PoolCounts {
                key: key.clone(),
                counts: entry.counts(),
                waiting: entry.wait_queue.waiting(),
                over_limit: self.over_limit_of(entry),
                slices: entry.slice_counts(),
                shares_blocks: entry.shares_blocks(),
                is_invalid: entry.is_invalid(),
            });
        }
        counts
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
            scopes.extend(self.pools.scopes_with(pool));
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
        for (pool, entry) in self.pools.iter() {
            let until = if is_served(pool) {
                now
            } else {
                now.saturating_sub(delay)
            };
            let retention = entry.retention();
            for slot in entry.released().reservations_to_delete(retention, until) {
                let Some(reservation) = self.addresses.reservation(slot) else {
                    continue;
                };
                // It is not recorded yet that the cool-down has ended: a sticky pool keeps the
                // address.
                if reservation.is_remembered || !self.pools.keeps_for_next(reservation, now) {
                    found.push(self.addresses.known_version(slot, reservation));
                }
            }
        }
        found
    }

    /// The released addresses whose release is after `second`, in seconds since the Unix epoch.
    pub fn released_after(&self, second: i64) -> Vec<KnownReservation> {
        let mut found = Vec::new();
        for (_, entry) in self.pools.iter() {
            for slot in entry.released().released_after(second) {
                if let Some(reservation) = self.addresses.reservation(slot) {
                    found.push(self.addresses.known_version(slot, reservation));
                }
            }
        }
        found
    }

    /// The addresses that cool down although a claim has an IPAddress with them, and that claim.
    /// The uid is set if the reservation names this claim: the claim released the address unless it
    /// still exists with this uid.
    pub fn cooling_down_in_use(&self) -> Vec<(Slot, NamespacedName, Option<Uid>)> {
        let mut found = Vec::new();
        for (_, entry) in self.pools.iter() {
            for slot in entry.released().in_use() {
                if let Some((claim, uid)) = self.addresses.usage(slot).and_then(user_of_released) {
                    found.push((slot.clone(), claim.clone(), uid));
                }
            }
        }
        found
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
