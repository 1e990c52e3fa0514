//! What the ledger knows at one moment. A status is computed from one report, so it does not
//! contradict itself.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{
    AddressCounts, DrainingStatus, IPNetwork, MemberPhase, NetworkView, OverLimit, PoolKey,
    PoolNetwork, Scope, ScopeChange, SliceCounts, Slot,
};
use capi_ipam_ip::{Block, Entry, Family};
use capi_ipam_objects::namespaced_name::NamespacedName;
use kube::ResourceExt;

use crate::addresses::{AddressUsage, ScopeEntry};
use crate::block_queries::NetworkBlocks;
use crate::block_supply::MissingBlock;
use crate::network_view::{count, count_reservations, most_frequent, needs_network};
use crate::networks::{NetworkInfo, Networks};
use crate::pools::PoolEntry;
use crate::{Ledger, PoolInfo, addresses};

/// What the ledger knows of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolReport {
    /// The pool.
    pub key: PoolKey,
    /// What the pool declares, and its scope.
    pub info: Arc<PoolInfo>,
    /// The counts of its addresses.
    pub counts: AddressCounts,
    /// How many of the addresses out of range are in blocks of the network that are not usable.
    pub in_unusable_blocks: usize,
    /// When the next cool-down ends, in seconds since the Unix epoch.
    pub cooldown_end: Option<i64>,
    /// The block of its network that the pool needs for its next claim.
    pub missing_block: Option<MissingBlock>,
    /// The pools of other scopes that can allocate an address of this one.
    pub overlapping: Vec<PoolKey>,
    /// The first addresses that the first of these has, too.
    pub shared: Option<Entry>,
    /// Whether these allocate blocks of the same length as this pool.
    pub has_one_length: bool,
    /// The addresses beyond what the access rules of the pool allow; `None` without rules.
    pub over_limit: Option<OverLimit>,
    /// The counts of the slices of the pool; `None` without slices.
    pub slices: Option<SliceCounts>,
    /// What is in use in the draining parts of the pool; `None` without such parts.
    pub draining: Option<DrainingUse>,
    /// The network to which the pool belongs, or which it leaves.
    pub network: Option<PoolNetwork>,
}

/// What holds addresses of a pool, as far as the ledger knows.
#[derive(Clone, Debug)]
pub enum PoolUse {
    /// Claims have addresses of it.
    Addresses {
        /// The number of addresses.
        count: usize,
        /// The claims with the lowest ones.
        claims: Vec<NamespacedName>,
    },
    /// A reservation of the provider, of this address.
    Reservation(Slot),
    /// Nothing.
    Unused {
        /// The scopes in which the API server can have reservations of the pool.
        scopes: Vec<Scope>,
    },
}

/// What the ledger knows of a network.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// Its pools and counts.
    pub view: NetworkView,
    /// The blocks that it shares with other management clusters; `None` if it shares none.
    pub blocks: Option<NetworkBlocks>,
    /// Whether pools wait for the length of its blocks.
    pub lacks_block_length: bool,
    /// Whether it is unknown which of its blocks are those of this management cluster.
    pub awaits_identity: bool,
    /// Whether the registry that it names does not exist, as far as is known.
    pub lacks_registry: bool,
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
    /// Whether the counts are those of blocks that its network shares with other management
    /// clusters: there can be more addresses.
    pub shares_blocks: bool,
    /// Whether its specification is not valid.
    pub is_invalid: bool,
}

/// The maximum number of claims that a message about a pool names.
const MAX_NAMED: usize = 3;

/// What is in use in the draining parts of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainingUse {
    /// The number of addresses in use.
    pub addresses: usize,
    /// The claims of the lowest of these addresses.
    pub claims: Vec<NamespacedName>,
}

impl DrainingUse {
    /// The status of the pool.
    pub fn status(&self) -> DrainingStatus {
        DrainingStatus {
            addresses: i64::try_from(self.addresses).unwrap_or(i64::MAX),
        }
    }
}

/// Whether another pool has an address reserved or in use.
fn is_of_another_pool(usage: &AddressUsage, pool: &PoolKey) -> bool {
    if let Some(reservation) = &usage.reservation
        && reservation.pool != *pool
    {
        return true;
    }
    usage.owners.iter().any(|owner| owner.pool != *pool)
}

