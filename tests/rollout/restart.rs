//! Restarts of the manager and the API server.

use std::{collections::HashSet, net::Ipv4Addr};

use support::prelude::*;

/// The number of requests for our kinds from all clients, except for lists and watches.
fn calls(control_plane: &ControlPlane) -> u64 {
    let ours = control_plane
        .request_count()
        .into_iter()
        .filter(|(key, _)| {
            key.group == "ipam.cluster.x-k8s.io" && !["LIST", "WATCH"].contains(&key.verb.as_str())
        });
    ours.map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_bound_claims_sends_no_request() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&[]).await;
    consumer
        .create_pool("big", json!({"addresses": ["10.0.0.0/20"], "prefix": 20}))
        .await;
    let names: Vec<String> = numbered("c", 300);
    consumer.create_claims(&names, "big").await;
    let before = consumer.wait_for_addresses(&names).await;
    assert_eq!(before.values().collect::<HashSet<_>>().len(), 300);
    consumer.wait_for_counts("big", (4094, 3794, 300, 0)).await;

    manager.stop();
    assert!(manager.exit_status().is_some_and(|status| status.success()));
    let calls_before = calls(&control_plane);
    let started = Instant::now();
    let manager = Manager::start(
        &control_plane,
        &["--sweep-interval=500ms", "--sweep-grace=500ms"],
    );
    println!(
        "ready after a restart with 300 bound claims: {:?}",
        started.elapsed()
    );
    // Time for delayed requests and several passes of the sweeper.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(calls(&control_plane), calls_before, "{}", manager.log());

    assert_eq!(consumer.wait_for_addresses(&names).await, before);
    consumer.create_claim("new", "big").await;
    // Concurrent claims can leave gaps.
    let used: HashSet<&String> = before.values().collect();
    let mut all = (1..=4094)
        .map(|number| Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number).to_string());
    let lowest = all
        .find(|address| !used.contains(address))
        .expect("the pool has 4,094 addresses");
    assert_eq!(
        consumer.wait_for_address("new").await,
        lowest,
        "the lowest free one is the next"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_with_overlapping_pools_sends_no_request() {
    let control_plane = ControlPlane::new();
    let mut manager = Manager::start(&control_plane, &[]);
    let teams = [
        Consumer::new(&control_plane).await,
        Consumer::new(&control_plane).await,
    ];
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24});
    for (team, name) in teams
        .iter()
        .flat_map(|team| ["a", "b", "c", "d"].map(|name| (team, name)))
    {
        team.create_pool(name, spec.clone()).await;
    }
    teams[0].create_global_pool(&teams[0].namespace, spec).await;
    for (team, name) in teams
        .iter()
        .flat_map(|team| ["a", "b", "c", "d"].map(|name| (team, name)))
    {
        team.wait_for_condition(&team.pools(), name, "Overlapping", "True", "PoolsOverlap")
            .await;
    }
    // The messages of the conditions change until each pool is compared with all others.
    until("no request is sent for 5 s", async || {
        let before = calls(&control_plane);
        tokio::time::sleep(Duration::from_secs(5)).await;
        Some(calls(&control_plane) == before)
    })
    .await;
    for _ in 0..3 {
        manager.stop();
        let calls_before = calls(&control_plane);
        manager = Manager::start(&control_plane, &[]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(calls(&control_plane), calls_before, "{}", manager.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_recovers_from_an_api_server_restart() {
    let mut control_plane = ControlPlane::new();
    // The manager must not exit before the API server is back, however long its start takes.
    let flags = [
        "--leader-elect",
        "--leader-elect-lease-duration=3m",
        "--leader-elect-renew-deadline=2m",
    ];
    let mut manager = Manager::start(&control_plane, &flags);
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.10-10.0.0.40").await;
    consumer.bind_to("before", "web", "10.0.0.10").await;
    // In progress when the server is killed.
    let names: Vec<String> = numbered("c", 10);
    consumer.create_claims(&names, "web").await;
    control_plane.stop_api_server();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(manager.is_running(), "{}", manager.log());
    control_plane.start_api_server();

    let bound = consumer.wait_for_addresses(&names).await;
    assert_eq!(bound.values().collect::<HashSet<_>>().len(), 10);
    assert!(!bound.values().any(|address| address == "10.0.0.10"));
    consumer.bind("after", "web").await;
    consumer.release("before").await;
    consumer.wait_for_counts("web", (31, 20, 11, 0)).await;
    assert!(manager.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_force_deleted_pool_stays_in_use() {
    let control_plane = ControlPlane::new();
    let flags = ["--sweep-interval=1s", "--sweep-grace=1s"];
    let mut manager = Manager::start(&control_plane, &flags);
    let consumer = Consumer::new(&control_plane).await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24, "network": "lab"});
    consumer.create_open_network("lab").await;
    consumer.create_pool("p", spec.clone()).await;
    consumer.create_pool("q", spec).await;
    consumer.bind_to("a", "p", "10.0.0.1").await;
    manager.stop();
    consumer.force_delete(&consumer.pools(), "p").await;
    // Only the reservation still shows the network of the address.
    let _manager = Manager::start(&control_plane, &flags);
    // Longer than two passes and the grace period of the sweeper.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(
        consumer
            .reservations()
            .get("n.lab.10.0.0.1")
            .await
            .expect("reservations can be read")
            .is_some()
    );
    consumer.bind_to("b", "q", "10.0.0.2").await;
    consumer.claim_waits("c", "q", "PoolExhausted").await;
    consumer.release("a").await;
    consumer.assert_address("c", "10.0.0.1").await;
}
