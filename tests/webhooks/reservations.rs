//! Reservations that people make: what is good is taken and kept, what would do nothing is refused with the reason.

use capi_ipam::admission::routes::VALIDATE_RESERVATION;
use capi_ipam::api::InClusterKind::{GlobalIPPool, IPPool, PrefixPool};
use capi_ipam::api::{PoolKey, Scope, Slot};
use capi_ipam::ask::{Asker, JSON, read, Said};
use capi_ipam::support::consumer::{Consumer, eventually, unique};
use capi_ipam::support::webhooks::Webhooks;
use capi_ipam::support::webhooks::direct::review;
use capi_ipam::{wired, Wired};
use capi_ipam_ip::Block;
use serde_json::{json, Value};

const RESERVATIONS: &str = "/apis/ipam.cluster.x-k8s.io/v1alpha2/ipreservations";

/// Somebody with a pool `web` of the addresses 10.0.0.1 to 10.0.0.9.
struct Team {
    consumer: Consumer,
    asker: Asker,
}

impl Team {
    async fn new() -> Self {
        Self::on(wired()).await
    }

    async fn on(wired: &Wired) -> Self {
        let consumer = Consumer::new(&wired.plane).await;
        consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24, "gateway": "10.0.0.9"})).await;
        consumer.pool_says("web", "True", "PoolReady").await;
        let asker = Asker::new(&consumer);
        Self { consumer, asker }
    }

    /// A reservation of an address of the pool, with more fields or others.
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

    async fn reserve(&self, address: &str, change: Value) -> Said {
        self.asker.call("POST", RESERVATIONS, JSON, &self.reservation(address, &change)).await
    }

    /// The webhook refuses for exactly that field; at the API server, whoever refuses there, it may be the one around it.
    async fn refuses(&self, address: &str, change: Value, field: &str, text: &str) {
        let reservation = self.reservation(address, &change);
        let review = review("CREATE", "IPReservation", &Value::Null, &reservation);
        let said = read(&wired().webhooks.ask(VALIDATE_RESERVATION, &review).await);
        said.refused(422, field, text);
        assert_eq!(said.fields, [field], "{said:?}");
        let said = self.reserve(address, change).await;
        let about = |found: &String| field.starts_with(found.as_str()) || found.starts_with(field);
        assert!(said.code == 422 && said.fields.iter().any(about), "{said:?}");
    }

    /// The promise to a claim of the namespace.
    fn promise(&self, claim: &str) -> Value {
        json!({"spec": {"claimRef": {"namespace": self.consumer.namespace, "name": claim}}})
    }
}

#[tokio::test]
async fn a_promised_address_goes_to_its_claim_and_to_no_other() {
    let team = Team::new().await;
    let said = team.reserve("10.0.0.1", team.promise("vip")).await;
    assert_eq!((said.code, &said.warnings), (201, &Vec::new()), "{said:?}");
    team.consumer.counts("web", (8, 7, 0, 0)).await;
    for (name, expected) in [("early", "10.0.0.2"), ("vip", "10.0.0.1"), ("late", "10.0.0.3")] {
        team.consumer.claim(name, "web").await;
        assert_eq!(team.consumer.bound(name).await, expected);
    }
}

#[tokio::test]
async fn an_address_kept_out_is_given_to_nobody() {
    let team = Team::new().await;
    let said = team.reserve("10.0.0.1", json!({})).await;
    assert_eq!((said.code, &said.warnings), (201, &Vec::new()), "{said:?}");
    team.consumer.counts("web", (8, 7, 0, 0)).await;
    team.consumer.claim("a", "web").await;
    assert_eq!(team.consumer.bound("a").await, "10.0.0.2");
}

