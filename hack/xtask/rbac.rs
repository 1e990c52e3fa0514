//! The permissions of the manager: a table with the reason for each rule. `config/rbac/role.yaml`
//! is generated from it.

use capi_ipam_api::installed::{
    CERTIFICATE_SECRET, CONVERTED_DEFINITIONS, DEFINITIONS, MUTATING_CONFIGURATION, NAMESPACE,
    WEBHOOK_CONFIGURATION,
};
use capi_ipam_api::names;
use serde_json::{Value, json};

/// A rule of a role.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// API group of the resources; empty for the core group.
    pub group: &'static str,
    /// Plural names of resources and subresources.
    pub resources: &'static [&'static str],
    /// Names of the objects; empty for all.
    pub names: &'static [&'static str],
    /// Allowed verbs.
    pub verbs: &'static [&'static str],
    /// Why the rule is needed.
    pub reason: &'static str,
}

/// The rules for the whole cluster.
pub const CLUSTER_RULES: &[Rule] = &[
    Rule {
        group: names::GROUP,
        resources: &["ipaddressclaims"],
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        reason: "reconcile claims; the finalizer (the last one is removed by an update, which compares the uid)",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddressclaims/status"],
        names: &[],
        verbs: &["patch"],
        reason: "bind claims; their conditions",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddresses"],
        names: &[],
        verbs: &[
            "get", "list", "watch", "create", "patch", "update", "delete",
        ],
        reason: "allocated addresses; their finalizer, as above",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "inclusterippools",
            "globalinclusterippools",
            "inclusterprefixpools",
            "globalinclusterprefixpools",
            "ippoolsets",
            "globalippoolsets",
        ],
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        reason: "reconcile pools and sets of them; the finalizer, as above",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "inclusterippools/status",
            "globalinclusterippools/status",
            "inclusterprefixpools/status",
            "globalinclusterprefixpools/status",
            "ippoolsets/status",
            "globalippoolsets/status",
        ],
        names: &[],
        verbs: &["patch"],
        reason: "counts and conditions of pools and sets",
    },
    Rule {
        group: names::GROUP,
        resources: &[
            "ipaddressclaims/finalizers",
            "inclusterippools/finalizers",
            "globalinclusterippools/finalizers",
            "inclusterprefixpools/finalizers",
            "globalinclusterprefixpools/finalizers",
            "ippoolsets/finalizers",
            "globalippoolsets/finalizers",
        ],
        names: &[],
        verbs: &["update"],
        reason: "set claim and pool as owners with blockOwnerDeletion (OwnerReferencesPermissionEnforcement)",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipreservations"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
        reason: "reserve addresses, which makes them unique",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipreservations/status", "ipslices/status"],
        names: &[],
        verbs: &["patch"],
        reason: "report reservations and slices without effect",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipslices"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
        reason: "assign slices of pools to owners, and return them",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipnetworks"],
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        reason: "networks; their finalizer, as above",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipnetworks/status"],
        names: &[],
        verbs: &["patch"],
        reason: "block lengths, members and conditions of networks",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipregistries"],
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        reason: "the registries in which networks share blocks with other management clusters; their finalizer",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipregistries/status"],
        names: &[],
        verbs: &["patch"],
        reason: "management clusters and conditions of registries",
    },
    Rule {
        group: "",
        resources: &["namespaces"],
        names: &[],
        verbs: &["list", "watch"],
        reason: "the labels by which networks and global pools allow namespaces",
    },
    Rule {
        group: "",
        resources: &["namespaces"],
        names: &["kube-system"],
        verbs: &["get"],
        reason: "its UID is the identity of the management cluster in a registry",
    },
    Rule {
        group: names::CLUSTER_GROUP,
        resources: &["clusters"],
        names: &[],
        verbs: &["get", "list", "watch"],
        reason: "skip objects of a paused Cluster; return the slices of a deleted one",
    },
    Rule {
        group: names::CLUSTER_GROUP,
        resources: &["machines"],
        names: &[],
        verbs: &["get", "list"],
        reason: "the labels by which spec.headroom of a global pool selects claims; the addresses for spec.reclaim.verify; \
                 failure domains for sets of pools",
    },
    Rule {
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        names: &[],
        verbs: &["create"],
        reason: "authenticate clients of the metrics endpoint",
    },
    Rule {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        names: &[],
        verbs: &["create"],
        reason: "authorize clients of the metrics endpoint",
    },
    Rule {
        group: "events.k8s.io",
        resources: &["events"],
        names: &[],
        verbs: &["create", "patch"],
        reason: "publish events",
    },
    Rule {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        names: DEFINITIONS,
        verbs: &["get"],
        reason: "check whether they have all fields, and whether pools are stored in an old version",
    },
    Rule {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions/status"],
        names: CONVERTED_DEFINITIONS,
        verbs: &["patch"],
        reason: "record that no pool is stored in an old version",
    },
];

