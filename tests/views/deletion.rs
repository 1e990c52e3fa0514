//! Deleted pools: pool and claim do not wait for each other, and what cannot be read blocks a pool only while it
//! exists.

use std::time::Duration;

use capi_ipam::api::conditions::DELETING;
use capi_ipam::api::names::{GROUP, PROTECT_POOL};
use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::support::consumer::{Consumer, eventually, object};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::{serving, unchanged};
use kube::ResourceExt;
use serde_json::json;

/// More than the pause after which a deleted pool is reconciled again.
const DELETION_WAIT: Duration = Duration::from_secs(8);

/// A pool `web` of nine addresses that is being deleted and has the finalizer, while no manager runs. `prepare` makes
/// what is there before the deletion.
async fn with_deleted_pool(plane: &ControlPlane, prepare: impl AsyncFnOnce(&Consumer)) -> Consumer {
    let consumer = Consumer::new(plane).await;
    let pool = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": InClusterIPPool::KIND.name(),
        "metadata": {"name": "web", "namespace": consumer.namespace, "finalizers": [PROTECT_POOL]},
        "spec": {"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24},
    });
    consumer.pools().create(&object(pool)).await.expect("the pool can be made");
    prepare(&consumer).await;
    consumer.remove(&consumer.pools(), "web").await;
    consumer
}

async fn pool_is_gone(consumer: &Consumer) {
    eventually("the pool is gone", || async {
        consumer.pools().get("web").await.expect("pools can be read").is_none().then_some(())
    })
    .await;
}

/// A claim, and the reservation of an address for it: what is left when its manager ends between the two steps.
async fn reserved_claim(consumer: &Consumer, name: &str, address: &str) {
    let claim = consumer.claim(name, "web").await;
    let holder = json!({"namespace": consumer.namespace, "name": name, "uid": claim.uid()});
    consumer.reserve("web", address, holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_with_a_reservation_is_bound_though_its_pool_is_deleted() {
    let plane = ControlPlane::start(Options::default());
    let consumer = with_deleted_pool(&plane, async |consumer| {
        reserved_claim(consumer, "reserved", "10.0.0.5").await;
        consumer.claim("adopts", "web").await;
        consumer.address_by_hand("adopts", "web", "10.0.0.7").await;
        consumer.claim("empty", "web").await;
    })
    .await;
    let _manager = serving(&plane, &[]);
    assert_eq!(consumer.bound("reserved").await, "10.0.0.5");
    assert_eq!(consumer.bound("adopts").await, "10.0.0.7");
    let text = consumer.waits_for("empty", "PoolNotReady").await;
    assert!(text.contains("deleted"), "{text}");
    consumer.stays_unbound("empty").await;
    consumer.pool_says("web", "False", DELETING).await;
    consumer.reserved("web", &[("10.0.0.5", "reserved"), ("10.0.0.7", "adopts")]).await;

    consumer.release("reserved").await;
    assert_eq!(consumer.bound("adopts").await, "10.0.0.7");
    consumer.release("adopts").await;
    pool_is_gone(&consumer).await;
    consumer.reserved("web", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_claim_with_a_reservation_lets_its_pool_go() {
    let plane = ControlPlane::start(Options::default());
    let consumer = with_deleted_pool(&plane, async |consumer| {
        reserved_claim(consumer, "reserved", "10.0.0.5").await;
        consumer.delete("reserved").await;
    })
    .await;
    let _manager = serving(&plane, &[]);
    pool_is_gone(&consumer).await;
    consumer.gone("reserved").await;
    consumer.reserved("web", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_address_blocks_its_pool_only_while_it_exists() {
    let plane = ControlPlane::start(Options::default());
    // The default flags: the sweeper has no part in it.
    let _manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    for (name, value) in [("mapped", "::ffff:10.0.0.5"), ("zoned", "fe80::1%eth0")] {
        consumer.pool("web", json!({"addresses": ["10.0.0.5-10.0.0.6"], "prefix": 24})).await;
        eventually("the pool has the finalizer", || async {
            let pool = consumer.pools().get("web").await.ok()??;
            pool.finalizers().iter().any(|finalizer| finalizer == PROTECT_POOL).then_some(())
        })
        .await;
        consumer.address_by_hand(name, "web", value).await;
        consumer.remove(&consumer.pools(), "web").await;
        consumer.pool_says("web", "False", DELETING).await;
        let exists = async || consumer.pools().get("web").await.expect("pools can be read").is_some();
        unchanged(&format!("the pool of {value}"), DELETION_WAIT, &true, exists).await;
        consumer.remove(&consumer.addresses(), name).await;
        pool_is_gone(&consumer).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn address_in_mapped_form_is_not_allocated() {
    let plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.5-10.0.0.6"], "prefix": 24})).await;
    consumer.pool_says("web", "True", "PoolReady").await;
    consumer.address_by_hand("mapped", "web", "::ffff:10.0.0.5").await;
    // Watched by the manager once this one is, which was made later.
    consumer.address_by_hand("marker", "web", "10.0.9.9").await;
    eventually("the manager knows the later address", || async {
        let pool = consumer.pools().get("web").await.ok()??;
        (pool.status?.ip_addresses?.out_of_range >= 1).then_some(())
    })
    .await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.6");
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolExhausted").await;
    consumer.stays_unbound("b").await;
    consumer.remove(&consumer.addresses(), "mapped").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.5");
}
