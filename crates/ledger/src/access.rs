//! Who may use a pool: queries of the ledger, and the claims that wait for permission.

use std::collections::HashSet;

use capi_ipam_api::{AccessRules, AllowedNamespaces, OverLimit, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::Versions;

use super::addresses::SharedName;
use super::addresses::{AddressUsage, ReservationInfo};
use super::pools::PoolEntry;
use super::pools::quota::{Consumer, Group, Quota};
use super::{Ledger, LimitReached, PoolKey};

/// Whether a claim may keep the address that it has reserved, and is not bound to yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitCheck {
    /// No limit is exceeded.
    Within,
    /// The claim exceeds a limit: other claims have reserved their addresses before. It is
    /// reconciled when a claim of its namespace or Cluster releases an address.
    Exceeded(LimitReached),
    /// The watch has not reported the reservation, and perhaps not those that were created before.
    /// The claim is reconciled when the watch has.
    Unknown,
}

impl Ledger {
    /// Whether a claim may use a pool, by its namespace. Otherwise it waits for a change of the
    /// pool or of the labels of the namespace: one step, because a change between the check and the
    /// wait would go unnoticed.
    pub fn is_allowed_or_waits(&mut self, pool: &PoolKey, claim: &NamespacedName) -> bool {
        self.change(|ledger| {
            let is_allowed = ledger.is_allowed(pool, claim.namespace());
            if !is_allowed {
                ledger.wait_for_change_of(pool, claim);
            }
            is_allowed
        })
    }

    /// Checks the limits of a pool for an address that is reserved for a claim with that uid.
    /// Several managers can reserve the last addresses of a namespace at the same time: in the
    /// order in which the API server has created them, the first ones are within the limit. All
    /// managers see the same order, which is that of the watch.
    pub fn check_limits(
        &mut self,
        pool: &PoolKey,
        slot: &Slot,
        claim: &NamespacedName,
        uid: Uid,
    ) -> LimitCheck {
        self.change(|ledger| ledger.limit_check(pool, slot, claim, uid))
    }

    /// The addresses of a pool beyond what its rules allow; `None` without rules.
    pub fn over_limit(&self, pool: &PoolKey) -> Option<OverLimit> {
        self.over_limit_of(self.pools.get(pool)?)
    }

    /// The addresses of a pool beyond what other rules would allow.
    pub fn over_limit_with(&self, pool: &PoolKey, rules: &AccessRules) -> OverLimit {
        let is_allowed =
            |namespace: &str| self.networks.allows_namespace(&rules.namespaces, namespace);
        self.quota(pool, rules).over(is_allowed)
    }
}

/// Whether the address of another claim was reserved before `reservation`. An address in use always
/// was.
fn is_before(
    versions: &Versions,
    usage: &AddressUsage,
    pool: &PoolKey,
    reservation: &ReservationInfo,
) -> bool {
    if let Some(other) = &usage.reservation {
        if other.uid == reservation.uid {
            return false;
        }
        let is_older = versions.current(other.stamp) < versions.current(reservation.stamp);
        if other.pool == *pool && is_older {
            return true;
        }
    }
    usage.has_address_of(pool)
}

impl Ledger {
    /// Counts the addresses of a pool by namespace and Cluster.
    pub(super) fn quota(&self, key: &PoolKey, rules: &AccessRules) -> Quota {
        let mut quota = Quota::new(rules);
        for scope in self.pools.scopes_with(key) {
            for (_, usage) in self.addresses.usage_in(&scope) {
                for (pool, consumer) in usage.charges() {
                    if pool == *key {
                        quota.charge(&consumer, true);
                    }
                }
            }
        }
        quota
    }

    /// The addresses of a pool beyond what its rules allow; `None` without rules.
    pub(super) fn over_limit_of(&self, entry: &PoolEntry) -> Option<OverLimit> {
        let rules = entry.info()?.access.as_ref()?;
        let quota = entry.quota()?;
        Some(quota.over(|namespace| self.networks.allows_namespace(&rules.namespaces, namespace)))
    }

