use std::fmt;

use capi_ipam_contract::{IPAddress, IPAddressClaim, PoolReference};
use kube::core::ObjectMeta;

use super::{InClusterKind, names};

/// The kinds of sets of pools. The dynamic type of [`PoolSet`](crate::PoolSet).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolSetKind {
    /// `IPPoolSet`: pools of its namespace and global ones, for the claims of its namespace.
    #[default]
    Namespaced,
    /// `GlobalIPPoolSet`: global pools, for the claims of all namespaces.
    Global,
}

impl PoolSetKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Namespaced, Self::Global];

    /// The kind with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name, as in `kind: IPPoolSet`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespaced => "IPPoolSet",
            Self::Global => "GlobalIPPoolSet",
        }
    }

    /// The plural name, as in API paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Namespaced => "ippoolsets",
            Self::Global => "globalippoolsets",
        }
    }

    /// Whether the kind is cluster-scoped.
    pub const fn is_global(self) -> bool {
        matches!(self, Self::Global)
    }

    /// Whether sets of the kind can contain pools of this kind.
    pub const fn may_contain(self, pool: InClusterKind) -> bool {
        pool.is_global() || !self.is_global()
    }
}

/// Identifies a set of pools, which need not exist. Displayed as `IPPoolSet team-a/racks`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolSetKey {
    /// Kind of the set.
    pub kind: PoolSetKind,
    /// Namespace of the set; `None` for a global one.
    pub namespace: Option<Box<str>>,
    /// Name of the set.
    pub name: Box<str>,
}

impl PoolSetKey {
    /// Returns the key of the set with this metadata.
    pub fn new(kind: PoolSetKind, metadata: &ObjectMeta) -> Self {
        let namespace = metadata.namespace.as_deref();
        Self {
            kind,
            namespace: namespace.filter(|_| !kind.is_global()).map(Box::from),
            name: metadata.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// Returns the set that an object in `namespace` refers to; `None` if it is not a set.
    pub fn from_reference(reference: &PoolReference, namespace: Option<&str>) -> Option<Self> {
        let kind = PoolSetKind::of(&reference.kind)?;
        if reference.api_group != names::GROUP {
            return None;
        }
        let namespace = if kind.is_global() {
            None
        } else {
            Some(namespace?.into())
        };
        Some(Self {
            kind,
            namespace,
            name: reference.name.as_str().into(),
        })
    }

    /// Returns the set that a claim refers to; `None` if it refers to something else.
    pub fn of_claim(claim: &IPAddressClaim) -> Option<Self> {
        Self::from_reference(&claim.spec.pool_ref, claim.metadata.namespace.as_deref())
    }

    /// Returns the set that an IPAddress refers to; `None` if it refers to something else.
    pub fn of_address(address: &IPAddress) -> Option<Self> {
        let namespace = address.metadata.namespace.as_deref();
        Self::from_reference(&address.spec.pool_ref, namespace)
    }
}

impl fmt::Display for PoolSetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{} {namespace}/{}", self.kind.name(), self.name),
            None => write!(formatter, "{} {}", self.kind.name(), self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_names_a_set_of_the_namespace_or_a_global_one() {
        let key = |group: &str, kind: &str| {
            let reference = PoolReference {
                api_group: group.to_owned(),
                kind: kind.to_owned(),
                name: "s".to_owned(),
            };
            PoolSetKey::from_reference(&reference, Some("n")).map(|key| key.to_string())
        };
        assert_eq!(
            key(names::GROUP, "IPPoolSet").as_deref(),
            Some("IPPoolSet n/s")
        );
        assert_eq!(
            key(names::GROUP, "GlobalIPPoolSet").as_deref(),
            Some("GlobalIPPoolSet s")
        );
        assert_eq!(key(names::GROUP, "InClusterIPPool"), None);
        assert_eq!(key("example.com", "IPPoolSet"), None);
    }
}
