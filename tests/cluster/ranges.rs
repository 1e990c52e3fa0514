//! Pools with several ranges, each with its subnet and gateway, and the metadata of IPAddress
//! objects.

use support::prelude::*;

use crate::consumer;

/// Binds claims `c1`, `c2`, ... one after the other, and returns address, prefix and gateway of
/// each.
async fn bind(consumer: &Consumer, kind: InClusterKind, pool: &str, count: usize) -> Vec<String> {
    let mut bound = Vec::new();
    for number in 1..=count {
        let name = format!("c{number}");
        consumer.bind_of(kind, &name, pool).await;
        let address = consumer.the_address(&name).await.spec;
        let gateway = address
            .gateway
            .map(|gateway| format!(" {gateway}"))
            .unwrap_or_default();
        bound.push(format!("{}/{}{gateway}", address.address, address.prefix));
    }
    bound
}

#[tokio::test]
async fn ranges_are_used_in_order_with_their_gateways() {
    let consumer = consumer().await;
    let spec = json!({
        "addresses": ["10.9.0.5"], "prefix": 16, "gateway": "10.9.0.1",
        "ranges": [
            {"addresses": ["10.2.0.0/30"], "prefix": 30, "gateway": "10.2.0.1"},
            {"addresses": ["10.1.0.8-10.1.0.9"], "prefix": 24},
        ],
    });
    consumer.create_pool("pool", spec).await;
    let expected = [
        "10.9.0.5/16 10.9.0.1",
        "10.2.0.2/30 10.2.0.1",
        "10.1.0.8/24",
        "10.1.0.9/24",
    ];
    assert_eq!(
        bind(&consumer, InClusterKind::IPPool, "pool", 4).await,
        expected
    );
    consumer.claim_waits("more", "pool", "PoolExhausted").await;
    consumer.release("c2").await;
    consumer.wait_for_address("more").await;
    assert_eq!(consumer.allocated_addresses().await["more"], "10.2.0.2");
}

#[tokio::test]
async fn pools_of_ipv6_and_of_prefixes_have_ranges() {
    let consumer = consumer().await;
    let pool = unique("six");
    let ranges = json!([
        {"addresses": ["fd00:2::/126"], "prefix": 126, "gateway": "fd00:2::1"},
        {"addresses": ["fd00:1::1-fd00:1::2"], "prefix": 64, "gateway": "fd00:9::1"},
    ]);
    consumer
        .create_global_pool(&pool, json!({"ranges": ranges}))
        .await;
    let expected = [
        "fd00:2::2/126 fd00:2::1",
        "fd00:2::3/126 fd00:2::1",
        "fd00:1::1/64 fd00:9::1",
    ];
    assert_eq!(
        bind(&consumer, InClusterKind::GlobalIPPool, &pool, 3).await,
        expected
    );

    let consumer = crate::consumer().await;
    let ranges =
        json!([{"prefixes": ["fd00:1::/64"], "gateway": "fe80::1"}, {"prefixes": ["fd00::/64"]}]);
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "prefixes",
            json!({"ranges": ranges}),
        )
        .await;
    let expected = ["fd00:1::/64 fe80::1", "fd00::/64"];
    assert_eq!(
        bind(&consumer, InClusterKind::PrefixPool, "prefixes", 2).await,
        expected
    );
}

#[tokio::test]
async fn new_addresses_get_labels_and_annotations() {
    let consumer = consumer().await;
    let metadata = json!({"labels": {"example.com/vlan": "120"}, "annotations": {"example.com/dns": "10.0.0.53"}});
    consumer
        .create_pool(
            "pool",
            ("10.0.0.1-10.0.0.9", json!({"addressMetadata": metadata})),
        )
        .await;
    consumer.bind("before", "pool").await;
    consumer
        .modify_pool("pool", |pool| {
            pool["addressMetadata"]["labels"]["example.com/vlan"] = json!("121")
        })
        .await;
    // The watches of pools and claims are independent.
    until("the change is observed", async || {
        let pool = consumer.the_pool("pool").await;
        Some(pool.status?.observed_generation == pool.metadata.generation)
    })
    .await;
    consumer.bind("after", "pool").await;
    for (name, vlan) in [("before", "120"), ("after", "121")] {
        let address = consumer.the_address(name).await;
        assert_eq!(
            address.metadata.labels.unwrap_or_default()["example.com/vlan"],
            vlan
        );
        assert_eq!(
            address.metadata.annotations.unwrap_or_default()["example.com/dns"],
            "10.0.0.53"
        );
    }
}
