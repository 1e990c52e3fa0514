//! Queries of the ledger. None of them changes it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use capi_ipam_api::{AddressCounts, OverLimit, Scope, SliceCounts, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Family, UsableBlocks};
use capi_ipam_provider::api::Uid;

use super::pool::PoolEntry;
use super::usage::AddressUsage;
use super::{KnownReservation, Ledger, PoolInfo, PoolKey};

/// An address that is reserved for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The scope and address.
    pub slot: Slot,
    /// The pool of the reservation.
    pub pool: PoolKey,
    /// The uid of the reservation.
    pub uid: String,
    /// The latest observed resource version of the reservation.
    pub version: String,
    /// Whether a user promised the address to the name of the claim. A promise outlives the claim.
    pub is_promise: bool,
    /// Whether an IPAddress of the claim with this address was observed.
    pub was_used: bool,
}

impl Held {
    /// The reservation in the version that is known.
    pub fn known(&self) -> KnownReservation {
        KnownReservation {
            slot: self.slot.clone(),
            pool: self.pool.clone(),
            uid: self.uid.clone(),
            version: self.version.clone(),
        }
    }
}

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
}

impl Ledger {
    pub(super) fn all_usage(&self) -> impl Iterator<Item = (&Scope, Block, &AddressUsage)> {
        self.scopes.iter().flat_map(|(scope, entry)| {
            entry
                .usage
                .iter()
                .map(move |(block, usage)| (scope, *block, usage))
        })
    }
}

impl Ledger {
    /// The settings of a pool, `None` if it does not exist.
    pub fn pool_info(&self, pool: &PoolKey) -> Option<PoolInfo> {
        self.pools.get(pool)?.info.clone()
    }