#[tokio::test]
async fn reservations_work_for_other_kinds_and_for_networks() {
    let team = Team::new().await;
    let (global, lab) = (unique("global"), unique("lab"));
    let (consumer, asker) = (&team.consumer, &team.asker);
    asker.create(GlobalIPPool, &global, &json!({"addresses": ["10.1.0.1-10.1.0.9"], "prefix": 24})).await.done();
    let net = json!({"addresses": ["10.2.0.1-10.2.0.9"], "prefix": 24, "network": lab});
    asker.create(IPPool, "net", &net).await.done();
    asker.create(PrefixPool, "blocks", &json!({"prefixes": ["fd00::/62"]})).await.done();
    let namespace = &consumer.namespace;
    let cases = [
        (
            json!({"metadata": {"name": format!("g.{global}.10.1.0.1")},
                   "spec": {"scope": format!("g.{global}"), "address": "10.1.0.1",
                            "poolRef": {"kind": "GlobalInClusterIPPool", "namespace": null, "name": global}}}),
            ("GlobalInClusterIPPool", global.as_str(), "10.1.0.1"),
        ),
        (
            json!({"metadata": {"name": format!("n.{lab}.10.2.0.1")},
                   "spec": {"scope": format!("n.{lab}"), "address": "10.2.0.1", "poolRef": {"name": "net"}}}),
            ("InClusterIPPool", "net", "10.2.0.1"),
        ),
        (
            json!({"metadata": {"name": name_of_block(namespace)},
                   "spec": {"scope": format!("pp.{namespace}.blocks"), "address": "fd00:0:0:1::", "prefixLength": 64,
                            "poolRef": {"kind": "InClusterPrefixPool", "name": "blocks"}}}),
            ("InClusterPrefixPool", "blocks", "fd00:0:0:1::"),
        ),
    ];
    for (number, (mut change, (kind, pool, address))) in cases.into_iter().enumerate() {
        let claim = format!("vip{number}");
        json_patch::merge(&mut change, &team.promise(&claim));
        let said = eventually("the pool is known, so there is no warning", || async {
            let made = team
                .asker
                .call("POST", &format!("{RESERVATIONS}?dryRun=All"), JSON, &team.reservation(address, &change))
                .await;
            (made.warnings.is_empty()).then_some(made)
        })
        .await;
        assert_eq!(said.code, 201, "{said:?}");
        team.reserve(address, change).await.done();
        consumer.claim_with(&claim, kind, pool, json!({})).await;
        assert_eq!(consumer.bound(&claim).await, address);
    }
}

/// The name of the reservation of fd00:0:0:1::/64 for the pool of prefixes `blocks`.
fn name_of_block(namespace: &str) -> String {
    let block = Block::new("fd00:0:0:1::".parse().expect("this is an address"), 64);
    let pool = PoolKey { kind: PrefixPool, namespace: Some(namespace.into()), name: "blocks".into() };
    Slot { scope: Scope::of(&pool, None), block }.reservation_name()
}

#[tokio::test]
async fn what_would_do_nothing_is_refused_with_field_and_reason() {
    let team = Team::new().await;
    let right = format!("p.{}.web", team.consumer.namespace);
    let outside = "does not give it out";
    team.refuses("10.0.0.10", json!({}), "spec.address", outside).await;
    team.refuses("10.0.0.9", team.promise("vip"), "spec.address", outside).await;
    let wrong_name = json!({"metadata": {"name": "mine"}});
    team.refuses("10.0.0.2", wrong_name, "metadata.name", &format!("{right}.10.0.0.2")).await;
    let other_address = json!({"metadata": {"name": format!("{right}.10.0.0.3")}});
    team.refuses("10.0.0.2", other_address, "metadata.name", "10.0.0.2").await;
    let wrong_scope = json!({"metadata": {"name": "g.web.10.0.0.2"}, "spec": {"scope": "g.web"}});
    team.refuses("10.0.0.2", wrong_scope, "spec.scope", &right).await;
    let no_network = json!({"metadata": {"name": "n.lab.10.0.0.2"}, "spec": {"scope": "n.lab"}});
    team.refuses("10.0.0.2", no_network, "spec.scope", &right).await;
    let unreadable = json!({"metadata": {"name": format!("{right}.10.0.0")}});
    team.refuses("10.0.0", unreadable, "spec.address", "10.0.0").await;
    let length = json!({"spec": {"prefixLength": 24}});
    team.refuses("10.0.0.2", length, "spec.prefixLength", "10.0.0.0").await;
    let kind = json!({"spec": {"poolRef": {"kind": "Pod"}}});
    team.refuses("10.0.0.2", kind, "spec.poolRef", "Pod").await;
    let nowhere = json!({"spec": {"poolRef": {"namespace": null}}});
    team.refuses("10.0.0.2", nowhere, "spec.poolRef", "namespace").await;
}

