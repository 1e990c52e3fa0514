use std::fmt;
use std::sync::Arc;

use super::{InClusterKind, IPAddress, IPAddressClaim, names, Pool, PoolReference, ReservationPool};

/// A pool of ours, whether it exists or not. Displayed as people name it: `InClusterIPPool team-a/web`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey {
    /// The pool's kind.
    pub kind: InClusterKind,
    /// The pool's namespace; `None` for a global pool.
    pub namespace: Option<Arc<str>>,
    /// The pool's name.
    pub name: Arc<str>,
}

impl PoolKey {
    /// The key of a pool object.
    pub fn of<P: Pool>(pool: &P) -> Self {
        let meta = pool.meta();
        let namespace = meta.namespace.as_deref().filter(|_| !P::KIND.is_global());
        Self {
            kind: P::KIND,
            namespace: namespace.map(Arc::from),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
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

    /// The pool that an IPAddress is from; `None` when it is of no kind of ours.
    pub fn of_address(address: &IPAddress) -> Option<Self> {
        Self::referred_to(&address.spec.pool_ref, address.metadata.namespace.as_deref())
    }

    /// The pool that a reservation names; `None` when it is of no kind of ours.
    pub fn of_reservation(pool: &ReservationPool) -> Option<Self> {
        Self::of_kind(&pool.kind, pool.namespace.as_deref(), &pool.name)
    }

    fn of_kind(kind: &str, namespace: Option<&str>, name: &str) -> Option<Self> {
        let kind = InClusterKind::of(kind)?;
        let namespace = if kind.is_global() { None } else { Some(namespace?.into()) };
        Some(Self { kind, namespace, name: name.into() })
    }

    /// A reference to the pool for a reservation.
    pub fn to_reference(&self) -> ReservationPool {
        ReservationPool {
            kind: self.kind.name().to_owned(),
            namespace: self.namespace.as_deref().map(str::to_owned),
            name: self.name.as_ref().to_owned(),
        }
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind, self.name),
            None => write!(formatter, "{} {}", self.kind, self.name),
        }
    }
}
