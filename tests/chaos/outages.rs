//! API server and etcd are killed, or slow, while claims are bound and released.

use std::thread::sleep;
use std::time::{Duration, Instant};

use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::workload::{churn, names, settles};
use serde_json::json;

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];
const CLAIMS: usize = 100;

/// Has claims come and go while `fault` is done to the control plane every second, a few times.
async fn survives(what: &str, times: usize, fault: impl Fn(&mut ControlPlane) + Send + 'static) {
    let mut control_plane = ControlPlane::start(Options::default());
    // An API server that has just started does not know all roles yet.
    let mut manager = Manager::start(&control_plane, &FLAGS).may_lack_permissions();
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    let names = names("c", CLAIMS);
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
    let (_control_plane, ended) = ended.expect("the faults can be made");
    settles(&consumer, "web", &names).await;
    println!("{what}: all claims made {:?} after the last fault", done.saturating_duration_since(ended));
    consumer.counts("web", (254, 154, 100, 0)).await;
    assert!(manager.is_running(), "{}", manager.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_served_though_the_api_server_is_killed_again_and_again() {
    survives("API server killed", 3, |control_plane| {
        control_plane.stop_api_server();
        sleep(Duration::from_millis(300));
        control_plane.start_api_server();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_served_though_etcd_is_killed_again_and_again() {
    survives("etcd killed", 4, |control_plane| {
        control_plane.stop_etcd();
        sleep(Duration::from_millis(500));
        control_plane.start_etcd();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_served_though_etcd_stands_still_half_of_the_time() {
    survives("etcd slow", 1, |control_plane| {
        for _ in 0..20 {
            control_plane.signal_etcd("STOP");
            sleep(Duration::from_millis(300));
            control_plane.signal_etcd("CONT");
            sleep(Duration::from_millis(300));
        }
    })
    .await;
}

/// Longer than any call waits: everything under way has an outcome that nobody knows.
#[tokio::test(flavor = "multi_thread")]
async fn claims_are_served_after_etcd_stood_still_longer_than_calls_wait() {
    survives("etcd stopped for 15 s", 1, |control_plane| {
        control_plane.signal_etcd("STOP");
        sleep(Duration::from_secs(15));
        control_plane.signal_etcd("CONT");
    })
    .await;
}
