//! Claims that request an address.

use capi_ipam_api::InClusterKind;
use serde_json::{Value, json};

use crate::consumer;
use support::consumer::{Consumer, unique};

const KIND: &str = "InClusterIPPool";
const ANNOTATION: &str = "ipam.cluster.x-k8s.io/requested-address";
const REASON: &str = "RequestedAddressUnavailable";

async fn with_pool(change: Value) -> Consumer {
    let consumer = consumer().await;
    let mut spec = json!({"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1",
                          "excludedAddresses": ["10.0.0.15"], "allocation": {"requests": true}});
    json_patch::merge(&mut spec, &change);
    consumer.create_pool("pool", spec).await;
    consumer
}

async fn request(consumer: &Consumer, name: &str, address: &str) {
    request_of(consumer, name, KIND, "pool", ANNOTATION, address).await;
}

async fn request_of(
    consumer: &Consumer,
    name: &str,
    kind: &str,
    pool: &str,
    annotation: &str,
    address: &str,
) {
    consumer
        .create_claim_with(
            name,
            kind,
            pool,
            json!({"annotations": {annotation: address}}),
        )
        .await;
}

async fn change_request(consumer: &Consumer, name: &str, address: Value) {
    let annotations = json!({"metadata": {"annotations": {ANNOTATION: address}}});
    consumer
        .modify(&consumer.claims(), name, |claim| {
            json_patch::merge(claim, &annotations)
        })
        .await;
}

#[tokio::test]
async fn claim_gets_the_address_that_it_requests() {
    let consumer = with_pool(json!({})).await;
    // With the length of its subnet, as other programs write it.
    request(&consumer, "a", "10.0.0.17/24").await;
    assert_eq!(consumer.wait_for_address("a").await, "10.0.0.17");
    request_of(&consumer, "metal3", KIND, "pool", "ipAddress", "10.0.0.18").await;
    assert_eq!(consumer.wait_for_address("metal3").await, "10.0.0.18");
    let both = json!({"annotations": {ANNOTATION: "10.0.0.19", "ipAddress": "10.0.0.20"}});
    consumer.create_claim_with("both", KIND, "pool", both).await;
    assert_eq!(consumer.wait_for_address("both").await, "10.0.0.19");
    consumer.create_claim("any", "pool").await;
    assert_eq!(consumer.wait_for_address("any").await, "10.0.0.10");
}

#[tokio::test]
async fn request_is_ignored_unless_the_pool_accepts_it() {
    let consumer = with_pool(json!({"allocation": null})).await;
    request(&consumer, "a", "10.0.0.17").await;
    assert_eq!(consumer.wait_for_address("a").await, "10.0.0.10");
    request(&consumer, "b", "nonsense").await;
    assert_eq!(consumer.wait_for_address("b").await, "10.0.0.11");
}

#[tokio::test]
async fn each_unavailable_address_is_explained() {
    let consumer = with_pool(json!({"addressReuseGracePeriodSeconds": 600})).await;
    request(&consumer, "owner", "10.0.0.11").await;
    request(&consumer, "former", "10.0.0.12").await;
    for name in ["owner", "former"] {
        consumer.wait_for_address(name).await;
    }
    consumer.release("former").await;
    consumer
        .reserve(
            "pool",
            "10.0.0.13",
            json!({"namespace": consumer.namespace, "name": "promised"}),
        )
        .await;
    consumer.reserve("pool", "10.0.0.14", json!(null)).await;
    let owner = format!("IPAddressClaim {}/owner", consumer.namespace);
    let promised = format!(
        "is reserved for IPAddressClaim {}/promised",
        consumer.namespace
    );
    let long = "1".repeat(10_000);
    let cases = [
        ("taken", "10.0.0.11", owner.as_str()),
        ("cooling", "10.0.0.12", "is cooling down until"),
        ("reserved", "10.0.0.13", &promised),
        ("blocked", "10.0.0.14", "is excluded by an IPReservation"),
        (
            "excluded",
            "10.0.0.15",
            "is excluded by the specification of InClusterIPPool",
        ),
        ("gateway", "10.0.0.1", "is a gateway"),
        (
            "range",
            "10.0.0.99",
            "is outside of the ranges of InClusterIPPool",
        ),
        ("subnet", "10.0.1.5", "is outside of the subnet 10.0.0.0/24"),
        ("text", "ten", "is not an IPv4 or IPv6 address"),
        ("family", "fd00::5", "is IPv6, but the pool is IPv4"),
        ("long", &long, "is not an IPv4 or IPv6 address"),
    ];
    for (name, address, _) in cases {
        request(&consumer, name, address).await;
    }
    for (name, _, part) in cases {
        consumer.wait_for_message(name, REASON, part).await;
    }
    consumer
        .wait_for_event("taken", "Warning", REASON, "")
        .await;
    // Claims without a request are not delayed.
    consumer.create_claim("any", "pool").await;
    assert_eq!(consumer.wait_for_address("any").await, "10.0.0.10");
    // The claim of the promise gets it by request.
    request(&consumer, "promised", "10.0.0.13").await;
    assert_eq!(consumer.wait_for_address("promised").await, "10.0.0.13");
    for (name, address, result) in [
        ("text", json!("10.0.0.16"), "10.0.0.16"),
        ("taken", json!(null), "10.0.0.17"),
    ] {
        change_request(&consumer, name, address).await;
        assert_eq!(consumer.wait_for_address(name).await, result);
    }
    consumer
        .modify_pool("pool", |spec| spec["excludedAddresses"] = json!([]))
        .await;
    assert_eq!(consumer.wait_for_address("excluded").await, "10.0.0.15");
    // A bound claim keeps its address, whatever it requests.
    change_request(&consumer, "any", json!("10.0.0.18")).await;
    consumer
        .delete_object(
            &consumer.reservations(),
            &format!("p.{}.pool.10.0.0.14", consumer.namespace),
        )
        .await;
    assert_eq!(consumer.wait_for_address("blocked").await, "10.0.0.14");
    assert_eq!(consumer.wait_for_address("any").await, "10.0.0.10");
}

