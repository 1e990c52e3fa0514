//! Cool-downs with the default flags: an address is reused when its cool-down ends, and claims
//! report its end.

use capi_ipam_api::conditions::{EXHAUSTED, NO_FREE_ADDRESS};
use jiff::{SignedDuration, Timestamp};
use support::prelude::*;

/// How much later than the end of its cool-down an address may be reused: less than the interval of
/// the sweeper, and of the resync.
const LATE: SignedDuration = SignedDuration::from_secs(40);

fn spec(seconds: i64) -> Value {
    json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": seconds})
}

/// When the address of the pool `web` was released.
async fn released_at(consumer: &Consumer) -> Timestamp {
    eventually("the address cools down", || async {
        Some(
            consumer
                .reservation("web", "10.0.0.1")
                .await?
                .spec
                .released_at?
                .0,
        )
    })
    .await
}

/// A manager with the default flags, and a pool `web` whose only address is in use by claim
/// `first`.
async fn with_bound_claim(plane: &ControlPlane, seconds: i64) -> (Manager, Consumer) {
    let manager = Manager::start(plane, &[]);
    let consumer = Consumer::new(plane).await;
    consumer.create_pool("web", spec(seconds)).await;
    consumer.bind_to("first", "web", "10.0.0.1").await;
    (manager, consumer)
}

/// Waits until claim `second` is bound, and returns the time since the end of the cool-down.
async fn bound_after(consumer: &Consumer, released: Timestamp, seconds: i64) -> SignedDuration {
    consumer
        .wait_until_bound("second", Duration::from_secs(100))
        .await;
    let after = Timestamp::now().duration_since(released) - SignedDuration::from_secs(seconds);
    println!("bound {after:?} after the end of a cool-down of {seconds} s");
    after
}

async fn is_reused_in_time(seconds: i64) {
    let plane = ControlPlane::new();
    let (_manager, consumer) = with_bound_claim(&plane, seconds).await;
    consumer.claim_waits("second", "web", "PoolExhausted").await;
    // Until the manager is idle.
    tokio::time::sleep(Duration::from_secs(3)).await;
    consumer.release("first").await;
    let released = released_at(&consumer).await;
    let after = bound_after(&consumer, released, seconds).await;
    assert!(!after.is_negative(), "reused before the end: {after:?}");
    assert!(
        after <= LATE,
        "reused {after:?} after the end of the cool-down"
    );
    consumer.assert_address("second", "10.0.0.1").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "second")])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_is_reused_after_a_cooldown_of_3_seconds() {
    is_reused_in_time(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_is_reused_after_a_cooldown_of_7_seconds() {
    is_reused_in_time(7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_of_a_recreated_pool_ends_in_time() {
    const SECONDS: i64 = 6;
    let plane = ControlPlane::new();
    let (_manager, consumer) = with_bound_claim(&plane, SECONDS).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    consumer.release("first").await;
    let released = released_at(&consumer).await;
    consumer.delete_unused_pool(&consumer.pools(), "web").await;
    consumer.create_pool("web", spec(SECONDS)).await;
    consumer.create_claim("second", "web").await;
    // The deletion of the pool may have ended the cool-down.
    let after = bound_after(&consumer, released, SECONDS).await;
    assert!(
        after <= LATE,
        "reused {after:?} after the end of the cool-down"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shortened_cooldown_ends_in_time() {
    const SECONDS: i64 = 2;
    let plane = ControlPlane::new();
    let (_manager, consumer) = with_bound_claim(&plane, 600).await;
    consumer.release("first").await;
    let released = released_at(&consumer).await;
    consumer.claim_waits("second", "web", "PoolExhausted").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    consumer
        .modify_pool("web", |spec| {
            spec["addressReuseGracePeriodSeconds"] = json!(SECONDS)
        })
        .await;
    // By the new value it ended before the change.
    let passed = Timestamp::now().duration_since(released).as_secs() + 1;
    let after = bound_after(&consumer, released, passed.max(SECONDS)).await;
    assert!(after <= LATE, "reused {after:?} after the change");
}

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_ends_while_no_manager_runs() {
    let plane = ControlPlane::new();
    let (mut manager, consumer) = with_bound_claim(&plane, 3).await;
    consumer.release("first").await;
    let released = released_at(&consumer).await;
    manager.stop();
    consumer.create_claim("second", "web").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _manager = Manager::start(&plane, &[]);
    let passed = Timestamp::now().duration_since(released).as_secs() + 1;
    let after = bound_after(&consumer, released, passed).await;
    assert!(
        after <= LATE,
        "reused {after:?} after the start of the manager"
    );
}

/// Asserts that a message counts the address that cools down, and says until when.
fn mentions_cooldown(text: &str, end: Timestamp) {
    assert!(
        text.contains("cooling down") && text.contains("until"),
        "no cool-down in {text:?}"
    );
    let is_mark = |letter: char| !letter.is_ascii_alphanumeric();
    let times = text
        .split_whitespace()
        .filter_map(|word| word.trim_matches(is_mark).parse::<Timestamp>().ok());
    let times: Vec<Timestamp> = times.collect();
    let is_end = |time: &Timestamp| time.duration_since(end).abs() <= SignedDuration::from_secs(1);
    assert!(
        times.iter().any(is_end),
        "{text:?} does not say that the cool-down lasts until {end}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_and_pool_report_the_end_of_the_cooldown() {
    const SECONDS: i64 = 600;
    let plane = ControlPlane::new();
    let (_manager, consumer) = with_bound_claim(&plane, SECONDS).await;
    consumer.release("first").await;
    let end = released_at(&consumer).await + SignedDuration::from_secs(SECONDS);
    // The pool may still report the moment before the cool-down began.
    let text = eventually("the pool reports a cool-down", || async {
        let text = consumer
            .wait_for_condition(&consumer.pools(), "web", EXHAUSTED, "True", NO_FREE_ADDRESS)
            .await;
        text.contains("cooling down").then_some(text)
    })
    .await;
    consumer.wait_for_counts("web", (1, 0, 0, 0)).await;
    mentions_cooldown(&text, end);
    consumer.create_claim("second", "web").await;
    mentions_cooldown(
        &consumer.wait_for_reason("second", "PoolExhausted").await,
        end,
    );
}
