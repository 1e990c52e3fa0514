//! The ledger's entry of one pool: its counts, free addresses and wait queue.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{AddressCounts, Scope};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};
use capi_ipam_objects::observed::{Known, Stamp};

use super::PoolInfo;
use super::draining::Draining;
use super::released::{ReleasedAddresses, Retention};
use super::scope::PoolScope;
use crate::PoolKey;
use crate::addresses::{AddressUsage, Availability};
use crate::networks::exclusions::AppliedExclusions;
use crate::networks::scope_rule::{PoolUsage, StatusRecord};
use crate::networks::{Change, PoolInNetwork, PoolPast};
use crate::order::Order;
use crate::quota::Quota;
use crate::slices::{SliceInfo, Slices};
use crate::wait_queue::{ClaimAttributes, WaitQueue};

/// The gateways that a pool adds to the exclusions of its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolGateways {
    pub(crate) network: Arc<str>,
    pub(crate) addresses: Arc<[IpAddr]>,
}

/// One pool. Its object may be missing: addresses can be in use after the pool is deleted.
#[derive(Clone, Default)]
pub(crate) struct PoolEntry {
    /// As the pool object declares it; `None` without an object.
    pub(super) declared: Option<Arc<PoolInfo>>,
    /// The same, with the restrictions of its network. Without any, both are one value: most pools
    /// are in no network, and there can be ten thousand of them.
    pub(super) info: Option<Arc<PoolInfo>>,
    pub(crate) wait_queue: WaitQueue,
    /// When the pool object was last seen.
    pub(super) stamp: Stamp,
    /// Whether the pool's controller is already enqueued for the latest changes.
    pub(super) notified: bool,
    /// The scope of its addresses; kept while a deleted pool still has addresses in use.
    pub(super) scope: Option<Scope>,
    /// What is recorded of its scope.
    pub(super) recorded: PoolScope,
    /// The gateways that no pool of its network allocates.
    pub(super) gateways: Option<PoolGateways>,
    /// Whether its network has to be computed again.
    pub(super) needs_refresh: bool,
    /// The last one of the overlapping pools in its status, if that names as many as it can: pools
    /// behind this one do not change the status.
    pub(super) last_overlap: Option<PoolKey>,
    /// The free numbers of the pool; `None` while all of them are free.
    pub(super) free: Option<FreeSet>,
    pub(super) order: Order,
    /// When the addresses in use were allocated, in microseconds since the Unix epoch; only with
    /// the order RoundRobin and slices.
    pub(super) allocated: BTreeMap<Block, i64>,
    /// Numbers that overlap with a used block of another length.
    pub(super) other_lengths: SpanSet,
    pub(super) draining: Draining,
    /// IPAddress objects of the pool with an address in its range.
    pub(super) used: usize,
    /// IPAddress objects of the pool with another address.
    pub(super) out_of_range: usize,
    /// Addresses that are held for claims of the pool whose reservation is being created.
    pub(super) candidates: usize,
    /// The released addresses of the pool.
    pub(super) released: ReleasedAddresses,
    /// The numbers of the pool that are kept for the next claim of the same name, also by another
    /// pool of its network, ordered by the second of their release.
    pub(super) remembered: BTreeSet<(i64, u128)>,
    /// The scopes in which addresses of this pool are reserved or proposed, and how many: more than
    /// one while the pool joins or leaves a network.
    pub(super) holds: Vec<(Scope, usize)>,
    /// The addresses by namespace and Cluster; only of a pool with access rules.
    pub(super) quota: Option<Box<Quota>>,
    /// The IPSlices of the pool.
    pub(super) slice_objects: BTreeMap<Block, SliceInfo>,
    /// How the pool is divided into slices; only with slices in its specification.
    pub(super) slices: Option<Box<Slices>>,
}

impl PoolEntry {
    /// What the object of the pool declares.
    pub(crate) fn declared(&self) -> Option<&PoolInfo> {
        self.declared.as_deref()
    }

    /// The same, with the restrictions of its network; `None` if the pool does not exist.
    pub(crate) fn info(&self) -> Option<&PoolInfo> {
        self.info.as_deref()
    }