#[tokio::test]
async fn an_address_in_use_cannot_be_reserved() {
    let team = Team::new().await;
    team.consumer.claim("holder", "web").await;
    let address = team.consumer.bound("holder").await;
    team.consumer.counts("web", (8, 7, 1, 0)).await;
    // Reservations have no namespace, so the text names no object that has one.
    for change in [team.promise("vip"), json!({})] {
        let said = team.reserve(&address, change).await;
        said.refused(422, "spec.address", "it is in use by an IPAddress (see");
        assert!(!said.message.contains("holder"), "{said:?}");
    }
    // Its own claim has it already, by a reservation of that name.
    let said = team.reserve(&address, team.promise("holder")).await;
    assert_eq!((said.code, said.reason.as_str()), (409, "AlreadyExists"));
}

#[tokio::test]
async fn an_address_is_reserved_once() {
    let team = Team::new().await;
    team.reserve("10.0.0.5", team.promise("vip")).await.done();
    for change in [json!({}), team.promise("vip"), team.promise("other")] {
        let said = team.reserve("10.0.0.5", change).await;
        assert_eq!((said.code, said.reason.as_str()), (409, "AlreadyExists"));
    }
}

#[tokio::test]
async fn a_pool_that_is_not_there_is_warned_of() {
    let team = Team::new().await;
    let namespace = &team.consumer.namespace;
    let other = json!({"metadata": {"name": format!("p.{namespace}.db.10.0.0.1")},
                       "spec": {"scope": format!("p.{namespace}.db"), "poolRef": {"name": "db"}}});
    let said = team.reserve("10.0.0.1", other).await;
    let text = format!("spec.poolRef: there is no InClusterIPPool {namespace}/db");
    assert_eq!((said.code, &said.warnings), (201, &vec![text]));
    // It is kept all the same once there is such a pool.
    team.consumer.pool("db", json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24})).await;
    team.consumer.claim("a", "db").await;
    assert_eq!(team.consumer.bound("a").await, "10.0.0.2");
}

#[tokio::test]
async fn what_a_network_agreed_on_stays_while_it_has_pools() {
    let team = Team::new().await;
    let lab = unique("lab");
    let unit = format!("{RESERVATIONS}/n.{lab}.ipv4");
    let spec = json!({"addresses": ["10.3.0.1"], "prefix": 24, "network": lab});
    team.asker.create(IPPool, "one", &spec).await.done();
    team.asker.create(GlobalIPPool, &lab, &spec).await.done();
    let delete = async || team.asker.call("DELETE", &unit, JSON, &Value::Null).await;
    let text = format!("network {lab} still has GlobalInClusterIPPool {lab} and 1 namespaced pool;");
    eventually("both pools are known", || async {
        let said = team.asker.call("DELETE", &format!("{unit}?dryRun=All"), JSON, &Value::Null).await;
        said.message.contains(&text).then_some(())
    })
    .await;
    delete().await.refused(400, "", &text);
    team.asker.delete(IPPool, "one").await.done();
    team.asker.delete(GlobalIPPool, &lab).await.done();
    eventually("it can be deleted once there are no pools", || async {
        let said = delete().await;
        (said.is_ok() || said.code == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn reservations_that_people_made_can_be_deleted() {
    let team = Team::new().await;
    team.reserve("10.0.0.1", json!({})).await.done();
    let name = format!("{RESERVATIONS}/p.{}.web.10.0.0.1", team.consumer.namespace);
    team.asker.call("DELETE", &name, JSON, &Value::Null).await.done();
    team.consumer.counts("web", (8, 8, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_webhook_is_asked_to_bind_and_release_a_claim() {
    let wired = Wired::start(&[]);
    let team = Team::on(&wired).await;
    // From now on the API server asks where nobody listens.
    let nobody = Webhooks::new(&wired.plane);
    nobody.wire_with(&wired.plane, &nobody.authority());
    eventually("no reservation can be made by hand", || async {
        let said = team
            .asker
            .call("POST", &format!("{RESERVATIONS}?dryRun=All"), JSON, &team.reservation("10.0.0.9", &json!({})))
            .await;
        said.message.contains("failed calling webhook").then_some(())
    })
    .await;
    let names: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    team.consumer.claim_all(&names, "web").await;
    assert_eq!(team.consumer.all_bound(&names).await.len(), 8);
    for name in &names {
        team.consumer.release(name).await;
    }
    team.consumer.counts("web", (8, 8, 0, 0)).await;
    // Neither are the pool's counts and conditions a matter for webhooks, nor labels.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    team.asker.change(IPPool, "web", &label).await.done();
    let change = json!({"spec": {"gateway": null}});
    team.asker.change(IPPool, "web", &change).await.refused(500, "", "failed calling webhook");
}
