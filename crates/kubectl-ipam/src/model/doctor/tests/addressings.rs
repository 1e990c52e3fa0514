//! The checks of ClusterAddressings and their webhook.

use capi_ipam_api::ClusterAddressing;

use super::*;

fn addressing(conditions: &Value) -> Snapshot {
    let addressing: ClusterAddressing = serde_json::from_value(json!({
        "metadata": {"name": "bonn", "namespace": "n"}, "spec": {"clusterSelector": {}, "items": []},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    Snapshot {
        addressings: Readable::complete(vec![addressing]),
        ..empty()
    }
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "why"})
}

#[test]
fn addressing_that_is_not_ready_is_reported() {
    let check = Check::ClusterAddressingNotReady;
    let failed = addressing(&json!([condition("Ready", "False", "DeliveryFailed")]));
    let text = "error ClusterAddressing n/bonn: DeliveryFailed: why";
    assert_eq!(found(&failed, check), [text]);
    let pending = addressing(&json!([condition("Ready", "False", "AddressesPending")]));
    assert!(found(&pending, check).is_empty());
    let drifted = [
        condition("Ready", "True", "AddressesReady"),
        condition("Drifted", "True", "AddressChanged"),
    ];
    let drifted = addressing(&json!(drifted));
    assert_eq!(finding(&drifted, check).severity, Severity::Warning);
}

#[test]
fn webhook_of_clusters_without_an_authority_is_reported() {
    let snapshot = Snapshot {
        untrusted_mutations: Readable::complete(vec!["clusters".to_owned()]),
        ..empty()
    };
    let text = "warning mutatingwebhookconfiguration clusters: it has no caBundle, so Clusters are created without their addresses";
    assert_eq!(found(&snapshot, Check::ClusterWebhookUntrusted), [text]);
}
