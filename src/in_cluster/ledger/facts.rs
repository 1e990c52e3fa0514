use std::sync::Arc;

use kube::ResourceExt;

use super::is_paused;
use crate::addr::{Family, SpanSet, Usable};
use crate::api::{Pool, PoolKey, Scope, names};
use crate::runtime::finalizer;

/// What matters of a pool object.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    /// Unique id of the pool.
    pub uid: String,
    /// Whether the pool is paused by annotation.
    pub paused: bool,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Whether the pool carries our finalizer, and its network is prepared.
    pub protected: bool,
    /// How many seconds a released address rests; 0 for not at all.
    pub rest: i64,
    /// The set within which its addresses are unique.
    pub scope: Scope,
    /// What claims can get, or what is wrong with the specification.
    pub usable: Result<Arc<Usable>, Arc<str>>,
    /// The addresses of everything that claims can get.
    pub addresses: Arc<SpanSet>,
}

impl PoolFacts {
    /// What matters of a pool.
    pub fn of<P: Pool>(pool: &P) -> Self {
        let spec = pool.spec();
        let usable = spec.usable().map(Arc::new).map_err(|problems| {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            texts.join("; ").into()
        });
        Self {
            uid: pool.uid().unwrap_or_default(),
            paused: is_paused(pool),
            deleting: pool.meta().deletion_timestamp.is_some(),
            protected: finalizer::is_set(pool, names::PROTECT_POOL),
            rest: spec.rest(),
            scope: Scope::of(&PoolKey::of(pool), spec.network()),
            addresses: Arc::new(usable.as_ref().map(|usable| usable.addresses()).unwrap_or_default()),
            usable,
        }
    }

    /// Whether claims can be served.
    pub fn serves(&self) -> bool {
        self.completes() && !self.deleting
    }

    /// Whether claims that hold an address of the pool already can be served: while it is being deleted, too.
    pub fn completes(&self) -> bool {
        self.usable.is_ok() && !self.paused && self.protected
    }

    /// What the pool can give out, and where; `None` when it is not understood.
    pub fn extent(&self) -> Option<Extent<'_>> {
        let family = self.usable.as_ref().ok()?.family;
        Some(Extent { scope: &self.scope, family, addresses: &self.addresses })
    }
}

/// The addresses of everything that claims can get from a pool, and the set within which they are unique.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'a> {
    /// The set within which they are unique.
    pub scope: &'a Scope,
    /// Their family.
    pub family: Family,
    /// Their numbers.
    pub addresses: &'a SpanSet,
}

impl Extent<'_> {
    /// Whether both have an address in common, and nothing keeps it from being given out twice.
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends = |set: &SpanSet| set.spans().first().zip(set.spans().last()).map(|(a, b)| (a.first(), b.last()));
        let (Some((first, last)), Some((other_first, other_last))) = (ends(self.addresses), ends(other.addresses))
        else {
            return false;
        };
        // The ends first: most pools are far apart.
        first <= other_last
            && other_first <= last
            && self.family == other.family
            && self.scope != other.scope
            && !self.addresses.intersect(other.addresses).is_empty()
    }
}
