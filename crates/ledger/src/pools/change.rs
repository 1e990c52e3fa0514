//! Changes of a pool object, and of what its network makes of it.

use std::sync::Arc;

use capi_ipam_api::{AccessRules, Scope, SliceRules};
use capi_ipam_ip::UsableBlocks;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::released::Retention;
use super::{PoolEntry, PoolInfo, Pools};
use crate::PoolKey;
use crate::networks::PoolInNetwork;
use crate::quota::Quota;

/// What a change of a pool object means for what is derived from it.
pub(crate) struct PoolChange {
    pub(crate) before: Scope,
    pub(crate) after: Scope,
    pub(crate) had_object: bool,
    pub(crate) exists: bool,
    declared: Option<Arc<PoolInfo>>,
    info: Option<Arc<PoolInfo>>,
    pub(crate) usable_before: Option<Arc<UsableBlocks>>,
    pub(crate) usable_after: Option<Arc<UsableBlocks>>,
    pub(crate) has_new_rules: bool,
    pub(crate) has_new_slices: bool,
    /// Whether the pool keeps released addresses for another time.
    pub(crate) has_new_retention: bool,
    /// Whether the pool can no longer allocate.
    stops: bool,
    /// Whether reservations of the pool can be moved now, which were kept where they are.
    starts_moves: bool,
}

impl PoolChange {
    /// Compares two states of a pool with the restrictions of its network.
    fn of(
        info_before: Option<&PoolInfo>,
        declared: Option<Arc<PoolInfo>>,
        info: Option<Arc<PoolInfo>>,
        before: Scope,
        after: Scope,
    ) -> Self {
        let info_after = info.as_deref();
        let exists = info_after.is_some();
        let had_object = info_before.is_some();
        let could_allocate = info_before.is_some_and(PoolInfo::can_allocate);
        let can_allocate = info_after.is_some_and(PoolInfo::can_allocate);
        let could_move = info_before.is_some_and(PoolInfo::moves_reservations);
        let can_move = info_after.is_some_and(PoolInfo::moves_reservations);
        Self {
            before,
            after,
            had_object,
            exists,
            usable_before: usable_of(info_before),
            usable_after: usable_of(info_after),
            has_new_rules: access_of(info_before) != access_of(info_after),
            has_new_slices: slices_of(info_before) != slices_of(info_after),
            has_new_retention: Retention::of(info_before) != Retention::of(info_after),
            stops: could_allocate && !can_allocate,
            starts_moves: !could_move && can_move,
            declared,
            info,
        }
    }

    /// Whether the pool has another scope, is created or deleted.
    pub(crate) fn moves(&self) -> bool {
        self.before != self.after || self.had_object != self.exists
    }

    /// Whether the pool has the same blocks in the same scope.
    pub(crate) fn is_unchanged(&self) -> bool {
        !self.moves() && self.usable_before == self.usable_after
    }
}

pub(crate) fn network_of(scope: &Scope) -> Option<Arc<str>> {
    match scope {
        Scope::Network(network) => Some(network.clone()),
        Scope::Pool(_) => None,
    }
}

fn usable_of(info: Option<&PoolInfo>) -> Option<Arc<UsableBlocks>> {
    info?.blocks().cloned()
}

fn access_of(info: Option<&PoolInfo>) -> Option<&AccessRules> {
    info?.access.as_deref()
}

fn slices_of(info: Option<&PoolInfo>) -> Option<&SliceRules> {
    info?.slices.as_deref()
}

/// Keeps the pointer to the blocks if they are the same: allocations compare it.
fn keep_blocks(known: Option<&PoolInfo>, info: Option<&mut PoolInfo>) {
    if let Some(known) = usable_of(known)
        && let Some(info) = info
        && info.usable.as_ref() == Ok(&known)
    {
        info.usable = Ok(known);
    }
}

/// Makes the declared state of a pool and the one with the restrictions of its network one value if
/// the network restricts nothing.
fn share_if_equal(
    declared: Option<Arc<PoolInfo>>,
    info: Option<PoolInfo>,
) -> (Option<Arc<PoolInfo>>, Option<Arc<PoolInfo>>) {
    let info = info.map(Arc::new);
    if declared == info {
        (info.clone(), info)
    } else {
        (declared, info)
    }
}

impl PoolEntry {
    /// Records the network of the pool; `None` if the pool is deleted. Its addresses in use stay
    /// where they are. Returns the settings of the pool, and the networks that it awaited and
    /// awaits.
    pub(crate) fn place(
        &mut self,
        placed: Option<PoolInNetwork>,
    ) -> (Option<PoolInfo>, [Option<Arc<str>>; 2]) {
        let recorded = &mut self.recorded;
        let before = recorded.awaited.take();
        recorded.exclusions = None;
        let mut info = None;
        if let Some(placed) = placed {
            recorded.record = placed.record;
            recorded.depends_on_use = placed.depends_on_use;
            recorded.awaited = placed.awaited;
            recorded.exclusions = placed.applied;
            info = Some(placed.info);
        }
        (info, [before, recorded.awaited.clone()])
    }

    /// Compares the state of the pool with the next one. Blocks that are the same keep their
    /// pointer.
    pub(crate) fn compare(
        &self,
        key: &PoolKey,
        declared: Option<Arc<PoolInfo>>,
        mut info: Option<PoolInfo>,
        after: Scope,
    ) -> PoolChange {
        keep_blocks(self.info.as_deref(), info.as_mut());
        let (declared, info) = share_if_equal(declared, info);
        PoolChange::of(self.info.as_deref(), declared, info, self.scope(key), after)
    }

    /// Replaces the object of the pool, and nothing that is derived from it. Returns the claims
    /// that wait for an address, if the pool can no longer allocate: there can be a hundred
    /// thousand.
    pub(crate) fn replace_object(&mut self, change: &PoolChange) -> Vec<NamespacedName> {
        let mut waiting = Vec::new();
        if change.stops {
            waiting = self.wait_queue.pool_stopped();
        }
        self.declared.clone_from(&change.declared);
        self.info.clone_from(&change.info);
        self.scope = Some(change.after.clone());
        waiting
    }

    /// Whether reservations of the pool, which were kept where they are, can be moved now.
    pub(crate) fn starts_moves(&self, change: &PoolChange) -> bool {
        change.starts_moves && self.holds.iter().any(|(scope, _)| *scope != change.after)
    }
}

impl Pools {
    /// Replaces the counts of the addresses of a pool by namespace and Cluster. Returns the claims
    /// to reconcile.
    pub(crate) fn set_quota(&mut self, key: &PoolKey, quota: Option<Quota>) -> Vec<NamespacedName> {
        let Some(entry) = self.entries.get_mut(key) else {
            return Vec::new();
        };
        let before = usize::from(entry.quota.is_some());
        let after = usize::from(quota.is_some());
        self.quotas = self.quotas.saturating_add(after).saturating_sub(before);
        entry.quota = quota.map(Box::new);
        entry.wait_queue.rules_changed()
    }
}
