//! Selection of objects by the flags `--namespace` and `--watch-filter`.

use capi_ipam_controller::options::Options;
use kube::{Resource, ResourceExt};

use crate::api::names;

/// The objects that this process reconciles: those that the flags `--namespace` and `--watch-filter` select.
///
/// The watches are not restricted to them. An object that is not selected is cached and its address counts as in use,
/// but this process does not change it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The namespace; empty for all. Cluster-scoped objects match every namespace.
    namespace: String,
    /// The value of the label `cluster.x-k8s.io/watch-filter`; empty for all objects.
    watch_filter: String,
}

impl Selection {
    /// Creates the selection from the options of the manager.
    pub fn of(options: &Options) -> Self {
        Self { namespace: options.namespace.clone(), watch_filter: options.watch_filter.clone() }
    }

    /// Returns whether this process reconciles the object.
    pub fn includes<K: Resource>(&self, object: &K) -> bool {
        let label = object.labels().get(names::WATCH_FILTER_LABEL);
        self.includes_namespace(object.meta().namespace.as_deref())
            && (self.watch_filter.is_empty() || label == Some(&self.watch_filter))
    }

    /// Returns whether this process reconciles objects in this namespace; `None` stands for cluster-scoped objects.
    pub fn includes_namespace(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_empty() || namespace.is_none_or(|namespace| namespace == self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::IPAddressClaim;

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
    fn cluster_scoped_objects_match_every_namespace() {
        assert!(selection("a", "").includes_namespace(None));
        assert!(!selection("a", "").includes_namespace(Some("b")));
    }
}
