//! Policies with which the API server denies writes.

use capi_ipam_controller::client::error_chain;
use serde_json::{Value, json};

use super::consumer::{Consumer, object};
use super::control_plane::ControlPlane;
use super::wait::eventually;

/// The message of the policies.
pub const DENIED: &str = "not before the review";

/// A policy of the API server.
#[must_use]
pub struct Policy<'a> {
    plane: &'a ControlPlane,
    name: String,
}

impl<'a> Policy<'a> {
    /// Denies an operation on a kind of this API group in one namespace, unless the expression is
    /// true. The API server enforces it after a delay.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn deny(
        plane: &'a ControlPlane,
        namespace: &str,
        [operation, kind]: [&str; 2],
        expression: &str,
    ) -> Self {
        let name = format!("{namespace}-{kind}-{}", operation.to_lowercase());
        let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
        let matched = json!({"namespaceSelector": selector});
        Self::create(plane, name, [operation, kind], expression, &matched)
    }

    /// Like [`Self::deny`], for the objects of a kind that is not namespaced whose names have a
    /// prefix.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn deny_global(
        plane: &'a ControlPlane,
        prefix: &str,
        [operation, kind]: [&str; 2],
        expression: &str,
    ) -> Self {
        let name = format!(
            "{prefix}-{}-{}",
            kind.replace('/', "-"),
            operation.to_lowercase()
        );
        let expression = format!("!object.metadata.name.startsWith('{prefix}') || ({expression})");
        Self::create(plane, name, [operation, kind], &expression, &json!({}))
    }

    fn create(
        plane: &'a ControlPlane,
        name: String,
        [operation, kind]: [&str; 2],
        expression: &str,
        matched: &Value,
    ) -> Self {
        let api = "admissionregistration.k8s.io/v1";
        let policy = json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["ipam.cluster.x-k8s.io", "cluster.x-k8s.io"], "apiVersions": ["*"],
                    "operations": [operation], "resources": [kind],
                }]},
                "validations": [{"expression": expression, "message": DENIED, "reason": "Forbidden"}],
            },
        });
        let binding = json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": matched,
            },
        });
        plane.kubectl_apply(&policy.to_string());
        plane.kubectl_apply(&binding.to_string());
        Self { plane, name }
    }

    /// Removes the policy.
    ///
    /// # Panics
    /// When kubectl fails.
    pub fn remove(self) {
        for kind in [
            "validatingadmissionpolicybinding",
            "validatingadmissionpolicy",
        ] {
            self.plane.kubectl(&["delete", kind, &self.name]);
        }
    }
}

/// Waits until the API server rejects an IPAddress in the namespace with these words.
pub async fn wait_until_rejected(consumer: &Consumer, words: &str) {
    let probe = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "probe", "namespace": consumer.namespace},
        "spec": {"claimRef": {"name": "probe"}, "address": "10.9.9.9", "prefix": 24,
                 "poolRef": {"apiGroup": "example.com", "kind": "OtherPool", "name": "other"}},
    });
    eventually("an IPAddress is rejected", || async {
        match consumer.addresses().create(&object(probe.clone())).await {
            Ok(_) => {
                consumer.delete_object(&consumer.addresses(), "probe").await;
                None
            }
            Err(error) => error_chain(&error).contains(words).then_some(()),
        }
    })
    .await;
}
