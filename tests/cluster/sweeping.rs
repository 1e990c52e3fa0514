//! The sweeper frees orphaned addresses, reserves addresses in use, and writes nothing else.

use capi_ipam_api::names;
use jiff::{SignedDuration, Timestamp};
use support::prelude::*;

use crate::{consumer, environment};

/// A consumer with a pool `web` of `count` addresses.
async fn with_pool(count: u8) -> Consumer {
    let consumer = consumer().await;
    consumer.create_pool("web", pool_spec(count)).await;
    consumer
}

fn pool_spec(count: u8) -> Value {
    json!({"addresses": [format!("10.0.0.1-10.0.0.{count}")], "prefix": 24})
}

fn pool_reference(kind: InClusterKind, name: &str) -> Value {
    json!({"apiGroup": names::GROUP, "kind": kind.name(), "name": name})
}

/// The reserved addresses of the pool `web`.
async fn reserved(consumer: &Consumer) -> BTreeSet<String> {
    let scope = format!("p.{}.web", consumer.namespace);
    let reservations = consumer.reservations();
    let all = retry_unanswered(|| reservations.list())
        .await
        .expect("reservations can be read");
    all.into_iter()
        .filter(|all| all.spec.scope == scope)
        .map(|all| all.spec.address)
        .collect()
}

/// The names of the IPAddress objects of the namespace.
async fn given(consumer: &Consumer) -> BTreeSet<String> {
    consumer.allocated_addresses().await.into_keys().collect()
}

/// Waits until only these objects exist, and asserts that they stay.
async fn assert_only_these_stay<F: Future<Output = BTreeSet<String>>>(
    expected: &[&str],
    look: impl Fn() -> F,
) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let look = || async { look().await == expected };
    eventually(&format!("only {expected:?} are left"), || async {
        look().await.then_some(())
    })
    .await;
    consistently(&format!("{expected:?} and nothing else"), look).await;
}

#[tokio::test]
async fn address_of_a_missing_claim_is_removed() {
    let consumer = with_pool(20).await;
    let shared = unique("shared");
    consumer.create_global_pool(&shared, pool_spec(5)).await;
    consumer.bind_to("bound", "web", "10.0.0.1").await;

    // Nothing is removed before all objects exist.
    consumer.pause_pool("web").await;
    let web = pool_reference(InClusterKind::IPPool, "web");
    for (name, address) in [
        ("left", "10.0.0.2"),
        ("twice", "10.0.0.1"),
        ("outside", "10.0.9.9"),
        ("in-use", "10.0.0.4"),
    ] {
        consumer
            .create_leftover_address(name, web.clone(), address)
            .await;
    }
    consumer.create_address("by-hand", "web", "10.0.0.3").await;
    let global = pool_reference(InClusterKind::GlobalIPPool, &shared);
    consumer
        .create_leftover_address("global", global, "10.0.0.5")
        .await;
    let addresses = consumer.addresses();
    let finalizers = json!([names::PROTECT_ADDRESS, "example.com/in-use"]);
    consumer
        .modify(&addresses, "in-use", |made| {
            made["metadata"]["finalizers"] = finalizers.clone()
        })
        .await;
    consumer.wait_for_counts("web", (20, 16, 4, 1)).await;
    consumer.resume_pool("web").await;

    assert_only_these_stay(&["bound", "by-hand", "in-use"], || given(&consumer)).await;
    consumer.wait_for_counts("web", (20, 17, 3, 0)).await;
    consumer
        .wait_for_counts_of(InClusterKind::GlobalIPPool, &shared, (5, 5, 0, 0))
        .await;
    consumer.set_finalizers(&addresses, "in-use", &[]).await;
    consumer.wait_for_counts("web", (20, 18, 2, 0)).await;
}

#[tokio::test]
async fn address_of_a_missing_claim_and_a_missing_pool_is_removed() {
    let consumer = consumer().await;
    let missing = pool_reference(InClusterKind::IPPool, "missing");
    consumer
        .create_leftover_address("leftover", missing, "10.0.0.5")
        .await;
    assert_only_these_stay(&[], || given(&consumer)).await;
}

#[tokio::test]
async fn manually_created_address_is_kept_and_reported() {
    let consumer = with_pool(2).await;
    consumer.create_address("router", "web", "10.0.0.1").await;
    consumer.wait_for_counts("web", (2, 1, 1, 0)).await;
    consumer
        .wait_for_event("router", "Warning", "NoClaim", "10.0.0.1")
        .await;
    consumer.bind_to("a", "web", "10.0.0.2").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consistently("the manually created address exists", || async {
        given(&consumer).await.contains("router")
    })
    .await;
    // A claim of the same name adopts it.
    consumer.bind_to("router", "web", "10.0.0.1").await;
}

