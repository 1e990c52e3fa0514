//! Which objects this process serves.

use capi_ipam_controller::options::Options;
use kube::{Resource, ResourceExt};

use crate::api::names;

/// The objects that this process serves: those that the flags `--namespace` and `--watch-filter` select.
///
/// It sees more: watches are not limited. An object that it does not serve is known, counts as in use, and is left
/// alone.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The namespace, empty for all. An object without a namespace is in each of them.
    namespace: String,
    /// The value of the label, empty for all objects.
    watch_filter: String,
}

impl Selection {
    /// The selection of the flags.
    pub fn of(options: &Options) -> Self {
        Self { namespace: options.namespace.clone(), watch_filter: options.watch_filter.clone() }
    }

    /// Whether this process serves the object.
    pub fn includes<K: Resource>(&self, object: &K) -> bool {
        let label = object.labels().get(names::WATCH_FILTER_LABEL);
        self.includes_namespace(object.meta().namespace.as_deref())
            && (self.watch_filter.is_empty() || label == Some(&self.watch_filter))
    }

    /// Whether this process serves objects of a namespace; `None` for objects without one.
    pub fn includes_namespace(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_empty() || namespace.is_none_or(|namespace| namespace == self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::api::IPAddressClaim;
    use super::*;

    fn claim(namespace: &str, label: &str) -> IPAddressClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": namespace, "labels": {"cluster.x-k8s.io/watch-filter": label}},
            "spec": {"poolRef": {"kind": "InClusterIPPool", "name": "p"}},
        }))
        .unwrap()
    }

    fn selection(namespace: &str, watch_filter: &str) -> Selection {
        Selection { namespace: namespace.to_owned(), watch_filter: watch_filter.to_owned() }
    }

    #[test]
    fn empty_flags_select_everything() {
        assert!(selection("", "").includes(&claim("a", "red")));
    }

    #[test]
    fn namespace_and_label_must_both_match() {
        let blue = selection("a", "blue");
        assert!(blue.includes(&claim("a", "blue")));
        assert!(!blue.includes(&claim("b", "blue")) && !blue.includes(&claim("a", "red")));
    }

    #[test]
    fn objects_without_namespace_are_in_every_namespace() {
        assert!(selection("a", "").includes_namespace(None));
        assert!(!selection("a", "").includes_namespace(Some("b")));
    }
}