/// The rules for the manager's own namespace.
pub const NAMESPACE_RULES: &[Rule] = &[
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[names::IN_CLUSTER_LEASE],
        verbs: &["get", "update"],
        reason: "leader election",
    },
    // Without names: the API server does not authorize `create` by name.
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
        reason: "create the lease",
    },
    Rule {
        group: "",
        resources: &["secrets"],
        names: &[],
        verbs: &["get"],
        reason: "the credentials of registries, whose names users choose; the namespace is that of the manager alone",
    },
];

/// The rules for the whole cluster that `--webhook-certs=self-managed` adds.
pub const SELF_MANAGED_CERTS_CLUSTER_RULES: &[Rule] = &[
    Rule {
        group: "admissionregistration.k8s.io",
        resources: &["validatingwebhookconfigurations"],
        names: &[WEBHOOK_CONFIGURATION],
        verbs: &["get", "patch"],
        reason: "inject the CA bundle of the admission webhooks",
    },
    Rule {
        group: "apiextensions.k8s.io",
        resources: &["customresourcedefinitions"],
        names: CONVERTED_DEFINITIONS,
        verbs: &["patch"],
        reason: "inject the CA bundle of the conversion webhook",
    },
];

/// The rules for the manager's own namespace that `--webhook-certs=self-managed` adds.
pub const SELF_MANAGED_CERTS_NAMESPACE_RULES: &[Rule] = &[
    Rule {
        group: "",
        resources: &["secrets"],
        names: &[CERTIFICATE_SECRET],
        // The role of every manager allows to read the Secrets of its namespace.
        verbs: &["patch"],
        reason: "the certificate and the CA that all replicas share",
    },
    // Without names: the API server does not authorize `create` by name.
    Rule {
        group: "",
        resources: &["secrets"],
        names: &[],
        verbs: &["create"],
        reason: "create the Secret",
    },
];

/// The rules for the whole cluster that `--cluster-addressing` adds.
pub const CLUSTER_ADDRESSING_RULES: &[Rule] = &[
    Rule {
        group: names::GROUP,
        resources: &["clusteraddressings"],
        names: &[],
        verbs: &["get", "list", "watch", "patch", "update"],
        reason: "which addresses Clusters get; the finalizer (the last one is removed by an update, which compares the uid)",
    },
    Rule {
        group: names::GROUP,
        resources: &["clusteraddressings/status"],
        names: &[],
        verbs: &["patch"],
        reason: "counts and conditions",
    },
    Rule {
        group: names::GROUP,
        resources: &["ipaddressclaims"],
        names: &[],
        verbs: &["create", "delete"],
        reason: "the claims of Clusters; they are deleted when the Cluster is gone",
    },
    Rule {
        group: names::CLUSTER_GROUP,
        resources: &["clusters"],
        names: &[],
        verbs: &["patch"],
        reason: "write addresses into empty fields",
    },
    Rule {
        group: "",
        resources: &["configmaps"],
        names: &[],
        verbs: &["get", "create"],
        reason: "manifests with addresses for ClusterResourceSets",
    },
    Rule {
        group: "admissionregistration.k8s.io",
        resources: &["mutatingwebhookconfigurations"],
        names: &[MUTATING_CONFIGURATION],
        verbs: &["get", "patch"],
        reason: "inject the self-managed CA bundle of the webhook of Clusters",
    },
];

/// Rules that are added to the roles `view`, `edit` and `admin`.
const VIEWER_RULES: &[Rule] = &[Rule {
    group: names::GROUP,
    resources: &[
        "inclusterippools",
        "globalinclusterippools",
        "inclusterprefixpools",
        "globalinclusterprefixpools",
        "ippoolsets",
        "globalippoolsets",
        "clusteraddressings",
        "ipnetworks",
        "ipregistries",
        "ipreservations",
        "ipslices",
    ],
    names: &[],
    verbs: &["get", "list", "watch"],
    reason: "view pools, sets of pools, networks, registries, reservations, slices and addresses of Clusters",
}];

/// Rules of the editor role, which is bound in namespaces. They are not added to `edit`, since a
/// pool can join the network of other pools, and every pool uses memory of the manager.
/// Cluster-scoped pools are for administrators.
const EDITOR_RULES: &[Rule] = &[Rule {
    group: names::GROUP,
    resources: &["inclusterippools", "inclusterprefixpools", "ippoolsets"],
    names: &[],
    verbs: &["create", "update", "patch", "delete"],
    reason: "manage pools and sets of them",
}];

