//! Deleted pools and claims: pool and claim do not wait for each other, an invalid object blocks a
//! pool only while it exists, and a claim leaves nothing behind.

use capi_ipam_api::{
    conditions::DELETING,
    names::{GROUP, PROTECT_POOL},
};
use support::prelude::*;

use crate::{serving, unchanged};

/// More than the pause after which a deleted pool is reconciled again.
const DELETION_WAIT: Duration = Duration::from_secs(8);

/// A pool `web` of nine addresses that is being deleted and has the finalizer, while no manager
/// runs. `prepare` creates objects before the deletion.
async fn with_deleted_pool(plane: &ControlPlane, prepare: impl AsyncFnOnce(&Consumer)) -> Consumer {
    let consumer = Consumer::new(plane).await;
    let pool = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": InClusterKind::IPPool.name(),
        "metadata": {"name": "web", "namespace": consumer.namespace, "finalizers": [PROTECT_POOL]},
        "spec": {"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24},
    });
    create(&consumer.pools(), &object(pool))
        .await
        .expect("the pool can be created");
    prepare(&consumer).await;
    consumer.delete_pool("web").await;
    consumer
}

async fn wait_until_pool_deleted(consumer: &Consumer) {
    consumer.wait_until_pool_gone("web").await;
}

/// Creates a claim and a reservation for it: the state after a crash of the manager between the two
/// steps.
async fn reserved_claim(consumer: &Consumer, name: &str, address: &str) {
    let claim = consumer.create_claim(name, "web").await;
    let holder = json!({"namespace": consumer.namespace, "name": name, "uid": claim.uid()});
    consumer.reserve("web", address, holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_claim_is_bound_in_a_deleted_pool() {
    let plane = ControlPlane::new();
    let consumer = with_deleted_pool(&plane, async |consumer| {
        reserved_claim(consumer, "reserved", "10.0.0.5").await;
        consumer.create_claim("adopts", "web").await;
        consumer.create_address("adopts", "web", "10.0.0.7").await;
        consumer.create_claim("empty", "web").await;
    })
    .await;
    let _manager = serving(&plane, &[]);
    consumer.assert_address("reserved", "10.0.0.5").await;
    consumer.assert_address("adopts", "10.0.0.7").await;
    assert_contains(
        &consumer.wait_for_reason("empty", "PoolNotReady").await,
        "deleted",
    );
    consumer.assert_stays_unbound("empty").await;
    consumer
        .wait_for_pool_condition("web", "False", DELETING)
        .await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.5", "reserved"), ("10.0.0.7", "adopts")])
        .await;

    consumer.release("reserved").await;
    consumer.assert_address("adopts", "10.0.0.7").await;
    consumer.release("adopts").await;
    wait_until_pool_deleted(&consumer).await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_claim_with_a_reservation_unblocks_its_pool() {
    let plane = ControlPlane::new();
    let consumer = with_deleted_pool(&plane, async |consumer| {
        reserved_claim(consumer, "reserved", "10.0.0.5").await;
        consumer.delete("reserved").await;
    })
    .await;
    let _manager = serving(&plane, &[]);
    wait_until_pool_deleted(&consumer).await;
    consumer.wait_until_deleted("reserved").await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_address_blocks_its_pool_only_while_it_exists() {
    let plane = ControlPlane::new();
    // The default flags: the sweeper is not involved.
    let _manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    for (name, value) in [("mapped", "::ffff:10.0.0.5"), ("zoned", "fe80::1%eth0")] {
        consumer.create_pool("web", "10.0.0.5-10.0.0.6").await;
        until("the pool has the finalizer", async || {
            let pool = consumer.pools().get("web").await.ok()??;
            Some(
                pool.finalizers()
                    .iter()
                    .any(|finalizer| finalizer == PROTECT_POOL),
            )
        })
        .await;
        consumer.create_address(name, "web", value).await;
        consumer.delete_pool("web").await;
        consumer
            .wait_for_pool_condition("web", "False", DELETING)
            .await;
        let exists = async || {
            consumer
                .pools()
                .get("web")
                .await
                .expect("pools can be read")
                .is_some()
        };
        unchanged(
            &format!("the pool of {value}"),
            DELETION_WAIT,
            &true,
            exists,
        )
        .await;
        consumer.delete_object(&consumer.addresses(), name).await;
        wait_until_pool_deleted(&consumer).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_deleted_immediately_leaves_nothing_behind() {
    let plane = ControlPlane::new();
    // With the default flags the sweeper frees nothing that is abandoned for less than a minute.
    let manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    let names: Vec<_> = numbered("c", 30);
    for name in &names {
        consumer.create_claim(name, "web").await;
        consumer.delete(name).await;
    }
    for name in &names {
        consumer.wait_until_deleted(name).await;
    }
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
    consumer.wait_for_reservations("web", &[]).await;
    // The API server may delete a claim while it gets its finalizer. The manager cleans up without
    // the sweeper.
    let log = manager.log();
    let namespace = format!("namespace=\"{}\"", consumer.namespace);
    let swept = log
        .lines()
        .filter(|line| line.contains("in_cluster::repairs") && line.contains(&namespace));
    assert_eq!(swept.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_mapped_address_counts_as_in_use() {
    let (_plane, _manager, consumer) = scene_with_manager(&[]).await;
    consumer.create_pool("web", "10.0.0.5-10.0.0.6").await;
    consumer.wait_until_pool_ready("web").await;
    consumer
        .create_address("mapped", "web", "::ffff:10.0.0.5")
        .await;
    // The manager has observed it when it has observed this one, which was created later.
    consumer.create_address("marker", "web", "10.0.9.9").await;
    until("the manager has observed the later address", async || {
        let pool = consumer.pools().get("web").await.ok()??;
        Some(pool.status?.ip_addresses?.out_of_range >= 1)
    })
    .await;
    consumer.bind_to("a", "web", "10.0.0.6").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consumer.assert_stays_unbound("b").await;
    consumer
        .delete_object(&consumer.addresses(), "mapped")
        .await;
    consumer.assert_address("b", "10.0.0.5").await;
}
