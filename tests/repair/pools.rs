//! Pools that are changed or deleted under the addresses that are in use.

use capi_ipam::support::consumer::{eventually, ready, stays};
use capi_ipam::with_claims;
use kube::ResourceExt;
use serde_json::json;

#[tokio::test]
async fn a_pool_that_shrank_below_its_use_frees_nothing_and_repairs_all_the_same() {
    let consumer = with_claims(4, &["a", "b", "c"]).await;
    consumer.change_pool("web", |spec| spec["addresses"] = json!(["10.0.0.4"])).await;
    consumer.counts("web", (1, 1, 0, 3)).await;
    let text = consumer.says(&consumer.pools(), "web", "OutOfRange", "True", "AddressesOutOfRange").await;
    assert!(text.contains('3'), "{text}");
    // What is lost outside of the range comes back, too.
    let lost = format!("p.{}.web.10.0.0.1", consumer.namespace);
    consumer.remove(&consumer.reservations(), &lost).await;
    consumer.force_away(&consumer.addresses(), "b").await;
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c")]).await;
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        eventually(&format!("{name} has its IPAddress"), || async {
            consumer.addresses().get(name).await.ok()?.map(drop)
        })
        .await;
        assert_eq!(consumer.bound(name).await, address);
    }
    consumer.claim("d", "web").await;
    assert_eq!(consumer.bound("d").await, "10.0.0.4");
}

#[tokio::test]
async fn a_pool_deleted_with_claims_goes_on_repairing_and_stays() {
    let consumer = with_claims(4, &["a", "b"]).await;
    consumer.remove(&consumer.pools(), "web").await;
    consumer.pool_says("web", "False", "Deleting").await;
    consumer.claim("late", "web").await;
    consumer.waits_for("late", "PoolNotReady").await;
    consumer.change(&consumer.addresses(), "a", |address| address["metadata"]["labels"] = json!({"x": "y"})).await;
    stays("the addresses are there", || async { consumer.given().await.len() == 2 }).await;
    consumer.release("a").await;
    stays("the pool is there", || async { consumer.pools().get("web").await.is_ok_and(|pool| pool.is_some()) }).await;
    consumer.release("b").await;
    eventually("the pool is gone", || async {
        consumer.pools().get("web").await.expect("pools can be read").is_none().then_some(())
    })
    .await;
    consumer.delete("late").await;
    consumer.gone("late").await;
}

/// A pool that was removed by force and made anew has another uid.
#[tokio::test]
async fn addresses_of_a_pool_made_anew_are_still_taken() {
    let consumer = with_claims(4, &["a", "b"]).await;
    let pools = consumer.pools();
    let before = pools.get("web").await.expect("pools can be read").expect("it exists");
    consumer.force_away(&pools, "web").await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.4"], "prefix": 24})).await;
    consumer.claim("c", "web").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.3");
    let after = pools.get("web").await.expect("pools can be read").expect("it exists");
    assert_ne!(after.uid(), before.uid());
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
        assert_eq!(consumer.bound(name).await, address);
    }
    consumer.counts("web", (4, 1, 3, 0)).await;
}

/// Somebody made it with our pool's name, and holds on to it.
#[tokio::test]
async fn an_address_of_somebody_else_with_our_pool_is_taken_and_a_claim_of_its_name_is_told() {
    let consumer = with_claims(4, &["a"]).await;
    consumer.address_by_hand("foreign", "web", "10.0.0.2").await;
    let foreign =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "else", "uid": "00000000-0000-0000-0000-000000000001"});
    consumer
        .change(&consumer.addresses(), "foreign", |address| {
            address["metadata"]["finalizers"] = json!(["example.com/in-use"]);
            address["metadata"]["ownerReferences"] = json!([foreign]);
        })
        .await;
    consumer.counts("web", (4, 2, 2, 0)).await;
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.3");
    stays("it is left to its owner", || async { consumer.given().await.contains_key("foreign") }).await;
    let claim = consumer.claims().get("a").await.expect("claims can be read").expect("it exists");
    assert_eq!(ready(&claim).status, "True");
    consumer.force_away(&consumer.addresses(), "foreign").await;
    eventually("it is gone", || async { (!consumer.given().await.contains_key("foreign")).then_some(()) }).await;
    consumer.counts("web", (4, 2, 2, 0)).await;
}
