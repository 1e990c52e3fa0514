//! Claims of a sticky pool get the former address of their name back.

use support::prelude::*;

use crate::consumer;

const KIND: &str = "InClusterIPPool";

/// Deletes a claim and creates it again under the same name as soon as the API server allows it, as
/// CAPM3 does.
async fn recreate(consumer: &Consumer, name: &str, pool: &str) {
    consumer.delete(name).await;
    eventually("the claim is created again", || async {
        consumer
            .try_create_claim(name, KIND, pool, json!({}))
            .await
            .ok()
            .map(drop)
    })
    .await;
}

/// The names of the claims of nine machines with three addresses each.
fn claims_of_machines() -> Vec<String> {
    let names = (0..9).flat_map(|machine| {
        ["provisioning", "baremetal", "storage"].map(|it| format!("m{machine}-{it}"))
    });
    names.collect()
}

async fn recreated_claims_keep_their_addresses(policy: Value) {
    let consumer = consumer().await;
    let mut spec =
        json!({"addresses": ["10.0.0.1-10.0.0.200"], "prefix": 24, "allocation": {"sticky": true}});
    json_patch::merge(&mut spec, &policy);
    consumer.create_pool("pool", spec).await;
    let names = claims_of_machines();
    // They get their addresses in another order than that of their names.
    for part in names.chunks(5).rev() {
        consumer.create_claims(part, "pool").await;
        consumer.wait_for_addresses(part).await;
    }
    let before = consumer.allocated_addresses().await;
    for round in 0..3 {
        join_all(names.iter().map(|name| recreate(&consumer, name, "pool"))).await;
        consumer.wait_for_addresses(&names).await;
        let after = consumer.allocated_addresses().await;
        let kept = names
            .iter()
            .filter(|name| before.get(*name) == after.get(*name))
            .count();
        assert_eq!(
            (kept, after.len()),
            (27, 27),
            "round {round}: {before:?} {after:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_claims_keep_their_addresses_without_cooldown() {
    recreated_claims_keep_their_addresses(json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_claims_keep_their_addresses_with_cooldown() {
    recreated_claims_keep_their_addresses(json!({"addressReuseGracePeriodSeconds": 600})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_claims_keep_random_addresses() {
    recreated_claims_keep_their_addresses(json!({"allocation": {"order": "Random"}})).await;
}

#[tokio::test]
async fn absent_claims_do_not_exhaust_a_sticky_pool() {
    let consumer = consumer().await;
    consumer
        .create_pool(
            "pool",
            ("10.0.0.1-10.0.0.3", json!({"allocation": {"sticky": true}})),
        )
        .await;
    for name in ["a", "b", "c"] {
        consumer.bind(name, "pool").await;
    }
    consumer
        .claim_waits("waiting", "pool", "PoolExhausted")
        .await;
    consumer.release("b").await;
    consumer.assert_address("waiting", "10.0.0.2").await;
    for name in ["c", "a"] {
        consumer.release(name).await;
        // The times of releases have a precision of one second.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    consumer.wait_for_counts("pool", (3, 2, 1, 0)).await;
    // The address that was released first is allocated first.
    for (name, address) in [("d", "10.0.0.3"), ("a", "10.0.0.1")] {
        consumer.bind_to(name, "pool", address).await;
    }
    consumer.wait_for_counts("pool", (3, 0, 3, 0)).await;
    let holders = [
        ("10.0.0.1", "a"),
        ("10.0.0.2", "waiting"),
        ("10.0.0.3", "d"),
    ];
    consumer.wait_for_reservations("pool", &holders).await;
    for name in ["a", "d", "waiting"] {
        consumer.release(name).await;
    }
    consumer.delete_unused_pool(&consumer.pools(), "pool").await;
    consumer.wait_for_reservations("pool", &[]).await;
}

#[tokio::test]
async fn cooling_address_is_only_for_the_claim_of_its_name() {
    let consumer = consumer().await;
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 600,
                      "allocation": {"sticky": true}});
    consumer.create_pool("pool", spec).await;
    consumer.bind("a", "pool").await;
    consumer.release("a").await;
    assert_contains(
        &consumer.claim_waits("other", "pool", "PoolExhausted").await,
        "1 cooling down until",
    );
    consumer.bind_to("a", "pool", "10.0.0.1").await;
    consumer.release("a").await;
    // After the cool-down, others get it.
    consumer
        .modify_pool("pool", |spec| {
            spec["addressReuseGracePeriodSeconds"] = json!(1)
        })
        .await;
    consumer.assert_address("other", "10.0.0.1").await;
    consumer.claim_waits("a", "pool", "PoolExhausted").await;
}

#[tokio::test]
async fn prefixes_and_global_pools_are_sticky() {
    let consumer = consumer().await;
    let pool = unique("sticky");
    let policy = json!({"sticky": true});
    let spec = json!({"prefixes": ["fd00:10::/48"], "allocation": policy});
    consumer
        .create_pool_of(InClusterKind::PrefixPool, "prefixes", spec)
        .await;
    let spec = json!({"addresses": ["fd00:20::/64"], "prefix": 64, "allocation": policy, "limits": {"perNamespace": 2}});
    consumer.create_global_pool(&pool, spec).await;
    let kinds = [
        (InClusterKind::PrefixPool, "prefixes"),
        (InClusterKind::GlobalIPPool, pool.as_str()),
    ];
    for (kind, pool) in kinds {
        let names = ["x", "y"].map(|name| format!("{name}-{}", kind.name().to_lowercase()));
        for name in &names {
            consumer.bind_of(kind, name, pool).await;
        }
        let before: BTreeMap<_, _> = consumer.allocated_addresses().await;
        consumer.release_all(&names).await;
        for name in names.iter().rev() {
            assert_eq!(consumer.bind_of(kind, name, pool).await, before[name]);
        }
    }
}

#[tokio::test]
async fn restored_address_ends_its_memory() {
    let consumer = consumer().await;
    let spec =
        json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24, "allocation": {"sticky": true}});
    consumer.create_pool("pool", spec).await;
    consumer.bind("a", "pool").await;
    consumer.release("a").await;
    assert!(
        consumer
            .reservation("pool", "10.0.0.1")
            .await
            .is_some_and(|it| it.spec.released_at.is_some())
    );
    // An operator restores the IPAddress of the claim, and that of another claim with a kept
    // address.
    consumer.create_address("a", "pool", "10.0.0.1").await;
    consumer.bind_to("a", "pool", "10.0.0.1").await;
    consumer.release("a").await;
    consumer.create_address("b", "pool", "10.0.0.1").await;
    consumer.bind_to("b", "pool", "10.0.0.1").await;
    consumer
        .wait_for_reservations("pool", &[("10.0.0.1", "b")])
        .await;
}
