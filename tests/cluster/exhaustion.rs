//! Pools with nothing left: who waits, what the waiting claims say, and whose turn it is.

use std::collections::BTreeMap;

use capi_ipam::api::{GlobalInClusterIPPool, InClusterIPPool, Pool};
use capi_ipam::consumer;
use capi_ipam::support::consumer::{Consumer, eventually, ready, unique};
use futures::future::join_all;
use serde_json::{json, Value};

/// So many addresses from 10.0.0.1.
fn addresses(count: u8) -> Value {
    json!([format!("10.0.0.1-10.0.0.{count}")])
}

/// Makes claims for a pool, each once the one before it is bound or waits.
async fn claim_in_turn(consumer: &Consumer, pool: &str, names: &[&str]) {
    for name in names {
        consumer.claim(name, pool).await;
        eventually(&format!("claim {name} is bound or waits"), || async {
            let claim = consumer.claims().get(name).await.ok().flatten()?;
            let waits = ready(&claim).reason.as_deref() == Some("PoolExhausted");
            (waits || claim.bound_address().is_some()).then_some(())
        })
        .await;
    }
}

/// A consumer with a pool `web` of so many addresses, and claims for it that came one after the other.
async fn line(count: u8, names: &[&str]) -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": addresses(count), "prefix": 24})).await;
    claim_in_turn(&consumer, "web", names).await;
    consumer
}

/// The IPAddress objects of the namespace are exactly these: claim and last byte of the address.
async fn assert_given(consumer: &Consumer, expected: &[(&str, u8)]) {
    let expected = expected.iter().map(|(claim, last)| ((*claim).to_owned(), format!("10.0.0.{last}")));
    assert_eq!(consumer.given().await, expected.collect::<BTreeMap<_, _>>());
}

#[tokio::test]
async fn the_oldest_claims_bind_and_the_others_say_why_not() {
    let consumer = line(2, &["a", "b"]).await;
    consumer.bound("a").await;
    consumer.bound("b").await;
    consumer.counts("web", (2, 0, 2, 0)).await;
    claim_in_turn(&consumer, "web", &["c", "d", "e"]).await;
    assert_given(&consumer, &[("a", 1), ("b", 2)]).await;
    for name in ["c", "d", "e"] {
        let text = consumer.waits_for(name, "PoolExhausted").await;
        let pool = format!("InClusterIPPool {}/web", consumer.namespace);
        for part in [pool.as_str(), "2 in total", "2 in use", "add addresses"] {
            assert!(text.contains(part), "{part:?} is missing: {text}");
        }
        let claim = consumer.claims().get(name).await.expect("claims can be read").expect("the claim exists");
        let legacy = json!(claim.status)["deprecated"]["v1beta1"]["conditions"][0].clone();
        assert_eq!([&legacy["type"], &legacy["status"]], ["Ready", "False"]);
        assert_eq!([&legacy["reason"], &legacy["severity"], &legacy["message"]], ["PoolExhausted", "Warning", &text]);
        let event = ("Warning".to_owned(), "PoolExhausted".to_owned(), text);
        eventually("an event tells it", || async { consumer.events(name).await.contains(&event).then_some(()) }).await;
    }
    consumer.stays_unbound("c").await;
    assert_given(&consumer, &[("a", 1), ("b", 2)]).await;
    consumer.counts("web", (2, 0, 2, 0)).await;
}

#[tokio::test]
async fn each_release_serves_the_next_in_line() {
    let consumer = line(2, &["a", "b", "c", "d", "e"]).await;
    for (released, next, given) in
        [("b", "c", [("a", 1), ("c", 2)]), ("a", "d", [("d", 1), ("c", 2)]), ("d", "e", [("e", 1), ("c", 2)])]
    {
        consumer.release(released).await;
        consumer.bound(next).await;
        assert_given(&consumer, &given).await;
    }
}

#[tokio::test]
async fn two_releases_serve_the_next_two() {
    let consumer = line(3, &["a", "b", "c", "d", "e", "f", "g"]).await;
    consumer.delete("c").await;
    consumer.delete("a").await;
    consumer.bound("d").await;
    consumer.bound("e").await;
    consumer.stays_unbound("f").await;
    let given: Vec<_> = consumer.given().await.into_keys().collect();
    assert_eq!(given, ["b", "d", "e"]);
}

