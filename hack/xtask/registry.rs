//! `manifests/registry.yaml`: what an API server needs that several management clusters use as a
//! registry of blocks.
//!
//! Each management cluster has a service account in the namespace [`NAMESPACE`] whose name is the id
//! of the cluster. All of them may use IPBlocks, and nothing else. The policy limits what each may
//! write to records of its id. Administrators are not limited by it.

use capi_ipam_api::names;
use serde_json::{Value, json};

/// The namespace of the service accounts, and the name of all other objects.
const NAMESPACE: &str = "capi-ipam-registry";

/// A rule of the policy: a CEL expression, and the message if it is false.
type Rule = (&'static str, &'static str);

/// What a cluster may write. `mine` is its id, `record` the record that is written or deleted, and
/// `before` the one that an update replaces.
const RULES: [Rule; 9] = [
    (
        "request.operation != 'DELETE' || !has(variables.record.network)",
        "the record of a network is shared by all clusters and must not be deleted",
    ),
    (
        "request.operation != 'DELETE' || !has(variables.record.block)",
        "a management cluster must not delete a block; it must write spec.block.returnedAt, so that no other one takes \
         the block before its quarantine is over",
    ),
    (
        "request.operation != 'CREATE' || !has(variables.record.block) || \
         variables.record.block.cluster == variables.mine",
        "a management cluster may create only blocks with the name of its service account in spec.block.cluster",
    ),
    // The quarantine is up to the clusters: a policy does not know the time.
    (
        "request.operation != 'UPDATE' || !has(variables.record.block) || \
         variables.record.block.cluster == variables.mine && \
         (variables.before.block.cluster == variables.mine || has(variables.before.block.returnedAt)) || \
         variables.record.block.cluster == variables.before.block.cluster && \
         variables.record.block.network == variables.before.block.network && \
         variables.record.block.block == variables.before.block.block && \
         variables.record.block.?since == variables.before.block.?since && \
         variables.record.block.?returnedAt == variables.before.block.?returnedAt && \
         variables.record.block.?used == variables.before.block.?used && \
         variables.record.block.?contenders.orValue([]).filter(id, id != variables.mine) == \
         variables.before.block.?contenders.orValue([]).filter(id, id != variables.mine)",
        "a management cluster may take a block of another one only after its return; before, it may only add its ID to \
         contenders, or remove it",
    ),
    // So would the addresses be free that contenders use.
    (
        "request.operation == 'CREATE' || !has(variables.record.block) || \
         variables.before.block.?contenders.orValue([]).all(id, id == variables.mine || \
         id in variables.record.block.?contenders.orValue([]))",
        "a management cluster must not remove others from contenders",
    ),
    (
        "!has(variables.record.cluster) || variables.record.cluster.cluster == variables.mine",
        "a management cluster may write only the record with the name of its service account in spec.cluster.cluster",
    ),
    (
        "!has(variables.record.network) || (request.operation == 'CREATE' ? \
         variables.record.network.sizeOf == variables.mine : \
         request.operation == 'DELETE' || \
         variables.record.network.size == variables.before.network.size && \
         variables.record.network.sizeOf == variables.before.network.sizeOf && \
         variables.record.network.?quarantineSeconds.orValue(604800) >= \
         variables.before.network.?quarantineSeconds.orValue(604800))",
        "a management cluster may create the record of a network only with the name of its service account in \
         spec.network.sizeOf, and must neither change the size nor shorten the quarantine",
    ),
    (
        "request.operation == 'CREATE' || !has(variables.record.registry)",
        "the record of the registry must not be changed or deleted",
    ),
    (
        "request.operation == 'DELETE' || \
         object.metadata.?finalizers.orValue([]).size() == 0 && \
         object.metadata.?ownerReferences.orValue([]).size() == 0",
        "a management cluster must not set finalizers or owner references",
    ),
];

/// All objects, in the order in which they are created; the definitions are the first ones.
pub(crate) fn documents(mut definitions: Vec<Value>) -> Vec<Value> {
    definitions.push(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": NAMESPACE },
    }));
    definitions.extend(role());
    definitions.extend(policy());
    definitions
}

/// The role of the management clusters, and its binding to all service accounts of the namespace.
fn role() -> [Value; 2] {
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": NAMESPACE },
            "rules": [{
                "apiGroups": [names::GROUP],
                "resources": ["ipblocks"],
                "verbs": ["get", "list", "watch", "create", "update", "delete"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": NAMESPACE },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAMESPACE,
            },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": accounts_group(),
            }],
        }),
    ]
}

/// The policy and its binding.
fn policy() -> [Value; 2] {
    let rules = RULES.map(|(expression, message)| {
        json!({ "expression": expression, "message": message, "reason": "Forbidden" })
    });
    let id = format!(
        "request.userInfo.username.substring({})",
        account_prefix().len()
    );
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": NAMESPACE },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "resourceRules": [{
                        "apiGroups": [names::GROUP],
                        "apiVersions": ["*"],
                        "resources": ["ipblocks"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                    }],
                },
                "matchConditions": [{
                    "name": "management-cluster",
                    "expression": format!(
                        "request.userInfo.username.startsWith('{}')",
                        account_prefix()
                    ),
                }],
                "variables": [
                    { "name": "mine", "expression": id },
                    {
                        "name": "record",
                        "expression": "request.operation == 'DELETE' ? oldObject.spec : object.spec",
                    },
                    {
                        "name": "before",
                        "expression": "request.operation == 'CREATE' ? object.spec : oldObject.spec",
                    },
                ],
                "validations": rules,
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": NAMESPACE },
            "spec": { "policyName": NAMESPACE, "validationActions": ["Deny"] },
        }),
    ]
}

/// What the user names of the service accounts start with. The id of the cluster follows.
fn account_prefix() -> String {
    format!("system:serviceaccount:{NAMESPACE}:")
}

/// The group of the service accounts.
fn accounts_group() -> String {
    format!("system:serviceaccounts:{NAMESPACE}")
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::NetworkRecord;

    use super::*;

    #[test]
    fn policy_has_the_default_quarantine() {
        let default = NetworkRecord::default().quarantine();
        let used = format!("quarantineSeconds.orValue({default})");
        let of_network: Vec<_> = RULES
            .iter()
            .filter(|(rule, _)| rule.contains(&used))
            .collect();
        assert_eq!(of_network.len(), 1);
    }
}
