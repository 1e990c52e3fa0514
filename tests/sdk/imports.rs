//! What a test or an import does with single claims, without the controller of claims.

use capi_ipam_controller::{controller::Action, events::EventPublisher};
use capi_ipam_provider::{
    advanced::{ClaimOptions, PoolView, new_ip_address},
    api::{ContractVersion, IPAddressClaim},
    prelude::{Allocation, ClaimReconciler, WatchedPools},
};
use support::prelude::*;

use crate::{
    consumer,
    environment::{Bare, BarePool, Environment, apply_pool, define_kinds},
};

/// A consumer with a claim for the pool `pool`.
async fn consumer_with_claim() -> (Consumer, IPAddressClaim) {
    define_kinds();
    let consumer = consumer().await;
    let pool = Environment::<Bare>::reference("pool");
    let claim = consumer.create_claim_for("a", pool, json!({})).await;
    (consumer, claim)
}

#[tokio::test(flavor = "multi_thread")]
async fn test_chooses_options_and_publishes_events() {
    let (consumer, _) = consumer_with_claim().await;
    let resync_interval = Duration::from_secs(7);
    let options = ClaimOptions {
        resync_interval,
        ..ClaimOptions::default()
    };
    let (events, publish) = EventPublisher::new(consumer.client.clone(), "test", "test");
    tokio::spawn(publish);
    let pools = WatchedPools::for_test(Bare::default(), &consumer.client);
    let reconciler = ClaimReconciler::for_test_with(pools, &consumer.client, options, events);
    let action = reconciler.reconcile_once(&consumer.namespace, "a").await;
    let action = action.expect("it is no failure");
    assert_eq!(action, Action::Requeue(resync_interval));
    consumer
        .wait_for_event("a", "Warning", "PoolNotReady", "pool")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_address_is_bound() {
    let (consumer, claim) = consumer_with_claim().await;
    let addresses = json!({"addresses": ["10.4.0.1", "10.4.0.2"]});
    apply_pool(&consumer, "BarePool", "pool", &addresses);
    let api: Api<BarePool> = Api::namespaced(consumer.client.clone(), &consumer.namespace);
    let pool = api.get("pool").await.expect("it exists");
    let view = PoolView::of(&pool);
    let allocation = Allocation::new([10, 4, 0, 2], 24);
    let address = new_ip_address(ContractVersion::ALL[0], &claim, &view, &allocation);
    let created = consumer.addresses().create(&address).await;
    let created = created.expect("the API server accepts it");
    let pools = WatchedPools::for_test(Bare::default(), &consumer.client);
    let reconciler = ClaimReconciler::for_test(pools, &consumer.client);
    let action = reconciler.reconcile_once(&consumer.namespace, "a").await;
    assert_eq!(action.expect("it is no failure"), Action::AwaitChange);
    let bound = consumer.wait_for_ip_address("a").await;
    assert_eq!(bound.metadata.uid, created.metadata.uid);
    assert_eq!(
        bound.metadata.resource_version,
        created.metadata.resource_version
    );
}
