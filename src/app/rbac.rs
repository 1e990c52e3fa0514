//! What the manager may do: one table, with the reason of each row. `config/rbac/role.yaml` is made from it.

use serde_json::{json, Value};

use crate::api::names;
use super::installed::{CERTIFICATE_SECRET, CONVERTED_DEFINITIONS, NAMESPACE, WEBHOOK_CONFIGURATION};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Group of the resources.
    pub group: &'static str,
    /// Plural names of the resources, with their subresources.
    pub resources: &'static [&'static str],
    /// Which of them, by name; empty for all.
    pub names: &'static [&'static str],
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
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        why: "serve claims; the finalizer (update where it is the last: then the uid counts)",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddressclaims/status"],
        names: &[],
        verbs: &["patch"],
        why: "bind a claim; its conditions",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddresses"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "patch", "update", "delete"],
        why: "the addresses of claims; their finalizer, as above",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "inclusterippools",
            "globalinclusterippools",
            "inclusterprefixpools",
            "globalinclusterprefixpools",
        ],
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        why: "serve from pools; the finalizer, as above",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "inclusterippools/status",
            "globalinclusterippools/status",
            "inclusterprefixpools/status",
            "globalinclusterprefixpools/status",
        ],
        names: &[],
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
        names: &[],
        verbs: &["update"],
        why: "name claim and pool as owners whose deletion waits (OwnerReferencesPermissionEnforcement)",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipreservations"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
        why: "make addresses unique",
    },
    Rule {
        group: names::CLUSTER_GROUP,
        resources: &["clusters"],
        names: &[],
        verbs: &["get", "list", "watch"],
        why: "leave alone what belongs to a paused Cluster",
    },
    Rule {
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        names: &[],
        verbs: &["create"],
        why: "learn who asks for metrics",
    },
    Rule {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        names: &[],
        verbs: &["create"],
        why: "learn who may see metrics",
    },
    Rule {
        group: "events.k8s.io",
        resources: &["events"],
        names: &[],
        verbs: &["create", "patch"],
        why: "tell what happens",
    },
];

/// The rules for the manager's own namespace.
pub const NAMESPACE_RULES: &[Rule] = &[
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[names::IN_CLUSTER_LEASE],
        verbs: &["get", "update"],
        why: "leader election",
    },
    // A name cannot be given: the API server does not look at it when something is created.
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        why: "the first election",
    },
];

/// The rules for the whole cluster that `--webhook-certs=self-managed` adds.
pub const SELF_MANAGED_CERTS_CLUSTER_RULES: &[Rule] = &[
    Rule {
        group: "admissionregistration.k8s.io",
        resources: &["validatingwebhookconfigurations"],
        names: &[WEBHOOK_CONFIGURATION],
        verbs: &["get", "patch"],
        why: "have the API server trust the webhooks that it asks",
    },
    Rule {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        names: CONVERTED_DEFINITIONS,
        verbs: &["get", "patch"],
        why: "have the API server trust the webhook that converts",
    },
];

/// The rules for the manager's own namespace that `--webhook-certs=self-managed` adds.
pub const SELF_MANAGED_CERTS_NAMESPACE_RULES: &[Rule] = &[
    Rule {
        group: "",
        resources: &["secrets"],
        names: &[CERTIFICATE_SECRET],
        verbs: &["get", "patch"],
        why: "the certificate that all replicas serve with, and its authority",
    },
    // A name cannot be given: the API server does not look at it when something is created.
    Rule { group: "", resources: &["secrets"], names: &[], verbs: &["create"], why: "the first certificate" },
];

/// What people may do who may see everything in a namespace, or in the cluster.
const VIEWER_RULES: &[Rule] = &[Rule {
    group: names::GROUP,
    resources: &[
        "inclusterippools",
        "globalinclusterippools",
        "inclusterprefixpools",
        "globalinclusterprefixpools",
        "ipreservations",
    ],
    names: &[],
    verbs: &["get", "list", "watch"],
    why: "see pools, and who holds what",
}];

/// What people may do beside that who are bound to the role for it in a namespace. Not part of `edit`: a pool can join a
/// network that others use, and each pool costs the manager memory. What is in no namespace is for administrators.
const EDITOR_RULES: &[Rule] = &[Rule {
    group: names::GROUP,
    resources: &["inclusterippools", "inclusterprefixpools"],
    names: &[],
    verbs: &["create", "update", "patch", "delete"],
    why: "keep pools",
}];

/// The roles of the manager, the one for viewers, which becomes part of Kubernetes' own roles `view`, `edit` and `admin`,
/// and the one for editors, which does not; ready to be written as YAML.
pub(super) fn documents() -> [Value; 4] {
    [
        role("ClusterRole", "capi-ipam-in-cluster-manager-role", CLUSTER_RULES),
        role("Role", "capi-ipam-in-cluster-leader-election-role", NAMESPACE_RULES),
        added_to(&["view", "edit", "admin"], "capi-ipam-in-cluster-viewer-role", VIEWER_RULES),
        role("ClusterRole", "capi-ipam-in-cluster-editor-role", EDITOR_RULES),
    ]
}

/// A ClusterRole whose rules become part of others.
fn added_to(targets: &[&str], name: &str, rules: &[Rule]) -> Value {
    let mut added = role("ClusterRole", name, rules);
    let labels: serde_json::Map<String, Value> = targets
        .iter()
        .map(|target| (format!("rbac.authorization.k8s.io/aggregate-to-{target}"), json!("true")))
        .collect();
    if let Some(metadata) = added.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    added
}

/// ClusterRole and Role for `--webhook-certs=self-managed`, ready to be written as YAML.
pub(super) fn self_managed_certs_documents() -> [Value; 2] {
    let name = "capi-ipam-in-cluster-self-managed-certs-role";
    [
        role("ClusterRole", name, SELF_MANAGED_CERTS_CLUSTER_RULES),
        role("Role", name, SELF_MANAGED_CERTS_NAMESPACE_RULES),
    ]
}

fn role(kind: &str, name: &str, rules: &[Rule]) -> Value {
    let rule = |rule: &Rule| {
        let (groups, Rule { resources, names, verbs, .. }) = ([rule.group], rule);
        if names.is_empty() {
            json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
        } else {
            json!({ "apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs })
        }
    };
    let metadata =
        if kind == "Role" { json!({ "name": name, "namespace": NAMESPACE }) } else { json!({ "name": name }) };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
    })
}
