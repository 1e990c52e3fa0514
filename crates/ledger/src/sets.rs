//! Sets of pools: of which pool a claim that names a set gets an address.
//!
//! The members with free addresses of each set are kept in the order in which they are chosen, and
//! updated with each change of a pool. A claim that gets no address waits in the queue of each
//! member; the set records in which ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capi_ipam_api::{MAX_SET_POOLS, PoolChoice, PoolKey, PoolSet, PoolSetKey, SetMembers, names};
use capi_ipam_contract::{IPAddress, is_paused};
use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;
use kube::core::SelectorExt;

use crate::pools::Pools;

/// What the ledger keeps of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetInfo {
    /// The uid of the set.
    pub uid: String,
    /// Whether the set has the annotation that pauses it.
    pub paused: bool,
    /// Whether the set is being deleted.
    pub deleting: bool,
    /// Whether the set has our finalizer.
    pub initialized: bool,
    /// How the pool of a claim is chosen.
    pub choose: PoolChoice,
    /// Whether a claim can get an address of another failure domain.
    pub fallback: bool,
    /// Its pools, or the problems of the specification.
    pub members: Result<SetMembers, Arc<str>>,
}

impl SetInfo {
    /// Reads a set.
    pub fn of(key: &PoolSetKey, set: &PoolSet) -> Self {
        let meta = &set.metadata;
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            paused: is_paused(meta),
            deleting: meta.deletion_timestamp.is_some(),
            initialized: finalizers.iter().any(|set| set == names::PROTECT_POOL),
            choose: set.spec.choose.unwrap_or_default(),
            fallback: set.spec.fallback.unwrap_or_default(),
            members: set.spec.members(key).map_err(|problems| {
                let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
                texts.join("; ").into()
            }),
        }
    }
}

impl SetInfo {
    /// Whether claims that name the set can get addresses.
    pub fn can_allocate(&self) -> bool {
        self.initialized && !self.paused && !self.deleting && self.members.is_ok()
    }
}

/// The place of a member among those with free addresses.
pub(super) type Rank = (Reverse<u128>, usize);

/// A set. Its object may be missing: claims wait for it.
#[derive(Clone, Debug, Default)]
pub(super) struct SetEntry {
    pub(super) info: Option<Arc<SetInfo>>,
    pub(super) members: Vec<PoolKey>,
    /// The number of pools that are selected beyond the limit.
    pub(super) excess: usize,
    /// The place of each member in `members`, and its rank if it has free addresses.
    pub(super) ranks: HashMap<PoolKey, (usize, Option<Rank>)>,
    pub(super) free: BTreeSet<Rank>,
    /// The claims that are not served yet, and the pools in whose queues they wait.
    pub(super) waiting: HashMap<NamespacedName, Vec<PoolKey>>,
    /// Whether the controller of the set is enqueued for the latest changes.
    pub(super) notified: bool,
    /// Whether the current list has shown the set.
    pub(super) is_listed: bool,
}

impl SetEntry {
    pub(super) fn selects(&self, key: &PoolSetKey, pool: &PoolKey, pools: &Pools) -> bool {
        let Some(SetInfo {
            members: Ok(SetMembers::Selected(selector)),
            ..
        }) = self.info.as_deref()
        else {
            return false;
        };
        let is_near = pool.namespace.is_none() || pool.namespace == key.namespace;
        let may_contain = key.kind.may_contain(pool.kind) && !pool.kind.has_prefixes() && is_near;
        may_contain
            && pools
                .info(pool)
                .is_some_and(|info| selector.matches(&*info.labels))
    }

    /// Finds the members, and their ranks.
    pub(super) fn find_members(&mut self, key: &PoolSetKey, pools: &Pools) {
        let mut members = match self.info.as_deref().map(|info| &info.members) {
            Some(Ok(SetMembers::Listed(listed))) => listed.clone(),
            Some(Ok(SetMembers::Selected(_))) => {
                let existing = pools.existing_pools();
                let selected = existing.filter(|pool| self.selects(key, pool, pools));
                let mut members: Vec<PoolKey> = selected.cloned().collect();
                members.sort_unstable();
                members
            }
            Some(Err(_)) | None => Vec::new(),
        };
        self.excess = members.len().saturating_sub(MAX_SET_POOLS);
        members.truncate(MAX_SET_POOLS);
        self.free.clear();
        let places = members.iter().enumerate();
        self.ranks = places
            .map(|(place, pool)| (pool.clone(), (place, None)))
            .collect();
        self.members = members;
        for pool in self.members.clone() {
            self.update(&pool, pools);
        }
    }

    /// Updates the rank of a pool. Returns whether it is a member.
    pub(super) fn update(&mut self, pool: &PoolKey, pools: &Pools) -> bool {
        let Some((place, rank)) = self.ranks.get_mut(pool) else {
            return false;
        };
        let count = pools
            .get(pool)
            .map_or(0, crate::pools::PoolEntry::free_count);
        let is_by_count = self
            .info
            .as_ref()
            .is_some_and(|info| info.choose == PoolChoice::MostFree);
        let order = Reverse(if is_by_count { count } else { 0 });
        let after = (count > 0).then_some((order, *place));
        if let Some(before) = std::mem::replace(rank, after) {
            self.free.remove(&before);
        }
        self.free.extend(after);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.info.is_none() && self.waiting.is_empty()
    }
}

/// The sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Sets {
    pub(super) entries: BTreeMap<PoolSetKey, SetEntry>,
    /// The pool and the block of each IPAddress that refers to a set. A user can remove the annotation
    /// that has the pool.
    pub(super) addresses: HashMap<NamespacedName, (PoolKey, Block)>,
    /// IPAddresses that refer to a set, whose member is not certain: no reservation shows it, and the
    /// pool in which they are counted, if any, does not contain the address.
    pub(super) uncertain: HashMap<NamespacedName, IPAddress>,
    /// The labels of pools when sets were last compared with them.
    pub(super) labels: HashMap<PoolKey, Arc<BTreeMap<String, String>>>,
}

impl Sets {
    pub(super) fn entry(&mut self, key: &PoolSetKey) -> &mut SetEntry {
        self.entries.entry(key.clone()).or_default()
    }

    pub(super) fn remove_if_empty(&mut self, key: &PoolSetKey) {
        if self.entries.get(key).is_some_and(SetEntry::is_empty) {
            self.entries.remove(key);
        }
    }

    /// The IPAddress of that name does not exist.
    pub(super) fn forget_address(&mut self, name: &NamespacedName) {
        self.addresses.remove(name);
        self.uncertain.remove(name);
    }

    /// Whether the labels of a pool are others than before.
    pub(super) fn labels_changed(&mut self, pool: &PoolKey, pools: &Pools) -> bool {
        let labels = pools.info(pool).map(|info| Arc::clone(&info.labels));
        let before = match &labels {
            Some(labels) => self.labels.insert(pool.clone(), Arc::clone(labels)),
            None => self.labels.remove(pool),
        };
        before != labels
    }
}
