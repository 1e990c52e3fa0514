//! The manager and the API server go away and come back.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use serde_json::json;

/// What the API server has been asked about our kinds, but for lists and watches, by everybody.
fn calls(control_plane: &ControlPlane) -> u64 {
    let ours = control_plane
        .request_count()
        .into_iter()
        .filter(|(key, _)| key.group == "ipam.cluster.x-k8s.io" && !["LIST", "WATCH"].contains(&key.verb.as_str()));
    ours.map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_a_thousand_bound_claims_makes_no_call() {
    let control_plane = ControlPlane::start(Options::default());
    let mut manager = Manager::start(&control_plane, &[]);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("big", json!({"addresses": ["10.0.0.0/20"], "prefix": 20})).await;
    let names: Vec<String> = (0..1000).map(|number| format!("c{number}")).collect();
    consumer.claim_all(&names, "big").await;
    let before = consumer.all_bound(&names).await;
    assert_eq!(before.values().collect::<HashSet<_>>().len(), 1000);
    consumer.counts("big", (4094, 3094, 1000, 0)).await;

    manager.stop();
    assert!(manager.exit_status().is_some_and(|status| status.success()));
    let calls_before = calls(&control_plane);
    let started = Instant::now();
    let manager = Manager::start(&control_plane, &["--sweep-interval=500ms", "--sweep-grace=500ms"]);
    println!("ready after a restart with 1,000 bound claims: {:?}", started.elapsed());
    // Time for what is not right away, several passes of the sweeper among it.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(calls(&control_plane), calls_before, "{}", manager.log());

    assert_eq!(consumer.all_bound(&names).await, before);
    consumer.claim("new", "big").await;
    assert!(!before.values().any(|address| *address == "10.0.3.233"), "the lowest free one is the next");
    assert_eq!(consumer.bound("new").await, "10.0.3.233");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_goes_away_and_comes_back() {
    let mut control_plane = ControlPlane::start(Options::default());
    // An API server that has just started does not know all roles yet.
    // Nor is it to give up before the API server is back, however long that takes to start.
    let flags = ["--leader-elect", "--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m"];
    let mut manager = Manager::start(&control_plane, &flags).may_lack_permissions();
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.10-10.0.0.40"], "prefix": 24})).await;
    consumer.claim("before", "web").await;
    assert_eq!(consumer.bound("before").await, "10.0.0.10");
    // Under way when the server dies.
    let names: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
    consumer.claim_all(&names, "web").await;
    control_plane.stop_api_server();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(manager.is_running(), "{}", manager.log());
    control_plane.start_api_server();

    let bound = consumer.all_bound(&names).await;
    assert_eq!(bound.values().collect::<HashSet<_>>().len(), 10);
    assert!(!bound.values().any(|address| address == "10.0.0.10"));
    consumer.claim("after", "web").await;
    consumer.bound("after").await;
    consumer.release("before").await;
    consumer.counts("web", (31, 20, 11, 0)).await;
    assert!(manager.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_killed_at_any_time_leaves_nothing_behind() {
    let control_plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    for round in 0_u64..4 {
        let mut manager = Manager::start(&control_plane, &[]);
        if round == 0 {
            consumer.claim_all(&names, "web").await;
        }
        tokio::time::sleep(Duration::from_millis(80 + 60 * round)).await;
        manager.kill();
    }
    let _manager = Manager::start(&control_plane, &["--sweep-interval=1s", "--sweep-grace=1s"]);
    let bound = consumer.all_bound(&names).await;
    assert_eq!(bound.values().collect::<HashSet<_>>().len(), 100);
    for name in &names {
        consumer.delete(name).await;
    }
    for name in &names {
        consumer.gone(name).await;
    }
    consumer.counts("web", (254, 254, 0, 0)).await;
    assert_eq!(consumer.reservations().list().await.expect("reservations can be listed"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_stays_taken_when_its_pool_was_removed_by_force() {
    let control_plane = ControlPlane::start(Options::default());
    let flags = ["--sweep-interval=1s", "--sweep-grace=1s"];
    let mut manager = Manager::start(&control_plane, &flags);
    let consumer = Consumer::new(&control_plane).await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24, "network": "lab"});
    consumer.pool("p", spec.clone()).await;
    consumer.pool("q", spec).await;
    consumer.claim("a", "p").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    manager.stop();
    consumer.force_away(&consumer.pools(), "p").await;
    // Nothing says any more which network the address is of, except its reservation.
    let _manager = Manager::start(&control_plane, &flags);
    // Longer than it takes the sweeper to look twice and to lose patience.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(consumer.reservations().get("n.lab.10.0.0.1").await.expect("reservations can be read").is_some());
    consumer.claim("b", "q").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    consumer.claim("c", "q").await;
    consumer.waits_for("c", "PoolExhausted").await;
    consumer.release("a").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.1");
}
