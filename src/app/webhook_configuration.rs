//! Which requests the API server asks the webhooks about: the ValidatingWebhookConfiguration.
//!
//! It is asked as little as possible. Changes that leave the specification of a pool alone, those of objects that are
//! being deleted, and deletions that an annotation allows, are done without asking, so also while no webhook answers. Reservations that the provider makes
//! are not asked about: that would double the time of an allocation.

use serde_json::{json, Value};

use crate::admission::routes::{self, Paths};
use crate::api::{InClusterKind, names};
use super::installed::{NAMESPACE, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE};

/// The pool is made, or its specification changes, or it is deleted; it is not going already, and nobody said that it may
/// go while it is in use.
const TO_BE_DECIDED: &str = "request.operation == 'CREATE' || (!has(oldObject.metadata.deletionTimestamp) && \
                            (request.operation == 'DELETE' \
                            ? !has(oldObject.metadata.annotations) || \
                            !['ipam.cluster.x-k8s.io/skip-validate-delete-webhook', \
                            'clusterctl.cluster.x-k8s.io/delete-for-move']\
                            .exists(name, name in oldObject.metadata.annotations) \
                            : has(object.spec) != has(oldObject.spec) || \
                            (has(object.spec) && object.spec != oldObject.spec)))";

/// A person makes a reservation, or something deletes what says how long the blocks of a network are.
const BY_HAND: &str = "request.operation == 'DELETE' \
                       ? oldObject.metadata.name.matches('^n[.][a-z0-9-]+[.]ipv[46]$') \
                       : !(has(object.spec.claimRef) && has(object.spec.claimRef.uid)) && \
                       !(has(object.metadata.name) && object.metadata.name.matches('^n[.][a-z0-9-]+[.]ipv[46]$'))";

/// The configuration, ready to be written as YAML.
pub(super) fn documents() -> [Value; 1] {
    let pools = InClusterKind::ALL.map(|kind| {
        let Paths { validate, .. } = routes::paths_of(kind);
        webhook(kind.plural(), validate, &["CREATE", "UPDATE", "DELETE"], "not-only-metadata", TO_BE_DECIDED)
    });
    let reservations =
        webhook("ipreservations", routes::VALIDATE_RESERVATION, &["CREATE", "DELETE"], "made-by-hand", BY_HAND);
    [json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": WEBHOOK_CONFIGURATION },
        "webhooks": pools.into_iter().chain([reservations]).collect::<Vec<_>>(),
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
    fn the_annotations_that_allow_a_deletion_are_those_that_the_webhook_heeds() {
        for annotation in [names::SKIP_VALIDATE_DELETE, names::DELETE_FOR_MOVE] {
            assert!(TO_BE_DECIDED.contains(&format!("'{annotation}'")), "{annotation}");
        }
    }
}