#[tokio::test]
async fn requests_of_one_address_are_served_in_order() {
    let consumer = with_pool(json!({})).await;
    request(&consumer, "holder", "10.0.0.12").await;
    consumer.wait_for_address("holder").await;
    for name in ["first", "second", "third"] {
        request(&consumer, name, "10.0.0.12").await;
        consumer.wait_for_reason(name, REASON).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    }
    let mut holder = "holder";
    for next in ["first", "second", "third"] {
        consumer.release(holder).await;
        assert_eq!(consumer.wait_for_address(next).await, "10.0.0.12");
        holder = next;
    }
}

#[tokio::test]
async fn names_of_other_namespaces_are_not_revealed() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    let kind = InClusterKind::GlobalIPPool.name();
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24, "allocation": {"requests": true},
                      "limits": {"perNamespace": 1}});
    one.create_global_pool(&pool, spec).await;
    request_of(&one, "secret", kind, &pool, ANNOTATION, "10.0.0.5").await;
    assert_eq!(one.wait_for_address("secret").await, "10.0.0.5");
    request_of(&two, "curious", kind, &pool, ANNOTATION, "10.0.0.5").await;
    let text = two.wait_for_reason("curious", REASON).await;
    assert!(
        text.contains("an IPAddressClaim in another namespace"),
        "{text}"
    );
    assert!(
        !text.contains("secret") && !text.contains(&one.namespace),
        "{text}"
    );
    // A request beyond a limit waits for the limit, and then for its address.
    request_of(&one, "more", kind, &pool, ANNOTATION, "10.0.0.6").await;
    let text = one.wait_for_reason("more", "QuotaExceeded").await;
    assert!(text.contains("spec.limits.perNamespace"), "{text}");
    one.release("secret").await;
    assert_eq!(one.wait_for_address("more").await, "10.0.0.6");
    assert_eq!(two.wait_for_address("curious").await, "10.0.0.5");
    request_of(&two, "refused", kind, &pool, ANNOTATION, "10.0.0.7").await;
    two.wait_for_reason("refused", "QuotaExceeded").await;
}

#[tokio::test]
async fn prefixes_and_ipv6_addresses_are_requested() {
    let consumer = consumer().await;
    let policy = json!({"requests": true, "sticky": true});
    let spec = json!({"prefixes": ["fd00:10::/48"], "allocation": policy});
    consumer
        .create_pool_of(InClusterKind::PrefixPool, "prefixes", spec)
        .await;
    let kind = InClusterKind::PrefixPool.name();
    for (name, text) in [("cidr", "fd00:10:0:5::/64"), ("base", "fd00:10:0:6::")] {
        request_of(&consumer, name, kind, "prefixes", ANNOTATION, text).await;
        assert_eq!(
            consumer.wait_for_address(name).await,
            text.trim_end_matches("/64")
        );
    }
    request_of(
        &consumer,
        "length",
        kind,
        "prefixes",
        ANNOTATION,
        "fd00:10:0:7::/80",
    )
    .await;
    consumer
        .wait_for_message("length", REASON, "is not a prefix of the length 64")
        .await;
    request_of(
        &consumer,
        "outside",
        kind,
        "prefixes",
        ANNOTATION,
        "fd00:11::/64",
    )
    .await;
    consumer
        .wait_for_message(
            "outside",
            REASON,
            "is outside of the ranges of InClusterPrefixPool",
        )
        .await;
    let spec = json!({"addresses": ["fd00:20::/64"], "prefix": 64, "allocation": policy});
    consumer.create_pool("v6", spec).await;
    request_of(
        &consumer,
        "v6",
        KIND,
        "v6",
        ANNOTATION,
        "fd00:20:0:0:0::beef",
    )
    .await;
    assert_eq!(consumer.wait_for_address("v6").await, "fd00:20::beef");
    // What a claim requests has precedence over its former address, and kept addresses can be
    // requested.
    consumer.release("v6").await;
    request_of(&consumer, "v6", KIND, "v6", ANNOTATION, "fd00:20::cafe").await;
    assert_eq!(consumer.wait_for_address("v6").await, "fd00:20::cafe");
    request_of(
        &consumer,
        "another",
        KIND,
        "v6",
        ANNOTATION,
        "fd00:20::beef",
    )
    .await;
    assert_eq!(consumer.wait_for_address("another").await, "fd00:20::beef");
}

#[tokio::test]
async fn ignored_request_is_an_event() {
    let consumer = consumer().await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24});
    consumer.create_pool("pool", spec).await;
    request(&consumer, "a", "10.0.0.5").await;
    assert_eq!(consumer.wait_for_address("a").await, "10.0.0.1");
    consumer
        .wait_for_event("a", "Warning", "RequestIgnored", "10.0.0.5")
        .await;
}
