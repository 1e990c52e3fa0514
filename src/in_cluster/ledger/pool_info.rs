use std::sync::Arc;

use capi_ipam_controller::finalizer;
use capi_ipam_ip::Usable;
use kube::ResourceExt;

use crate::api::{names, Pool, PoolKey, PoolSpec, Scope};
use super::is_paused;

/// What matters of a pool object.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolInfo {
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
    /// The generation of the specification that this was read from.
    pub generation: Option<i64>,
}

impl PoolInfo {
    /// What matters of a pool.
    pub fn of<P: Pool>(pool: &P) -> Self {
        Self::after(None, pool)
    }

    /// What matters of a pool, of which `known` was known before. The specification is read once for each generation: a
    /// change of the status does not have thousands of addresses parsed again.
    pub(super) fn after<P: Pool>(known: Option<&Self>, pool: &P) -> Self {
        let (spec, meta) = (pool.spec(), pool.meta());
        let known = known.filter(|known| meta.generation.is_some() && known.generation == meta.generation);
        let known = known.filter(|known| meta.uid.as_ref() == Some(&known.uid));
        let usable = known.map_or_else(|| read(spec), |known| known.usable.clone());
        Self {
            uid: pool.uid().unwrap_or_default(),
            paused: is_paused(pool),
            deleting: meta.deletion_timestamp.is_some(),
            protected: finalizer::is_set(pool, names::PROTECT_POOL),
            rest: spec.rest(),
            scope: Scope::of(&PoolKey::of(pool), spec.network()),
            usable,
            generation: meta.generation,
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
}

fn read(spec: PoolSpec<'_>) -> Result<Arc<Usable>, Arc<str>> {
    spec.usable().map(Arc::new).map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        texts.join("; ").into()
    })
}