#[tokio::test]
async fn foreign_and_paused_addresses_are_kept() {
    let consumer = with_pool(20).await;
    consumer.create_pool("held", pool_spec(5)).await;
    consumer.pause_pool("held").await;
    consumer.create_cluster("alpha", true).await;
    for (name, group, kind) in [
        (
            "other-group",
            "ipam.example.com",
            InClusterKind::IPPool.name(),
        ),
        ("other-kind", "ipam.cluster.x-k8s.io", "Foo"),
    ] {
        let pool = json!({"apiGroup": group, "kind": kind, "name": "web"});
        consumer
            .create_leftover_address(name, pool, "10.0.0.1")
            .await;
    }
    let pool = |name: &str| json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": name});
    consumer
        .create_leftover_address("in-paused-pool", pool("held"), "10.0.0.1")
        .await;
    consumer
        .create_address_in_cluster("in-paused-cluster", "web", "10.0.0.2", "alpha")
        .await;
    consumer.wait_for_counts("held", (5, 4, 1, 0)).await;
    consumer.wait_for_counts("web", (20, 19, 1, 0)).await;

    // Created last: when it is removed, the others would be too.
    consumer
        .create_leftover_address("left", pool("web"), "10.0.0.3")
        .await;
    let kept = [
        "in-paused-cluster",
        "in-paused-pool",
        "other-group",
        "other-kind",
    ];
    assert_only_these_stay(&kept, || given(&consumer)).await;
    consumer.create_claim("a", "web").await;
    assert_eq!(
        consumer.wait_for_address("a").await,
        "10.0.0.1",
        "an address of another provider is not in use here"
    );

    consumer.resume_pool("held").await;
    consumer
        .modify(&consumer.clusters(), "alpha", |cluster| {
            cluster["spec"]["paused"] = json!(false)
        })
        .await;
    assert_only_these_stay(&["a", "other-group", "other-kind"], || given(&consumer)).await;
}

#[tokio::test]
async fn only_orphaned_reservations_are_freed() {
    let consumer = with_pool(20).await;
    let namespace = &consumer.namespace;
    consumer.bind_to("bound", "web", "10.0.0.1").await;
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let unbound = consumer
        .create_claim_with_metadata("unbound", "web", metadata)
        .await;
    consumer.wait_for_reason("unbound", "Paused").await;
    let bound = consumer.the_claim("bound").await;
    let of =
        |name: &str, uid: Option<String>| json!({"namespace": namespace, "name": name, "uid": uid});
    // These stay: of an unbound claim, for a claim name, and without claim.
    consumer
        .reserve("web", "10.0.0.5", of("unbound", unbound.uid()))
        .await;
    consumer
        .reserve(
            "web",
            "10.0.0.6",
            json!({"namespace": namespace, "name": "later"}),
        )
        .await;
    consumer.reserve("web", "10.0.0.7", json!(null)).await;
    // These are freed: of a claim that never existed, of a previous claim of the name, of a claim
    // with another address.
    consumer
        .reserve("web", "10.0.0.8", of("never", Some("dead".to_owned())))
        .await;
    consumer
        .reserve("web", "10.0.0.9", of("unbound", Some("dead".to_owned())))
        .await;
    consumer
        .reserve("web", "10.0.0.10", of("bound", bound.uid()))
        .await;

    assert_only_these_stay(&["10.0.0.1", "10.0.0.5", "10.0.0.6", "10.0.0.7"], || {
        reserved(&consumer)
    })
    .await;
    consumer.wait_for_counts("web", (20, 16, 1, 0)).await;
    consumer
        .set_paused(&consumer.claims(), "unbound", false)
        .await;
    consumer.assert_address("unbound", "10.0.0.5").await;
    consumer.assert_address("bound", "10.0.0.1").await;
}

#[tokio::test]
async fn orphaned_addresses_are_freed_in_batches() {
    let consumer = with_pool(20).await;
    for last in 1..=12 {
        let claim = json!({"namespace": consumer.namespace, "name": format!("c{last}"), "uid": format!("dead-{last}")});
        consumer
            .reserve("web", &format!("10.0.0.{last}"), claim)
            .await;
    }
    eventually("all are freed", || async {
        reserved(&consumer).await.is_empty().then_some(())
    })
    .await;
    // By the timestamps of the log, since the test may poll late. It lacks deletions that were not
    // answered in time.
    let namespace = format!("namespace=\"{}\"", consumer.namespace);
    let freed = eventually("the log reports most of them", || async {
        let log = environment().manager.log();
        let lines = log.lines().filter(|line| {
            line.contains("released an abandoned reservation") && line.contains(&namespace)
        });
        let times: Vec<Timestamp> = lines
            .filter_map(|line| line.split(' ').next()?.parse().ok())
            .collect();
        (times.len() >= 6).then_some(times)
    })
    .await;
    // Five per pass, and one pass per second.
    for six in freed.windows(6) {
        let took = six[5].duration_since(six[0]);
        assert!(
            took >= SignedDuration::from_millis(900),
            "six are freed in {took:?}"
        );
    }
    consumer.wait_for_counts("web", (20, 20, 0, 0)).await;
}