    /// The same, to keep it.
    pub(crate) fn shared_info(&self) -> Option<Arc<PoolInfo>> {
        self.info.clone()
    }

    /// Records whether the controller of the pool is enqueued for the latest changes. Returns what
    /// was known before.
    pub(crate) fn set_notified(&mut self, is_notified: bool) -> bool {
        std::mem::replace(&mut self.notified, is_notified)
    }

    /// The scopes in which addresses of the pool are reserved or proposed, and how many.
    pub(crate) fn holds(&self) -> &[(Scope, usize)] {
        &self.holds
    }

    /// The released addresses of the pool.
    pub(crate) fn released(&self) -> &ReleasedAddresses {
        &self.released
    }

    /// The IPSlices of the pool.
    pub(crate) fn slice_objects(&self) -> &BTreeMap<Block, SliceInfo> {
        &self.slice_objects
    }

    /// Whether a claim waits for any address, and none is free for it.
    pub(crate) fn lacks_addresses(&self) -> bool {
        if !self.can_allocate() {
            return false;
        }
        let mut owners = self.wait_queue.blocked_owners();
        let lacks_slice = self
            .slices
            .as_ref()
            .is_some_and(|slices| owners.any(|owner| slices.lacks_addresses(owner)));
        lacks_slice || self.wait_queue.waits_for_any()
    }

    /// Whether a claim waits for any address although some are free.
    pub(crate) fn waits_beside_free_addresses(&self) -> bool {
        self.free_count() > 0 && self.wait_queue.waits_for_any()
    }

    /// The requested addresses that are outside of the usable blocks of the network.
    pub(crate) fn requests_in_missing_blocks(&self) -> Vec<Block> {
        let mut requested = self.wait_queue.awaited_blocks();
        requested.retain(|block| self.is_in_missing_block(*block));
        requested.sort_unstable();
        requested
    }

    /// The addresses by namespace and Cluster; only of a pool with access rules.
    pub(crate) fn quota(&self) -> Option<&Quota> {
        self.quota.as_deref()
    }

    /// The blocks of the draining parts that are in use.
    pub(crate) fn draining_in_use(&self) -> &BTreeSet<Block> {
        &self.draining.in_use
    }

    /// The network in which the addresses of the pool are unique.
    pub(crate) fn network(&self) -> Option<&Arc<str>> {
        match &self.scope {
            Some(Scope::Network(network)) => Some(network),
            _ => None,
        }
    }

    /// The settings of a pool of a network: as it declares them if it joins the network once that
    /// is initialized.
    pub(crate) fn info_in(&self, network: &str) -> Option<&PoolInfo> {
        if self.recorded.awaited.as_deref() == Some(network) {
            self.declared()
        } else {
            self.info()
        }
    }

    /// Whether the pool exists, and its specification is not valid.
    pub(crate) fn is_invalid(&self) -> bool {
        self.declared.is_some() && self.declared_blocks().is_none()
    }

