//! What the manager may do: one table, with the reason of each row. `config/rbac/role.yaml` is made from it.

use serde_json::{Value, json};

use crate::api::names;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Group of the resources.
    pub group: &'static str,
    /// Plural names of the resources, with their subresources.
    pub resources: &'static [&'static str],
    /// What may be done with them.
    pub verbs: &'static [&'static str],
    /// Why it is needed.
    pub why: &'static str,
}

/// The rules for the whole cluster.
pub const CLUSTER_RULES: &[Rule] = &[
    Rule {
        group: names::GROUP,
        resources: &["ipaddressclaims"],
        verbs: &["get", "list", "watch", "patch"],
        why: "serve claims; the finalizer",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddressclaims/status"],
        verbs: &["patch"],
        why: "bind a claim; its conditions",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddresses"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
        why: "the addresses of claims",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "inclusterippools",
            "globalinclusterippools",
            "inclusterprefixpools",
            "globalinclusterprefixpools",
        ],
        verbs: &["list", "watch", "patch"],
        why: "serve from pools; the finalizer",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "inclusterippools/status",
            "globalinclusterippools/status",
            "inclusterprefixpools/status",
            "globalinclusterprefixpools/status",
        ],
        verbs: &["patch"],
        why: "counts and conditions of pools",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "ipaddressclaims/finalizers",
            "inclusterippools/finalizers",
            "globalinclusterippools/finalizers",
            "inclusterprefixpools/finalizers",
            "globalinclusterprefixpools/finalizers",
        ],
        verbs: &["update"],
        why: "name claim and pool as owners whose deletion waits (OwnerReferencesPermissionEnforcement)",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipreservations"],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
        why: "make addresses unique",
    },
    Rule {
        group: names::CLUSTER_GROUP,
        resources: &["clusters"],
        verbs: &["get", "list", "watch"],
        why: "leave alone what belongs to a paused Cluster",
    },
    Rule {
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        verbs: &["create"],
        why: "learn who asks for metrics",
    },
    Rule {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
        why: "learn who may see metrics",
    },
    Rule { group: "events.k8s.io", resources: &["events"], verbs: &["create", "patch"], why: "tell what happens" },
];

/// The rules for the manager's own namespace.
pub const NAMESPACE_RULES: &[Rule] = &[Rule {
    group: "coordination.k8s.io",
    resources: &["leases"],
    verbs: &["get", "create", "update"],
    why: "leader election",
}];

/// ClusterRole and Role, ready to be written as YAML.
pub(super) fn documents() -> [Value; 2] {
    let role = |kind: &str, name: &str, rules: &[Rule]| {
        let rules: Vec<Value> = rules
            .iter()
            .map(|rule| json!({ "apiGroups": [rule.group], "resources": rule.resources, "verbs": rule.verbs }))
            .collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": name },
            "rules": rules,
        })
    };
    let mut leases = role("Role", "capi-ipam-in-cluster-leader-election-role", NAMESPACE_RULES);
    if let Some(metadata) = leases.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".to_owned(), json!("capi-ipam-in-cluster-system"));
    }
    [role("ClusterRole", "capi-ipam-in-cluster-manager-role", CLUSTER_RULES), leases]
}
