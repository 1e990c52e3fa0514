//! The implementation of [`kube::Resource`] for the kinds of this API group that are not
//! namespaced.

/// Implements [`kube::Resource`] for a type with the field `metadata` and the name of its kind.
macro_rules! cluster_resource {
    ($kind:ident, $plural:literal) => {
        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = k8s_openapi::ClusterResourceScope;

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

pub(super) use cluster_resource;
