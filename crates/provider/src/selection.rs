//! Selection of objects by the flags `--namespace`, `--watch-filter` and `--selector`.

use capi_ipam_controller::options::Options;
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};

use crate::api::names;

/// The objects that this process reconciles: those that the flags `--namespace`, `--watch-filter`
/// and `--selector` select. An object must match all three.
///
/// The watches are not restricted to them. An object that is not selected is cached and its address
/// counts as in use, but this process does not change it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The namespaces; empty for all. Cluster-scoped objects match every namespace.
    namespaces: Vec<String>,
    /// The value of the label `cluster.x-k8s.io/watch-filter`; empty for all objects.
    watch_filter: String,
    /// A selector of labels; empty for all objects.
    selector: Selector,
}

impl Selection {
    /// Creates the selection from the options of the manager.
    pub fn of(options: &Options) -> Self {
        Self {
            namespaces: options.selected_namespaces().map(str::to_owned).collect(),
            watch_filter: options.watch_filter.clone(),
            selector: options.selector.clone(),
        }
    }

    /// Returns whether this process reconciles the object.
    pub fn includes<K: Resource>(&self, object: &K) -> bool {
        let label = object.labels().get(names::WATCH_FILTER_LABEL);
        self.includes_namespace(object.meta().namespace.as_deref())
            && (self.watch_filter.is_empty() || label == Some(&self.watch_filter))
            && self.selector.matches(object.labels())
    }

    /// Returns whether this process reconciles all objects, and no other one is needed.
    pub fn is_everything(&self) -> bool {
        self.namespaces.is_empty() && self.watch_filter.is_empty() && self.selector.selects_all()
    }

    /// Returns whether this process reconciles objects in this namespace; `None` stands for
    /// cluster-scoped objects.
    pub fn includes_namespace(&self, namespace: Option<&str>) -> bool {
        let is_selected =
            |namespace: &str| self.namespaces.iter().any(|selected| selected == namespace);
        self.namespaces.is_empty() || namespace.is_none_or(is_selected)
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::options::parse_selector;
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
        let namespaces = namespace
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        Selection {
            namespaces,
            watch_filter: watch_filter.to_owned(),
            selector: Selector::default(),
        }
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
    fn objects_of_several_namespaces_can_be_selected() {
        let both = selection("a,b", "");
        assert!(both.includes(&claim("a", "red")) && both.includes(&claim("b", "red")));
        assert!(!both.includes(&claim("c", "red")));
    }

    #[test]
    fn selector_and_namespace_must_both_match() {
        let selector = parse_selector("cluster.x-k8s.io/watch-filter in (red,blue)").unwrap();
        let selection = Selection {
            selector,
            ..selection("a", "")
        };
        assert!(selection.includes(&claim("a", "blue")));
        assert!(
            !selection.includes(&claim("a", "green")) && !selection.includes(&claim("b", "blue"))
        );
    }

    #[test]
    fn cluster_scoped_objects_match_every_namespace() {
        assert!(selection("a", "").includes_namespace(None));
        assert!(!selection("a", "").includes_namespace(Some("b")));
    }
}