/// The claims are removed without their release, as by somebody who removes the finalizers, or with
/// a namespace.
#[tokio::test]
async fn addresses_of_force_removed_claims_cool_down() {
    let consumer = consumer().await;
    let mut spec = pool_spec(20);
    spec["addressReuseGracePeriodSeconds"] = json!(3600);
    consumer.create_pool("web", spec).await;
    let names: Vec<String> = (1..=8).map(|number| format!("c{number}")).collect();
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;
    // Of a claim that is bound to another address, and of one that never existed.
    let bound = consumer.the_claim("c1").await;
    let of = |name: &str, uid: Option<String>| json!({"namespace": consumer.namespace, "name": name, "uid": uid});
    consumer
        .reserve("web", "10.0.0.19", of("c1", bound.uid()))
        .await;
    consumer
        .reserve("web", "10.0.0.20", of("never", Some("dead".to_owned())))
        .await;
    let reservations = || async {
        let scope = format!("p.{}.web", consumer.namespace);
        let client = consumer.reservations();
        let all = retry_unanswered(|| client.list())
            .await
            .expect("reservations can be read");
        let ours = all.into_iter().filter(|found| found.spec.scope == scope);
        ours.map(|found| (found.uid().unwrap_or_default(), found))
            .collect::<BTreeMap<_, _>>()
    };
    let before: BTreeSet<String> = reservations().await.into_keys().collect();

    let claims = consumer.claims();
    for name in &names {
        // The manager does not release an address while another controller keeps its claim.
        let held = json!(["ipam.cluster.x-k8s.io/ReleaseAddress", "example.com/in-use"]);
        consumer
            .modify(&claims, name, |claim| {
                claim["metadata"]["finalizers"] = held.clone()
            })
            .await;
        consumer.delete(name).await;
    }
    for name in &names {
        let patch = json!([{"op": "replace", "path": "/metadata/finalizers", "value": []}]);
        retry_unanswered(|| claims.patch(name, object(patch.clone())))
            .await
            .expect("finalizers can be removed");
    }
    assert_only_these_stay(&[], || given(&consumer)).await;
    until("all addresses cool down", async || {
        let found = reservations().await;
        assert_eq!(
            found.keys().cloned().collect::<BTreeSet<_>>(),
            before,
            "no reservation is deleted"
        );
        Some(found.values().all(|found| found.spec.released_at.is_some()))
    })
    .await;
    consumer.bind_to("next", "web", "10.0.0.9").await;
}

#[tokio::test]
async fn lost_reservation_of_a_bound_claim_is_recreated() {
    let consumer = with_pool(2).await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    let claim = consumer
        .claims()
        .get("a")
        .await
        .expect("claims can be read");
    consumer.wait_for_counts("web", (2, 1, 1, 0)).await;
    let lost = format!("p.{}.web.10.0.0.1", consumer.namespace);
    let before = read(&consumer.reservations(), &lost).await;
    consumer
        .delete_object(&consumer.reservations(), &lost)
        .await;
    consumer.create_claim("b", "web").await;
    consumer.create_claim("c", "web").await;
    let after = eventually("the reservation is recreated", || async {
        let address = consumer.the_address("a").await;
        assert_eq!(address.spec.address, "10.0.0.1");
        let found = consumer
            .reservations()
            .get(&lost)
            .await
            .expect("reservations can be read")?;
        assert_eq!(found.spec, before.spec, "no other claim gets the address");
        Some(found)
    });
    assert_ne!(after.await.uid(), before.uid());
    let (served, waits) = eventually("one of the two is bound", || async {
        let given = given(&consumer).await;
        [("b", "c"), ("c", "b")]
            .into_iter()
            .find(|(served, _)| given.contains(*served))
    })
    .await;
    consumer.assert_address(served, "10.0.0.2").await;
    consumer.wait_for_reason(waits, "PoolExhausted").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", served)])
        .await;
    consumer.wait_for_counts("web", (2, 0, 2, 0)).await;
    assert_eq!(
        consumer
            .claims()
            .get("a")
            .await
            .expect("claims can be read"),
        claim,
        "the claim is not touched"
    );
}
