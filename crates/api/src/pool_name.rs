//! References to pools and sets as outputs have them.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::named_pool::NamedPool;
use super::pool_key::PoolKey;
use super::pool_set_key::PoolSetKey;

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
