//! Several managers at the same time.

use std::{collections::HashSet, convert::Infallible};

use support::prelude::*;

const ELECTED: [&str; 4] = [
    "--leader-elect",
    "--leader-elect-lease-duration=15s",
    "--leader-elect-renew-deadline=10s",
    "--leader-elect-retry-period=200ms",
];

/// Starts the manager again whenever it exits, as the kubelet does: on a busy machine it can lose
/// its lease.
async fn keep_running(control_plane: &ControlPlane, manager: &mut Manager) -> Infallible {
    loop {
        if !manager.is_running() {
            let kubeconfig = control_plane.provider_kubeconfig();
            *manager = Manager::launch(control_plane, kubeconfig, &ELECTED);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_becomes_leader_when_the_leader_is_killed() {
    let control_plane = ControlPlane::new();
    let mut first = Manager::start(&control_plane, &ELECTED);
    first.wait_for_log("acquired leadership lease");
    let mut second = Manager::start(&control_plane, &ELECTED);
    second.wait_for_log("standby: another process holds the lease");
    assert!(
        second
            .log()
            .contains(&format!("holder=\"{}\"", control_plane.lease_holder())),
        "{}",
        second.log()
    );
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    let names: Vec<String> = numbered("c", 200);
    let leader = control_plane.lease_holder();
    consumer.create_claims(&names, "web").await;
    first.kill();
    let started = Instant::now();
    let bound = tokio::select! {
        bound = consumer.wait_for_addresses(&names) => bound,
        never = keep_running(&control_plane, &mut second) => match never {},
    };
    println!(
        "all bound {:?} after the leader was killed",
        started.elapsed()
    );
    assert_eq!(bound.values().collect::<HashSet<_>>().len(), 200);
    until("the standby leads", async || {
        let holder = control_plane.lease_holder();
        Some(!holder.is_empty() && holder != leader)
    })
    .await;

    // A leader that is stopped releases the lease: the next one need not wait for its expiry.
    second.stop();
    assert!(
        second.exit_status().is_some_and(|status| status.success()),
        "{}",
        second.log()
    );
    assert_eq!(control_plane.lease_holder(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_exits_when_it_loses_the_lease() {
    let control_plane = ControlPlane::new();
    let mut manager = Manager::start(&control_plane, &ELECTED);
    manager.wait_for_log("acquired leadership lease");
    let stolen = r#"{"spec": {"holderIdentity": "thief"}}"#;
    let lease = "lease/7bb7acb4.ipam.cluster.x-k8s.io";
    control_plane.kubectl(&[
        "-n",
        NAMESPACE,
        "patch",
        lease,
        "--type=merge",
        "-p",
        stolen,
    ]);
    let patience = Patience::new(Duration::from_secs(90));
    while manager.is_running() {
        assert!(
            !patience.is_over(),
            "the manager keeps running without the lease:\n{}",
            manager.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        manager.exit_status().and_then(|status| status.code()),
        Some(1)
    );
    assert!(
        manager.log().contains("error: the lease was lost"),
        "{}",
        manager.log()
    );
}

/// After this time, a reservation for a claim of this process is not one of an earlier process.
const EARLIER_WRITES: Duration = Duration::from_secs(31);

#[tokio::test(flavor = "multi_thread")]
async fn two_active_managers_are_logged() {
    let control_plane = ControlPlane::new();
    let managers = [
        Manager::start(&control_plane, &[]),
        Manager::start(&control_plane, &[]),
    ];
    let consumer = Consumer::new(&control_plane).await;
    consumer
        .create_pool("web", json!({"addresses": ["10.0.0.0/22"], "prefix": 22}))
        .await;
    tokio::time::sleep(EARLIER_WRITES).await;
    let text = "another manager serves this claim at the same time: run one manager";
    let count = || {
        let logs = managers.iter().map(|manager| manager.log());
        logs.map(|log| log.matches(text).count()).sum::<usize>()
    };
    // Whether both reserve an address for one claim is a matter of time.
    for round in 0..20 {
        let names: Vec<String> = (0..40).map(|number| format!("c{round}-{number}")).collect();
        consumer.create_claims(&names, "web").await;
        consumer.wait_for_addresses(&names).await;
        if count() > 0 {
            break;
        }
    }
    assert!(
        (1..=2).contains(&count()),
        "one line for each manager: {}",
        count()
    );
}

/// Overlapping pools of one network, and two active managers.
#[tokio::test(flavor = "multi_thread")]
async fn two_active_managers_respect_a_shared_network() {
    let control_plane = ControlPlane::new();
    // Both sometimes reserve an address for one claim; the leftovers are swept.
    let flags = ["--sweep-interval=1s", "--sweep-grace=1s"];
    let _managers = [
        Manager::start(&control_plane, &flags),
        Manager::start(&control_plane, &flags),
    ];
    let consumer = Consumer::new(&control_plane).await;
    let spec = |network: serde_json::Value| {
        let mut spec = json!({"addresses": ["10.0.0.0/24"], "prefix": 24});
        if !network.is_null() {
            spec["network"] = network;
        }
        spec
    };
    consumer.create_open_network("lab").await;
    for (pool, network) in [
        ("p", json!("lab")),
        ("q", json!("lab")),
        ("x", json!(null)),
        ("y", json!(null)),
    ] {
        consumer.create_pool(pool, spec(network)).await;
    }
    let names = |pool: &str| {
        (0..100)
            .map(|number| format!("{pool}{number}"))
            .collect::<Vec<_>>()
    };
    for pool in ["p", "q", "x", "y"] {
        consumer.create_claims(&names(pool), pool).await;
    }
    let all: Vec<String> = ["p", "q", "x", "y"]
        .iter()
        .flat_map(|pool| names(pool))
        .collect();
    let bound = consumer.wait_for_addresses(&all).await;
    let of = |pools: [&str; 2]| {
        let mine = bound
            .iter()
            .filter(|(name, _)| pools.iter().any(|pool| name.starts_with(pool)));
        mine.map(|(_, address)| address.clone())
            .collect::<HashSet<_>>()
            .len()
    };
    assert_eq!(
        of(["p", "q"]),
        200,
        "one network: each address is allocated once"
    );
    assert!(
        of(["x", "y"]) < 150,
        "without a network both pools allocate the lowest addresses"
    );
    consumer.wait_for_counts("p", (254, 54, 100, 0)).await;
    consumer.wait_for_counts("q", (254, 54, 100, 0)).await;
}
