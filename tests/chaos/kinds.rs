//! CRDs that are deleted and installed again while the manager runs.

use support::prelude::*;

use crate::workload::{create_all, wait_until_settled};

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

/// Deletes a CRD and all objects of the kind, and returns the CRD.
fn remove(control_plane: &ControlPlane, definition: &str) -> String {
    let saved = control_plane.kubectl(&["get", "crd", definition, "-o=json"]);
    control_plane.kubectl(&["delete", "crd", definition, "--timeout=120s"]);
    let mut saved: Value = serde_json::from_str(&saved).expect("kubectl writes JSON");
    let (name, labels) = (
        saved["metadata"]["name"].take(),
        saved["metadata"]["labels"].take(),
    );
    saved["metadata"] = json!({"name": name, "labels": labels});
    saved["status"] = json!(null);
    saved.to_string()
}

fn restore(control_plane: &ControlPlane, definition: &str, saved: &str) {
    control_plane.kubectl_apply(saved);
    control_plane.wait_until_served(definition);
}

/// All reservations are deleted with their kind. The IPAddress objects show the addresses in use,
/// which are reserved again.
#[tokio::test(flavor = "multi_thread")]
async fn missing_reservation_crd_stops_allocation_and_loses_nothing() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.50").await;
    let (before, during) = (numbered("before", 20), numbered("during", 10));
    create_all(&consumer, &before, "web").await;
    consumer.wait_for_addresses(&before).await;
    let given = consumer.allocated_addresses().await;
    let definition = "ipreservations.ipam.cluster.x-k8s.io";
    let saved = remove(&control_plane, definition);
    manager.wait_for_log("the kind is not served kind=\"IPReservation\"");
    create_all(&consumer, &during, "web").await;
    assert_contains(
        &consumer
            .wait_for_reason("during0", "AllocationFailed")
            .await,
        "reserve",
    );
    assert_eq!(
        consumer.allocated_addresses().await,
        given,
        "nothing is allocated without a reservation"
    );

    restore(&control_plane, definition, &saved);
    wait_until_settled(&consumer, &[before, during].concat()).await;
    let after = consumer.allocated_addresses().await;
    assert!(
        given
            .iter()
            .all(|(name, address)| after.get(name) == Some(address)),
        "{given:?} {after:?}"
    );
    assert!(manager.is_running() && manager.is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_pool_kinds_are_served_while_one_crd_is_missing() {
    let (control_plane, manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.50").await;
    let mut claims = numbered("c", 5);
    create_all(&consumer, &claims, "web").await;
    consumer.wait_for_addresses(&claims).await;
    let gone = [
        (
            "inclusterprefixpools.ipam.cluster.x-k8s.io",
            "InClusterPrefixPool",
        ),
        ("clusters.cluster.x-k8s.io", "Cluster"),
    ];
    let mut saved = Vec::new();
    for (definition, kind) in gone {
        saved.push((definition, remove(&control_plane, definition)));
        manager.wait_for_log(&format!("the kind is not served kind=\"{kind}\""));
    }
    let more = numbered("more", 5);
    create_all(&consumer, &more, "web").await;
    claims.extend(more);
    wait_until_settled(&consumer, &claims).await;

    for (definition, saved) in &saved {
        restore(&control_plane, definition, saved);
    }
    // In another namespace, whose objects are not part of the assertions.
    let other = Consumer::new(&control_plane).await;
    other.create_cluster("alpha", false).await;
    other
        .create_pool_of(
            InClusterKind::PrefixPool,
            "blocks",
            json!({"prefixes": ["fd00::/56"], "allocationPrefixLength": 64}),
        )
        .await;
    other
        .create_claim_with(
            "block",
            "InClusterPrefixPool",
            "blocks",
            json!({"clusterName": "alpha"}),
        )
        .await;
    other.assert_address("block", "fd00::").await;
    other
        .wait_for_counts_of(InClusterKind::PrefixPool, "blocks", (256, 255, 1, 0))
        .await;
}
