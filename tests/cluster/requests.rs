//! Claims that request an address.

use support::prelude::*;

use crate::consumer;

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
    consumer.assert_address("a", "10.0.0.17").await;
    request_of(&consumer, "metal3", KIND, "pool", "ipAddress", "10.0.0.18").await;
    consumer.assert_address("metal3", "10.0.0.18").await;
    let both = json!({"annotations": {ANNOTATION: "10.0.0.19", "ipAddress": "10.0.0.20"}});
    consumer.create_claim_with("both", KIND, "pool", both).await;
    consumer.assert_address("both", "10.0.0.19").await;
    consumer.bind_to("any", "pool", "10.0.0.10").await;
}

#[tokio::test]
async fn request_is_ignored_unless_the_pool_accepts_it() {
    let consumer = with_pool(json!({"allocation": null})).await;
    request(&consumer, "a", "10.0.0.17").await;
    consumer.assert_address("a", "10.0.0.10").await;
    request(&consumer, "b", "nonsense").await;
    consumer.assert_address("b", "10.0.0.11").await;
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
    consumer.reserve_for("pool", "10.0.0.13", "promised").await;
    consumer.reserve("pool", "10.0.0.14", json!(null)).await;
    let owner = format!("IPAddressClaim {}/owner", consumer.namespace);
    let promised = format!(
        "is reserved for IPAddressClaim {}/promised",
        consumer.namespace
    );
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
        ("text", "ten", "is not an IPv4 or IPv6 address"),
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
    consumer.bind_to("any", "pool", "10.0.0.10").await;
    // The claim of the promise gets it by request.
    request(&consumer, "promised", "10.0.0.13").await;
    consumer.assert_address("promised", "10.0.0.13").await;
    for (name, address, result) in [
        ("text", json!("10.0.0.16"), "10.0.0.16"),
        ("taken", json!(null), "10.0.0.17"),
    ] {
        change_request(&consumer, name, address).await;
        consumer.assert_address(name, result).await;
    }
    consumer
        .modify_pool("pool", |spec| spec["excludedAddresses"] = json!([]))
        .await;
    consumer.assert_address("excluded", "10.0.0.15").await;
    // A bound claim keeps its address, whatever it requests.
    change_request(&consumer, "any", json!("10.0.0.18")).await;
    consumer
        .delete_object(
            &consumer.reservations(),
            &format!("p.{}.pool.10.0.0.14", consumer.namespace),
        )
        .await;
    consumer.assert_address("blocked", "10.0.0.14").await;
    consumer.assert_address("any", "10.0.0.10").await;
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
        consumer.assert_address(next, "10.0.0.12").await;
        holder = next;
    }
}

#[tokio::test]
async fn names_of_other_namespaces_are_not_revealed() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    let kind = InClusterKind::GlobalIPPool.name();
    one.create_global_pool(
        &pool,
        (
            "10.0.0.1-10.0.0.9",
            json!({"allocation": {"requests": true},
                      "limits": {"perNamespace": 1}}),
        ),
    )
    .await;
    request_of(&one, "secret", kind, &pool, ANNOTATION, "10.0.0.5").await;
    one.assert_address("secret", "10.0.0.5").await;
    request_of(&two, "curious", kind, &pool, ANNOTATION, "10.0.0.5").await;
    let text = two.wait_for_reason("curious", REASON).await;
    assert_contains(&text, "an IPAddressClaim in another namespace");
    assert!(
        !text.contains("secret") && !text.contains(&one.namespace),
        "{text}"
    );
    // A request beyond a limit waits for the limit, and then for its address.
    request_of(&one, "more", kind, &pool, ANNOTATION, "10.0.0.6").await;
    assert_contains(
        &one.wait_for_reason("more", "QuotaExceeded").await,
        "spec.limits.perNamespace",
    );
    one.release("secret").await;
    one.assert_address("more", "10.0.0.6").await;
    two.assert_address("curious", "10.0.0.5").await;
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
        consumer
            .assert_address(name, text.trim_end_matches("/64"))
            .await;
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
    consumer.assert_address("v6", "fd00:20::beef").await;
    // What a claim requests has precedence over its former address, and kept addresses can be
    // requested.
    consumer.release("v6").await;
    request_of(&consumer, "v6", KIND, "v6", ANNOTATION, "fd00:20::cafe").await;
    consumer.assert_address("v6", "fd00:20::cafe").await;
    request_of(
        &consumer,
        "another",
        KIND,
        "v6",
        ANNOTATION,
        "fd00:20::beef",
    )
    .await;
    consumer.assert_address("another", "fd00:20::beef").await;
}

#[tokio::test]
async fn ignored_request_is_an_event() {
    let consumer = consumer().await;
    consumer.create_pool("pool", "10.0.0.1-10.0.0.9").await;
    request(&consumer, "a", "10.0.0.5").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer
        .wait_for_event("a", "Warning", "RequestIgnored", "10.0.0.5")
        .await;
}
