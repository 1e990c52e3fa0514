//! Objects of a provider that has no reservations.

use capi_ipam_api::{
    IPReservation,
    names::{GROUP, PROTECT_ADDRESS, RELEASE_ADDRESS},
};
use kube::Resource;
use support::prelude::*;

use crate::GLOBAL;

/// Creates a bound claim of a global pool and its IPAddress, without a reservation. No manager that
/// serves the namespace of the claim may run.
pub(crate) async fn create_bound_without_reservation(
    consumer: &Consumer,
    name: &str,
    pool: &str,
    address: &str,
) {
    let claim = consumer
        .create_claim_with(
            name,
            GLOBAL.name(),
            pool,
            json!({"finalizers": [RELEASE_ADDRESS]}),
        )
        .await;
    let pools = consumer.global_pools();
    let owner = read(&pools, pool).await;
    let reference = json!({"apiGroup": GROUP, "kind": GLOBAL.name(), "name": pool});
    consumer.create_address_for(name, reference, address).await;
    let owners = json!([
        owner_reference("v1beta2", "IPAddressClaim", claim.meta(), true),
        owner_reference("v1alpha2", GLOBAL.name(), owner.meta(), false),
    ]);
    let complete = |address: &mut Value| {
        address["metadata"]["finalizers"] = json!([PROTECT_ADDRESS]);
        address["metadata"]["ownerReferences"] = owners.clone();
    };
    consumer.modify(&consumer.addresses(), name, complete).await;
    consumer
        .modify(&consumer.claims(), name, |claim| {
            claim["status"]["addressRef"] = json!({"name": name})
        })
        .await;
}

fn owner_reference(
    version: &str,
    kind: &str,
    owner: &kube::api::ObjectMeta,
    controller: bool,
) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "name": owner.name, "uid": owner.uid,
        "controller": controller, "blockOwnerDeletion": true,
    })
}

/// Removes such a claim and its IPAddress, as the other provider does.
pub(crate) async fn release_without_reservation(consumer: &Consumer, name: &str) {
    consumer.force_delete(&consumer.addresses(), name).await;
    consumer.force_delete(&consumer.claims(), name).await;
    consumer.wait_until_deleted(name).await;
}

/// The reservation of an address of a global pool.
pub(crate) async fn global_reservation(
    consumer: &Consumer,
    pool: &str,
    address: &str,
) -> Option<IPReservation> {
    consumer
        .reservations()
        .get(&format!("g.{pool}.{address}"))
        .await
        .expect("reservations can be read")
}

/// Reserves an address of a global pool for a claim of the namespace with that uid.
pub(crate) async fn reserve_global(
    consumer: &Consumer,
    pool: &str,
    address: &str,
    claim: &str,
    uid: &str,
) -> String {
    let made: IPReservation = object(json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPReservation",
        "metadata": {"name": format!("g.{pool}.{address}")},
        "spec": {
            "scope": format!("g.{pool}"), "address": address, "poolRef": {"kind": GLOBAL.name(), "name": pool},
            "claimRef": {"namespace": consumer.namespace, "name": claim, "uid": uid},
        },
    }));
    let made = create(&consumer.reservations(), &made)
        .await
        .expect("the reservation can be created");
    made.uid().unwrap_or_default()
}
