//! IPAddress objects that are damaged, or that nobody asked for.

use std::collections::BTreeSet;

use capi_ipam::support::consumer::{Consumer, eventually, ready};
use capi_ipam::{is_ready, with_claims};
use capi_ipam_provider::api::IPAddress;
use kube::ResourceExt;
use serde_json::{json, Value};

/// The IPAddress of a bound claim says what it should, and is the same object.
async fn is_mended(consumer: &Consumer, before: &IPAddress) {
    eventually("the IPAddress is as it was", || async {
        let found = consumer.addresses().get(&before.name_any()).await.ok()??;
        let owners = |address: &IPAddress| {
            address.owner_references().iter().map(|owner| owner.uid.clone()).collect::<BTreeSet<_>>()
        };
        let same = owners(&found) == owners(before)
            && found.metadata.finalizers == before.metadata.finalizers
            && found.spec == before.spec;
        assert_eq!(found.uid(), before.uid(), "it is not made anew");
        same.then_some(())
    })
    .await;
    is_ready(consumer, &before.name_any()).await;
    consumer.bound(&before.name_any()).await;
}

#[tokio::test]
async fn wrong_owners_are_put_right() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let before = consumer.bound_address("a").await;
    let dead = "00000000-0000-0000-0000-000000000000";
    let damages: [fn(&mut Value, &str); 4] = [
        // The claim is a dead one of the same name.
        |owners, dead| owners[0]["uid"] = json!(dead),
        |owners, _| *owners = json!([owners[0]]),
        |owners, _| *owners = json!([owners[1]]),
        |owners, _| *owners = json!([]),
    ];
    for damage in damages {
        consumer
            .change(&consumer.addresses(), "a", |address| damage(&mut address["metadata"]["ownerReferences"], dead))
            .await;
        is_mended(&consumer, &before).await;
    }
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
}

/// The references of an IPAddress never change: what does not fit is told and left, and is over when it is put right.
#[tokio::test]
async fn an_address_that_names_another_claim_or_pool_is_told_and_kept() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let before = consumer.bound_address("a").await;
    for (field, wrong) in [("/spec/claimRef/name", "b"), ("/spec/poolRef/name", "other")] {
        let set = |value: &str| {
            let field = field.to_owned();
            let value = json!(value);
            move |address: &mut Value| *address.pointer_mut(&field).expect("the field is there") = value.clone()
        };
        consumer.change(&consumer.addresses(), "a", set(wrong)).await;
        eventually(&format!("claim a says that {field} is wrong"), || async {
            let claim = consumer.claims().get("a").await.ok()??;
            assert_eq!(claim.bound_address(), Some("a"));
            (ready(&claim).reason.as_deref() == Some("AllocationFailed")).then_some(())
        })
        .await;
        // A pool that has another claim's address in use gives it to nobody else.
        let name = format!("new-{wrong}");
        consumer.claim(&name, "web").await;
        assert_ne!(consumer.bound(&name).await, "10.0.0.1");
        let right = json!(before).pointer(field).and_then(Value::as_str).expect("the field is there").to_owned();
        consumer.change(&consumer.addresses(), "a", set(&right)).await;
        is_mended(&consumer, &before).await;
    }
}

#[tokio::test]
async fn an_address_changed_to_that_of_another_claim_is_told_and_not_given_again() {
    let consumer = with_claims(9, &["a", "b"]).await;
    consumer.change(&consumer.addresses(), "b", |address| address["spec"]["address"] = json!("10.0.0.1")).await;
    eventually("claim b says that its address is a duplicate", || async {
        let claim = consumer.claims().get("b").await.ok()??;
        assert_eq!(claim.bound_address(), Some("b"));
        (ready(&claim).reason.as_deref() == Some("DuplicateAddress")).then_some(())
    })
    .await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    for name in ["c", "d"] {
        consumer.claim(name, "web").await;
        let address = consumer.bound(name).await;
        assert_ne!(address, "10.0.0.1");
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_told_and_kept() {
    let consumer = with_claims(9, &["a"]).await;
    for bad in ["10.0.0.999", "10.0.0.01", "10.0.0.1/24", "10.0.0.1%eth0", "1"] {
        consumer.change(&consumer.addresses(), "a", |address| address["spec"]["address"] = json!(bad)).await;
        // Nobody else gets the address, whose machine uses it.
        let name = format!("new-{}", bad.len());
        consumer.claim(&name, "web").await;
        assert_ne!(consumer.bound(&name).await, "10.0.0.1", "{bad}");
        consumer.release(&name).await;
    }
    let claim = consumer.claims().get("a").await.expect("claims can be read").expect("the claim exists");
    assert_eq!(claim.bound_address(), Some("a"));
    consumer.change(&consumer.addresses(), "a", |address| address["spec"]["address"] = json!("10.0.0.1")).await;
    is_ready(&consumer, "a").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.reserved("web", &[("10.0.0.1", "a")]).await;
    consumer.release("a").await;
    consumer.counts("web", (9, 9, 0, 0)).await;
}
