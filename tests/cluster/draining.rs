//! Draining parts of pools: nothing is allocated there, what is in use stays, and they are removed
//! when nothing is left.

use capi_ipam_api::InClusterKind;
use serde_json::{Value, json};

use crate::consumer;
use support::consumer::{Consumer, unique};
use support::wait::eventually;

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
    eventually("the status counts what is left", || async {
        let pool = consumer
            .pools()
            .get("pool")
            .await
            .expect("pools can be read")
            .expect("it exists");
        (pool.status?.draining?.addresses == in_use).then_some(())
    })
    .await;
}

#[tokio::test]
async fn claims_bind_and_release_while_a_pool_drains() {
    let consumer = consumer().await;
    consumer
        .create_pool(
            "pool",
            json!({"addresses": ["10.0.0.1-10.0.0.6"], "prefix": 24}),
        )
        .await;
    for name in ["a", "b", "c"] {
        consumer.create_claim(name, "pool").await;
        consumer.wait_for_address(name).await;
    }
    change(&consumer, json!({"draining": ["10.0.0.1-10.0.0.4"]})).await;
    let text = condition(&consumer, "True", "AddressesInUse").await;
    assert!(
        text.contains("3 addresses of spec.draining are in use by the claims "),
        "{text}"
    );
    for name in ["a", "b", "c"] {
        let claim = format!("{}/{name}", consumer.namespace);
        assert!(text.contains(&claim), "{claim}: {text}");
    }
    wait_for_drained(&consumer, 3).await;
    // 10.0.0.4 is free, but draining.
    for name in ["d", "e"] {
        consumer.create_claim(name, "pool").await;
        consumer.wait_for_address(name).await;
    }
    consumer.create_claim("f", "pool").await;
    let text = consumer.wait_for_reason("f", "PoolExhausted").await;
    assert!(
        text.contains("1 not allocated because of spec.draining"),
        "{text}"
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
    eventually("the pool has the rest only", || async {
        let pool = consumer
            .pools()
            .get("pool")
            .await
            .expect("pools can be read")
            .expect("it exists");
        let status = pool.status?;
        let is_done = status.ip_addresses?.total == 2 && status.draining.is_none();
        (is_done
            && status
                .conditions
                .iter()
                .all(|condition| condition.type_ != "Draining"))
        .then_some(())
    })
    .await;
}

#[tokio::test]
async fn draining_part_keeps_promises_back_and_ends_with_its_entry() {
    let consumer = consumer().await;
    let spec =
        json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24, "draining": ["10.0.0.0/24"]});
    consumer.create_pool("pool", spec).await;
    consumer.create_claim("a", "pool").await;
    consumer.wait_for_reason("a", "PoolExhausted").await;
    condition(&consumer, "False", "Drained").await;
    change(&consumer, json!({"draining": ["10.0.0.2"]})).await;
    consumer.wait_for_address("a").await;
    change(&consumer, json!({"draining": null})).await;
    consumer.create_claim("b", "pool").await;
    consumer.wait_for_address("b").await;
}

#[tokio::test]
async fn global_pool_of_prefixes_drains_without_naming_claims() {
    let consumer = consumer().await;
    let (pool, kind) = (unique("drain"), InClusterKind::GlobalPrefixPool);
    consumer
        .create_pool_of(kind, &pool, json!({"prefixes": ["fd00::/62"]}))
        .await;
    consumer.create_claim_of(kind, "secret", &pool).await;
    consumer.wait_for_address("secret").await;
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
    consumer.create_claim_of(kind, "next", &pool).await;
    consumer.wait_for_address("next").await;
    assert_eq!(consumer.allocated_addresses().await["next"], "fd00:0:0:2::");
}
