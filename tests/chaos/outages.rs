//! API server and etcd crash, or are slow, while claims are bound and released.

use std::thread::sleep;

use support::prelude::*;

use crate::workload::{churn, wait_until_settled};

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];
const CLAIMS: usize = 100;

/// Creates and deletes claims while `fault` is injected into the control plane every second,
/// `times` times.
async fn assert_survives(
    what: &str,
    times: usize,
    fault: impl Fn(&mut ControlPlane) + Send + 'static,
) {
    let (mut control_plane, mut manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    let names = numbered("c", CLAIMS);
    let faults = tokio::task::spawn_blocking(move || {
        for _ in 0..times {
            sleep(Duration::from_millis(700));
            fault(&mut control_plane);
        }
        (control_plane, Instant::now())
    });
    let busy = async {
        churn(&consumer, &names, "web").await;
        Instant::now()
    };
    let (ended, done) = tokio::join!(faults, busy);
    let (_control_plane, ended) = ended.expect("the faults can be injected");
    wait_until_settled(&consumer, &names).await;
    println!(
        "{what}: all claims made {:?} after the last fault",
        done.saturating_duration_since(ended)
    );
    consumer.wait_for_counts("web", (254, 154, 100, 0)).await;
    assert!(manager.is_running(), "{}", manager.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_bound_despite_repeated_api_server_crashes() {
    assert_survives("API server killed", 3, |control_plane| {
        control_plane.stop_api_server();
        sleep(Duration::from_millis(300));
        control_plane.start_api_server();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_bound_despite_repeated_etcd_crashes() {
    assert_survives("etcd killed", 4, |control_plane| {
        control_plane.stop_etcd();
        sleep(Duration::from_millis(500));
        control_plane.start_etcd();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_bound_while_etcd_is_paused_half_of_the_time() {
    assert_survives("etcd slow", 1, |control_plane| {
        for _ in 0..20 {
            control_plane.signal_etcd("STOP");
            sleep(Duration::from_millis(300));
            control_plane.signal_etcd("CONT");
            sleep(Duration::from_millis(300));
        }
    })
    .await;
}

/// Longer than the timeout of any request: every request in progress has an unknown outcome.
#[tokio::test(flavor = "multi_thread")]
async fn claims_are_bound_after_a_long_etcd_pause() {
    assert_survives("etcd stopped for 15 s", 1, |control_plane| {
        control_plane.signal_etcd("STOP");
        sleep(Duration::from_secs(15));
        control_plane.signal_etcd("CONT");
    })
    .await;
}
