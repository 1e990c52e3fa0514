//! Manually created reservations: valid ones are accepted and respected, those without effect are
//! denied with a reason.

use capi_ipam::admission::routes::VALIDATE_RESERVATION;
use capi_ipam_api::{
    InClusterKind::{GlobalIPPool, IPPool, PrefixPool},
    PoolKey, Scope, Slot,
};
use capi_ipam_ip::Block;
use support::{prelude::*, webhooks::direct::review};

use crate::{
    Environment,
    api_client::{ApiClient, JSON, Response, parse},
    shared,
};

const RESERVATIONS: &str = "/apis/ipam.cluster.x-k8s.io/v1alpha2/ipreservations";

/// A consumer with a pool `web` of the addresses 10.0.0.1 to 10.0.0.9.
struct Team {
    consumer: Consumer,
    client: ApiClient,
}

impl Team {
    async fn new() -> Self {
        Self::on(shared()).await
    }

    async fn on(shared: &Environment) -> Self {
        let consumer = Consumer::new(&shared.plane).await;
        consumer
            .create_pool("web", ("10.0.0.1-10.0.0.9", json!({"gateway": "10.0.0.9"})))
            .await;
        consumer.wait_until_pool_ready("web").await;
        let client = ApiClient::new(&consumer);
        Self { consumer, client }
    }

    /// A reservation of an address of the pool, merged with `change`.
    fn reservation(&self, address: &str, change: &Value) -> Value {
        let scope = format!("p.{}.web", self.consumer.namespace);
        let mut reservation = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": {"name": format!("{scope}.{address}")},
            "spec": {"scope": scope, "address": address,
                     "poolRef": {"kind": "InClusterIPPool", "namespace": self.consumer.namespace, "name": "web"}},
        });
        json_patch::merge(&mut reservation, change);
        reservation
    }

    async fn reserve(&self, address: &str, change: Value) -> Response {
        self.client
            .call(
                "POST",
                RESERVATIONS,
                JSON,
                &self.reservation(address, &change),
            )
            .await
    }

    /// Asserts that the webhook denies exactly this field. The API server may report the parent
    /// field, since a CRD rule may reject the object first.
    async fn assert_denied(&self, address: &str, change: Value, field: &str, text: &str) {
        let reservation = self.reservation(address, &change);
        let review = review("CREATE", "IPReservation", &Value::Null, &reservation);
        let response = parse(
            &shared()
                .webhooks
                .post_review(VALIDATE_RESERVATION, &review)
                .await,
        );
        response.assert_denied(422, field, text);
        assert_eq!(response.fields, [field], "{response:?}");
        let response = self.reserve(address, change).await;
        let about = |found: &String| field.starts_with(found.as_str()) || found.starts_with(field);
        assert!(
            response.code == 422 && response.fields.iter().any(about),
            "{response:?}"
        );
    }

    /// The fields of a reservation for a claim of the namespace.
    fn for_claim(&self, claim: &str) -> Value {
        json!({"spec": {"claimRef": {"namespace": self.consumer.namespace, "name": claim}}})
    }
}

#[tokio::test]
async fn reservations_work_for_all_kinds_and_networks() {
    let team = Team::new().await;
    let (global, lab) = (unique("global"), unique("lab"));
    let (consumer, client) = (&team.consumer, &team.client);
    client
        .create(
            GlobalIPPool,
            &global,
            &json!({"addresses": ["10.1.0.1-10.1.0.9"], "prefix": 24}),
        )
        .await
        .into_object();
    let net = json!({"addresses": ["10.2.0.1-10.2.0.9"], "prefix": 24, "network": lab});
    consumer.create_open_network(&lab).await;
    client.create(IPPool, "net", &net).await.into_object();
    client
        .create(PrefixPool, "blocks", &json!({"prefixes": ["fd00::/62"]}))
        .await
        .into_object();
    let namespace = &consumer.namespace;
    let cases = [
        (
            json!({"metadata": {"name": format!("g.{global}.10.1.0.1")},
                   "spec": {"scope": format!("g.{global}"), "address": "10.1.0.1",
                            "poolRef": {"kind": "GlobalInClusterIPPool", "namespace": null, "name": global}}}),
            (GlobalIPPool, global.as_str(), "10.1.0.1", (9, 8, 0, 0)),
        ),
        (
            json!({"metadata": {"name": format!("n.{lab}.10.2.0.1")},
                   "spec": {"scope": format!("n.{lab}"), "address": "10.2.0.1", "poolRef": {"name": "net"}}}),
            (IPPool, "net", "10.2.0.1", (9, 8, 0, 0)),
        ),
        (
            json!({"metadata": {"name": name_of_block(namespace)},
                   "spec": {"scope": format!("pp.{namespace}.blocks"), "address": "fd00:0:0:1::", "prefixLength": 64,
                            "poolRef": {"kind": "InClusterPrefixPool", "name": "blocks"}}}),
            (PrefixPool, "blocks", "fd00:0:0:1::", (4, 3, 0, 0)),
        ),
    ];
    for (number, (mut change, (kind, pool, address, counts))) in cases.into_iter().enumerate() {
        let claim = format!("vip{number}");
        json_patch::merge(&mut change, &team.for_claim(&claim));
        let response = eventually(
            "the webhook has observed the pool, so there is no warning",
            || async {
                let made = team
                    .client
                    .call(
                        "POST",
                        &format!("{RESERVATIONS}?dryRun=All"),
                        JSON,
                        &team.reservation(address, &change),
                    )
                    .await;
                (made.warnings.is_empty()).then_some(made)
            },
        )
        .await;
        assert_eq!(response.code, 201, "{response:?}");
        team.reserve(address, change).await.into_object();
        // A claim that the manager sees before the reservation gets any address.
        consumer.wait_for_counts_of(kind, pool, counts).await;
        consumer
            .create_claim_with(&claim, kind.name(), pool, json!({}))
            .await;
        consumer.assert_address(&claim, address).await;
    }
}

