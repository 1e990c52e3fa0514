//! Pools with common addresses, in one network and in none.

use capi_ipam::api::InClusterKind;
use serde_json::json;

use crate::consumer;
use crate::support::consumer::{Consumer, unique};
use crate::support::wait::eventually;

/// Creates a claim for a pool of the namespace, and returns its address.
async fn claim_address(consumer: &Consumer, claim: &str, pool: &str) -> String {
    consumer.create_claim_of(InClusterKind::IPPool, claim, pool).await;
    consumer.wait_for_address(claim).await
}

#[tokio::test]
async fn pools_of_one_network_never_allocate_the_same_address() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = |addresses: &str| json!({"addresses": [addresses], "prefix": 24, "network": network});
    consumer.create_pool("p", spec("10.20.0.1-10.20.0.3")).await;
    consumer.create_pool("q", spec("10.20.0.2-10.20.0.4")).await;
    consumer.wait_for_pool_condition("p", "True", "PoolReady").await;
    consumer.wait_for_pool_condition("q", "True", "PoolReady").await;
    assert_eq!(claim_address(&consumer, "q1", "q").await, "10.20.0.2");
    assert_eq!(claim_address(&consumer, "p1", "p").await, "10.20.0.1");
    assert_eq!(claim_address(&consumer, "p2", "p").await, "10.20.0.3");
    consumer.wait_for_counts("p", (3, 0, 2, 0)).await;
    consumer.wait_for_counts("q", (3, 1, 1, 0)).await;
    let name = format!("n.{network}.10.20.0.2");
    let reservation = consumer.reservations().get(&name).await.expect("reservations can be read").expect("it exists");
    assert_eq!(reservation.spec.pool_ref.name, "q");

    // An address released by one pool is allocated to a claim that waits for another.
    consumer.create_claim("p3", "p").await;
    consumer.wait_for_reason("p3", "PoolExhausted").await;
    consumer.release("q1").await;
    assert_eq!(consumer.wait_for_address("p3").await, "10.20.0.2");
    consumer.wait_for_counts("q", (3, 1, 0, 0)).await;
    consumer.wait_for_condition(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap").await;
}

#[tokio::test]
async fn pools_without_a_network_report_overlaps() {
    let consumer = consumer().await;
    let spec = |addresses: &str| json!({"addresses": [addresses], "prefix": 24});
    consumer.create_pool("p", spec("10.21.0.1-10.21.0.3")).await;
    consumer.wait_for_condition(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap").await;
    consumer.create_pool("q", spec("10.21.0.3-10.21.0.4")).await;
    let text = consumer.wait_for_condition(&consumer.pools(), "p", "Overlapping", "True", "PoolsOverlap").await;
    assert!(text.contains(&format!("InClusterIPPool {}/q", consumer.namespace)), "{text}");
    consumer.wait_for_condition(&consumer.pools(), "q", "Overlapping", "True", "PoolsOverlap").await;
    assert_eq!(claim_address(&consumer, "a", "q").await, "10.21.0.3");
    for name in ["b", "c", "d"] {
        claim_address(&consumer, name, "p").await;
    }
    assert_eq!(consumer.wait_for_address("d").await, "10.21.0.3", "as before: each pool allocates independently");
    consumer.modify_pool("q", |spec| spec["addresses"] = json!(["10.21.0.4"])).await;
    consumer.wait_for_condition(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap").await;
    consumer.wait_for_condition(&consumer.pools(), "q", "OutOfRange", "True", "AddressesOutOfRange").await;
}

#[tokio::test]
async fn pools_of_a_network_share_one_allocation_length() {
    let (consumer, network) = (consumer().await, unique("net"));
    consumer.create_pool("addresses", json!({"addresses": ["fd21::/64"], "prefix": 64, "network": network})).await;
    consumer.wait_for_pool_condition("addresses", "True", "PoolReady").await;
    let prefixes = consumer.pools_of(InClusterKind::PrefixPool);
    consumer
        .create_pool_of(InClusterKind::PrefixPool, "prefixes", json!({"prefixes": ["fd21::/48"], "network": network}))
        .await;
    let text = consumer.wait_for_condition(&prefixes, "prefixes", "Ready", "False", "InvalidSpec").await;
    assert!(text.contains("spec.network") && text.contains("128"), "{text}");
    consumer.create_claim_of(InClusterKind::PrefixPool, "a", "prefixes").await;
    consumer.wait_for_reason("a", "PoolNotReady").await;
    // Another family, or the same length, is allowed.
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "ipv4",
            json!({"prefixes": ["192.0.2.0/24"], "allocationPrefixLength": 28, "network": network}),
        )
        .await;
    consumer.wait_for_condition(&prefixes, "ipv4", "Ready", "True", "PoolReady").await;
    let single = json!({"prefixes": ["fd21::/126"], "allocationPrefixLength": 128, "network": network});
    consumer.create_pool_of(InClusterKind::PrefixPool, "single", single).await;
    assert_eq!(claim_address(&consumer, "b", "addresses").await, "fd21::1");
    consumer.create_claim_of(InClusterKind::PrefixPool, "c", "single").await;
    assert_eq!(consumer.wait_for_address("c").await, "fd21::");
    consumer.create_claim_of(InClusterKind::PrefixPool, "d", "single").await;
    assert_eq!(consumer.wait_for_address("d").await, "fd21::2");
}

#[tokio::test]
async fn manual_reservation_excludes_an_address_from_a_network() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = json!({"addresses": ["10.22.0.1-10.22.0.3"], "prefix": 24, "network": network});
    consumer.create_pool("p", spec.clone()).await;
    consumer.create_pool("q", spec).await;
    let reserve = async |last: u8, claim: serde_json::Value| {
        let (address, scope) = (format!("10.22.0.{last}"), format!("n.{network}"));
        let mut made = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": {"name": format!("{scope}.{address}")},
            "spec": {"scope": scope, "address": address,
                     "poolRef": {"kind": "InClusterIPPool", "namespace": consumer.namespace, "name": "p"}},
        });
        if !claim.is_null() {
            made["spec"]["claimRef"] = claim;
        }
        consumer.reservations().create(&crate::support::consumer::object(made)).await.expect("it can be created");
    };
    reserve(1, json!(null)).await;
    reserve(2, json!({"namespace": consumer.namespace, "name": "vip"})).await;
    consumer.wait_for_counts("q", (3, 1, 0, 0)).await;
    assert_eq!(claim_address(&consumer, "a", "q").await, "10.22.0.3");
    assert_eq!(claim_address(&consumer, "vip", "p").await, "10.22.0.2");
}

#[tokio::test]
async fn invalid_reservation_is_reported_by_an_event() {
    let consumer = consumer().await;
    consumer.create_pool("web", json!({"addresses": ["10.23.0.1-10.23.0.3"], "prefix": 24})).await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
    consumer.reserve("web", "10.23.0.200", json!({"namespace": consumer.namespace, "name": "vip"})).await;
    let name = format!("p.{}.web.10.23.0.200", consumer.namespace);
    let everywhere = consumer.in_namespace("default");
    eventually("an event reports that the reservation has no effect", || async {
        let reported = everywhere.events(&name).await;
        reported
            .iter()
            .any(|(kind, reason, text)| {
                kind == "Warning" && reason == "InvalidReservation" && text.contains("10.23.0.200")
            })
            .then_some(())
    })
    .await;
    // A reservation of an address outside the pool has no effect.
    assert_eq!(claim_address(&consumer, "vip", "web").await, "10.23.0.1");
}
