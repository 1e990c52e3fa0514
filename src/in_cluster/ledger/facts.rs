use std::sync::Arc;

use kube::ResourceExt;

use super::is_paused;
use crate::addr::{PoolAddresses, UsableAddresses};
use crate::api::{Pool, names};
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
    /// Whether the pool carries our finalizer.
    pub protected: bool,
    /// How many seconds a released address rests; 0 for not at all.
    pub rest: i64,
    /// The usable addresses, or what is wrong with the specification.
    pub usable: Result<Arc<UsableAddresses>, Arc<str>>,
}

impl PoolFacts {
    /// What matters of a pool.
    pub fn of<P: Pool>(pool: &P) -> Self {
        let spec = pool.spec();
        let addresses = PoolAddresses {
            addresses: &spec.addresses,
            excluded: &spec.excluded_addresses,
            prefix: spec.prefix,
            gateway: spec.gateway.as_deref(),
            allocate_reserved: spec.allocate_reserved_ip_addresses,
        };
        let usable = addresses.usable().map(Arc::new).map_err(|problems| {
            let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            texts.join("; ").into()
        });
        Self {
            uid: pool.uid().unwrap_or_default(),
            paused: is_paused(pool),
            deleting: pool.meta().deletion_timestamp.is_some(),
            protected: finalizer::is_set(pool, names::PROTECT_POOL),
            rest: spec.address_reuse_grace_period_seconds.unwrap_or_default().max(0).into(),
            usable,
        }
    }

    /// Whether claims can be served.
    pub fn serves(&self) -> bool {
        self.usable.is_ok() && !self.paused && !self.deleting && self.protected
    }
}
