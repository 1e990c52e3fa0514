//! What counts as abandoned: the annotation `release-now`, and the comparison of addresses with
//! those of Machines. The time limit of a pool is tested in `tests/rollout/reclaim.rs`.

use capi_ipam_provider::api::{
    conditions::{self, Condition},
    names,
};
use support::prelude::*;

use crate::consumer;

const IN_USE: &str = "example.com/in-use";

async fn uid_of(consumer: &Consumer, claim: &str) -> String {
    let claim = consumer.the_claim(claim).await;
    claim.uid().expect("objects have a uid")
}

async fn create_used_claim(consumer: &Consumer, name: &str, pool: &str) -> String {
    consumer
        .bind_with_metadata(name, pool, json!({"finalizers": [IN_USE]}))
        .await
}

/// Sets the annotation that requests the release, or removes it.
async fn request_release(consumer: &Consumer, name: &str, value: Option<&str>) {
    let change = json!({"metadata": {"annotations": {names::RELEASE_NOW_ANNOTATION: value}}});
    consumer
        .modify(&consumer.claims(), name, |claim| {
            json_patch::merge(claim, &change)
        })
        .await;
}

/// The notes of the warning events on a claim with this reason.
async fn warnings(consumer: &Consumer, claim: &str, reason: &str) -> Vec<String> {
    let events = consumer.events(claim).await.into_iter();
    events
        .filter(|event| event.0 == "Warning" && event.1 == reason)
        .map(|event| event.2)
        .collect()
}

async fn remove_foreign_finalizer(consumer: &Consumer, name: &str) {
    consumer
        .modify(&consumer.claims(), name, |claim| {
            let all = claim["metadata"]["finalizers"]
                .as_array_mut()
                .expect("the claim has finalizers");
            all.retain(|finalizer| finalizer != IN_USE);
        })
        .await;
}

#[tokio::test]
async fn release_now_releases_the_address_of_one_claim() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.2").await;
    let address = create_used_claim(&consumer, "a", "web").await;
    let kept = create_used_claim(&consumer, "kept", "web").await;
    consumer.claim_waits("next", "web", "PoolExhausted").await;
    for name in ["a", "kept"] {
        consumer.delete(name).await;
    }
    let uid = uid_of(&consumer, "a").await;
    request_release(&consumer, "a", Some(&uid)).await;
    consumer.assert_address("next", &address).await;
    let text = consumer.wait_until_unready("a", "ReleasedEarly").await;
    assert!(
        text.contains("release-now") && text.ends_with(&format!("on the claim: {IN_USE}")),
        "{text}"
    );
    let released = eventually("our finalizer is removed", || async {
        let found = consumer.the_claim("a").await;
        (!found
            .finalizers()
            .iter()
            .any(|name| name == names::RELEASE_ADDRESS))
        .then_some(found)
    })
    .await;
    assert_eq!(released.finalizers(), [IN_USE]);
    consumer
        .wait_for_event("a", "Warning", "ReleasedEarly", IN_USE)
        .await;
    assert_eq!(warnings(&consumer, "a", "ReleasedEarly").await.len(), 1);
    consumer
        .wait_for_reservations("web", &[(&address, "next"), (&kept, "kept")])
        .await;
    let text = consumer.wait_until_unready("kept", "Deleting").await;
    assert!(text.ends_with(&format!("removed: {IN_USE}")), "{text}");
    // The sweeper passes several times: the remaining claim takes nothing from the new one.
    consistently("both addresses stay allocated", || async {
        let found = consumer.allocated_addresses().await;
        found.get("next") == Some(&address)
            && found.get("kept") == Some(&kept)
            && !found.contains_key("a")
    })
    .await;
    for name in ["a", "kept"] {
        remove_foreign_finalizer(&consumer, name).await;
        consumer.wait_until_deleted(name).await;
    }
}