/// The network to which a pool belongs, or which it leaves.
pub(super) fn pool_network(pool: &PoolKey, entry: &PoolEntry) -> Option<PoolNetwork> {
    let scope = entry.scope(pool);
    // What it still holds elsewhere, and the network in which that is.
    let mut remaining = 0_usize;
    let mut left = None;
    for (other, count) in entry.holds() {
        if *other != scope {
            remaining = remaining.saturating_add(*count);
            if left.is_none() {
                left = other.network();
            }
        }
    }
    let phase = match scope.network() {
        Some(_) if remaining == 0 => MemberPhase::Member,
        Some(_) => MemberPhase::Joining,
        None => MemberPhase::Leaving,
    };
    let name = scope.network().or(left)?;
    Some(PoolNetwork {
        name: name.to_owned(),
        phase,
        remaining: i64::try_from(remaining).unwrap_or(i64::MAX),
    })
}

impl Ledger {
    /// What is known of a pool; `None` if it is not known. `overlapping` are the pools of other
    /// scopes that can allocate an address of it: they are searched without the ledger, see
    /// [`Pools::begin_overlap_search`](crate::Pools::begin_overlap_search).
    pub fn pool_report(&self, key: &PoolKey, overlapping: Vec<PoolKey>) -> Option<PoolReport> {
        let entry = self.pools.get(key)?;
        let info = entry.shared_info()?;
        let mut has_one_length = false;
        let mut shared = None;
        if let Ok(usable) = &info.usable {
            has_one_length = self.pools.have_length(&overlapping, usable.length);
            let first = overlapping
                .first()
                .and_then(|first| self.pools.pool_info(first));
            if let Some(Ok(theirs)) = first.as_ref().map(|first| &first.usable) {
                shared = usable.first_shared(theirs);
            }
        }
        Some(PoolReport {
            key: key.clone(),
            counts: entry.counts(),
            in_unusable_blocks: self.in_unusable_blocks(key),
            cooldown_end: self.pools.cooldown_end(key),
            missing_block: self.missing_block(key),
            overlapping,
            shared,
            has_one_length,
            over_limit: self.over_limit_of(entry),
            slices: entry.slice_counts(),
            draining: self.draining_use(key, entry),
            network: pool_network(key, entry),
            info,
        })
    }

    /// What holds addresses of a pool.
    pub fn pool_use(&self, key: &PoolKey) -> PoolUse {
        if self.pools.is_in_use(key) {
            let counts = self.pools.counts(key);
            let used = counts.used.saturating_add(counts.out_of_range);
            return PoolUse::Addresses {
                count: usize::try_from(used).unwrap_or_default(),
                claims: self.first_claims(key),
            };
        }
        match self.held_in(key) {
            Some(held) => PoolUse::Reservation(held),
            None => PoolUse::Unused {
                scopes: self.pools.possible_scopes(key),
            },
        }
    }

    /// What is known of a network. `registry` is the one that it names.
    pub fn network_report(&self, name: &str, registry: Option<&str>) -> NetworkReport {
        NetworkReport {
            view: self.network(name),
            blocks: self.network_blocks(name),
            lacks_block_length: self.lacks_block_length(name),
            awaits_identity: self.awaits_identity(name),
            lacks_registry: registry.is_some_and(|registry| self.lacks_registry(registry)),
        }
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
        let is_held = |usage: &AddressUsage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|reservation| reservation.pool == *pool && reservation.is_held())
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