/// The name of the reservation of fd00:0:0:1::/64 for the pool of prefixes `blocks`.
fn name_of_block(namespace: &str) -> String {
    let block = Block::new("fd00:0:0:1::".parse().expect("this is an address"), 64);
    let pool = PoolKey::new(PrefixPool, Some(namespace), "blocks");
    Slot {
        scope: Scope::of(&pool, None),
        block,
    }
    .reservation_name()
}

#[tokio::test]
async fn reservation_without_effect_is_denied() {
    let team = Team::new().await;
    let outside = "does not contain this address";
    let length = json!({"spec": {"prefixLength": 24}});
    let nowhere = json!({"spec": {"poolRef": {"namespace": null}}});
    for (address, change, field, text) in [
        ("10.0.0.10", json!({}), "spec.address", outside),
        ("10.0.0.9", team.for_claim("vip"), "spec.address", outside),
        ("10.0.0.2", length, "spec.prefixLength", "10.0.0.0"),
        ("10.0.0.2", nowhere, "spec.poolRef", "namespace"),
    ] {
        team.assert_denied(address, change, field, text).await;
    }
}

#[tokio::test]
async fn address_in_use_cannot_be_reserved() {
    let team = Team::new().await;
    team.consumer.create_claim("holder", "web").await;
    let address = team.consumer.wait_for_address("holder").await;
    team.consumer.wait_for_counts("web", (8, 7, 1, 0)).await;
    // Reservations are cluster-scoped, so the message names no namespaced object.
    for change in [team.for_claim("vip"), json!({})] {
        let response = team.reserve(&address, change).await;
        response.assert_denied(422, "spec.address", "in use by an IPAddress (see");
        assert!(!response.message.contains("holder"), "{response:?}");
    }
    // Its claim already has a reservation of the same name.
    let response = team.reserve(&address, team.for_claim("holder")).await;
    assert_eq!(
        (response.code, response.reason.as_str()),
        (409, "AlreadyExists")
    );
}

#[tokio::test]
async fn reservation_for_a_missing_pool_is_warned_about() {
    let team = Team::new().await;
    let namespace = &team.consumer.namespace;
    let other = json!({"metadata": {"name": format!("p.{namespace}.db.10.0.0.1")},
                       "spec": {"scope": format!("p.{namespace}.db"), "poolRef": {"name": "db"}}});
    let response = team.reserve("10.0.0.1", other).await;
    let text = format!("spec.poolRef: InClusterIPPool {namespace}/db does not exist");
    assert_eq!((response.code, &response.warnings), (201, &vec![text]));
    // It is respected when the pool is created.
    team.consumer.create_pool("db", "10.0.0.1-10.0.0.2").await;
    team.consumer.bind_to("a", "db", "10.0.0.2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_and_releasing_call_no_webhook() {
    let shared = Environment::start(&[]);
    let team = Team::on(&shared).await;
    // From now on the API server calls a port without a server.
    let unreachable = Webhooks::new(&shared.plane);
    unreachable.register_with_ca(&shared.plane, &unreachable.authority());
    until("no reservation can be created manually", async || {
        let response = team
            .client
            .call(
                "POST",
                &format!("{RESERVATIONS}?dryRun=All"),
                JSON,
                &team.reservation("10.0.0.9", &json!({})),
            )
            .await;
        Some(response.message.contains("failed calling webhook"))
    })
    .await;
    let names: Vec<String> = numbered("c", 8);
    team.consumer.create_claims(&names, "web").await;
    assert_eq!(team.consumer.wait_for_addresses(&names).await.len(), 8);
    team.consumer.release_all(&names).await;
    team.consumer.wait_for_counts("web", (8, 8, 0, 0)).await;
    // Counts, conditions and labels of the pool call no webhook.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    team.client.patch(IPPool, "web", &label).await.into_object();
    let change = json!({"spec": {"gateway": null}});
    team.client
        .patch(IPPool, "web", &change)
        .await
        .assert_denied(500, "", "failed calling webhook");
}