#[tokio::test]
async fn release_now_without_deletion_or_uid_is_ignored() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    let address = create_used_claim(&consumer, "a", "web").await;
    let uid = uid_of(&consumer, "a").await;
    let reason = "ReleaseRequestIgnored";
    request_release(&consumer, "a", Some(&uid)).await;
    consumer
        .wait_for_event(
            "a",
            "Warning",
            reason,
            "not being deleted; remove the annotation",
        )
        .await;
    request_release(&consumer, "a", Some("true")).await;
    consumer
        .wait_for_event(
            "a",
            "Warning",
            reason,
            "has no effect: the claim is not being deleted",
        )
        .await;
    consumer.delete("a").await;
    let ignored = format!("is not the uid of the claim, which is {uid}");
    consumer
        .wait_for_event("a", "Warning", reason, &ignored)
        .await;
    request_release(&consumer, "a", Some(&"x".repeat(100_000))).await;
    request_release(&consumer, "a", None).await;
    consumer.wait_until_unready("a", "Deleting").await;
    consistently("the address stays allocated", || async {
        consumer.allocated_addresses().await.get("a") == Some(&address)
    })
    .await;
    assert_eq!(
        warnings(&consumer, "a", reason).await.len(),
        3,
        "each is reported once"
    );
    remove_foreign_finalizer(&consumer, "a").await;
    consumer.wait_until_deleted("a").await;
}

#[tokio::test]
async fn release_now_waits_while_the_claim_is_paused() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    let address = create_used_claim(&consumer, "a", "web").await;
    consumer.set_paused(&consumer.claims(), "a", true).await;
    consumer.delete("a").await;
    let uid = uid_of(&consumer, "a").await;
    request_release(&consumer, "a", Some(&uid)).await;
    consistently("a paused claim keeps its address", || async {
        consumer.allocated_addresses().await.get("a") == Some(&address)
    })
    .await;
    consumer.set_paused(&consumer.claims(), "a", false).await;
    eventually("the address is released", || async {
        consumer
            .allocated_addresses()
            .await
            .is_empty()
            .then_some(())
    })
    .await;
    remove_foreign_finalizer(&consumer, "a").await;
    consumer.wait_until_deleted("a").await;
}

#[tokio::test]
async fn release_now_keeps_an_address_with_finalizers() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    create_used_claim(&consumer, "a", "web").await;
    let held = json!([names::PROTECT_ADDRESS, "example.com/held"]);
    consumer
        .modify(&consumer.addresses(), "a", |address| {
            address["metadata"]["finalizers"] = held.clone()
        })
        .await;
    consumer.delete("a").await;
    let uid = uid_of(&consumer, "a").await;
    request_release(&consumer, "a", Some(&uid)).await;
    let last = eventually("the claim reports what it waits for", || async {
        let found = consumer.the_claim("a").await;
        let reported = ready(&found);
        let is_blocked = reported
            .message
            .unwrap_or_default()
            .contains("are removed from IPAddress a");
        (is_blocked && reported.reason.as_deref() == Some("ReleasedEarly")).then_some(found)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        consumer.the_claim("a").await.resource_version(),
        last.resource_version(),
        "nothing is written meanwhile"
    );
    assert!(
        consumer
            .reservation("web", "10.0.0.1")
            .await
            .is_some_and(|found| found.spec.released_at.is_none())
    );
    consumer
        .set_finalizers(&consumer.addresses(), "a", &[])
        .await;
    until("the address is released", || async {
        Some(consumer.reservation("web", "10.0.0.1").await.is_none())
    })
    .await;
    until("the message is complete", async || {
        let found = consumer.the_claim("a").await;
        let message = ready(&found).message.unwrap_or_default();
        Some(message.ends_with(IN_USE) && found.finalizers() == [IN_USE])
    })
    .await;
    remove_foreign_finalizer(&consumer, "a").await;
    consumer.wait_until_deleted("a").await;
}

async fn create_machine(consumer: &Consumer, name: &str) -> Value {
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": name, "namespace": consumer.namespace},
        "spec": {"clusterName": "alpha", "bootstrap": {"dataSecretName": name}, "infrastructureRef": {
            "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ExampleMachine", "name": format!("infra-{name}")}},
    });
    let created = create(&consumer.machines(), &object(machine))
        .await
        .expect("the Machine can be created");
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "uid": created.uid()})
}

async fn set_machine_addresses(consumer: &Consumer, name: &str, addresses: &[&str]) {
    let list: Vec<Value> = addresses
        .iter()
        .map(|text| json!({"type": "InternalIP", "address": text}))
        .collect();
    consumer
        .modify(&consumer.machines(), name, |machine| {
            machine["status"] = json!({"addresses": list})
        })
        .await;
}

