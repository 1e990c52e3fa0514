//! How many further addresses of pools claims can get, computed without allocating them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use capi_ipam_api::{PoolKey, SliceOwner};
use capi_ipam_objects::namespaced_name::NamespacedName;

use crate::pools::PoolEntry;
use crate::quota::{Consumer, Group};
use crate::slices::OwnerSupply;
use crate::{ClaimAttributes, Ledger, LimitReached};

/// Further addresses of a pool that claims of one namespace and Cluster need.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The pool.
    pub pool: PoolKey,
    /// The namespace of the claims.
    pub namespace: String,
    /// What the wait queue has to know of each claim.
    pub attributes: ClaimAttributes,
    /// The number of addresses.
    pub addresses: u64,
}

/// What a pool can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number of addresses, at most that of the demand.
    pub addresses: u64,
    /// What prevents more; `None` if the demand is met.
    pub limit: Option<PlanLimit>,
}

/// Why a pool cannot give as many addresses as are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanLimit {
    /// The pool does not exist.
    NoPool,
    /// The pool allocates nothing: it is paused, in deletion, or not ready.
    NotReady,
    /// The pool does not allow claims of the namespace.
    NotAllowed,
    /// Too few addresses are free.
    Exhausted,
    /// The other free addresses are the headroom of the pool.
    Headroom,
    /// Too few addresses are free in the blocks of its network that are usable. Others may follow.
    NeedsBlock,
    /// The namespace or the Cluster may have no further address.
    LimitReached(LimitReached),
    /// This owner of slices gets no further address.
    Slices(Arc<SliceOwner>),
    /// The claims have no owner of slices.
    NoSliceOwner,
}

impl fmt::Display for PlanLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoPool => "the pool does not exist",
            Self::NotReady => "the pool allocates nothing: it is paused, in deletion or not ready",
            Self::NotAllowed => "the pool does not allow the namespace (spec.allowedNamespaces)",
            Self::Exhausted => "no further address is free",
            Self::Headroom => "the other free addresses are the headroom (spec.headroom)",
            Self::NeedsBlock => {
                "no further address is free in the blocks of this management cluster; \
                 the manager takes another one if the registry has a free one"
            }
            Self::LimitReached(limit) => return limit.fmt(formatter),
            Self::Slices(owner) => {
                return write!(
                    formatter,
                    "{owner} gets no further address of slices (spec.slices)"
                );
            }
            Self::NoSliceOwner => "the claims have no owner of slices (spec.slices)",
        })
    }
}

/// What the demands before have been granted.
struct Plan<'a> {
    ledger: &'a Ledger,
    pools: HashMap<&'a PoolKey, u128>,
    groups: HashMap<(&'a PoolKey, Group), u128>,
    /// The slices of a pool that can be assigned.
    slices: HashMap<&'a PoolKey, u128>,
    owners: HashMap<(&'a PoolKey, Arc<SliceOwner>), OwnerSupply>,
}

/// What each of some demands can be granted, if those before it are granted first.
pub fn plan(ledger: &Ledger, demands: &[Demand]) -> Vec<Grant> {
    let mut plan = Plan {
        ledger,
        pools: HashMap::new(),
        groups: HashMap::new(),
        slices: HashMap::new(),
        owners: HashMap::new(),
    };
    demands.iter().map(|demand| plan.grant(demand)).collect()
}

impl Grant {
    fn limit_to(&mut self, room: u128, limit: impl FnOnce() -> PlanLimit) {
        if u128::from(self.addresses) > room {
            self.addresses = u64::try_from(room).unwrap_or(u64::MAX);
            self.limit = Some(limit());
        }
    }
}

impl<'a> Plan<'a> {
    fn grant(&mut self, demand: &'a Demand) -> Grant {
        let pool = &demand.pool;
        let mut grant = Grant {
            addresses: demand.addresses,
            limit: None,
        };
        let entry = self.ledger.pools.get(pool);
        let Some(entry) = entry.filter(|entry| entry.info().is_some()) else {
            grant.limit_to(0, || PlanLimit::NoPool);
            return grant;
        };
        if !self.ledger.is_allowed(pool, &demand.namespace) {
            grant.limit_to(0, || PlanLimit::NotAllowed);
            return grant;
        }
        if !entry.can_allocate() {
            grant.limit_to(0, || PlanLimit::NotReady);
            return grant;
        }
        self.limit_to_free(&mut grant, entry, demand);
        self.limit_to_quota(&mut grant, entry, demand);
        self.limit_to_slices(&mut grant, entry, demand);
        let taken = self.pools.entry(pool).or_default();
        *taken = taken.saturating_add(grant.addresses.into());
        for group in demand.groups() {
            let taken = self.groups.entry((pool, group)).or_default();
            *taken = taken.saturating_add(grant.addresses.into());
        }
        grant
    }

    fn limit_to_free(&self, grant: &mut Grant, entry: &PoolEntry, demand: &Demand) {
        let taken = self.pools.get(&demand.pool).copied().unwrap_or_default();
        let free = entry.free_count().saturating_sub(taken);
        grant.limit_to(free, || {
            if entry.lacks_blocks() {
                PlanLimit::NeedsBlock
            } else {
                PlanLimit::Exhausted
            }
        });
        if !demand.attributes.uses_headroom {
            let room = free.saturating_sub(entry.headroom());
            grant.limit_to(room, || PlanLimit::Headroom);
        }
    }

    fn limit_to_quota(&self, grant: &mut Grant, entry: &PoolEntry, demand: &'a Demand) {
        let Some(quota) = entry.quota() else {
            return;
        };
        for group in demand.groups() {
            let Some(room) = quota.room(&group) else {
                continue;
            };
            let limit = quota.describe(&group);
            let taken = self.groups.get(&(&demand.pool, group)).copied();
            let room = (room as u128).saturating_sub(taken.unwrap_or_default());
            grant.limit_to(room, || PlanLimit::LimitReached(limit));
        }
    }

    fn limit_to_slices(&mut self, grant: &mut Grant, entry: &PoolEntry, demand: &'a Demand) {
        let Some(slices) = entry.slices() else {
            return;
        };
        let Some(owner) = &demand.attributes.slice_owner else {
            grant.limit_to(0, || PlanLimit::NoSliceOwner);
            return;
        };
        let pool = &demand.pool;
        let supply = self.owners.entry((pool, Arc::clone(owner)));
        let supply = supply.or_insert_with(|| slices.supply_of(owner));
        let (assignable, size) = slices.assignable();
        let left = self.slices.entry(pool).or_insert(assignable);
        let room = supply.take(grant.addresses.into(), left, size);
        grant.limit_to(room, || PlanLimit::Slices(Arc::clone(owner)));
    }
}

impl Demand {
    /// What can have a limit.
    fn groups(&self) -> Vec<Group> {
        let claim = NamespacedName::new(&self.namespace, "");
        let consumer = Consumer::new(claim, self.attributes.cluster.clone());
        consumer.groups().collect()
    }
}
