//! Damaged IPAddress objects, and IPAddress objects without a claim.

use capi_ipam_provider::api::IPAddress;
use support::prelude::*;

use crate::{wait_until_ready, with_claims};

/// Waits until the IPAddress of a bound claim is restored, and asserts that it is the same object.
async fn wait_until_repaired(consumer: &Consumer, before: &IPAddress) {
    eventually("the IPAddress is as it was", || async {
        let found = consumer.addresses().get(&before.name_any()).await.ok()??;
        let owners = |address: &IPAddress| {
            address
                .owner_references()
                .iter()
                .map(|owner| owner.uid.clone())
                .collect::<BTreeSet<_>>()
        };
        let same = owners(&found) == owners(before)
            && found.metadata.finalizers == before.metadata.finalizers
            && found.spec == before.spec;
        assert_eq!(found.uid(), before.uid(), "it is not recreated");
        same.then_some(())
    })
    .await;
    wait_until_ready(consumer, &before.name_any()).await;
    consumer.wait_for_address(&before.name_any()).await;
}

#[tokio::test]
async fn wrong_owner_references_are_repaired() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let before = consumer.wait_for_ip_address("a").await;
    let dead = "00000000-0000-0000-0000-000000000000";
    let damages: [fn(&mut Value, &str); 4] = [
        // The owner is a deleted claim of the same name.
        |owners, dead| owners[0]["uid"] = json!(dead),
        |owners, _| *owners = json!([owners[0]]),
        |owners, _| *owners = json!([owners[1]]),
        |owners, _| *owners = json!([]),
    ];
    for damage in damages {
        consumer
            .modify(&consumer.addresses(), "a", |address| {
                damage(&mut address["metadata"]["ownerReferences"], dead)
            })
            .await;
        wait_until_repaired(&consumer, &before).await;
    }
    consumer.assert_address("b", "10.0.0.2").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
}

/// The references of an IPAddress are immutable: a mismatch is reported and not repaired, and
/// cleared when it is fixed.
#[tokio::test]
async fn address_with_a_wrong_reference_is_reported_and_kept() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let before = consumer.wait_for_ip_address("a").await;
    for (field, wrong) in [
        ("/spec/claimRef/name", "b"),
        ("/spec/poolRef/name", "other"),
    ] {
        let set = |value: &str| {
            let field = field.to_owned();
            let value = json!(value);
            move |address: &mut Value| {
                *address.pointer_mut(&field).expect("the field exists") = value.clone()
            }
        };
        consumer
            .modify(&consumer.addresses(), "a", set(wrong))
            .await;
        until(
            &format!("claim a reports that {field} is wrong"),
            async || {
                let claim = consumer.claims().get("a").await.ok()??;
                assert_eq!(claim.bound_address(), Some("a"));
                Some(ready(&claim).reason.as_deref() == Some("AllocationFailed"))
            },
        )
        .await;
        // The address stays in use in its pool.
        let name = format!("new-{wrong}");
        consumer.create_claim(&name, "web").await;
        assert_ne!(consumer.wait_for_address(&name).await, "10.0.0.1");
        let right = json!(before)
            .pointer(field)
            .and_then(Value::as_str)
            .expect("the field exists")
            .to_owned();
        consumer
            .modify(&consumer.addresses(), "a", set(&right))
            .await;
        wait_until_repaired(&consumer, &before).await;
    }
}

#[tokio::test]
async fn address_changed_to_a_duplicate_is_reported() {
    let consumer = with_claims(9, &["a", "b"]).await;
    consumer
        .modify(&consumer.addresses(), "b", |address| {
            address["spec"]["address"] = json!("10.0.0.1")
        })
        .await;
    until(
        "claim b reports that its address is a duplicate",
        async || {
            let claim = consumer.claims().get("b").await.ok()??;
            assert_eq!(claim.bound_address(), Some("b"));
            Some(ready(&claim).reason.as_deref() == Some("DuplicateAddress"))
        },
    )
    .await;
    consumer.assert_address("a", "10.0.0.1").await;
    for name in ["c", "d"] {
        consumer.create_claim(name, "web").await;
        let address = consumer.wait_for_address(name).await;
        assert_ne!(address, "10.0.0.1");
    }
}

#[tokio::test]
async fn invalid_address_is_reported_and_kept() {
    let consumer = with_claims(9, &["a"]).await;
    for bad in [
        "10.0.0.999",
        "10.0.0.01",
        "10.0.0.1/24",
        "10.0.0.1%eth0",
        "1",
    ] {
        consumer
            .modify(&consumer.addresses(), "a", |address| {
                address["spec"]["address"] = json!(bad)
            })
            .await;
        // No other claim gets the address, which a machine uses.
        let name = format!("new-{}", bad.len());
        consumer.create_claim(&name, "web").await;
        assert_ne!(consumer.wait_for_address(&name).await, "10.0.0.1", "{bad}");
        consumer.release(&name).await;
    }
    let claim = consumer.the_claim("a").await;
    assert_eq!(claim.bound_address(), Some("a"));
    consumer
        .modify(&consumer.addresses(), "a", |address| {
            address["spec"]["address"] = json!("10.0.0.1")
        })
        .await;
    wait_until_ready(&consumer, "a").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a")])
        .await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (9, 9, 0, 0)).await;
}
