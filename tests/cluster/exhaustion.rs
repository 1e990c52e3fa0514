//! Exhausted pools: which claims wait, what they report, and which one is next.

use support::prelude::*;

use crate::consumer;

/// `count` addresses from 10.0.0.1.
fn addresses(count: u8) -> Value {
    json!([format!("10.0.0.1-10.0.0.{count}")])
}

/// Creates claims for a pool, each after the previous one is bound or waiting.
async fn claim_in_turn(consumer: &Consumer, pool: &str, names: &[&str]) {
    for name in names {
        consumer.create_claim(name, pool).await;
        until(&format!("claim {name} is bound or waits"), async || {
            let claim = consumer.claims().get(name).await.ok().flatten()?;
            let waits = ready(&claim).reason.as_deref() == Some("PoolExhausted");
            Some(waits || claim.bound_address().is_some())
        })
        .await;
    }
}

/// A consumer with a pool `web` of `count` addresses, and claims for it that were created one after
/// the other.
async fn with_queue(count: u8, names: &[&str]) -> Consumer {
    let consumer = consumer().await;
    consumer
        .create_pool("web", json!({"addresses": addresses(count), "prefix": 24}))
        .await;
    claim_in_turn(&consumer, "web", names).await;
    consumer
}

/// Asserts that the IPAddress objects of the namespace are exactly these: claim and last byte of
/// the address.
async fn assert_allocated(consumer: &Consumer, expected: &[(&str, u8)]) {
    let expected = expected
        .iter()
        .map(|(claim, last)| ((*claim).to_owned(), format!("10.0.0.{last}")));
    assert_eq!(
        consumer.allocated_addresses().await,
        expected.collect::<BTreeMap<_, _>>()
    );
}

#[tokio::test]
async fn oldest_claims_bind_and_others_report_exhaustion() {
    let consumer = with_queue(2, &["a", "b"]).await;
    consumer.wait_for_address("a").await;
    consumer.wait_for_address("b").await;
    consumer.wait_for_counts("web", (2, 0, 2, 0)).await;
    claim_in_turn(&consumer, "web", &["c", "d", "e"]).await;
    assert_allocated(&consumer, &[("a", 1), ("b", 2)]).await;
    for name in ["c", "d", "e"] {
        let text = consumer.wait_for_reason(name, "PoolExhausted").await;
        let pool = format!("InClusterIPPool {}/web", consumer.namespace);
        for part in [pool.as_str(), "2 in total", "2 in use", "add addresses"] {
            assert!(text.contains(part), "{part:?} is missing: {text}");
        }
        let claim = consumer.the_claim(name).await;
        let legacy = json!(claim.status)["deprecated"]["v1beta1"]["conditions"][0].clone();
        assert_eq!([&legacy["type"], &legacy["status"]], ["Ready", "False"]);
        assert_eq!(
            [&legacy["reason"], &legacy["severity"], &legacy["message"]],
            ["PoolExhausted", "Warning", &text]
        );
        assert_eq!(
            consumer
                .wait_for_event(name, "Warning", "PoolExhausted", &text)
                .await,
            text
        );
    }
    consumer.assert_stays_unbound("c").await;
    assert_allocated(&consumer, &[("a", 1), ("b", 2)]).await;
    consumer.wait_for_counts("web", (2, 0, 2, 0)).await;
}

#[tokio::test]
async fn release_binds_the_next_waiting_claim() {
    let consumer = with_queue(2, &["a", "b", "c", "d", "e"]).await;
    for (released, next, given) in [
        ("b", "c", [("a", 1), ("c", 2)]),
        ("a", "d", [("d", 1), ("c", 2)]),
        ("d", "e", [("e", 1), ("c", 2)]),
    ] {
        consumer.release(released).await;
        consumer.wait_for_address(next).await;
        assert_allocated(&consumer, &given).await;
    }
}