    /// Whether `usable` are still the blocks of the pool, as returned by [`Ledger::pool_info`].
    pub fn is_current(&self, pool: &PoolKey, usable: &Arc<UsableBlocks>) -> bool {
        let info = self.pools.get(pool).and_then(|entry| entry.info.as_ref());
        info.and_then(|info| info.usable.as_ref().ok())
            .is_some_and(|current| Arc::ptr_eq(current, usable))
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
        let entry = self.pools.get(pool);
        let named = entry.and_then(|entry| entry.declared.as_ref()?.network.clone());
        let awaited = entry.and_then(|entry| entry.awaited.clone());
        let mut scopes: Vec<Scope> = self.scopes_with(pool).collect();
        let others = named.into_iter().chain(awaited).map(Scope::Network);
        for scope in std::iter::once(Scope::Pool(pool.clone())).chain(others) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// The length of the blocks that the pools of a network allocate, once it is set.
    pub fn network_length(&self, network: &str, family: Family) -> Option<u8> {
        self.networks.block_length(network, family)
    }

    /// The pools of a network.
    pub fn members(&self, network: &str) -> Vec<PoolKey> {
        let scope = Scope::Network(network.into());
        self.scopes
            .get(&scope)
            .map(|scope| scope.members.clone())
            .unwrap_or_default()
    }

    /// What a claim holds: the addresses reserved for its uid, and those promised to its name.
    pub fn held_by(&self, claim: &NamespacedName, uid: Uid) -> Vec<Held> {
        let describe = |slot: &Slot| {
            let reservation = self.usage(slot)?.reservation.as_ref()?;
            Some(Held {
                slot: slot.clone(),
                pool: reservation.pool.clone(),
                uid: reservation.uid.to_string(),
                version: self.precondition(reservation),
                is_promise: reservation.is_manual(),
                was_used: reservation.was_used,
            })
        };
        self.holdings.of(claim, uid).filter_map(describe).collect()
    }

    /// An address of the pool that is reserved for a claim, if there is one.
    pub fn held_in(&self, pool: &PoolKey) -> Option<Slot> {
        let is_held = |usage: &AddressUsage| {
            let reservation = usage.reservation.as_ref();
            reservation.is_some_and(|known| {
                known.pool == *pool && !known.is_manual() && known.released_at.is_none()
            })
        };
        self.scopes_with(pool).find_map(|scope| {
            let (block, _) = self
                .scopes
                .get(&scope)?
                .usage
                .iter()
                .find(|(_, usage)| is_held(usage))?;
            Some(Slot {
                scope,
                block: *block,
            })
        })
    }

    /// Whether an address has a reservation of any kind.
    pub fn is_reserved(&self, slot: &Slot) -> bool {
        self.usage(slot)
            .is_some_and(|usage| usage.reservation.is_some())
    }

    /// The address counts of a pool.
    pub fn counts(&self, pool: &PoolKey) -> AddressCounts {
        self.pools
            .get(pool)
            .map(PoolEntry::counts)
            .unwrap_or_default()
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
            let usage = self
                .scopes
                .get(&scope)
                .into_iter()
                .flat_map(|scope| scope.usage.iter());
            let in_use = usage.filter(|(block, usage)| filter(**block) && usage.is_in_use_of(pool));
            blocks.extend(in_use.map(|(block, _)| *block));
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// The counts of all existing pools.
    pub fn pool_counts(&self) -> Vec<PoolCounts> {
        let existing = self.pools.iter().filter(|(_, entry)| entry.info.is_some());
        let counts = existing.map(|(key, entry)| PoolCounts {
            key: key.clone(),
            counts: entry.counts(),
            waiting: entry.wait_queue.waiting(),
            over_limit: self.over_limit_of(entry),
            slices: entry.slice_counts(),
        });
        counts.collect()
    }

    /// The pools whose addresses are compared with those of Machines, in order.
    pub fn verified_pools(&self) -> Vec<PoolKey> {
        let is_verified = |info: &PoolInfo| info.reclaim.verifies() && !info.paused;
        let entries = self
            .pools
            .iter()
            .filter(|(_, entry)| entry.info.as_ref().is_some_and(is_verified));
        let mut pools: Vec<PoolKey> = entries.map(|(key, _)| key.clone()).collect();
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
        let indexes: HashMap<&PoolKey, usize> = pools
            .iter()
            .enumerate()
            .map(|(index, pool)| (pool, index))
            .collect();
        let scopes: HashSet<Scope> = pools
            .iter()
            .flat_map(|pool| self.scopes_with(pool))
            .collect();
        for (block, usage) in scopes
            .iter()
            .filter_map(|scope| self.scopes.get(scope))
            .flat_map(|scope| scope.usage.iter())
        {
            for owner in &usage.owners {
                let Some(index) = indexes.get(&owner.pool) else {
                    continue;
                };
                let (namespace, name) = owner.name.parts();
                found
                    .entry(namespace.to_owned())
                    .or_default()
                    .insert(name.to_owned(), (*index, *block));
            }
        }
        found
    }

    /// The namespaces and names of the IPAddress objects with that address.
    pub fn owners(&self, slot: &Slot) -> Vec<NamespacedName> {
        let owners = self.usage(slot).into_iter().flat_map(|usage| &usage.owners);
        owners.map(|owner| owner.name.clone()).collect()
    }

    /// Whether a block that overlaps with the slot is used by anything other than this claim.
    pub fn overlaps_other_claim(&self, slot: &Slot, claim: &NamespacedName) -> bool {
        let span = slot.block.span();
        let overlaps = |block: &Block| {
            let other = block.span();
            block.family() == slot.block.family()
                && span.first() <= other.last()
                && other.first() <= span.last()
        };
        let is_of_another = |usage: &AddressUsage| {
            let reservation = usage.reservation.as_ref().is_some_and(|reservation| {
                reservation
                    .claim
                    .as_ref()
                    .is_none_or(|holder| *holder != *claim)
            });
            reservation
                || usage.candidate.is_some()
                || usage.owners.iter().any(|owner| owner.name != *claim)
        };
        let scope = self.scopes.get(&slot.scope);
        scope.is_some_and(|scope| {
            scope
                .usage
                .iter()
                .any(|(block, usage)| overlaps(block) && is_of_another(usage))
        })
    }

    /// The number of addresses of a scope that are not free.
    pub fn usage_count(&self, scope: &Scope) -> usize {
        self.scopes
            .get(scope)
            .map(|scope| scope.usage.len())
            .unwrap_or_default()
    }

    /// The reservations of released addresses that are no longer needed at `now`, in seconds since
    /// the Unix epoch: their cool-down has ended, or their pool is deleted. Sticky pools keep them
    /// for longer. For pools for which `is_served` returns false, the cool-down ends `delay`
    /// seconds later.
    pub fn cooled_down(
        &self,
        now: i64,
        is_served: impl Fn(&PoolKey) -> bool,
        delay: i64,
    ) -> Vec<KnownReservation> {
        let ended = self.pools.iter().flat_map(|(pool, entry)| {
            entry.reservations_to_delete(if is_served(pool) {
                now
            } else {
                now.saturating_sub(delay)
            })
        });
        let described = ended.filter_map(|slot| {
            let reservation = self.usage(slot)?.reservation.as_ref()?;
            // It is not recorded yet that the cool-down has ended: a sticky pool keeps the address.
            if !reservation.is_remembered && self.keeps_for_next(reservation, now) {
                return None;
            }
            Some(self.known_version(slot, reservation))
        });
        described.collect()
    }

    /// The released addresses whose release is after `second`, in seconds since the Unix epoch.
    pub fn released_after(&self, second: i64) -> Vec<KnownReservation> {
        let mut found = Vec::new();
        for slot in self
            .pools
            .values()
            .flat_map(|entry| entry.released_after(second))
        {
            let Some(reservation) = self
                .usage(slot)
                .and_then(|usage| usage.reservation.as_ref())
            else {
                continue;
            };
            found.push(self.known_version(slot, reservation));
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
        let ends = self.pools.iter().filter_map(|(pool, entry)| {
            let end = entry.next_reservation_end()?;
            Some(if is_served(pool) {
                end
            } else {
                end.saturating_add(delay)
            })
        });
        ends.min()
    }

    /// When the next cool-down of a pool ends, in seconds since the Unix epoch.
    pub fn cooldown_end(&self, pool: &PoolKey) -> Option<i64> {
        self.pools.get(pool)?.next_cooldown_end()
    }

    /// The addresses that cool down although a claim has an IPAddress with them, and that claim.
    /// The uid is set if the reservation names this claim: the claim released the address unless it
    /// still exists with this uid.
    pub fn cooling_down_in_use(&self) -> Vec<(Slot, NamespacedName, Option<Uid>)> {
        let in_use = |slot: &Slot| {
            let usage = self.usage(slot)?;
            let reservation = usage.reservation.as_ref()?;
            let is_releaser = |name: &NamespacedName| Some(name) == reservation.claim.as_ref();
            let other = usage.owners.iter().find(|owner| !is_releaser(&owner.name));
            let name = &other.or(usage.owners.first())?.name;
            Some((
                slot.clone(),
                name.clone(),
                reservation.claim_uid.filter(|_| is_releaser(name)),
            ))
        };
        self.pools
            .values()
            .flat_map(PoolEntry::released)
            .filter_map(in_use)
            .collect()
    }
}

impl Ledger {
    /// The scope of a pool, and others in which addresses of it are reserved.
    pub(super) fn scopes_with(&self, pool: &PoolKey) -> impl Iterator<Item = Scope> {
        let own = self.scope_of(pool);
        let holds = self
            .pools
            .get(pool)
            .map(|entry| entry.holds.as_slice())
            .unwrap_or_default();
        let others: Vec<Scope> = holds
            .iter()
            .map(|(scope, _)| scope)
            .filter(|scope| **scope != own)
            .cloned()
            .collect();
        std::iter::once(own).chain(others)
    }
}
