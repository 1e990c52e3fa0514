//! Types that the contract kinds share: versions, references, and the implementation of
//! [`kube::Resource`].

use serde::{Deserialize, Serialize};

/// A version of the Cluster API contract as served by an API server.
///
/// It is the dynamic type of the contract kinds, because the served version is discovered at run
/// time. `v1beta2` is preferred; releases of Cluster API before 1.11 serve `v1beta1` only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContractVersion {
    /// `v1beta2`, served since Cluster API 1.11.
    #[default]
    V1Beta2,
    /// `v1beta1`, the only version before Cluster API 1.11.
    V1Beta1,
}

impl ContractVersion {
    /// All versions, the preferred first.
    pub const ALL: [Self; 2] = [Self::V1Beta2, Self::V1Beta1];

    /// The version as in `apiVersion`, without the group.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta2 => "v1beta2",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// A reference to a pool by group, kind and name. The namespace is that of the referring object,
/// unless the kind is cluster-scoped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolReference {
    /// API group of the pool. Optional in `v1beta1`, required in `v1beta2`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the pool.
    pub kind: String,
    /// Name of the pool.
    pub name: String,
}

/// A reference by name to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

/// Implements [`kube::Resource`] for a struct with a `metadata` field.
macro_rules! impl_resource {
    ($name:ident, $group:expr, $plural:literal, $scope:ident, $dynamic:ty, |$version:ident| $version_text:expr) => {
        impl kube::Resource for $name {
            type DynamicType = $dynamic;
            type Scope = k8s_openapi::$scope;

            fn kind(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }
            fn group(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $group.into()
            }
            fn version($version: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $version_text.into()
            }
            fn plural(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(super) use impl_resource;
