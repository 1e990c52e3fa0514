use std::fmt;

use capi_ipam_api::{NamedPool, PoolKey, PoolSetKey};
use schemars::JsonSchema;
use serde::Serialize;

use crate::objects::ClaimRow;

/// A reference to a pool, or to a set of pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PoolName {
    /// Kind of the pool.
    pub kind: String,
    /// Namespace of the pool; omitted for a global pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the pool.
    pub name: String,
}

impl fmt::Display for PoolName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, .. } = self;
        match &self.namespace {
            Some(namespace) => write!(formatter, "{kind} {namespace}/{name}"),
            None => write!(formatter, "{kind} {name}"),
        }
    }
}

impl PoolName {
    /// The pool of a claim, as the claim has it if this provider does not serve it.
    pub(super) fn of_claim(claim: &ClaimRow) -> Self {
        match &claim.pool {
            Ok(named) => named.into(),
            Err(pool) => Self {
                kind: pool.kind.clone(),
                namespace: None,
                name: pool.name.clone(),
            },
        }
    }
}

impl From<&PoolKey> for PoolName {
    fn from(key: &PoolKey) -> Self {
        let namespace = key.namespace.as_deref().map(str::to_owned);
        Self {
            kind: key.kind.name().to_owned(),
            namespace,
            name: key.name.to_string(),
        }
    }
}

impl From<&PoolSetKey> for PoolName {
    fn from(key: &PoolSetKey) -> Self {
        Self {
            kind: key.kind.name().to_owned(),
            namespace: key.namespace.as_deref().map(str::to_owned),
            name: key.name.to_string(),
        }
    }
}

impl From<&NamedPool> for PoolName {
    fn from(named: &NamedPool) -> Self {
        match named {
            NamedPool::Pool(pool) => pool.into(),
            NamedPool::Set(set) => set.into(),
        }
    }
}
