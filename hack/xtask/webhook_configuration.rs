//! The webhook configurations: which requests the API server sends to the webhooks.
//!
//! Match conditions exclude as many requests as possible: updates that change neither the spec nor
//! the labels of a pool, such as the removal of a finalizer, and deletions that an annotation allows.
//! These work while no webhook is available. Reservations of the provider are excluded too: a webhook
//! call would double the time of an allocation.

use capi_ipam::admission::routes::{self, Paths};
use capi_ipam_api::installed::{
    MUTATING_CONFIGURATION, NAMESPACE, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE,
};
use capi_ipam_api::{InClusterKind, names};
use capi_ipam_provider::api::ContractVersion;
use capi_ipam_provider::api::names::CLUSTER_GROUP;
use serde_json::{Value, json};

/// Matches creations, updates of the spec and deletions, except deletions of objects that are being
/// deleted already, and those with an annotation that allows them. Claims keep their addresses in a
/// pool that is being deleted, so its specification is checked like that of any other.
const SPEC_CHANGES: &str = "request.operation == 'CREATE' || (request.operation == 'DELETE' \
                            ? !has(oldObject.metadata.deletionTimestamp) && \
                            (!has(oldObject.metadata.annotations) || \
                            !['ipam.cluster.x-k8s.io/skip-validate-delete-webhook', \
                            'clusterctl.cluster.x-k8s.io/delete-for-move']\
                            .exists(name, name in oldObject.metadata.annotations)) \
                            : has(object.spec) != has(oldObject.spec) || \
                            (has(object.spec) && object.spec != oldObject.spec))";

/// Matches reservations that are created manually.
const MANUAL_RESERVATIONS: &str = "!(has(object.spec.claimRef) && has(object.spec.claimRef.uid))";

/// Matches updates that change the labels of a pool and not its spec: a network can select the pool
/// by its labels.
const LABEL_CHANGES: &str = "has(object.spec) == has(oldObject.spec) && \
                             (!has(object.spec) || object.spec == oldObject.spec) && \
                             (has(object.metadata.labels) != has(oldObject.metadata.labels) || \
                             (has(object.metadata.labels) && object.metadata.labels != oldObject.metadata.labels))";

/// What a webhook decides.
#[derive(Clone, Copy)]
enum Purpose {
    /// It denies or warns: without its answer the API server denies the request.
    Validation,
    /// It only warns: without its answer the API server accepts the request soon.
    Warnings,
}

impl Purpose {
    /// The first part of the name of the webhook, its failure policy, and the seconds that a
    /// request waits for it.
    const fn settings(self) -> (&'static str, &'static str, u8) {
        match self {
            Self::Validation => ("validation", "Fail", 10),
            Self::Warnings => ("labels", "Ignore", 3),
        }
    }
}

/// The requests that the API server sends to a webhook.
struct Requests<'a> {
    plural: &'a str,
    operations: &'a [&'a str],
    /// The name of the match condition, and the condition.
    condition: (&'a str, &'a str),
}

/// The ValidatingWebhookConfiguration.
pub(crate) fn documents() -> [Value; 1] {
    let operations = &["CREATE", "UPDATE", "DELETE"];
    let pools = InClusterKind::ALL.map(|kind| {
        let Paths { validate, .. } = routes::paths_of(kind);
        let condition = ("not-only-metadata", SPEC_CHANGES);
        webhook(
            Purpose::Validation,
            validate,
            &Requests {
                plural: kind.plural(),
                operations,
                condition,
            },
        )
    });
    let labels = InClusterKind::ALL.map(|kind| {
        let Paths { validate, .. } = routes::paths_of(kind);
        let condition = ("only-labels", LABEL_CHANGES);
        webhook(
            Purpose::Warnings,
            validate,
            &Requests {
                plural: kind.plural(),
                operations: &["UPDATE"],
                condition,
            },
        )
    });
    let condition = ("made-by-hand", MANUAL_RESERVATIONS);
    let of_reservations = Requests {
        plural: "ipreservations",
        operations: &["CREATE"],
        condition,
    };
    let reservations = webhook(
        Purpose::Validation,
        routes::VALIDATE_RESERVATION,
        &of_reservations,
    );
    let condition = ("not-only-metadata", SPEC_CHANGES);
    let of_networks = Requests {
        plural: "ipnetworks",
        operations,
        condition,
    };
    let networks = webhook(Purpose::Validation, routes::VALIDATE_NETWORK, &of_networks);
    let of_registries = Requests {
        plural: "ipregistries",
        operations: &["DELETE"],
        condition,
    };
    let registries = webhook(
        Purpose::Validation,
        routes::VALIDATE_REGISTRY,
        &of_registries,
    );
    let of_addressings = Requests {
        plural: "clusteraddressings",
        operations: &["CREATE", "UPDATE"],
        condition,
    };
    let addressings = webhook(
        Purpose::Validation,
        routes::VALIDATE_CLUSTER_ADDRESSING,
        &of_addressings,
    );
    let others = [networks, registries, reservations, addressings];
    [json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": WEBHOOK_CONFIGURATION },
        "webhooks": pools.into_iter().chain(others).chain(labels).collect::<Vec<_>>(),
    })]
}

/// Matches Clusters that are not paused. `clusterctl move` creates paused ones.
const NOT_PAUSED: &str = "(!has(object.spec) || !has(object.spec.paused) || !object.spec.paused) && \
                          (!has(object.metadata.annotations) || \
                          !('cluster.x-k8s.io/paused' in object.metadata.annotations))";

/// The MutatingWebhookConfiguration. Without an answer the API server creates the Cluster, and the
/// controller writes its addresses.
pub(crate) fn mutating_documents() -> [Value; 1] {
    let versions = ContractVersion::ALL.map(ContractVersion::as_str);
    let path = routes::MUTATE_CLUSTER;
    let webhook = json!({
        "name": format!("addresses.cluster.{}", names::GROUP),
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": NAMESPACE, "name": WEBHOOK_SERVICE, "path": path } },
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 5,
        "rules": [{
            "apiGroups": [CLUSTER_GROUP],
            "apiVersions": versions,
            "operations": ["CREATE"],
            "resources": ["clusters"],
        }],
        "matchConditions": [{ "name": "not-paused", "expression": NOT_PAUSED }],
    });
    [json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": MUTATING_CONFIGURATION },
        "webhooks": [webhook],
    })]
}

/// The singular of the name of a resource.
fn singular(plural: &str) -> String {
    match plural.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => plural.strip_suffix('s').unwrap_or(plural).to_owned(),
    }
}

fn webhook(purpose: Purpose, path: &str, requests: &Requests<'_>) -> Value {
    let Requests {
        plural,
        operations,
        condition: (condition, expression),
    } = requests;
    let (prefix, failure_policy, timeout_seconds) = purpose.settings();
    let singular = singular(plural);
    json!({
        "name": format!("{prefix}.{singular}.{}", names::GROUP),
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": NAMESPACE, "name": WEBHOOK_SERVICE, "path": path } },
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": timeout_seconds,
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
            assert!(
                SPEC_CHANGES.contains(&format!("'{annotation}'")),
                "{annotation}"
            );
        }
    }
}
