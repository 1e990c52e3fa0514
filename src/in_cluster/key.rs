//! Which pool is meant.

use std::fmt;

use kube::ResourceExt;

use crate::api::{GlobalInClusterIPPool, IPAddressClaim, InClusterIPPool, Pool, PoolReference, ReservationPool, names};

/// Whether a kind of pool lives in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolScope {
    /// InClusterIPPool.
    Namespaced,
    /// GlobalInClusterIPPool.
    Global,
}

/// A pool, whether it exists or not. Displayed as people name it: `InClusterIPPool team-a/web`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    /// The pool's namespace; `None` for a global pool.
    pub namespace: Option<String>,
    /// The pool's name.
    pub name: String,
}

impl PoolKey {
    /// The key of a pool object.
    pub fn of<P: Pool>(pool: &P) -> Self {
        Self { namespace: pool.namespace(), name: pool.name_any() }
    }

    /// The pool that an object of `namespace` refers to; `None` when it is of no kind of ours.
    pub fn referred_to(reference: &PoolReference, namespace: Option<&str>) -> Option<Self> {
        if reference.api_group != names::GROUP {
            return None;
        }
        Self::of_kind(&reference.kind, namespace, &reference.name)
    }

    /// The pool that a claim asks for; `None` when it is of no kind of ours.
    pub fn of_claim(claim: &IPAddressClaim) -> Option<Self> {
        Self::referred_to(&claim.spec.pool_ref, claim.metadata.namespace.as_deref())
    }

    /// The pool that a reservation names; `None` when it is of no kind of ours.
    pub fn of_reservation(pool: &ReservationPool) -> Option<Self> {
        Self::of_kind(&pool.kind, pool.namespace.as_deref(), &pool.name)
    }

    fn of_kind(kind: &str, namespace: Option<&str>, name: &str) -> Option<Self> {
        let namespace = match kind {
            InClusterIPPool::KIND => Some(namespace?.to_owned()),
            GlobalInClusterIPPool::KIND => None,
            _ => return None,
        };
        Some(Self { namespace, name: name.to_owned() })
    }

    /// Whether the pool lives in a namespace.
    pub fn scope(&self) -> PoolScope {
        if self.namespace.is_some() { PoolScope::Namespaced } else { PoolScope::Global }
    }

    /// The kind of the pool.
    pub fn kind(&self) -> &'static str {
        match self.scope() {
            PoolScope::Namespaced => InClusterIPPool::KIND,
            PoolScope::Global => GlobalInClusterIPPool::KIND,
        }
    }

    /// A reference to the pool for a reservation.
    pub fn to_reference(&self) -> ReservationPool {
        ReservationPool { kind: self.kind().to_owned(), namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind(), self.name),
            None => write!(formatter, "{} {}", self.kind(), self.name),
        }
    }
}
