//! Pools of prefixes: allocation, content of the IPAddress, exclusions, waiting and release.

use support::prelude::*;

use crate::consumer;

#[tokio::test]
async fn lowest_prefixes_are_allocated_with_length_and_gateway() {
    let consumer = consumer().await;
    let spec = json!({
        "prefixes": ["fd00:0:0:10::/60", "fd00::/63"], "allocationPrefixLength": 64,
        "excludedPrefixes": ["fd00:0:0:1::5"], "gateway": "fd00::1",
    });
    consumer
        .create_pool_of(InClusterKind::PrefixPool, "web", spec)
        .await;
    consumer
        .wait_for_counts_of(InClusterKind::PrefixPool, "web", (17, 17, 0, 0))
        .await;
    for (name, expected) in [
        ("a", "fd00::"),
        ("b", "fd00:0:0:10::"),
        ("c", "fd00:0:0:11::"),
    ] {
        consumer
            .create_claim_of(InClusterKind::PrefixPool, name, "web")
            .await;
        let address = consumer.wait_for_ip_address(name).await;
        assert_eq!(
            (address.spec.address.as_str(), address.spec.prefix),
            (expected, 64)
        );
        assert_eq!(
            address.spec.gateway.as_deref(),
            Some("fd00::1"),
            "copied unchanged"
        );
    }
    consumer
        .wait_for_counts_of(InClusterKind::PrefixPool, "web", (17, 14, 3, 0))
        .await;
    let name = format!(
        "pp.{}.web.fd00-0000-0000-0000-0000-0000-0000-0000-64",
        consumer.namespace
    );
    let reservation = consumer
        .reservations()
        .get(&name)
        .await
        .expect("reservations can be read");
    assert_eq!(
        reservation
            .expect("it has the name of scope, prefix and length")
            .spec
            .prefix_length,
        Some(64)
    );

    consumer.release("a").await;
    consumer
        .wait_for_counts_of(InClusterKind::PrefixPool, "web", (17, 15, 2, 0))
        .await;
    assert_eq!(
        consumer
            .bind_of(InClusterKind::PrefixPool, "d", "web")
            .await,
        "fd00::"
    );
}

#[tokio::test]
async fn ipv4_prefixes_are_allocated_in_queue_order() {
    let (consumer, pool) = (consumer().await, unique("prefixes"));
    let pools = consumer.pools_of(InClusterKind::GlobalPrefixPool);
    consumer
        .create_pool_of(
            InClusterKind::GlobalPrefixPool,
            &pool,
            json!({"prefixes": ["172.20.0.0/23"], "allocationPrefixLength": 24}),
        )
        .await;
    for name in ["a", "b"] {
        consumer
            .bind_of(InClusterKind::GlobalPrefixPool, name, &pool)
            .await;
    }
    consumer
        .create_claim_of(InClusterKind::GlobalPrefixPool, "c", &pool)
        .await;
    consumer.wait_for_reason("c", "PoolExhausted").await;
    consumer
        .wait_for_condition(&pools, &pool, "Exhausted", "True", "NoFreeAddress")
        .await;
    consumer.release("a").await;
    let address = consumer.wait_for_ip_address("c").await;
    assert_eq!(
        (address.spec.address.as_str(), address.spec.prefix),
        ("172.20.0.0", 24)
    );
    assert_eq!(address.spec.gateway, None);

    consumer.delete_object(&pools, &pool).await;
    consumer
        .wait_for_condition(&pools, &pool, "Ready", "False", "Deleting")
        .await;
    for name in ["b", "c"] {
        consumer.release(name).await;
    }
    consumer.wait_until_gone(&pools, &pool).await;
}

#[tokio::test]
async fn pools_of_different_kinds_may_share_a_name() {
    let consumer = consumer().await;
    consumer
        .create_pool("web", json!({"addresses": ["fd00::/64"], "prefix": 64}))
        .await;
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "web",
            json!({"prefixes": ["fd00::/64"], "allocationPrefixLength": 128}),
        )
        .await;
    consumer
        .create_claim_of(InClusterKind::IPPool, "address", "web")
        .await;
    consumer
        .create_claim_of(InClusterKind::PrefixPool, "prefix", "web")
        .await;
    consumer.assert_address("address", "fd00::1").await;
    assert_eq!(
        consumer.wait_for_address("prefix").await,
        "fd00::",
        "a pool of prefixes reserves nothing"
    );
    consumer
        .wait_for_counts_of(InClusterKind::PrefixPool, "web", (i64::MAX, i64::MAX, 1, 0))
        .await;
    consumer
        .wait_for_counts("web", (i64::MAX, i64::MAX, 1, 0))
        .await;
}

#[tokio::test]
async fn existing_prefix_of_another_length_is_adopted() {
    let consumer = consumer().await;
    let reference =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterPrefixPool", "name": "web"});
    let by_hand = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "a", "namespace": consumer.namespace},
        "spec": {"claimRef": {"name": "a"}, "address": "fd00::", "prefix": 62, "poolRef": reference},
    });
    // The claim is created first, so that the sweeper does not remove the address.
    consumer
        .create_claim_of(InClusterKind::PrefixPool, "a", "web")
        .await;
    create(&consumer.addresses(), &object(by_hand))
        .await
        .expect("it can be created");
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "web",
            json!({"prefixes": ["fd00::/61"]}),
        )
        .await;
    assert_eq!(consumer.wait_for_ip_address("a").await.spec.prefix, 62);
    consumer
        .create_claim_of(InClusterKind::PrefixPool, "b", "web")
        .await;
    assert_eq!(
        consumer.wait_for_address("b").await,
        "fd00:0:0:4::",
        "the first four are within the adopted prefix"
    );
    consumer
        .wait_for_counts_of(InClusterKind::PrefixPool, "web", (8, 3, 1, 1))
        .await;
    consumer
        .wait_for_condition(
            &consumer.pools_of(InClusterKind::PrefixPool),
            "web",
            "OutOfRange",
            "True",
            "AddressesOutOfRange",
        )
        .await;
}
