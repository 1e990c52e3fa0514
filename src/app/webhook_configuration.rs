//! The ValidatingWebhookConfiguration: which requests the API server sends to the webhooks.
//!
//! Match conditions exclude as many requests as possible: updates that do not change the spec of a pool, updates of
//! objects that are being deleted, and deletions that an annotation allows. These work while no webhook is available.
//! Reservations of the provider are excluded too: a webhook call would double the time of an allocation.

use serde_json::{Value, json};

use crate::admission::routes::{self, Paths};
use crate::api::{InClusterKind, names};
use crate::installed::{NAMESPACE, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE};

/// Matches creations, updates of the spec and deletions, except updates of objects that are being deleted, and
/// deletions with an annotation that allows them.
const SPEC_CHANGES: &str = "request.operation == 'CREATE' || (!has(oldObject.metadata.deletionTimestamp) && \
                            (request.operation == 'DELETE' \
                            ? !has(oldObject.metadata.annotations) || \
                            !['ipam.cluster.x-k8s.io/skip-validate-delete-webhook', \
                            'clusterctl.cluster.x-k8s.io/delete-for-move']\
                            .exists(name, name in oldObject.metadata.annotations) \
                            : has(object.spec) != has(oldObject.spec) || \
                            (has(object.spec) && object.spec != oldObject.spec)))";

/// Matches reservations that are created manually, except those with which earlier versions declare the block length of
/// a network.
const MANUAL_RESERVATIONS: &str = "!(has(object.spec.claimRef) && has(object.spec.claimRef.uid)) && \
                       !(has(object.metadata.name) && object.metadata.name.matches('^n[.][a-z0-9-]+[.]ipv[46]$'))";

/// Matches creations and updates of the spec.
const SPEC_WRITES: &str = "request.operation == 'CREATE' || !has(oldObject.metadata.deletionTimestamp) && \
                           (has(object.spec) != has(oldObject.spec) || \
                           (has(object.spec) && object.spec != oldObject.spec))";

/// The ValidatingWebhookConfiguration.
pub(super) fn documents() -> [Value; 1] {
    let pools = InClusterKind::ALL.map(|kind| {
        let Paths { validate, .. } = routes::paths_of(kind);
        webhook(kind.plural(), validate, &["CREATE", "UPDATE", "DELETE"], "not-only-metadata", SPEC_CHANGES)
    });
    let validate = routes::VALIDATE_RESERVATION;
    let reservations = webhook("ipreservations", validate, &["CREATE"], "made-by-hand", MANUAL_RESERVATIONS);
    let validate = routes::VALIDATE_NETWORK;
    let networks = webhook("ipnetworks", validate, &["CREATE", "UPDATE"], "not-only-metadata", SPEC_WRITES);
    [json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": WEBHOOK_CONFIGURATION },
        "webhooks": pools.into_iter().chain([networks, reservations]).collect::<Vec<_>>(),
    })]
}

fn webhook(plural: &str, path: &str, operations: &[&str], condition: &str, expression: &str) -> Value {
    let singular = plural.strip_suffix('s').unwrap_or(plural);
    json!({
        "name": format!("validation.{singular}.{}", names::GROUP),
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": NAMESPACE, "name": WEBHOOK_SERVICE, "path": path } },
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": 10,
        "rules": [{
            "apiGroups": [names::GROUP],
            "apiVersions": [names::POOL_VERSION],
            "operations": operations,
            "resources": [plural],
        }],
        "matchConditions": [{ "name": condition, "expression": expression }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_condition_has_the_annotations_of_the_validator() {
        for annotation in [names::SKIP_VALIDATE_DELETE, names::DELETE_FOR_MOVE] {
            assert!(SPEC_CHANGES.contains(&format!("'{annotation}'")), "{annotation}");
        }
    }
}
