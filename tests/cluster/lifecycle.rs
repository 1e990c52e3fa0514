//! Claims, addresses, pools and Clusters are created and deleted in every order.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use support::prelude::*;

use crate::{consumer, environment};

/// A consumer with a pool `web` of three addresses.
async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    consumer
}

/// A consumer with a pool of three addresses, the first of which is bound to the claim `a`.
async fn with_claim() -> Consumer {
    let consumer = with_pool().await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    consumer
}

/// Deletes an object with foreground propagation: it stays until its dependents are deleted.
fn delete_in_foreground(consumer: &Consumer, kind: &str, name: &str) {
    let options = [
        "--cascade=foreground",
        "--wait=false",
        "--namespace",
        &consumer.namespace,
    ];
    environment()
        .control_plane
        .kubectl(&[&["delete", kind, name], &options[..]].concat());
}

/// Creates a claim as soon as the previous one of that name does not exist, and returns its uid.
async fn recreate(consumer: &Consumer, name: &str) -> Option<String> {
    let made = eventually("the name is free again", || async {
        consumer
            .try_create_claim(name, InClusterKind::IPPool.name(), "web", json!({}))
            .await
            .ok()
    });
    made.await.uid()
}

#[tokio::test]
async fn recreated_claim_is_a_new_claim() {
    let consumer = with_claim().await;
    for _ in 0..5 {
        consumer.delete("a").await;
        let uid = recreate(&consumer, "a").await;
        let address = consumer.wait_for_ip_address("a").await;
        assert!(
            address
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == uid.as_ref())
        );
    }
    for _ in 0..10 {
        consumer.delete("a").await;
        recreate(&consumer, "a").await;
    }
    let address = consumer.wait_for_address("a").await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    consumer
        .wait_for_reservations("web", &[(&address, "a")])
        .await;
    consumer.release("a").await;
    consumer.wait_for_reservations("web", &[]).await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn foreign_finalizer_on_a_claim_keeps_its_address() {
    let consumer = with_pool().await;
    let metadata = json!({"finalizers": ["example.com/in-use"]});
    consumer
        .create_claim_with_metadata("a", "web", metadata)
        .await;
    let address = consumer.wait_for_ip_address("a").await;
    consumer.delete("a").await;
    consistently("the address", || async {
        consumer
            .addresses()
            .get("a")
            .await
            .expect("addresses can be read")
            == Some(address.clone())
    })
    .await;
    let text = consumer.wait_until_unready("a", "Deleting").await;
    assert!(text.ends_with(": example.com/in-use"), "{text}");
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a")])
        .await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    let theirs = |all: &mut Value| {
        all["metadata"]["finalizers"] = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"])
    };
    consumer.modify(&consumer.claims(), "a", theirs).await;
    consumer.wait_until_deleted("a").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn foreground_deletion_of_a_claim_completes() {
    let consumer = with_claim().await;
    delete_in_foreground(&consumer, "ipaddressclaim", "a");
    consumer.wait_until_deleted("a").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
}

/// The manager does not cache foreign annotations, and must not remove any from a claim that
/// remains.
#[tokio::test]
async fn foreign_annotations_survive_writes_to_the_claim() {
    let consumer = with_pool().await;
    let annotation = json!({"example.com/note": "n"});
    let metadata = json!({"annotations": annotation, "finalizers": ["example.com/in-use"]});
    consumer.bind_with_metadata("a", "web", metadata).await;
    let annotations = || async {
        let claim = consumer.the_claim("a").await;
        json!(claim.annotations())
    };
    assert_eq!(annotations().await, annotation);
    consumer.delete("a").await;
    consumer.wait_until_unready("a", "Deleting").await;
    assert_eq!(annotations().await, annotation);
    // With a finalizer of the API server the claim remains after the removal of ours.
    let orphan = json!(["ipam.cluster.x-k8s.io/ReleaseAddress", "orphan"]);
    consumer
        .bind_with_metadata("b", "web", json!({"annotations": annotation}))
        .await;
    consumer
        .modify(&consumer.claims(), "b", |claim| {
            claim["metadata"]["finalizers"] = orphan.clone()
        })
        .await;
    consumer.delete("b").await;
    eventually("it is released", || async {
        match consumer.claims().get("b").await.ok()? {
            None => Some(()),
            Some(claim) => {
                assert_eq!(json!(claim.annotations()), annotation);
                (claim.finalizers() == ["orphan"]).then_some(())
            }
        }
    })
    .await;
    let without = |claim: &mut Value| {
        claim["metadata"]["finalizers"] = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"])
    };
    consumer.modify(&consumer.claims(), "a", without).await;
    consumer.wait_until_deleted("a").await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test]
async fn foreground_deletion_of_a_pool_waits_for_its_claims() {
    let consumer = with_claim().await;
    delete_in_foreground(&consumer, "inclusterippool", "web");
    until(
        "the garbage collector has removed the pool from the owners of the IPAddress",
        async || {
            let address = consumer.addresses().get("a").await.ok()??;
            Some(address.owner_references().len() == 1)
        },
    )
    .await;
    consistently("the address and its claim exist", || async {
        let address = consumer
            .addresses()
            .get("a")
            .await
            .expect("addresses can be read");
        let claim = consumer.the_claim("a").await;
        claim.bound_address().is_some()
            && address.is_some_and(|address| address.metadata.deletion_timestamp.is_none())
    })
    .await;
    consumer.release("a").await;
    consumer.wait_until_pool_gone("web").await;
}

#[tokio::test]
async fn deleted_address_stays_until_its_claim_is_deleted() {
    let consumer = with_claim().await;
    consumer.delete_object(&consumer.addresses(), "a").await;
    let deleted = consumer.wait_for_ip_address("a").await;
    assert!(deleted.metadata.deletion_timestamp.is_some());
    consistently("the address is terminating", || async {
        consumer
            .addresses()
            .get("a")
            .await
            .expect("addresses can be read")
            == Some(deleted.clone())
    })
    .await;
    consumer
        .wait_for_event("a", "Warning", "AddressInUse", "")
        .await;
    consumer.bind_to("b", "web", "10.0.0.2").await;
    let events = consumer.events("a").await;
    assert_eq!(
        events
            .iter()
            .filter(|(_, reason, _)| reason == "AddressInUse")
            .count(),
        1,
        "{events:?}"
    );
    consumer.release("a").await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
}

#[tokio::test]
async fn claim_of_a_missing_pool_is_released() {
    let consumer = with_claim().await;
    consumer.force_delete(&consumer.pools(), "web").await;
    assert!(
        consumer
            .pools()
            .get("web")
            .await
            .expect("pools can be read")
            .is_none()
    );
    consumer.claim_waits("waiting", "web", "PoolNotReady").await;
    assert_eq!(
        consumer
            .claims()
            .get("a")
            .await
            .ok()
            .flatten()
            .and_then(|a| Some(a.bound_address()?.len())),
        Some(1)
    );
    consumer.release("a").await;
    consumer.release("waiting").await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test]
async fn recreated_pool_counts_addresses_in_use() {
    let consumer = with_claim().await;
    consumer.force_delete(&consumer.pools(), "web").await;
    consumer.claim_waits("b", "web", "PoolNotReady").await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    consumer.assert_address("b", "10.0.0.2").await;
    consumer.wait_for_counts("web", (3, 1, 2, 0)).await;
    until("the address names the new pool as its owner", async || {
        let pool = consumer.pools().get("web").await.ok()??.uid();
        let address = consumer.addresses().get("a").await.ok()??;
        Some(
            address
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == pool.as_ref()),
        )
    })
    .await;
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test]
async fn claim_of_a_deleted_cluster_is_released() {
    let consumer = with_pool().await;
    consumer.create_cluster("alpha", false).await;
    consumer
        .bind_with_metadata("a", "web", json!({"clusterName": "alpha"}))
        .await;
    consumer.delete_object(&consumer.clusters(), "alpha").await;
    let label = json!({"labels": {"cluster.x-k8s.io/cluster-name": "alpha"}});
    until(
        "claims report that the Cluster does not exist",
        async || {
            let name = unique("claim");
            let claim = consumer
                .create_claim_with_metadata(&name, "web", label.clone())
                .await;
            let reason = eventually("the claim has a reason", || async {
                let claim = consumer.claims().get(&claim.name_any()).await.ok()??;
                ready(&claim).reason
            });
            let reason = reason.await;
            consumer.release(&name).await;
            Some(reason == "ClusterNotFound")
        },
    )
    .await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn address_is_repaired_and_foreign_metadata_is_kept() {
    let consumer = with_claim().await;
    let maps: ResourceClient<ConfigMap> = ResourceClient::new(
        Api::namespaced(consumer.client.clone(), &consumer.namespace),
        &(),
    );
    let server = object(json!({"metadata": {"name": "server", "namespace": consumer.namespace}}));
    let uid = create(&maps, &server)
        .await
        .expect("a config map can be created")
        .uid();
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "server", "uid": uid});
    let before = consumer.wait_for_ip_address("a").await;
    for lost in ["ownerReferences", "finalizers"] {
        consumer
            .modify(&consumer.addresses(), "a", |address| {
                let metadata = &mut address["metadata"];
                metadata["labels"] = json!({"metal.example.com/server": "s"});
                metadata["annotations"] = json!({"metal.example.com/note": "n"});
                if lost == "finalizers" {
                    metadata["finalizers"] = json!(["metal.example.com/in-use"]);
                } else {
                    metadata["ownerReferences"] = json!([foreign]);
                }
            })
            .await;
        until(&format!("{lost} are repaired"), async || {
            let address = consumer.addresses().get("a").await.ok()??;
            let ours = address
                .finalizers()
                .iter()
                .any(|all| all == "ipam.cluster.x-k8s.io/ProtectAddress");
            Some(ours && address.owner_references().len() == 3)
        })
        .await;
    }
    let after = consumer.wait_for_ip_address("a").await;
    assert_eq!(
        (&after.metadata.uid, &after.spec),
        (&before.metadata.uid, &before.spec)
    );
    assert_eq!(
        json!(after.labels()),
        json!({"metal.example.com/server": "s"})
    );
    assert_eq!(
        json!(after.annotations()),
        json!({"metal.example.com/note": "n"})
    );
    let mut owners = json!(after.owner_references())
        .as_array()
        .cloned()
        .expect("a list");
    assert_eq!(owners.remove(0), foreign);
    assert_eq!(
        owners,
        json!(before.owner_references())
            .as_array()
            .cloned()
            .expect("a list")
    );
    assert_eq!(
        after.finalizers(),
        [
            "metal.example.com/in-use",
            "ipam.cluster.x-k8s.io/ProtectAddress"
        ]
    );

    // The foreign finalizer keeps the address, and with it the claim, until it is removed.
    consumer.delete("a").await;
    until("our finalizer is removed", async || {
        let address = consumer.addresses().get("a").await.ok()??;
        Some(address.finalizers() == ["metal.example.com/in-use"])
    })
    .await;
    consumer.bind_to("b", "web", "10.0.0.2").await;
    let text = consumer.wait_until_unready("a", "Deleting").await;
    assert!(
        text.ends_with("from IPAddress a: metal.example.com/in-use"),
        "{text}"
    );
    consumer
        .set_finalizers(&consumer.addresses(), "a", &[])
        .await;
    consumer.wait_until_deleted("a").await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
}

#[tokio::test]
async fn namespace_deletion_releases_all_its_claims() {
    let consumer = with_claim().await;
    let shared = unique("shared");
    consumer.create_global_pool(&shared, "10.0.0.1").await;
    consumer.bind_global("b", &shared).await;
    let namespaces: ResourceClient<Namespace> =
        ResourceClient::new(Api::all(consumer.client.clone()), &());
    consumer
        .delete_object(&namespaces, &consumer.namespace)
        .await;
    consumer.wait_until_namespace_deleted().await;
    let reservations = consumer
        .reservations()
        .list()
        .await
        .expect("reservations can be read");
    let of_ours =
        |name: &str| name.contains(&format!(".{}.", consumer.namespace)) || name.contains(&shared);
    assert_eq!(
        reservations
            .iter()
            .map(ResourceExt::name_any)
            .filter(|name| of_ours(name))
            .collect::<Vec<_>>(),
        [""; 0]
    );
}
