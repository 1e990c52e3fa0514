//! Claims that wait for an address while their label changes: a manager grants turns only to claims
//! that it serves.

use support::prelude::*;

use crate::{
    labels::{labelled_claim, relabel, with_blue_pool},
    serving,
};

/// The maximum time between the release of an address and its allocation to a waiting claim: less
/// than the minute after which a turn that is not used passes to the next claim.
const TURN: Duration = Duration::from_secs(45);

/// Waits until a claim has the only address of the pool, within the time for a turn.
async fn assert_is_next(consumer: &Consumer, name: &str) {
    consumer.wait_until_bound(name, TURN).await;
    consumer.assert_address(name, "10.0.0.1").await;
}

/// Creates a claim that finds the pool exhausted.
async fn waiting_claim(consumer: &Consumer, name: &str, value: &str) {
    labelled_claim(consumer, name, value).await;
    consumer.wait_for_reason(name, "PoolExhausted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn relabelled_waiting_claim_is_served_by_its_new_manager() {
    let plane = ControlPlane::new();
    let _managers = [
        serving(&plane, &["--watch-filter=blue"]),
        serving(&plane, &["--watch-filter=red"]),
    ];
    let consumer = with_blue_pool(&plane, 1).await;
    let mut holder = "holder".to_owned();
    labelled_claim(&consumer, &holder, "blue").await;
    consumer.wait_for_address(&holder).await;
    for (round, (first, then)) in [
        ("blue", "red"),
        ("red", "blue"),
        ("blue", "red"),
        ("red", "blue"),
    ]
    .iter()
    .enumerate()
    {
        let name = format!("waits{round}");
        waiting_claim(&consumer, &name, first).await;
        relabel(&consumer, &name, Some(then)).await;
        if round >= 2 {
            // Time for both managers to observe it.
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        consumer.release(&holder).await;
        assert_is_next(&consumer, &name).await;
        holder = name;
    }
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", &holder)])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_waiting_claim_does_not_block_the_queue() {
    let plane = ControlPlane::new();
    let _blue = serving(&plane, &["--watch-filter=blue"]);
    let consumer = with_blue_pool(&plane, 1).await;
    labelled_claim(&consumer, "holder", "blue").await;
    consumer.wait_for_address("holder").await;
    waiting_claim(&consumer, "first", "blue").await;
    waiting_claim(&consumer, "second", "blue").await;
    relabel(&consumer, "first", Some("green")).await;
    consumer.release("holder").await;
    assert_is_next(&consumer, "second").await;
    consumer.assert_stays_unbound("first").await;

    // Served again, it has its old position, which depends on the creation timestamp.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    waiting_claim(&consumer, "third", "blue").await;
    relabel(&consumer, "first", Some("blue")).await;
    // Nothing shows when the manager has queued it again.
    tokio::time::sleep(Duration::from_secs(10)).await;
    consumer.release("second").await;
    assert_is_next(&consumer, "first").await;
    consumer.wait_for_reason("third", "PoolExhausted").await;
}

/// The first claim in the queue is relabelled while an address becomes free.
#[tokio::test(flavor = "multi_thread")]
async fn claim_relabelled_during_its_turn_does_not_hold_it() {
    let plane = ControlPlane::new();
    let _managers = [
        serving(&plane, &["--watch-filter=blue"]),
        serving(&plane, &["--watch-filter=red"]),
    ];
    let consumer = with_blue_pool(&plane, 1).await;
    let mut holder = "holder".to_owned();
    labelled_claim(&consumer, &holder, "blue").await;
    consumer.wait_for_address(&holder).await;
    for round in 0..6 {
        let [first, second] = [format!("first{round}"), format!("second{round}")];
        waiting_claim(&consumer, &first, "blue").await;
        waiting_claim(&consumer, &second, "blue").await;
        tokio::join!(
            async {
                // Before, during and after its turn.
                tokio::time::sleep(Duration::from_millis(round * 5)).await;
                relabel(&consumer, &first, Some("red")).await;
            },
            consumer.delete(&holder)
        );
        let served = eventually_within(TURN, "one of the two is bound", || async {
            for name in [&first, &second] {
                let claim = consumer.claims().get(name).await.ok()??;
                if claim.bound_address().is_some() {
                    return Some(name.clone());
                }
            }
            None
        })
        .await;
        consumer
            .release(if served == first { &second } else { &first })
            .await;
        holder = served;
    }
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", &holder)])
        .await;
}
