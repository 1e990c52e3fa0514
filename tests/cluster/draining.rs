//! Draining parts of pools: nothing is allocated there, what is in use stays, and they are removed
//! when nothing is left.

use support::prelude::*;

use crate::consumer;

async fn change(consumer: &Consumer, spec: Value) {
    consumer
        .modify_pool("pool", |pool| json_patch::merge(pool, &spec))
        .await;
}

async fn condition(consumer: &Consumer, status: &str, reason: &str) -> String {
    consumer
        .wait_for_condition(&consumer.pools(), "pool", "Draining", status, reason)
        .await
}

async fn wait_for_drained(consumer: &Consumer, in_use: i64) {
    until("the status counts what is left", async || {
        let pool = consumer.the_pool("pool").await;
        Some(pool.status?.draining?.addresses == in_use)
    })
    .await;
}

#[tokio::test]
async fn claims_bind_and_release_while_a_pool_drains() {
    let consumer = consumer().await;
    consumer.create_pool("pool", "10.0.0.1-10.0.0.6").await;
    for name in ["a", "b", "c"] {
        consumer.bind(name, "pool").await;
    }
    change(&consumer, json!({"draining": ["10.0.0.1-10.0.0.4"]})).await;
    let text = condition(&consumer, "True", "AddressesInUse").await;
    assert_contains(
        &text,
        "3 addresses of spec.draining are in use by the claims ",
    );
    for name in ["a", "b", "c"] {
        let claim = format!("{}/{name}", consumer.namespace);
        assert!(text.contains(&claim), "{claim}: {text}");
    }
    wait_for_drained(&consumer, 3).await;
    // 10.0.0.4 is free, but draining.
    for name in ["d", "e"] {
        consumer.bind(name, "pool").await;
    }
    assert_contains(
        &consumer.claim_waits("f", "pool", "PoolExhausted").await,
        "1 not allocated because of spec.draining",
    );
    let allocated = consumer.allocated_addresses().await;
    assert_eq!([&allocated["d"], &allocated["e"]], ["10.0.0.5", "10.0.0.6"]);
    // An address that is released in a draining part is not allocated again; others are.
    consumer.release("a").await;
    wait_for_drained(&consumer, 2).await;
    consumer.release("d").await;
    consumer.wait_for_address("f").await;
    assert_eq!(consumer.allocated_addresses().await["f"], "10.0.0.5");
    consumer.release("b").await;
    consumer.release("c").await;
    condition(&consumer, "False", "Drained").await;
    change(
        &consumer,
        json!({"addresses": ["10.0.0.5-10.0.0.6"], "draining": null}),
    )
    .await;
    until("the pool has the rest only", async || {
        let pool = consumer.the_pool("pool").await;
        let status = pool.status?;
        let is_done = status.ip_addresses?.total == 2 && status.draining.is_none();
        Some(
            is_done
                && status
                    .conditions
                    .iter()
                    .all(|condition| condition.type_ != "Draining"),
        )
    })
    .await;
}

#[tokio::test]
async fn draining_part_keeps_promises_back_and_ends_with_its_entry() {
    let consumer = consumer().await;
    consumer
        .create_pool(
            "pool",
            ("10.0.0.1-10.0.0.2", json!({"draining": ["10.0.0.0/24"]})),
        )
        .await;
    consumer.claim_waits("a", "pool", "PoolExhausted").await;
    condition(&consumer, "False", "Drained").await;
    change(&consumer, json!({"draining": ["10.0.0.2"]})).await;
    consumer.wait_for_address("a").await;
    change(&consumer, json!({"draining": null})).await;
    consumer.bind("b", "pool").await;
}

#[tokio::test]
async fn global_pool_of_prefixes_drains_without_naming_claims() {
    let consumer = consumer().await;
    let (pool, kind) = (unique("drain"), InClusterKind::GlobalPrefixPool);
    consumer
        .create_pool_of(kind, &pool, json!({"prefixes": ["fd00::/62"]}))
        .await;
    consumer.bind_of(kind, "secret", &pool).await;
    let change = json!({"spec": {"draining": ["fd00::5", "fd00:0:0:1::/64"]}});
    let pools = consumer.pools_of(kind);
    consumer
        .modify(&pools, &pool, |object| json_patch::merge(object, &change))
        .await;
    let text = consumer
        .wait_for_condition(&pools, &pool, "Draining", "True", "AddressesInUse")
        .await;
    assert!(
        text.contains("1 address of") && !text.contains("secret"),
        "{text}"
    );
    consumer.bind_of(kind, "next", &pool).await;
    assert_eq!(consumer.allocated_addresses().await["next"], "fd00:0:0:2::");
}