    /// As [`Ledger::check_limits`].
    fn limit_check(
        &mut self,
        pool: &PoolKey,
        slot: &Slot,
        claim: &NamespacedName,
        uid: Uid,
    ) -> LimitCheck {
        let Some(entry) = self.pools.get(pool) else {
            return LimitCheck::Within;
        };
        let Some(quota) = entry.quota() else {
            return LimitCheck::Within;
        };
        // A list shows them in another order than that of their creation.
        let is_listing = self.addresses.versions().is_listing();
        let observed = self.addresses.reservation(slot).filter(|reservation| {
            reservation.is_observed && reservation.claim_uid == Some(uid) && !is_listing
        });
        let Some(reservation) = observed else {
            self.wait_for_change_of(pool, claim);
            return LimitCheck::Unknown;
        };
        let cluster = reservation.cluster.as_ref().map(SharedName::text);
        let consumer = Consumer::new(claim.clone(), cluster);
        // If several limits are exceeded, the lowest one is reported.
        let mut lowest: Option<(usize, Group)> = None;
        for group in consumer.groups() {
            let Some(limit) = quota.limit(&group) else {
                continue;
            };
            let is_exceeded = quota.is_exceeded(&group)
                && self.claims_before(pool, reservation, claim, &group) >= limit;
            let is_lower = match &lowest {
                Some((known, _)) => limit < *known,
                None => true,
            };
            if is_exceeded && is_lower {
                lowest = Some((limit, group));
            }
        }
        let Some((_, group)) = lowest else {
            return LimitCheck::Within;
        };
        let limit = quota.describe(&group);
        if let Some(entry) = self.pools.get_mut(pool) {
            entry.wait_queue.wait_for_room(&group, claim);
            self.dirty_pools.push(pool.clone());
        }
        LimitCheck::Exceeded(limit)
    }

    /// Lets a claim wait for a change of the pool, and not for an address.
    fn wait_for_change_of(&mut self, pool: &PoolKey, claim: &NamespacedName) {
        let entry = self.pools.entry(&pool);
        entry.wait_queue.wait_for_permission(claim);
        // It may have had a turn, which is for the next claim.
        self.dirty_pools.push(pool.clone());
    }

    /// Wakes the claims whose limits can be checked, since the list of reservations is complete.
    pub(super) fn wake_unchecked(&mut self) {
        if !self.pools.have_quotas() {
            return;
        }
        for (_, entry) in self.pools.iter_mut() {
            if entry.has_quota() {
                self.effects.claims.extend(entry.wait_queue.pool_changed());
            }
        }
    }

    /// How many other claims of a group have reserved an address of the pool before this one.
    fn claims_before(
        &self,
        pool: &PoolKey,
        reservation: &ReservationInfo,
        claim: &NamespacedName,
        group: &Group,
    ) -> usize {
        let mut others = HashSet::new();
        for scope in self.pools.scopes_with(pool) {
            for (_, usage) in self.addresses.usage_in(&scope) {
                if !is_before(&self.addresses.versions(), usage, pool, reservation) {
                    continue;
                }
                for (from, other) in usage.charges() {
                    if from == *pool && group.includes(&other) && other.claim != *claim {
                        others.insert(other.claim);
                    }
                }
            }
        }
        others.len()
    }

    /// Whether the claims of a namespace may use a pool.
    fn is_allowed(&self, pool: &PoolKey, namespace: &str) -> bool {
        let Some(info) = self.pools.info(pool) else {
            return true;
        };
        match &info.access {
            Some(rules) => self.networks.allows_namespace(&rules.namespaces, namespace),
            None => true,
        }
    }

    /// Wakes the claims of a namespace, whose labels may have changed, that wait for permission to
    /// use a pool.
    pub(super) fn wake_refused(&mut self, namespace: &str) {
        if !self.pools.have_quotas() {
            return;
        }
        for (_, entry) in self.pools.iter_mut() {
            if let Some(info) = entry.info()
                && let Some(rules) = &info.access
                && matches!(rules.namespaces, AllowedNamespaces::Selector(_))
            {
                let waiting = entry.wait_queue.namespace_changed(namespace);
                self.effects.claims.extend(waiting);
            }
        }
    }
}
