//! The conditions of claims, and how other controllers read them.

use support::prelude::*;

use crate::{consumer, environment};

/// The condition `Ready` of an object that aggregates the `v1beta1` conditions of its claims, as
/// the vSphere provider does on a VSphereVM: a claim without condition is still in progress, and
/// one that is False makes the aggregate False.
fn aggregated(claims: &[IPAddressClaim]) -> (bool, String) {
    let conditions: Vec<Value> = claims
        .iter()
        .filter_map(|claim| {
            let list = json!(claim.status)["deprecated"]["v1beta1"]["conditions"].take();
            list.as_array()?
                .iter()
                .find(|condition| condition["type"] == "Ready")
                .cloned()
        })
        .collect();
    let done = conditions
        .iter()
        .filter(|condition| condition["status"] == "True")
        .count();
    let reason = if conditions.len() < claims.len() {
        "being created"
    } else {
        "completed"
    };
    (
        conditions.len() == claims.len() && done == claims.len(),
        format!("{done}/{} {reason}", claims.len()),
    )
}

/// The condition of an object that mirrors `Ready` of its claim in `v1beta2`, by status, reason and
/// message.
fn mirrored(claim: &IPAddressClaim) -> (String, String, String) {
    let ready = ready(claim);
    (
        ready.status.into_owned(),
        ready.reason.unwrap_or_default().into_owned(),
        ready.message.unwrap_or_default(),
    )
}

#[tokio::test]
async fn conditions_are_correct_in_both_contract_versions() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.2").await;
    for name in ["a", "b", "c"] {
        consumer.create_claim(name, "web").await;
        if name != "c" {
            consumer.wait_for_address(name).await;
        }
    }
    consumer.wait_for_reason("c", "PoolExhausted").await;
    let client = consumer.claims();
    let claims = || async {
        retry_unanswered(|| client.list())
            .await
            .expect("claims can be read")
    };
    assert_eq!(
        aggregated(&claims().await),
        (false, "2/3 completed".to_owned())
    );

    consumer
        .modify_pool("web", |spec| {
            spec["addresses"] = json!(["10.0.0.1-10.0.0.3"])
        })
        .await;
    consumer.wait_for_address("c").await;
    let all = claims().await;
    assert_eq!(aggregated(&all), (true, "3/3 completed".to_owned()));
    for claim in &all {
        assert_eq!(
            mirrored(claim),
            (
                "True".to_owned(),
                "AddressAllocated".to_owned(),
                String::new()
            )
        );
    }
}

/// Triggers a reconcile of a waiting claim without a relevant change.
async fn touch(consumer: &Consumer, name: &str) {
    let label = unique("l");
    consumer
        .modify(&consumer.claims(), name, |claim| {
            claim["metadata"]["labels"] = json!({"touched": label})
        })
        .await;
}

/// An immediate write would make two managers with different caches overwrite each other.
#[tokio::test]
async fn changed_message_is_written_after_a_delay() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind("a", "web").await;
    consumer.create_claim("b", "web").await;
    let before = consumer.wait_for_reason("b", "PoolExhausted").await;
    assert_contains(&before, "1 in total");
    // One more address, which is excluded.
    consumer.reserve("web", "10.0.0.2", Value::Null).await;
    let (changed, patience) = (Instant::now(), Patience::new(Duration::from_secs(55)));
    consumer
        .modify_pool("web", |spec| {
            spec["addresses"] = json!(["10.0.0.1-10.0.0.2"])
        })
        .await;
    consumer.wait_for_counts("web", (2, 0, 1, 0)).await;
    touch(&consumer, "b").await;
    let after = eventually("the message is rewritten", || async {
        let text = consumer.wait_for_reason("b", "PoolExhausted").await;
        (text != before).then_some(text)
    })
    .await;
    assert_contains(&after, "2 in total");
    let took = changed.elapsed();
    assert!(
        took >= Duration::from_secs(4) && !patience.is_over(),
        "{took:?}"
    );
}

/// The lines of the log about an object.
fn lines_about(object: &str) -> Vec<String> {
    let log = environment().manager.log();
    let lines = log.lines().filter(|line| line.contains(object));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn changes_of_a_pool_are_logged_once() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind("a", "web").await;
    for waiting in ["b", "c", "d"] {
        consumer.claim_waits(waiting, "web", "PoolExhausted").await;
    }
    // The status of a pool is written every 250 ms at most.
    let pools = consumer.pools_of(InClusterKind::IPPool);
    consumer
        .wait_for_condition(&pools, "web", "Exhausted", "True", "NoFreeAddress")
        .await;
    consumer.release("a").await;
    consumer.wait_for_address("b").await;
    consumer
        .modify_pool("web", |spec| {
            spec["addresses"] = json!(["10.0.0.1-10.0.0.9"])
        })
        .await;
    for bound in ["c", "d"] {
        consumer.wait_for_address(bound).await;
    }
    let pool = format!("InClusterIPPool {}/web", consumer.namespace);
    let changes = || {
        let lines = lines_about(&format!("object={pool}"));
        let part = |line: String| {
            Some(
                line.split_once("condition=")?
                    .1
                    .split_once(" reason=")?
                    .0
                    .to_owned(),
            )
        };
        lines.into_iter().filter_map(part).collect::<Vec<_>>()
    };
    let ended = r#""Exhausted" from="True" to="False""#;
    until("the end is logged", async || {
        Some(changes().last().is_some_and(|last| last == ended))
    })
    .await;
    let changes = changes();
    assert_eq!(
        changes.first().map(String::as_str),
        Some(r#""Ready" to="True""#),
        "{changes:?}"
    );
    // The pool can be free for a moment while the address goes from one claim to the next.
    for pair in changes.windows(2) {
        assert_ne!(pair[0], pair[1], "nothing has changed");
    }
    // Of the claims that wait for one pool, the first one is logged.
    let waiting: Vec<String> = lines_about(&pool)
        .into_iter()
        .filter(|line| line.contains(" INFO ") && line.contains("claim is not ready"))
        .collect();
    assert_eq!(waiting.len(), 1, "{waiting:?}");
}