    /// The number of manually created reservations of a pool that does not exist. They apply to a
    /// pool that is created with this key in this scope.
    pub fn reservations_without_pool(&self, pool: &PoolKey, scope: &Scope) -> usize {
        if self.pools.info(pool).is_some() {
            return 0;
        }
        let is_older = |usage: &AddressUsage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|reservation| reservation.is_manual() && reservation.pool == *pool)
        };
        let usage = self.addresses.usage_in(scope);
        usage.filter(|(_, usage)| is_older(usage)).count()
    }

    /// Whether a pool waits until a network is initialized.
    pub(super) fn lacks_block_length(&self, name: &str) -> bool {
        self.networks.awaiting(name).next().is_some()
    }

    /// The state of a network. It depends on the objects only, and not on the order in which they
    /// were observed: all managers write the same status.
    pub fn network(&self, name: &str) -> NetworkView {
        let scope = Scope::Network(name.into());
        let empty = ScopeEntry::default();
        let entry = self.addresses.scope(&scope).unwrap_or(&empty);
        let mut view = NetworkView {
            members: self.members_of(&scope, entry),
            ..NetworkView::default()
        };
        let reserved = count_reservations(&mut view, entry);
        let infos = self.count_members(&mut view, entry);
        for family in [Family::V4, Family::V6] {
            if let Some(length) = most_frequent(&reserved, family) {
                view.reserved_lengths.set(family, length);
            }
            if let Some(length) = self.oldest_length(name, &entry.members, family) {
                view.oldest_lengths.set(family, length);
            }
            count(&mut view, family, &infos, entry);
        }
        view
    }

    /// Counts the pools of a network that need it. Returns those that it accepts.
    fn count_members(&self, view: &mut NetworkView, entry: &ScopeEntry) -> Vec<&PoolInfo> {
        let mut infos = Vec::new();
        for key in &entry.members {
            let Some(pool) = self.pools.get(key) else {
                continue;
            };
            let Some(info) = pool.info() else {
                continue;
            };
            if needs_network(pool, info) {
                view.needed_by += 1;
            }
            if !info.is_refused_alone() {
                // The lengths of the network are kept for the pools that have them.
                view.keeps_lengths = true;
                infos.push(info);
            }
        }
        infos
    }

    /// Whether a pool still has reservations or candidates outside of a scope.
    fn holds_outside_of(&self, scope: &Scope, pool: &PoolKey) -> bool {
        let Some(entry) = self.pools.get(pool) else {
            return false;
        };
        entry.holds().iter().any(|(other, _)| other != scope)
    }

    /// The pools that belong to a network, and those that still have reservations in it, ordered.
    fn members_of(&self, scope: &Scope, entry: &ScopeEntry) -> Vec<(PoolKey, MemberPhase)> {
        let mut members = Vec::new();
        for key in &entry.members {
            let phase = if self.holds_outside_of(scope, key) {
                MemberPhase::Joining
            } else {
                MemberPhase::Member
            };
            members.push((key.clone(), phase));
        }
        for key in &entry.holders {
            if entry.members.binary_search(key).is_err() {
                members.push((key.clone(), MemberPhase::Leaving));
            }
        }
        members.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        members
    }

    /// The length of the blocks of the oldest pool of a network, or of those that join it when it
    /// is initialized.
    fn oldest_length(&self, network: &str, members: &[PoolKey], family: Family) -> Option<u8> {
        let mut oldest: Option<(i64, &PoolKey, u8)> = None;
        for key in members.iter().chain(self.networks.awaiting(network)) {
            let Some(entry) = self.pools.get(key) else {
                continue;
            };
            // A member with another length has no usable blocks in the network.
            let Some(info) = entry.info_in(network) else {
                continue;
            };
            if info.is_refused_alone() {
                continue;
            }
            let Ok(usable) = &info.usable else {
                continue;
            };
            let candidate = (info.created, key, usable.length);
            if usable.family == family && oldest.is_none_or(|oldest| candidate < oldest) {
                oldest = Some(candidate);
            }
        }
        let (_, _, length) = oldest?;
        Some(length)
    }

    /// What is in use in the draining parts of a pool; `None` if its spec names none.
    fn draining_use(&self, pool: &PoolKey, entry: &PoolEntry) -> Option<DrainingUse> {
        if !entry.info()?.is_draining {
            return None;
        }
        let in_use = entry.draining_in_use();
        Some(DrainingUse {
            addresses: in_use.len(),
            claims: self.claims_of(pool, in_use),
        })
    }

    /// The claims of the lowest addresses of a pool that are in use, at most as many as a message
    /// names.
    pub(super) fn first_claims(&self, pool: &PoolKey) -> Vec<NamespacedName> {
        let blocks = self.in_use(pool, &|_| true);
        self.claims_of(pool, &blocks)
    }

    /// The claims of the first blocks of a pool, at most as many as a message names.
    fn claims_of<'a>(
        &self,
        pool: &PoolKey,
        blocks: impl IntoIterator<Item = &'a Block>,
    ) -> Vec<NamespacedName> {
        let scopes = self.pools.scopes_with(pool);
        let mut claims = Vec::new();
        for block in blocks {
            let mut scopes = scopes.iter();
            claims.extend(scopes.find_map(|scope| self.claim_of(pool, scope, *block)));
            if claims.len() >= MAX_NAMED {
                break;
            }
        }
        claims.into_iter().cloned().collect()
    }

    /// The claim of a pool that uses a block, or has reserved it.
    fn claim_of(&self, pool: &PoolKey, scope: &Scope, block: Block) -> Option<&NamespacedName> {
        let usage = self.addresses.scope(scope)?.usage.get(&block)?;
        if !usage.is_in_use_of(pool) {
            return None;
        }
        if let Some(owner) = usage.owners.iter().find(|owner| owner.pool == *pool) {
            return Some(&owner.name);
        }
        usage.reservation.as_ref()?.claim.as_ref()
    }

    /// What a write of a pool, which may not be stored yet, changes. `declared` is what
    /// [`PoolInfo::of`] has read.
    pub fn preview_pool(&self, key: &PoolKey, declared: PoolInfo) -> ScopeChange {
        let declared = PoolInfo {
            scope: Scope::Pool(key.clone()),
            ..declared
        };
        let mut change = self.scope_change(key, &declared, &self.networks);
        self.find_affected(std::slice::from_mut(&mut change));
        change
    }

    /// What a write of a network changes for the existing pools. Pools that keep their scope are
    /// left out, unless the network would refuse them for another reason than now.
    pub fn preview_network(&self, network: &IPNetwork) -> Vec<ScopeChange> {
        let networks = self
            .networks
            .preview(&network.name_any(), NetworkInfo::of(network));
        let mut changes = Vec::new();
        for (key, entry) in self.pools.iter() {
            let (Some(declared), Some(info)) = (entry.declared(), entry.info()) else {
                continue;
            };
            let change = self.scope_change(key, declared, &networks);
            let is_same_scope = change.before.as_ref() == Some(&change.after)
                && change.is_kept == info.is_kept_in_network;
            let is_same_refusal =
                change.refusal.is_none() || change.refusal == info.network_problem;
            if !is_same_scope || !is_same_refusal {
                changes.push(change);
            }
        }
        changes.sort_unstable_by(|one, other| one.pool.cmp(&other.pool));
        self.find_affected(&mut changes);
        changes
    }

    fn scope_change(&self, key: &PoolKey, declared: &PoolInfo, networks: &Networks) -> ScopeChange {
        let placed = networks.place(key, declared, &self.past_of(key));
        let before = self.pools.info(key).map(|existing| existing.scope.clone());
        // The first pool of a network joins it once the length of its blocks is set.
        let after = match placed.awaited {
            Some(network) => Scope::Network(network),
            None => placed.info.scope,
        };
        let refusal = placed.info.network_problem;
        let is_kept = placed.info.is_kept_in_network;
        ScopeChange {
            pool: key.clone(),
            before,
            after,
            refusal,
            is_kept,
            affected: Vec::new(),
        }
    }

    /// Finds the addresses that changes affect that happen at the same time: several pools that
    /// join a network can use the same address.
    fn find_affected(&self, changes: &mut [ScopeChange]) {
        let mut users: BTreeMap<(Scope, Block), usize> = BTreeMap::new();
        for change in changes.iter_mut() {
            if change.left_network().is_none() && change.joined_network().is_none() {
                continue;
            }
            change.affected = self.in_use(&change.pool, &|_| true);
            for block in &change.affected {
                let count = users.entry((change.after.clone(), *block)).or_default();
                *count += 1;
            }
        }
        for change in changes {
            // A pool that leaves a network takes all its addresses with it.
            if change.left_network().is_some() {
                continue;
            }
            let pool = &change.pool;
            let scope = &change.after;
            change.affected.retain(|block| {
                let users = users.get(&(scope.clone(), *block));
                let is_used_by_another_joining_pool = users.is_some_and(|count| *count > 1);
                is_used_by_another_joining_pool || self.is_held_by_another(pool, scope, *block)
            });
        }
    }

    /// Whether another pool of a scope has an address reserved or in use.
    fn is_held_by_another(&self, pool: &PoolKey, scope: &Scope, block: Block) -> bool {
        let slot = addresses::slot(scope, block);
        self.addresses
            .usage(&slot)
            .is_some_and(|usage| is_of_another_pool(usage, pool))
    }
}
