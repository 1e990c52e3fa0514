use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use capi_ipam_contract::{IPAddress, IPAddressClaim, PoolReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::{InClusterKind, PoolSetKey, names};

/// Identifies a pool of this provider, which need not exist. Displayed as `InClusterIPPool
/// team-a/web`. Cheap to clone, and as large as a pointer, since each address in use has a few of
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolKey(Arc<KeyFields>);

/// The kind, namespace and name of a pool.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyFields {
    /// Kind of the pool.
    pub kind: InClusterKind,
    /// Namespace of the pool; `None` for a global pool.
    pub namespace: Option<Box<str>>,
    /// Name of the pool.
    pub name: Box<str>,
}

impl Deref for PoolKey {
    type Target = KeyFields;

    fn deref(&self) -> &KeyFields {
        &self.0
    }
}

impl PoolKey {
    /// Returns the key of a pool with this name. The namespace of a global pool is `None`.
    pub fn new(kind: InClusterKind, namespace: Option<&str>, name: &str) -> Self {
        Self(Arc::new(KeyFields {
            kind,
            namespace: namespace.map(Box::from),
            name: name.into(),
        }))
    }

    /// Returns the pool that an object in `namespace` refers to; `None` if it is not of a kind of
    /// this provider.
    pub fn from_reference(reference: &PoolReference, namespace: Option<&str>) -> Option<Self> {
        if reference.api_group != names::GROUP {
            return None;
        }
        Self::of_kind(&reference.kind, namespace, &reference.name)
    }

    /// Returns the pool that a claim refers to; `None` if it is not of a kind of this provider.
    pub fn of_claim(claim: &IPAddressClaim) -> Option<Self> {
        Self::from_reference(&claim.spec.pool_ref, claim.metadata.namespace.as_deref())
    }

    /// Returns the pool of an IPAddress: the one that it refers to, or the member of the set that
    /// it refers to. `None` if it is not of a kind of this provider, or the member is not known.
    pub fn of_address(address: &IPAddress) -> Option<Self> {
        match PoolSetKey::of_address(address) {
            Some(_) => Self::of_member_annotation(address),
            None => {
                let namespace = address.metadata.namespace.as_deref();
                Self::from_reference(&address.spec.pool_ref, namespace)
            }
        }
    }

    /// Returns the pool that an owner reference of an object in `namespace` refers to; `None` for
    /// other owners.
    pub fn of_owner(owner: &OwnerReference, namespace: Option<&str>) -> Option<Self> {
        let (group, _) = owner.api_version.split_once('/')?;
        if group != names::GROUP {
            return None;
        }
        Self::of_kind(&owner.kind, namespace, &owner.name)
    }

    /// Returns the member of a set that an IPAddress has in its annotations.
    fn of_member_annotation(address: &IPAddress) -> Option<Self> {
        let text = address.annotations().get(names::MEMBER_POOL_ANNOTATION)?;
        let (kind, name) = text.split_once('/')?;
        Self::of_kind(kind, address.metadata.namespace.as_deref(), name)
    }

    /// The value of the annotation [`names::MEMBER_POOL_ANNOTATION`] for this pool.
    pub fn to_member_annotation(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    pub(super) fn of_kind(kind: &str, namespace: Option<&str>, name: &str) -> Option<Self> {
        let kind = InClusterKind::of(kind)?;
        let namespace = if kind.is_global() {
            None
        } else {
            Some(namespace?)
        };
        Some(Self::new(kind, namespace, name))
    }

    /// Returns the pool whose scope has this name, as returned by
    /// [`Scope::name`](super::Scope::name); `None` if it is not that of a pool.
    pub fn of_scope(name: &str) -> Option<Self> {
        let (prefix, rest) = name.split_once('.')?;
        let kind = match prefix {
            "p" => InClusterKind::IPPool,
            "g" => InClusterKind::GlobalIPPool,
            "pp" => InClusterKind::PrefixPool,
            "gp" => InClusterKind::GlobalPrefixPool,
            _ => return None,
        };
        // A namespace contains no dots.
        let (namespace, name) = if kind.is_global() {
            (None, rest)
        } else {
            rest.split_once('.')
                .map(|(namespace, name)| (Some(namespace), name))?
        };
        let is_complete =
            !name.is_empty() && namespace.is_none_or(|namespace| !namespace.is_empty());
        is_complete.then(|| Self::new(kind, namespace, name))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pool_of_an_address_of_a_set_is_in_its_annotation() {
        let address = |kind: &str, annotation: Option<&str>| {
            let annotations = annotation.map(|text| json!({names::MEMBER_POOL_ANNOTATION: text}));
            let address = serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": "a", "annotations": annotations},
                "spec": {"poolRef": {"apiGroup": names::GROUP, "kind": kind, "name": "s"}},
            }));
            PoolKey::of_address(&address.unwrap()).map(|pool| pool.to_string())
        };
        let own = Some("InClusterIPPool/rack-1");
        assert_eq!(
            address("IPPoolSet", own).as_deref(),
            Some("InClusterIPPool n/rack-1")
        );
        assert_eq!(
            address("GlobalIPPoolSet", Some("GlobalInClusterIPPool/all")).as_deref(),
            Some("GlobalInClusterIPPool all")
        );
        assert_eq!(
            address("InClusterIPPool", own).as_deref(),
            Some("InClusterIPPool n/s"),
            "only of a set"
        );
        assert_eq!(address("IPPoolSet", None), None);
        assert_eq!(address("IPPoolSet", Some("IPPoolSet/s")), None);
        assert_eq!(address("OtherPool", own), None);
    }
}
