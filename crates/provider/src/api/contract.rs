//! What the contract kinds share: versions, references, and the implementation of [`kube::Resource`].

use serde::{Deserialize, Serialize};

/// A version of the Cluster API contract as served by an API server.
///
/// The kinds of the contract carry it as their dynamic type, because the version is only known once the server has
/// been asked: `v1beta2` is preferred, `v1beta1` is what an older Cluster API serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContractVersion {
    /// `v1beta2`, since Cluster API 1.11.
    #[default]
    V1Beta2,
    /// `v1beta1`, the only one before.
    V1Beta1,
}

impl ContractVersion {
    /// All versions, the preferred first.
    pub const ALL: [Self; 2] = [Self::V1Beta2, Self::V1Beta1];

    /// The version as it stands in `apiVersion` after the slash.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta2 => "v1beta2",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// A reference to a pool by group, kind and name. Its namespace is that of the object holding it; cluster-wide pools
/// have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolReference {
    /// Group of the pool's kind. Optional in v1beta1, where it may be missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the pool.
    pub kind: String,
    /// Name of the pool.
    pub name: String,
}

/// A reference to an object of the same namespace by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

/// Implements [`kube::Resource`] for a struct with a `metadata` field.
#[doc(hidden)]
#[macro_export]
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
            fn meta(&self) -> &kube::api::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(super) use impl_resource;
