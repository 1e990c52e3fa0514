use std::sync::Arc;

use kube::ResourceExt;

use super::is_paused;
use crate::addr::{SpanSet, Usable};
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
    pub extent: Arc<SpanSet>,
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
            extent: Arc::new(usable.as_ref().map(|usable| usable.addresses()).unwrap_or_default()),
            usable,
        }
    }

    /// Whether claims can be served.
    pub fn serves(&self) -> bool {
        self.usable.is_ok() && !self.paused && !self.deleting && self.protected
    }

    /// Whether both could give out one address, and nothing keeps them from doing so.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Ok(mine), Ok(theirs)) = (&self.usable, &other.usable) else { return false };
        let apart = mine.family != theirs.family || self.scope == other.scope;
        let ends =
            |extent: &SpanSet| extent.spans().first().zip(extent.spans().last()).map(|(a, b)| (a.first(), b.last()));
        let (Some((first, last)), Some((other_first, other_last))) = (ends(&self.extent), ends(&other.extent)) else {
            return false;
        };
        !apart && first <= other_last && other_first <= last && !self.extent.intersect(&other.extent).is_empty()
    }
}
