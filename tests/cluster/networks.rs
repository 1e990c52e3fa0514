//! Pools that share addresses: in one network, and not.

use capi_ipam::api::{InClusterIPPool, InClusterPrefixPool};
use capi_ipam::consumer;
use capi_ipam::support::consumer::{Consumer, eventually, unique};
use serde_json::json;

/// The address of a claim for a pool of the namespace.
async fn served(consumer: &Consumer, claim: &str, pool: &str) -> String {
    consumer.claim_of::<InClusterIPPool>(claim, pool).await;
    consumer.bound(claim).await
}

#[tokio::test]
async fn pools_of_one_network_never_give_out_the_same_address() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = |addresses: &str| json!({"addresses": [addresses], "prefix": 24, "network": network});
    consumer.pool("p", spec("10.20.0.1-10.20.0.3")).await;
    consumer.pool("q", spec("10.20.0.2-10.20.0.4")).await;
    consumer.pool_says("p", "True", "PoolReady").await;
    consumer.pool_says("q", "True", "PoolReady").await;
    assert_eq!(served(&consumer, "q1", "q").await, "10.20.0.2");
    assert_eq!(served(&consumer, "p1", "p").await, "10.20.0.1");
    assert_eq!(served(&consumer, "p2", "p").await, "10.20.0.3");
    consumer.counts("p", (3, 0, 2, 0)).await;
    consumer.counts("q", (3, 1, 1, 0)).await;
    let name = format!("n.{network}.10.20.0.2");
    let reservation = consumer.reservations().get(&name).await.expect("reservations can be read").expect("it exists");
    assert_eq!(reservation.spec.pool_ref.name, "q");

    // An address that one pool gets back serves a claim that waits for another.
    consumer.claim("p3", "p").await;
    consumer.waits_for("p3", "PoolExhausted").await;
    consumer.release("q1").await;
    assert_eq!(consumer.bound("p3").await, "10.20.0.2");
    consumer.counts("q", (3, 1, 0, 0)).await;
    consumer.says(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap").await;
}

#[tokio::test]
async fn pools_without_a_network_are_independent_and_say_that_they_overlap() {
    let consumer = consumer().await;
    let spec = |addresses: &str| json!({"addresses": [addresses], "prefix": 24});
    consumer.pool("p", spec("10.21.0.1-10.21.0.3")).await;
    consumer.says(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap").await;
    consumer.pool("q", spec("10.21.0.3-10.21.0.4")).await;
    let text = consumer.says(&consumer.pools(), "p", "Overlapping", "True", "PoolsOverlap").await;
    assert!(text.contains(&format!("InClusterIPPool {}/q", consumer.namespace)), "{text}");
    consumer.says(&consumer.pools(), "q", "Overlapping", "True", "PoolsOverlap").await;
    assert_eq!(served(&consumer, "a", "q").await, "10.21.0.3");
    for name in ["b", "c", "d"] {
        served(&consumer, name, "p").await;
    }
    assert_eq!(consumer.bound("d").await, "10.21.0.3", "as before: each pool for itself");
    consumer.change_pool("q", |spec| spec["addresses"] = json!(["10.21.0.4"])).await;
    consumer.says(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap").await;
    consumer.says(&consumer.pools(), "q", "OutOfRange", "True", "AddressesOutOfRange").await;
}

#[tokio::test]
async fn a_network_gives_out_blocks_of_one_length() {
    let (consumer, network) = (consumer().await, unique("net"));
    consumer.pool("addresses", json!({"addresses": ["fd21::/64"], "prefix": 64, "network": network})).await;
    consumer.pool_says("addresses", "True", "PoolReady").await;
    let prefixes = consumer.prefix_pools();
    consumer.make(&prefixes, "prefixes", json!({"prefixes": ["fd21::/48"], "network": network})).await;
    let text = consumer.says(&prefixes, "prefixes", "Ready", "False", "InvalidSpec").await;
    assert!(text.contains("spec.network") && text.contains("128"), "{text}");
    consumer.claim_of::<InClusterPrefixPool>("a", "prefixes").await;
    consumer.waits_for("a", "PoolNotReady").await;
    // Of the other family, or of the same length, it is fine.
    consumer
        .make(
            &prefixes,
            "ipv4",
            json!({"prefixes": ["192.0.2.0/24"], "allocationPrefixLength": 28, "network": network}),
        )
        .await;
    consumer.says(&prefixes, "ipv4", "Ready", "True", "PoolReady").await;
    let single = json!({"prefixes": ["fd21::/126"], "allocationPrefixLength": 128, "network": network});
    consumer.make(&prefixes, "single", single).await;
    assert_eq!(served(&consumer, "b", "addresses").await, "fd21::1");
    consumer.claim_of::<InClusterPrefixPool>("c", "single").await;
    assert_eq!(consumer.bound("c").await, "fd21::");
    consumer.claim_of::<InClusterPrefixPool>("d", "single").await;
    assert_eq!(consumer.bound("d").await, "fd21::2");
}

#[tokio::test]
async fn a_reservation_by_hand_keeps_an_address_out_of_a_whole_network() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = json!({"addresses": ["10.22.0.1-10.22.0.3"], "prefix": 24, "network": network});
    consumer.pool("p", spec.clone()).await;
    consumer.pool("q", spec).await;
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
        consumer.reservations().create(&crate::support::consumer::object(made)).await.expect("it can be made");
    };
    reserve(1, json!(null)).await;
    reserve(2, json!({"namespace": consumer.namespace, "name": "vip"})).await;
    consumer.counts("q", (3, 1, 0, 0)).await;
    assert_eq!(served(&consumer, "a", "q").await, "10.22.0.3");
    assert_eq!(served(&consumer, "vip", "p").await, "10.22.0.2");
}

#[tokio::test]
async fn useless_reservations_are_told_by_an_event() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.23.0.1-10.23.0.3"], "prefix": 24})).await;
    consumer.counts("web", (3, 3, 0, 0)).await;
    consumer.reserve("web", "10.23.0.200", json!({"namespace": consumer.namespace, "name": "vip"})).await;
    let name = format!("p.{}.web.10.23.0.200", consumer.namespace);
    let everywhere = Consumer { namespace: "default".to_owned(), ..consumer.clone() };
    eventually("an event tells that the reservation is of no use", || async {
        let told = everywhere.events(&name).await;
        told.iter()
            .any(|(kind, reason, text)| kind == "Warning" && reason == "InvalidReservation" && text.contains("10.23.0.200"))
            .then_some(())
    })
    .await;
    // A promise of what the pool does not have is none.
    assert_eq!(served(&consumer, "vip", "web").await, "10.23.0.1");
}
