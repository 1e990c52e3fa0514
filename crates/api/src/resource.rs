//! The implementation of [`kube::Resource`] for the kinds of this API group with one version.

/// Implements [`kube::Resource`] for a type with the field `metadata` and the name of its kind.
macro_rules! resource {
    ($kind:ident, $plural:literal, $scope:ident) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $crate::names::GROUP.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $crate::names::POOL_VERSION.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
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

/// [`resource`] for a kind that is not namespaced.
macro_rules! cluster_resource {
    ($kind:ident, $plural:literal) => {
        $crate::resource::resource!($kind, $plural, ClusterResourceScope);
    };
}

pub(super) use cluster_resource;
pub(super) use resource;
