//! The leader stands still, and wakes up when another one leads.

use std::time::{Duration, Instant};

use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::workload::{make_all, names, settles, unmake};
use serde_json::json;

const FLAGS: [&str; 6] = [
    "--leader-elect",
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=500ms",
    "--sweep-interval=1s",
    "--sweep-grace=2s",
];
const STILL: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_does_no_harm_when_it_wakes() {
    let control_plane = ControlPlane::start(Options::default());
    let mut first = Manager::start(&control_plane, &FLAGS);
    first.wait_for_log("acquired leadership lease");
    let mut second = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    let (early, late) = (names("early", 100), names("late", 50));
    let stop = async {
        // In the middle of its work.
        tokio::time::sleep(Duration::from_millis(400)).await;
        first.signal("STOP");
        Instant::now()
    };
    let ((), stopped) = tokio::join!(make_all(&consumer, &early, "web"), stop);
    consumer.all_bound(&early).await;
    println!("all bound {:?} after the leader stood still", stopped.elapsed());
    second.wait_for_log("acquired leadership lease");
    // What the first one knows is wrong now: claims of the same names have other addresses.
    for name in early.iter().step_by(4) {
        unmake(&consumer, name).await;
    }
    make_all(&consumer, &late, "web").await;
    consumer.all_bound(&late).await;
    let again: Vec<String> = early.iter().step_by(4).cloned().collect();
    make_all(&consumer, &again, "web").await;
    tokio::time::sleep(STILL.saturating_sub(stopped.elapsed())).await;
    let before = consumer.given().await;

    first.signal("CONT");
    let woken = Instant::now();
    while first.is_running() {
        assert!(woken.elapsed() < Duration::from_secs(30), "it goes on without the lease:\n{}", first.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("it ended {:?} after it woke", woken.elapsed());
    assert_eq!(first.exit_status().and_then(|status| status.code()), Some(1));
    assert!(first.log().contains("error: the lease was lost"), "{}", first.log());
    let all: Vec<String> = early.into_iter().chain(late).collect();
    settles(&consumer, "web", &all).await;
    for (name, address) in consumer.given().await {
        assert!(before.get(&name).is_none_or(|known| *known == address), "{name} had {before:?} and has {address}");
    }
    assert!(second.is_running());
}
