use std::sync::Arc;

use capi_ipam_controller::finalizer;
use capi_ipam_ip::Usable;
use capi_ipam_provider::api::is_paused;
use kube::ResourceExt;

use crate::api::{Pool, PoolKey, PoolSpec, Scope, names};

/// What the ledger keeps of a pool object.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolInfo {
    /// The uid of the pool.
    pub uid: String,
    /// Whether the pool has the annotation that pauses it.
    pub paused: bool,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Whether the pool has our finalizer, and the block length of its network is set.
    pub initialized: bool,
    /// The seconds before a released address can be reused; 0 without a cool-down.
    pub cooldown_seconds: i64,
    /// The scope within which its addresses are unique.
    pub scope: Scope,
    /// The blocks that can be allocated, or the problems of the spec.
    pub usable: Result<Arc<Usable>, Arc<str>>,
    /// The `metadata.generation` of the spec.
    pub generation: Option<i64>,
}

impl PoolInfo {
    /// Reads a pool object.
    pub fn of(pool: &Pool) -> Self {
        Self::updated(None, pool)
    }

    /// Reads a pool object. The blocks are those of `known`, the previous state of the pool, unless the generation has
    /// changed: a status update does not parse thousands of addresses again.
    pub(super) fn updated(known: Option<&Self>, pool: &Pool) -> Self {
        let Pool { spec, metadata: meta, .. } = pool;
        let known = known.filter(|known| meta.generation.is_some() && known.generation == meta.generation);
        let known = known.filter(|known| meta.uid.as_ref() == Some(&known.uid));
        let usable = known.map_or_else(|| read(spec), |known| known.usable.clone());
        Self {
            uid: pool.uid().unwrap_or_default(),
            paused: is_paused(meta),
            deleting: meta.deletion_timestamp.is_some(),
            initialized: finalizer::is_set(pool, names::PROTECT_POOL),
            cooldown_seconds: spec.cooldown_seconds(),
            scope: Scope::of(&PoolKey::of(pool), spec.network()),
            usable,
            generation: meta.generation,
        }
    }

    /// Whether the pool can allocate addresses to claims.
    pub fn can_allocate(&self) -> bool {
        self.can_bind() && !self.deleting
    }

    /// Whether claims that already hold an address of the pool can be bound: also while the pool is being deleted.
    pub fn can_bind(&self) -> bool {
        self.usable.is_ok() && !self.paused && self.initialized
    }
}

fn read(spec: &PoolSpec) -> Result<Arc<Usable>, Arc<str>> {
    spec.usable().map(Arc::new).map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        texts.join("; ").into()
    })
}