async fn in_use(consumer: &Consumer, name: &str) -> Option<Condition> {
    let found = consumer.the_claim(name).await;
    conditions::find(&found.status?.conditions, conditions::IN_USE).cloned()
}

async fn wait_for_use(consumer: &Consumer, name: &str, status: &str, reason: &str) -> String {
    eventually(&format!("{name} reports {status}"), || async {
        let found = in_use(consumer, name).await?;
        let is_expected = found.status == status && found.reason.as_deref() == Some(reason);
        is_expected.then(|| found.message.unwrap_or_default())
    })
    .await
}

#[tokio::test]
async fn addresses_are_compared_with_those_of_machines() {
    let consumer = consumer().await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24});
    consumer.create_pool("plain", spec.clone()).await;
    let mut checked = spec;
    checked["reclaim"] = json!({"verify": "Report"});
    consumer.create_pool("checked", checked).await;
    let owner = create_machine(&consumer, "m").await;
    let infrastructure = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ExampleMachine",
                                "name": "infra-m", "uid": "00000000-0000-4000-8000-000000000000"});
    for (name, pool, owners) in [
        ("direct", "checked", json!([owner])),
        ("infra", "checked", json!([infrastructure])),
        ("alone", "checked", json!([])),
        ("plain", "plain", json!([owner])),
    ] {
        consumer
            .bind_with_metadata(name, pool, json!({"ownerReferences": owners}))
            .await;
    }
    let before = consumer.allocated_addresses().await;
    wait_for_use(&consumer, "alone", "Unknown", "MachineNotFound").await;
    for name in ["direct", "infra"] {
        wait_for_use(&consumer, name, "Unknown", "MachineWithoutAddresses").await;
    }
    set_machine_addresses(
        &consumer,
        "m",
        &["m.example.com", &before["direct"], &before["infra"]],
    )
    .await;
    for name in ["direct", "infra"] {
        wait_for_use(&consumer, name, "True", "MachineHasAddress").await;
    }
    set_machine_addresses(&consumer, "m", &["10.9.9.9", &before["infra"]]).await;
    let text = wait_for_use(&consumer, "direct", "False", "MachineLacksAddress").await;
    assert!(
        text.starts_with("Machine m reports ") && text.contains("10.9.9.9"),
        "{text}"
    );
    consumer
        .wait_for_event("direct", "Warning", "AddressNotInUse", "10.9.9.9")
        .await;
    wait_for_use(&consumer, "infra", "True", "MachineHasAddress").await;
    let written = consumer.the_claim("direct").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        consumer.the_claim("direct").await.resource_version(),
        written.resource_version(),
        "no write at rest"
    );
    assert_eq!(
        warnings(&consumer, "direct", "AddressNotInUse").await.len(),
        1
    );
    assert_eq!(
        (
            consumer.allocated_addresses().await,
            ready(&written).status.as_ref()
        ),
        (before, "True")
    );
    assert_eq!(in_use(&consumer, "plain").await, None);
    consumer
        .modify_pool("checked", |spec| {
            spec["reclaim"] = json!({"verify": "None"})
        })
        .await;
    for name in ["direct", "infra", "alone"] {
        until("the condition is removed", || async {
            Some(in_use(&consumer, name).await.is_none())
        })
        .await;
    }
}

#[tokio::test]
async fn leftover_report_is_removed() {
    let consumer = consumer().await;
    consumer.create_pool("plain", "10.0.0.1").await;
    consumer.bind("reported", "plain").await;
    // As if the pool had been checked, and no manager had run when this ended.
    let condition = json!({"type": conditions::IN_USE, "status": "False", "reason": "MachineLacksAddress", "message": "",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let written = consumer
        .modify(&consumer.claims(), "reported", |claim| {
            claim["status"]["conditions"]
                .as_array_mut()
                .expect("a bound claim has conditions")
                .push(condition.clone());
        })
        .await;
    assert!(conditions::find(&written.status.unwrap().conditions, conditions::IN_USE).is_some());
    until("the condition is removed", || async {
        Some(in_use(&consumer, "reported").await.is_none())
    })
    .await;
    assert_eq!(ready(&consumer.the_claim("reported").await).status, "True");
}