#[tokio::test]
async fn two_releases_bind_the_next_two_waiting_claims() {
    let consumer = with_queue(3, &["a", "b", "c", "d", "e", "f", "g"]).await;
    consumer.delete("c").await;
    consumer.delete("a").await;
    consumer.wait_for_address("d").await;
    consumer.wait_for_address("e").await;
    consumer.assert_stays_unbound("f").await;
    let given: Vec<_> = consumer.allocated_addresses().await.into_keys().collect();
    assert_eq!(given, ["b", "d", "e"]);
}

#[tokio::test]
async fn grown_pool_binds_as_many_waiting_claims_as_it_can() {
    let consumer = with_queue(1, &["a", "b", "c", "d", "e"]).await;
    consumer
        .modify_pool("web", |spec| spec["addresses"] = addresses(3))
        .await;
    consumer.wait_for_address("b").await;
    consumer.wait_for_address("c").await;
    consumer.assert_stays_unbound("d").await;
    assert_eq!(
        consumer
            .allocated_addresses()
            .await
            .into_keys()
            .collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    consumer
        .modify_pool("web", |spec| spec["addresses"] = addresses(9))
        .await;
    consumer.wait_for_address("d").await;
    consumer.wait_for_address("e").await;
    consumer.wait_for_counts("web", (9, 4, 5, 0)).await;
}

#[tokio::test]
async fn any_freed_address_binds_the_next_waiting_claim() {
    let consumer = consumer().await;
    let spec = json!({"addresses": addresses(4), "prefix": 24, "excludedAddresses": ["10.0.0.1"], "gateway": "10.0.0.2"});
    consumer.create_pool("web", spec).await;
    consumer.reserve("web", "10.0.0.3", json!(null)).await;
    consumer.wait_for_counts("web", (2, 1, 0, 0)).await;
    claim_in_turn(&consumer, "web", &["a", "b", "c", "d"]).await;
    assert_allocated(&consumer, &[("a", 4)]).await;

    consumer
        .modify_pool("web", |spec| spec["excludedAddresses"] = json!([]))
        .await;
    consumer.assert_address("b", "10.0.0.1").await;
    consumer
        .modify_pool("web", |spec| spec["gateway"] = json!("10.0.0.9"))
        .await;
    consumer.assert_address("c", "10.0.0.2").await;
    consumer.delete_reservation("web", "10.0.0.3").await;
    consumer.assert_address("d", "10.0.0.3").await;
}

#[tokio::test]
async fn deleted_waiting_claim_does_not_block_the_queue() {
    let consumer = with_queue(1, &["a", "b", "c", "d"]).await;
    consumer.release("b").await;
    consumer.release("a").await;
    consumer.wait_for_address("c").await;
    assert_allocated(&consumer, &[("c", 1)]).await;
    // The waiting claim is deleted at the moment of its turn, and recreated as a new claim.
    claim_in_turn(&consumer, "web", &["e"]).await;
    consumer.delete("d").await;
    consumer.delete("c").await;
    consumer.wait_for_address("e").await;
    consumer.wait_until_deleted("d").await;
    assert_allocated(&consumer, &[("e", 1)]).await;
}

#[tokio::test]
async fn paused_waiting_claim_keeps_its_position_without_blocking() {
    let consumer = with_queue(1, &["a", "b", "c", "d"]).await;
    consumer.set_paused(&consumer.claims(), "b", true).await;
    consumer.wait_for_reason("b", "Paused").await;
    consumer.release("a").await;
    consumer.wait_for_address("c").await;
    consumer.set_paused(&consumer.claims(), "b", false).await;
    consumer.wait_for_reason("b", "PoolExhausted").await;
    consumer.release("c").await;
    consumer.wait_for_address("b").await;
    assert_allocated(&consumer, &[("b", 1)]).await;
}

#[tokio::test]
async fn new_claim_does_not_overtake_a_waiting_one() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let consumer = with_queue(1, &names[..2]).await;
    for turn in names.windows(3) {
        let [holder, waiter, newcomer] = turn else {
            panic!("windows have three items")
        };
        tokio::join!(
            consumer.delete(holder),
            consumer.create_claim(newcomer, "web")
        );
        consumer.wait_for_address(waiter).await;
        consumer.wait_for_reason(newcomer, "PoolExhausted").await;
        assert_allocated(&consumer, &[(waiter, 1)]).await;
    }
}

