//! Pools of prefixes: carving, what stands in the IPAddress, exclusions, waiting, and taking back.

use capi_ipam::api::{GlobalInClusterPrefixPool, InClusterIPPool, InClusterPrefixPool};
use capi_ipam::consumer;
use capi_ipam::support::consumer::unique;
use serde_json::json;

#[tokio::test]
async fn the_lowest_prefixes_are_given_with_length_and_gateway() {
    let consumer = consumer().await;
    let pools = consumer.prefix_pools();
    let spec = json!({
        "prefixes": ["fd00:0:0:10::/60", "fd00::/63"], "allocationPrefixLength": 64,
        "excludedPrefixes": ["fd00:0:0:1::5"], "gateway": "fd00::1",
    });
    consumer.make(&pools, "web", spec).await;
    consumer.counts_of(&pools, "web", (17, 17, 0, 0)).await;
    for (name, expected) in [("a", "fd00::"), ("b", "fd00:0:0:10::"), ("c", "fd00:0:0:11::")] {
        consumer.claim_of::<InClusterPrefixPool>(name, "web").await;
        let address = consumer.bound_address(name).await;
        assert_eq!((address.spec.address.as_str(), address.spec.prefix), (expected, 64));
        assert_eq!(address.spec.gateway.as_deref(), Some("fd00::1"), "copied as it is");
    }
    consumer.counts_of(&pools, "web", (17, 14, 3, 0)).await;
    let name = format!("pp.{}.web.fd00-0000-0000-0000-0000-0000-0000-0000-64", consumer.namespace);
    let reservation = consumer.reservations().get(&name).await.expect("reservations can be read");
    assert_eq!(reservation.expect("it has the name of scope, prefix and length").spec.prefix_length, Some(64));

    consumer.release("a").await;
    consumer.counts_of(&pools, "web", (17, 15, 2, 0)).await;
    consumer.claim_of::<InClusterPrefixPool>("d", "web").await;
    assert_eq!(consumer.bound("d").await, "fd00::");
}

#[tokio::test]
async fn ipv4_prefixes_work_too_and_waiting_claims_are_served_in_order() {
    let (consumer, pool) = (consumer().await, unique("prefixes"));
    let pools = consumer.global_prefix_pools();
    consumer.make(&pools, &pool, json!({"prefixes": ["172.20.0.0/23"], "allocationPrefixLength": 24})).await;
    for name in ["a", "b"] {
        consumer.claim_of::<GlobalInClusterPrefixPool>(name, &pool).await;
        consumer.bound(name).await;
    }
    consumer.claim_of::<GlobalInClusterPrefixPool>("c", &pool).await;
    consumer.waits_for("c", "PoolExhausted").await;
    consumer.says(&pools, &pool, "Exhausted", "True", "NoFreeAddress").await;
    consumer.release("a").await;
    let address = consumer.bound_address("c").await;
    assert_eq!((address.spec.address.as_str(), address.spec.prefix), ("172.20.0.0", 24));
    assert_eq!(address.spec.gateway, None);

    consumer.remove(&pools, &pool).await;
    consumer.says(&pools, &pool, "Ready", "False", "Deleting").await;
    for name in ["b", "c"] {
        consumer.release(name).await;
    }
    crate::support::consumer::eventually("the pool is gone", || async {
        pools.get(&pool).await.expect("pools can be read").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_pool_of_each_kind_may_have_the_same_name() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["fd00::/64"], "prefix": 64})).await;
    consumer
        .make(&consumer.prefix_pools(), "web", json!({"prefixes": ["fd00::/64"], "allocationPrefixLength": 128}))
        .await;
    consumer.claim_of::<InClusterIPPool>("address", "web").await;
    consumer.claim_of::<InClusterPrefixPool>("prefix", "web").await;
    assert_eq!(consumer.bound("address").await, "fd00::1");
    assert_eq!(consumer.bound("prefix").await, "fd00::", "nothing is held back from a pool of prefixes");
    consumer.counts_of(&consumer.prefix_pools(), "web", (i64::MAX, i64::MAX, 1, 0)).await;
    consumer.counts("web", (i64::MAX, i64::MAX, 1, 0)).await;
}

#[tokio::test]
async fn the_length_is_64_unless_it_is_said() {
    let consumer = consumer().await;
    consumer.make(&consumer.prefix_pools(), "web", json!({"prefixes": ["fd00::/48"]})).await;
    consumer.claim_of::<InClusterPrefixPool>("a", "web").await;
    assert_eq!(consumer.bound_address("a").await.spec.prefix, 64);
    consumer.counts_of(&consumer.prefix_pools(), "web", (65536, 65535, 1, 0)).await;
}

#[tokio::test]
async fn a_prefix_found_under_the_claims_name_is_kept_whatever_its_length() {
    let consumer = consumer().await;
    let reference = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterPrefixPool", "name": "web"});
    let by_hand = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "a", "namespace": consumer.namespace},
        "spec": {"claimRef": {"name": "a"}, "address": "fd00::", "prefix": 62, "poolRef": reference},
    });
    // Claim first, so that nobody takes the address for a leftover.
    consumer.claim_of::<InClusterPrefixPool>("a", "web").await;
    consumer.addresses().create(&crate::support::consumer::object(by_hand)).await.expect("it can be made");
    consumer.make(&consumer.prefix_pools(), "web", json!({"prefixes": ["fd00::/61"]})).await;
    assert_eq!(consumer.bound_address("a").await.spec.prefix, 62);
    consumer.claim_of::<InClusterPrefixPool>("b", "web").await;
    assert_eq!(consumer.bound("b").await, "fd00:0:0:4::", "the first four are within the other");
    consumer.counts_of(&consumer.prefix_pools(), "web", (8, 3, 1, 1)).await;
    consumer.says(&consumer.prefix_pools(), "web", "OutOfRange", "True", "AddressesOutOfRange").await;
}