#[tokio::test]
async fn a_pool_that_grows_serves_as_many_as_it_has_addresses() {
    let consumer = line(1, &["a", "b", "c", "d", "e"]).await;
    consumer.change_pool("web", |spec| spec["addresses"] = addresses(3)).await;
    consumer.bound("b").await;
    consumer.bound("c").await;
    consumer.stays_unbound("d").await;
    assert_eq!(consumer.given().await.into_keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    consumer.change_pool("web", |spec| spec["addresses"] = addresses(9)).await;
    consumer.bound("d").await;
    consumer.bound("e").await;
    consumer.counts("web", (9, 4, 5, 0)).await;
}

#[tokio::test]
async fn whatever_frees_an_address_serves_the_line() {
    let consumer = consumer().await;
    let spec =
        json!({"addresses": addresses(4), "prefix": 24, "excludedAddresses": ["10.0.0.1"], "gateway": "10.0.0.2"});
    consumer.pool("web", spec).await;
    consumer.reserve("web", "10.0.0.3", json!(null)).await;
    consumer.counts("web", (2, 1, 0, 0)).await;
    claim_in_turn(&consumer, "web", &["a", "b", "c", "d"]).await;
    assert_given(&consumer, &[("a", 4)]).await;

    consumer.change_pool("web", |spec| spec["excludedAddresses"] = json!([])).await;
    assert_eq!(consumer.bound("b").await, "10.0.0.1");
    consumer.change_pool("web", |spec| spec["gateway"] = json!("10.0.0.9")).await;
    assert_eq!(consumer.bound("c").await, "10.0.0.2");
    let kept_out = format!("p.{}.web.10.0.0.3", consumer.namespace);
    consumer.remove(&consumer.reservations(), &kept_out).await;
    assert_eq!(consumer.bound("d").await, "10.0.0.3");
}

#[tokio::test]
async fn a_deleted_waiter_does_not_hold_up_the_line() {
    let consumer = line(1, &["a", "b", "c", "d"]).await;
    consumer.release("b").await;
    consumer.release("a").await;
    consumer.bound("c").await;
    assert_given(&consumer, &[("c", 1)]).await;
    // Now the waiter goes at the moment when it would be served, and comes back as somebody new.
    claim_in_turn(&consumer, "web", &["e"]).await;
    consumer.delete("d").await;
    consumer.delete("c").await;
    consumer.bound("e").await;
    consumer.gone("d").await;
    assert_given(&consumer, &[("e", 1)]).await;
}

#[tokio::test]
async fn a_paused_waiter_does_not_hold_up_the_line_and_keeps_its_place() {
    let consumer = line(1, &["a", "b", "c", "d"]).await;
    consumer.pause(&consumer.claims(), "b", true).await;
    consumer.waits_for("b", "Paused").await;
    consumer.release("a").await;
    consumer.bound("c").await;
    consumer.pause(&consumer.claims(), "b", false).await;
    consumer.waits_for("b", "PoolExhausted").await;
    consumer.release("c").await;
    consumer.bound("b").await;
    assert_given(&consumer, &[("b", 1)]).await;
}

#[tokio::test]
async fn a_newcomer_does_not_overtake() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let consumer = line(1, &names[..2]).await;
    for turn in names.windows(3) {
        let [holder, waiter, newcomer] = turn else { panic!("windows of three") };
        tokio::join!(consumer.delete(holder), consumer.claim(newcomer, "web"));
        consumer.bound(waiter).await;
        consumer.waits_for(newcomer, "PoolExhausted").await;
        assert_given(&consumer, &[(waiter, 1)]).await;
    }
}

#[tokio::test]
async fn one_line_for_all_namespaces_of_a_global_pool() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    one.global_pool(&pool, json!({"addresses": addresses(1), "prefix": 24})).await;
    one.global_claim("a", &pool).await;
    one.bound("a").await;
    let line = [(&two, "z"), (&one, "b"), (&two, "a")];
    for (team, name) in line {
        team.global_claim(name, &pool).await;
        let text = team.waits_for(name, "PoolExhausted").await;
        assert!(text.contains(&format!("GlobalInClusterIPPool {pool} has no free address")), "{text}");
    }
    let mut holder = (&one, "a");
    for next in line {
        holder.0.release(holder.1).await;
        assert_eq!(next.0.bound(next.1).await, "10.0.0.1");
        holder = next;
    }
    assert_eq!((one.given().await.len(), two.given().await.len()), (0, 1));
}

#[tokio::test]
async fn more_claims_than_addresses_at_once() {
    let consumer = consumer().await;
    let shared = unique("shared");
    let pools = [(InClusterIPPool::KIND.name(), "web"), (GlobalInClusterIPPool::KIND.name(), shared.as_str())];
    for (kind, pool) in pools {
        consumer.pool_of(kind, pool, json!({"addresses": addresses(5), "prefix": 24})).await;
        let names: Vec<_> = (0..20).map(|_| unique("claim")).collect();
        join_all(names.iter().map(|name| consumer.claim_with(name, kind, pool, json!({})))).await;
        let states = eventually("every claim is bound or waits", || async {
            let claims = consumer.claims().list().await.expect("claims can be read");
            let reasons = claims.iter().map(|claim| ready(claim).reason.unwrap_or_default().into_owned());
            let mut reasons: Vec<String> = reasons.collect();
            reasons.sort();
            reasons
                .iter()
                .all(|reason| ["AddressAllocated", "PoolExhausted"].contains(&reason.as_str()))
                .then_some(reasons)
        });
        assert_eq!(states.await, [vec!["AddressAllocated"; 5], vec!["PoolExhausted"; 15]].concat());
        let mut given: Vec<_> = consumer.given().await.into_values().collect();
        given.sort();
        assert_eq!(given, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]);
        join_all(names.iter().map(|name| consumer.delete(name))).await;
        join_all(names.iter().map(|name| consumer.gone(name))).await;
        consumer.counts_in(kind, pool, (5, 5, 0, 0)).await;
    }
}