#[tokio::test]
async fn global_pool_has_one_queue_for_all_namespaces() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    one.create_global_pool(&pool, json!({"addresses": addresses(1), "prefix": 24}))
        .await;
    one.bind_global("a", &pool).await;
    let line = [(&two, "z"), (&one, "b"), (&two, "a")];
    for (team, name) in line {
        assert_contains(
            &team.global_claim_waits(name, &pool, "PoolExhausted").await,
            &format!("GlobalInClusterIPPool {pool} has no free address"),
        );
    }
    let mut holder = (&one, "a");
    for next in line {
        holder.0.release(holder.1).await;
        next.0.assert_address(next.1, "10.0.0.1").await;
        holder = next;
    }
    assert_eq!(
        (
            one.allocated_addresses().await.len(),
            two.allocated_addresses().await.len()
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn burst_beyond_capacity_binds_every_address_once() {
    let consumer = consumer().await;
    let shared = unique("shared");
    let pools = [
        (InClusterKind::IPPool, "web"),
        (InClusterKind::GlobalIPPool, shared.as_str()),
    ];
    for (kind, pool) in pools {
        consumer
            .create_pool_of(kind, pool, json!({"addresses": addresses(5), "prefix": 24}))
            .await;
        let names: Vec<_> = (0..20).map(|_| unique("claim")).collect();
        join_all(
            names
                .iter()
                .map(|name| consumer.create_claim_of(kind, name, pool)),
        )
        .await;
        let expected = [vec!["AddressAllocated"; 5], vec!["PoolExhausted"; 15]].concat();
        until_within(
            Duration::from_mins(3),
            "five claims are bound, and the others wait",
            || async {
                let claims = consumer.claims().list().await.ok()?;
                let reasons = claims
                    .iter()
                    .map(|claim| ready(claim).reason.unwrap_or_default().into_owned());
                let mut reasons: Vec<String> = reasons.collect();
                reasons.sort();
                Some(reasons == expected)
            },
        )
        .await;
        let mut given: Vec<_> = consumer.allocated_addresses().await.into_values().collect();
        given.sort();
        assert_eq!(
            given,
            ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]
        );
        consumer.release_all(&names).await;
        consumer.wait_for_counts_of(kind, pool, (5, 5, 0, 0)).await;
    }
}

#[tokio::test]
async fn waiting_claim_learns_that_its_pool_has_stopped() {
    let consumer = consumer().await;
    let exhausted = json!({"addresses": ["10.0.0.1"], "prefix": 24, "gateway": "10.0.0.1"});
    for pool in ["gone", "held", "refused"] {
        consumer.create_pool(pool, exhausted.clone()).await;
        consumer.create_claim(pool, pool).await;
    }
    for claim in ["gone", "held", "refused"] {
        consumer.wait_for_reason(claim, "PoolExhausted").await;
    }
    consumer.delete_pool("gone").await;
    consumer.set_paused(&consumer.pools(), "held", true).await;
    consumer
        .modify_pool("refused", |spec| spec["network"] = json!("missing"))
        .await;
    let others = format!(
        "InClusterIPPool {0}/gone does not exist; create it, or delete the claim, so that its controller creates it with \
         another pool: a claim cannot be changed; pools of the namespace {0}: InClusterIPPool {0}/held and \
         InClusterIPPool {0}/refused",
        consumer.namespace
    );
    consumer
        .wait_for_message("gone", "PoolNotReady", &others)
        .await;
    consumer.wait_for_reason("held", "PoolNotReady").await;
    consumer
        .wait_for_message("refused", "PoolNotReady", "missing")
        .await;
    // It is served when the pool can allocate again.
    consumer
        .modify_pool("held", |spec| {
            spec["addresses"] = json!(["10.0.0.1-10.0.0.2"])
        })
        .await;
    consumer.resume_pool("held").await;
    consumer.assert_address("held", "10.0.0.2").await;
}