    /// What is known of the pool besides its object. `reserved_in` is the network in which claims
    /// have reservations of it, if nothing is recorded of its scope.
    pub(crate) fn past(&self, reserved_in: Option<Arc<str>>, knows_usage: bool) -> PoolPast<'_> {
        let recorded = &self.recorded;
        PoolPast {
            record: recorded.record.clone(),
            status: recorded.status.as_ref(),
            reserved_in: reserved_in.filter(|_| recorded.is_unknown()),
            usage: if knows_usage {
                PoolUsage::Known {
                    has_addresses: self.is_in_use(),
                    holds: &self.holds,
                }
            } else {
                PoolUsage::Unknown
            },
            applied: recorded.exclusions.as_ref(),
        }
    }

    /// Whether nothing is recorded of the scope of the pool.
    pub(crate) fn lacks_record(&self) -> bool {
        self.recorded.is_unknown()
    }

    /// Records the gateways that no pool of its network allocates. Returns those before and now, if
    /// they are others.
    pub(crate) fn replace_gateways(&mut self, key: &PoolKey) -> Option<[Option<PoolGateways>; 2]> {
        let after = self.gateways_to_exclude(key);
        if self.gateways == after {
            return None;
        }
        Some([std::mem::replace(&mut self.gateways, after.clone()), after])
    }

    /// Records whether the network of the pool has to be computed again. Returns what was known
    /// before.
    pub(crate) fn set_needs_refresh(&mut self, needs_refresh: bool) -> bool {
        std::mem::replace(&mut self.needs_refresh, needs_refresh)
    }

    /// Whether the network of the pool has to be computed again.
    pub(crate) fn needs_refresh(&self) -> bool {
        self.needs_refresh
    }

    /// Whether a change of a network or namespace may affect the pool.
    pub(crate) fn is_affected_by(&self, key: &PoolKey, change: &Change) -> bool {
        self.declared()
            .is_some_and(|declared| change.affects(key, declared, &self.recorded.record))
    }

    /// Applies what its network makes of the pool. Returns it if it is not what was known before.
    pub(crate) fn refresh(&mut self, placed: PoolInNetwork) -> Option<PoolInNetwork> {
        let allowed = self.allowed_by(placed.applied.as_ref());
        let is_same = self.info() == Some(&placed.info)
            && self.recorded.record == placed.record
            && self.recorded.awaited == placed.awaited
            && self.allowed_by(self.recorded.exclusions.as_ref()) == allowed;
        if !is_same {
            return Some(placed);
        }
        self.recorded.depends_on_use = placed.depends_on_use;
        self.recorded.exclusions = placed.applied;
        None
    }

    /// What the pool could allocate with these exclusions if this management cluster had all blocks
    /// of the network.
    fn allowed_by<'a>(
        &'a self,
        applied: Option<&'a AppliedExclusions>,
    ) -> Option<&'a UsableBlocks> {
        match applied {
            Some(applied) => Some(&applied.allowed),
            None => self.declared_blocks(),
        }
    }

    /// The known pool object, if it exists.
    pub(crate) fn known(&self) -> Option<Known> {
        let declared = self.declared.as_ref()?;
        Some(Known {
            uid: Uid::of(&declared.uid),
            stamp: self.stamp,
        })
    }

    /// The blocks that the pool can allocate; `None` if it does not exist or is not valid.
    pub(crate) fn usable(&self) -> Option<&UsableBlocks> {
        self.shared_usable().map(Arc::as_ref)
    }

    /// The same, to keep them.
    pub(crate) fn shared_usable(&self) -> Option<&Arc<UsableBlocks>> {
        self.info.as_ref()?.blocks()
    }

    /// The blocks that the object of the pool declares: also those that no pool of its network
    /// allocates.
    pub(crate) fn declared_blocks(&self) -> Option<&UsableBlocks> {
        self.declared.as_ref()?.usable.as_deref().ok()
    }

    /// The blocks that the pool could allocate if this management cluster had all blocks of the
    /// network.
    pub(crate) fn allowed_blocks(&self) -> Option<Arc<UsableBlocks>> {
        let usable = self.shared_usable()?;
        Some(match &self.recorded.exclusions {
            Some(applied) => Arc::clone(&applied.allowed),
            None => Arc::clone(usable),
        })
    }

    /// Whether the pool allocates only addresses of blocks that its network has taken from a
    /// registry: its counts are those of these blocks.
    pub(crate) fn shares_blocks(&self) -> bool {
        self.recorded
            .exclusions
            .as_ref()
            .is_some_and(AppliedExclusions::is_restricted)
    }

    /// Whether the pool has no free address besides its headroom, and could allocate others that
    /// are outside of the usable blocks of its network.
    pub(crate) fn needs_block(&self) -> bool {
        self.free_count() <= self.headroom() && self.lacks_blocks()
    }

    /// Whether the pool could allocate addresses that are outside of the usable blocks of its
    /// network.
    pub(crate) fn lacks_blocks(&self) -> bool {
        if !self.can_allocate() {
            return false;
        }
        self.recorded
            .exclusions
            .as_ref()
            .is_some_and(|applied| applied.allowed.allocatable() != applied.usable.allocatable())
    }

    /// Whether the pool could allocate a block if it were not outside of the usable blocks of its
    /// network.
    pub(crate) fn is_in_missing_block(&self, block: Block) -> bool {
        let Some(applied) = &self.recorded.exclusions else {
            return false;
        };
        match applied.allowed.number(block) {
            Some(number) => {
                applied.allowed.can_allocate(number) && !applied.usable.can_allocate(number)
            }
            None => false,
        }
    }

    /// The scope of the addresses of the pool. One of which no object is known yet has its own.
    pub(crate) fn scope(&self, key: &PoolKey) -> Scope {
        match &self.scope {
            Some(scope) => scope.clone(),
            None => Scope::Pool(key.clone()),
        }
    }

    /// The scope of the pool, if its object exists and that is not `scope`.
    pub(crate) fn other_scope(&self, scope: &Scope) -> Option<Scope> {
        match &self.scope {
            Some(own) if self.info.is_some() && own != scope => Some(own.clone()),
            _ => None,
        }
    }

    /// Whether a block is in a draining part of the pool.
    pub(crate) fn is_draining(&self, block: Block) -> bool {
        self.usable()
            .is_some_and(|usable| usable.is_draining(block))
    }

    /// Records what the object of the pool with this uid states about its network in its status;
    /// `has_status` is false if it has no status yet. Returns whether this is what was known
    /// before.
    pub(crate) fn set_status_record(
        &mut self,
        uid: &str,
        stamp: Stamp,
        has_status: bool,
        found: Option<StatusRecord>,
    ) -> bool {
        self.stamp = stamp;
        let is_known = self
            .declared
            .as_ref()
            .is_some_and(|declared| declared.uid == uid);
        if !is_known {
            let keeps_network = self.is_in_use() || !self.holds.is_empty();
            self.recorded.forget_pool(keeps_network);
        }
        self.recorded.set_status(has_status, found)
    }

    /// Whether a block is the one that a claim requests, if it requests one, and is for the owner
    /// of its slices.
    pub(crate) fn may_have(&self, block: Block, attributes: &ClaimAttributes) -> bool {
        match attributes.requested {
            Some(requested) if requested != block => false,
            _ => self.is_for_owner(block, attributes.slice_owner.as_ref()),
        }
    }

    /// Whether a block of the pool is free, or kept for the next claim of a name.
    pub(crate) fn can_allocate_block(&self, block: Block, usage: Option<&AddressUsage>) -> bool {
        let Some(usable) = self.usable() else {
            return false;
        };
        let Some(number) = usable.number(block) else {
            return false;
        };
        if let Some(usage) = usage
            && usage.availability() == Availability::Taken
        {
            return false;
        }
        usable.can_allocate(number) && !self.other_lengths.contains(number)
    }

    /// Whether the pool contains a block, used or not.
    pub(crate) fn contains(&self, block: Block) -> bool {
        self.usable().is_some_and(|usable| usable.contains(block))
    }

    /// Whether the pool can allocate addresses to claims.
    pub(crate) fn can_allocate(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.can_allocate())
    }

    /// The number of addresses that the pool can allocate now, with those that are kept for the
    /// next claims of the same names.
    pub(crate) fn free_count(&self) -> u128 {
        if self.can_allocate() {
            self.free_addresses()
        } else {
            0
        }
    }

    /// The same as if the pool were ready: a pool that is paused has free addresses, too.
    fn free_addresses(&self) -> u128 {
        let free = match &self.free {
            Some(free) => free.len(),
            None => self.total(),
        };
        free.saturating_add(self.remembered.len() as u128)
    }

    fn total(&self) -> u128 {
        match self.usable() {
            Some(usable) => usable.set.len(),
            None => 0,
        }
    }

    /// The number of addresses that are left to claims which may use the headroom.
    pub(crate) fn headroom(&self) -> u128 {
        let Some(info) = &self.info else { return 0 };
        let Some(access) = &info.access else { return 0 };
        match &access.headroom {
            Some((addresses, _)) => *addresses,
            None => 0,
        }
    }

    /// The counts of the addresses, as the status of the pool shows them.
    pub(crate) fn counts(&self) -> AddressCounts {
        let total = self.total();
        let free = self.free_addresses();
        let used = self.used as u128;
        let cooling_down = self.released.cooling_down() as u128;
        let quarantined = self.released.quarantined() as u128;
        let drained = self.draining.unused();
        // What is neither free nor counted otherwise is reserved, or excluded from allocation.
        let counted = free
            .saturating_add(used)
            .saturating_add(cooling_down)
            .saturating_add(quarantined)
            .saturating_add(drained);
        AddressCounts {
            total: capped(total),
            free: capped(free),
            used: capped(used),
            out_of_range: capped(self.out_of_range as u128),
            cooling_down: capped(cooling_down),
            quarantined: capped(quarantined),
            drained: capped(drained),
            reserved: capped(total.saturating_sub(counted)),
        }
    }

    /// The counts and the free addresses of the pool.
    #[cfg(test)]
    pub(crate) fn describe(&self) -> String {
        let usable = self.usable().map(|usable| usable.set.clone());
        let all = || FreeSet::new(&usable.unwrap_or_default());
        let free = self.free.clone().unwrap_or_else(all);
        let released = (self.released.cooling_down(), self.released.quarantined());
        let counts = (self.used, self.out_of_range, released);
        format!(
            "{free:?} {counts:?} {:?} {:?}",
            self.remembered, self.draining
        )
    }

    #[cfg(test)]
    pub(crate) fn has_free_list(&self) -> bool {
        self.free.is_some()
    }

    /// Whether an IPAddress is of this pool, or the reservation of an address of this pool is being
    /// created.
    pub(crate) fn is_in_use(&self) -> bool {
        self.used > 0 || self.out_of_range > 0 || self.candidates > 0
    }

    /// Whether an address of the pool may be in use in a network.
    fn may_use(&self, network: &Arc<str>) -> bool {
        let usage = PoolUsage::Known {
            has_addresses: self.is_in_use(),
            holds: &self.holds,
        };
        usage.may_use(network)
    }

    /// The gateways that no pool of the network of this pool allocates. A pool that its network
    /// refuses takes nothing from others: if it has no addresses in use there, it excludes none.
    /// With addresses in use those that it had before stay, also if it is deleted: its machines use
    /// them.
    pub(crate) fn gateways_to_exclude(&self, key: &PoolKey) -> Option<PoolGateways> {
        let Scope::Network(network) = self.scope(key) else {
            return None;
        };
        if !self.is_accepted() && !self.may_use(&network) {
            return None;
        }
        let before = self.gateways.as_ref();
        let before = before.filter(|before| before.network == network);
        let Some(info) = &self.info else {
            return before.cloned();
        };
        if let (Some(_), Some(before)) = (&info.network_problem, before) {
            return Some(before.clone());
        }
        let addresses = Arc::clone(&info.gateways);
        Some(PoolGateways { network, addresses })
    }

    /// Whether the pool exists, and is not the only one that its network refuses.
    fn is_accepted(&self) -> bool {
        self.info
            .as_ref()
            .is_some_and(|info| !info.is_refused_alone())
    }

    /// Whether the use of the pool has changed what is in force: it stays in its network only with
    /// addresses in use, or excludes gateways only with them.
    pub(crate) fn is_changed_by_use(&self) -> bool {
        let Some(Scope::Network(network)) = &self.scope else {
            return false;
        };
        let is_used = self.may_use(network);
        let is_kept = self
            .info
            .as_ref()
            .is_some_and(|info| info.is_kept_in_network);
        let excludes_in_vain = self.gateways.is_some() && !self.is_accepted() && !is_used;
        excludes_in_vain || (self.recorded.depends_on_use && is_kept != is_used)
    }

    /// Whether addresses of the pool are reserved or proposed in a scope.
    pub(crate) fn holds_in(&self, scope: &Scope) -> bool {
        self.holds.iter().any(|(known, _)| known == scope)
    }

    /// Whether nothing is known of the pool: its entry can be removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.info.is_none()
            && !self.is_in_use()
            && self.released.is_empty()
            && self.holds.is_empty()
            && self.slice_objects.is_empty()
            && self.wait_queue.is_empty()
    }

    /// For how long the pool keeps released addresses.
    pub(crate) fn retention(&self) -> Retention {
        Retention::of(self.info.as_deref())
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
