//! Claims and addresses come and go in every order, and objects around them vanish.

use std::time::Duration;

use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::support::consumer::{Consumer, eventually, eventually_within, object, ready, stays, unique};
use capi_ipam::{consumer, world};
use capi_ipam_controller::client::ResourceClient;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, ResourceExt};
use serde_json::{json, Value};

/// A consumer with a pool `web` of three addresses.
async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24})).await;
    consumer
}

/// A consumer with a pool of three addresses, of which a claim `a` has the first.
async fn with_claim() -> Consumer {
    let consumer = with_pool().await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer
}

/// Deletes an object in the foreground: it stays until its dependents are gone.
fn delete_in_foreground(consumer: &Consumer, kind: &str, name: &str) {
    let options = ["--cascade=foreground", "--wait=false", "--namespace", &consumer.namespace];
    world().control_plane.kubectl(&[&["delete", kind, name], &options[..]].concat());
}

/// Makes a claim as soon as the one before it of that name is gone; its uid.
async fn recreate(consumer: &Consumer, name: &str) -> Option<String> {
    let made = eventually("the name is free again", || async {
        consumer.try_claim(name, InClusterIPPool::KIND.name(), "web", json!({})).await.ok()
    });
    made.await.uid()
}

#[tokio::test]
async fn a_claim_made_again_under_its_name_is_another_claim() {
    let consumer = with_claim().await;
    for _ in 0..5 {
        consumer.delete("a").await;
        let uid = recreate(&consumer, "a").await;
        let address = consumer.bound_address("a").await;
        assert!(address.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref()));
    }
    for _ in 0..10 {
        consumer.delete("a").await;
        recreate(&consumer, "a").await;
    }
    let address = consumer.bound("a").await;
    consumer.counts("web", (3, 2, 1, 0)).await;
    consumer.reserved("web", &[(&address, "a")]).await;
    consumer.release("a").await;
    consumer.reserved("web", &[]).await;
    consumer.counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn a_claim_deleted_at_once_leaves_nothing() {
    let consumer = with_pool().await;
    let names: Vec<_> = (0..30).map(|number| format!("c{number}")).collect();
    for name in &names {
        consumer.claim(name, "web").await;
        consumer.delete(name).await;
    }
    for name in &names {
        consumer.gone(name).await;
    }
    consumer.counts("web", (3, 3, 0, 0)).await;
    consumer.reserved("web", &[]).await;
    // The API server may remove a claim in the moment in which it gets its finalizer. Nor is that left to the sweeper.
    let log = world().manager.log();
    let namespace = format!("namespace=\"{}\"", consumer.namespace);
    let swept = log.lines().filter(|line| line.contains("in_cluster::sweeper") && line.contains(&namespace));
    assert_eq!(swept.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn a_finalizer_of_others_keeps_the_address() {
    let consumer = with_pool().await;
    let metadata = json!({"finalizers": ["example.com/in-use"]});
    consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", metadata).await;
    let address = consumer.bound_address("a").await;
    consumer.delete("a").await;
    stays("the address", || async {
        consumer.addresses().get("a").await.expect("addresses can be read") == Some(address.clone())
    })
    .await;
    let text = consumer.becomes_unready("a", "Deleting").await;
    assert!(text.ends_with(": example.com/in-use"), "{text}");
    consumer.reserved("web", &[("10.0.0.1", "a")]).await;
    consumer.counts("web", (3, 2, 1, 0)).await;
    let theirs = |all: &mut Value| all["metadata"]["finalizers"] = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
    consumer.change(&consumer.claims(), "a", theirs).await;
    consumer.gone("a").await;
    consumer.counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn foreground_deletion_does_not_deadlock() {
    let consumer = with_claim().await;
    delete_in_foreground(&consumer, "ipaddressclaim", "a");
    consumer.gone("a").await;
    consumer.counts("web", (3, 3, 0, 0)).await;
}

/// The manager keeps no annotations of others in memory, and must not drop any from a claim that stays.
#[tokio::test]
async fn annotations_of_others_survive_each_write_to_the_claim() {
    let consumer = with_pool().await;
    let annotation = json!({"example.com/note": "n"});
    let metadata = json!({"annotations": annotation, "finalizers": ["example.com/in-use"]});
    consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", metadata).await;
    consumer.bound("a").await;
    let annotations = || async {
        let claim = consumer.claims().get("a").await.expect("claims can be read").expect("the claim exists");
        json!(claim.annotations())
    };
    assert_eq!(annotations().await, annotation);
    consumer.delete("a").await;
    consumer.becomes_unready("a", "Deleting").await;
    assert_eq!(annotations().await, annotation);
    // With a finalizer of the API server left the claim stays after ours is gone.
    let orphan = json!(["ipam.cluster.x-k8s.io/ReleaseAddress", "orphan"]);
    consumer.claim_with("b", InClusterIPPool::KIND.name(), "web", json!({"annotations": annotation})).await;
    consumer.bound("b").await;
    consumer.change(&consumer.claims(), "b", |claim| claim["metadata"]["finalizers"] = orphan.clone()).await;
    consumer.delete("b").await;
    eventually("it is released", || async {
        match consumer.claims().get("b").await.expect("claims can be read") {
            None => Some(()),
            Some(claim) => {
                assert_eq!(json!(claim.annotations()), annotation);
                (claim.finalizers() == ["orphan"]).then_some(())
            }
        }
    })
    .await;
    let without = |claim: &mut Value| claim["metadata"]["finalizers"] = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
    consumer.change(&consumer.claims(), "a", without).await;
    consumer.gone("a").await;
    consumer.reserved("web", &[]).await;
}

#[tokio::test]
async fn foreground_deletion_of_a_pool_in_use_waits_for_its_claims() {
    let consumer = with_claim().await;
    delete_in_foreground(&consumer, "inclusterippool", "web");
    eventually("the garbage collector has taken the pool from the owners of the IPAddress", || async {
        let address = consumer.addresses().get("a").await.ok()??;
        (address.owner_references().len() == 1).then_some(())
    })
    .await;
    stays("the address and its claim", || async {
        let address = consumer.addresses().get("a").await.expect("addresses can be read");
        let claim = consumer.claims().get("a").await.expect("claims can be read").expect("the claim exists");
        claim.bound_address().is_some() && address.is_some_and(|address| address.metadata.deletion_timestamp.is_none())
    })
    .await;
    consumer.release("a").await;
    eventually("the pool is gone", || async {
        consumer.pools().get("web").await.expect("pools can be read").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_address_stays_as_long_as_its_claim() {
    let consumer = with_claim().await;
    consumer.remove(&consumer.addresses(), "a").await;
    let deleted = consumer.bound_address("a").await;
    assert!(deleted.metadata.deletion_timestamp.is_some());
    stays("the address, deleted but there", || async {
        consumer.addresses().get("a").await.expect("addresses can be read") == Some(deleted.clone())
    })
    .await;
    let in_use = || async {
        let events = consumer.events("a").await;
        events.into_iter().filter(|(_, reason, _)| reason == "AddressInUse").collect::<Vec<_>>()
    };
    eventually("an event says why", || async { (!in_use().await.is_empty()).then_some(()) }).await;
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    assert_eq!(in_use().await.len(), 1);
    consumer.release("a").await;
    consumer.counts("web", (3, 2, 1, 0)).await;
}

#[tokio::test]
async fn an_address_removed_by_force_comes_back() {
    let consumer = with_claim().await;
    let before = consumer.bound_address("a").await;
    consumer.claim("b", "web").await;
    consumer.bound("b").await;
    consumer.force_away(&consumer.addresses(), "a").await;
    consumer.claim("c", "web").await;
    let after = eventually("the IPAddress is there again", || async {
        consumer.addresses().get("a").await.ok()?.filter(|address| address.uid() != before.uid())
    });
    assert_eq!(after.await.spec, before.spec);
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    assert_eq!(consumer.bound("c").await, "10.0.0.3");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c")]).await;
}

#[tokio::test]
async fn a_claim_goes_when_its_pool_is_gone() {
    let consumer = with_claim().await;
    consumer.force_away(&consumer.pools(), "web").await;
    assert!(consumer.pools().get("web").await.expect("pools can be read").is_none());
    consumer.claim("waiting", "web").await;
    consumer.waits_for("waiting", "PoolNotReady").await;
    assert_eq!(consumer.claims().get("a").await.ok().flatten().and_then(|a| Some(a.bound_address()?.len())), Some(1));
    consumer.release("a").await;
    consumer.release("waiting").await;
    consumer.reserved("web", &[]).await;
}

#[tokio::test]
async fn a_pool_made_again_knows_what_is_in_use() {
    let consumer = with_claim().await;
    consumer.force_away(&consumer.pools(), "web").await;
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolNotReady").await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24})).await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    consumer.counts("web", (3, 1, 2, 0)).await;
    eventually("the address names the new pool as its owner", || async {
        let pool = consumer.pools().get("web").await.ok()??.uid();
        let address = consumer.addresses().get("a").await.ok()??;
        address.owner_references().iter().any(|owner| Some(&owner.uid) == pool.as_ref()).then_some(())
    })
    .await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}

#[tokio::test]
async fn a_claim_goes_when_its_cluster_is_gone() {
    let consumer = with_pool().await;
    consumer.cluster("alpha", false).await;
    consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", json!({"clusterName": "alpha"})).await;
    consumer.bound("a").await;
    consumer.remove(&consumer.clusters(), "alpha").await;
    let label = json!({"labels": {"cluster.x-k8s.io/cluster-name": "alpha"}});
    eventually("claims notice that the Cluster is gone", || async {
        let name = unique("claim");
        let claim = consumer.claim_with(&name, InClusterIPPool::KIND.name(), "web", label.clone()).await;
        let reason = eventually("the claim has a reason", || async {
            let claim = consumer.claims().get(&claim.name_any()).await.ok()??;
            ready(&claim).reason
        });
        let reason = reason.await;
        consumer.release(&name).await;
        (reason == "ClusterNotFound").then_some(())
    })
    .await;
    consumer.release("a").await;
    consumer.counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn what_an_address_lost_is_repaired_and_what_others_added_is_kept() {
    let consumer = with_claim().await;
    let maps: ResourceClient<ConfigMap> = ResourceClient::new(Api::namespaced(consumer.client.clone(), &consumer.namespace), &());
    let server = maps.create(&object(json!({"metadata": {"name": "server", "namespace": consumer.namespace}}))).await;
    let uid = server.expect("a config map can be made").uid();
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "server", "uid": uid});
    let before = consumer.bound_address("a").await;
    for lost in ["ownerReferences", "finalizers"] {
        consumer
            .change(&consumer.addresses(), "a", |address| {
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
        eventually(&format!("{lost} are repaired"), || async {
            let address = consumer.addresses().get("a").await.ok()??;
            let ours = address.finalizers().iter().any(|all| all == "ipam.cluster.x-k8s.io/ProtectAddress");
            (ours && address.owner_references().len() == 3).then_some(())
        })
        .await;
    }
    let after = consumer.bound_address("a").await;
    assert_eq!((&after.metadata.uid, &after.spec), (&before.metadata.uid, &before.spec));
    assert_eq!(json!(after.labels()), json!({"metal.example.com/server": "s"}));
    assert_eq!(json!(after.annotations()), json!({"metal.example.com/note": "n"}));
    let mut owners = json!(after.owner_references()).as_array().cloned().expect("a list");
    assert_eq!(owners.remove(0), foreign);
    assert_eq!(owners, json!(before.owner_references()).as_array().cloned().expect("a list"));
    assert_eq!(after.finalizers(), ["metal.example.com/in-use", "ipam.cluster.x-k8s.io/ProtectAddress"]);

    // The finalizer of others now holds the address, and with it the claim, until it goes.
    consumer.delete("a").await;
    eventually("our finalizer is off", || async {
        let address = consumer.addresses().get("a").await.ok()??;
        (address.finalizers() == ["metal.example.com/in-use"]).then_some(())
    })
    .await;
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    let text = consumer.becomes_unready("a", "Deleting").await;
    assert!(text.ends_with("from the IPAddress a"), "{text}");
    consumer.change(&consumer.addresses(), "a", |address| address["metadata"]["finalizers"] = json!([])).await;
    consumer.gone("a").await;
    consumer.counts("web", (3, 2, 1, 0)).await;
}

#[tokio::test]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let consumer = with_claim().await;
    let shared = unique("shared");
    consumer.global_pool(&shared, json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.global_claim("b", &shared).await;
    consumer.bound("b").await;
    let namespaces: ResourceClient<Namespace> = ResourceClient::new(Api::all(consumer.client.clone()), &());
    consumer.remove(&namespaces, &consumer.namespace).await;
    eventually_within(Duration::from_mins(2), "the namespace is gone", || async {
        namespaces.get(&consumer.namespace).await.expect("namespaces can be read").is_none().then_some(())
    })
    .await;
    let reservations = consumer.reservations().list().await.expect("reservations can be read");
    let of_ours = |name: &str| name.contains(&format!(".{}.", consumer.namespace)) || name.contains(&shared);
    assert_eq!(
        reservations.iter().map(ResourceExt::name_any).filter(|name| of_ours(name)).collect::<Vec<_>>(),
        [""; 0]
    );
}