/// The additional rules for `--dns-endpoints`.
pub const DNS_ENDPOINTS_RULES: &[Rule] = &[Rule {
    group: "externaldns.k8s.io",
    resources: &["dnsendpoints"],
    names: &[],
    verbs: &["get", "list", "watch", "create", "patch", "delete"],
    reason: "DNS records of IPAddresses",
}];

/// The additional rules for `--rollout-metrics`: the kinds that create Machines.
pub const ROLLOUT_METRICS_RULES: &[Rule] = &[
    Rule {
        group: names::CLUSTER_GROUP,
        resources: &["machinedeployments", "machinesets", "machinepools"],
        names: &[],
        verbs: &["list"],
        reason: "Machines that rollouts create",
    },
    Rule {
        group: "controlplane.cluster.x-k8s.io",
        resources: &["*"],
        names: &[],
        verbs: &["list"],
        reason: "Machines that rollouts of control planes create",
    },
];

/// Rules of the editor role of ClusterAddressings, with which the manager writes Clusters: so they
/// are in no other role.
const CLUSTER_ADDRESSING_EDITOR_RULES: &[Rule] = &[Rule {
    group: names::GROUP,
    resources: &["clusteraddressings"],
    names: &[],
    verbs: &["create", "update", "patch", "delete"],
    reason: "manage addresses of Clusters",
}];

/// The roles of the manager; the viewer role, which is aggregated to `view`, `edit` and `admin`;
/// and the editor role, which is not aggregated.
pub(crate) fn documents() -> [Value; 4] {
    [
        role(
            "ClusterRole",
            "capi-ipam-in-cluster-manager-role",
            CLUSTER_RULES,
        ),
        role(
            "Role",
            "capi-ipam-in-cluster-leader-election-role",
            NAMESPACE_RULES,
        ),
        aggregated_to(
            &["view", "edit", "admin"],
            "capi-ipam-in-cluster-viewer-role",
            VIEWER_RULES,
        ),
        role(
            "ClusterRole",
            "capi-ipam-in-cluster-editor-role",
            EDITOR_RULES,
        ),
    ]
}

/// A ClusterRole that is aggregated to others.
fn aggregated_to(targets: &[&str], name: &str, rules: &[Rule]) -> Value {
    let mut aggregated = role("ClusterRole", name, rules);
    let labels: serde_json::Map<String, Value> = targets
        .iter()
        .map(|target| {
            (
                format!("rbac.authorization.k8s.io/aggregate-to-{target}"),
                json!("true"),
            )
        })
        .collect();
    if let Some(metadata) = aggregated
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.insert("labels".to_owned(), Value::Object(labels));
    }
    aggregated
}

/// The ClusterRole for `--cluster-addressing`, and that of those who write ClusterAddressings.
pub(crate) fn cluster_addressing_documents() -> [Value; 2] {
    let name = "capi-ipam-in-cluster-cluster-addressing-role";
    let editor = "capi-ipam-in-cluster-cluster-addressing-editor-role";
    [
        role("ClusterRole", name, CLUSTER_ADDRESSING_RULES),
        role("ClusterRole", editor, CLUSTER_ADDRESSING_EDITOR_RULES),
    ]
}

/// The ClusterRole for `--dns-endpoints`.
pub(crate) fn dns_endpoints_documents() -> [Value; 1] {
    let name = "capi-ipam-in-cluster-dns-endpoints-role";
    [role("ClusterRole", name, DNS_ENDPOINTS_RULES)]
}

/// The ClusterRole for `--rollout-metrics`.
pub(crate) fn rollout_metrics_documents() -> [Value; 1] {
    let name = "capi-ipam-in-cluster-rollout-metrics-role";
    [role("ClusterRole", name, ROLLOUT_METRICS_RULES)]
}

/// The ClusterRole and the Role for `--webhook-certs=self-managed`.
pub(crate) fn self_managed_certs_documents() -> [Value; 2] {
    let name = "capi-ipam-in-cluster-self-managed-certs-role";
    [
        role("ClusterRole", name, SELF_MANAGED_CERTS_CLUSTER_RULES),
        role("Role", name, SELF_MANAGED_CERTS_NAMESPACE_RULES),
    ]
}

fn role(kind: &str, name: &str, rules: &[Rule]) -> Value {
    let rule = |rule: &Rule| {
        let (
            groups,
            Rule {
                resources,
                names,
                verbs,
                ..
            },
        ) = ([rule.group], rule);
        if names.is_empty() {
            json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
        } else {
            json!({ "apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs })
        }
    };
    let metadata = if kind == "Role" {
        json!({ "name": name, "namespace": NAMESPACE })
    } else {
        json!({ "name": name })
    };
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": rules.iter().map(rule).collect::<Vec<_>>(),
    })
}
