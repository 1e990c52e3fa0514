//! Connections that stay open and deliver nothing, as after the loss of a machine or of the state
//! of a router.

use support::prelude::*;

use crate::proxy::Proxy;

const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How much longer a takeover may take than the lease duration.
const TAKEOVER: Duration = Duration::from_secs(45);
/// How long a claim may wait for its address with dead connections.
const BOUND: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn standby_with_dead_connections_becomes_leader_in_time() {
    let control_plane = ControlPlane::new();
    let mut first = Manager::start(&control_plane, &["--leader-elect"]);
    first.wait_for_log("acquired leadership lease");
    let leader = control_plane.lease_holder();
    let proxy = Proxy::start(&control_plane, 0, None).await;
    let second = Manager::launch(&control_plane, proxy.kubeconfig(), &["--leader-elect"])
        .may_lack_permissions();
    second.wait_until_ready();
    // Time for requests whose connections are reused.
    tokio::time::sleep(Duration::from_secs(5)).await;

    proxy.swallow_connections();
    first.kill();
    let (killed, patience) = (Instant::now(), Patience::new(LEASE_DURATION + TAKEOVER));
    eventually_within(Duration::from_mins(2), "the standby leads", || async {
        let holder = control_plane.lease_holder();
        (!holder.is_empty() && holder != leader).then_some(())
    })
    .await;
    let took = killed.elapsed();
    println!("the standby leads {took:?} after the leader was killed");
    assert!(!patience.is_over(), "{took:?}\n{}", second.log());

    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    consumer.bind("a", "web").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_bound_despite_dead_watches() {
    let (control_plane, consumer) = scene().await;
    let proxy = Proxy::start(&control_plane, 0, None).await;
    let manager = Manager::launch(&control_plane, proxy.kubeconfig(), &[]).may_lack_permissions();
    manager.wait_until_ready();
    consumer.create_pool("web", "10.0.0.0/24").await;
    consumer.bind("before", "web").await;

    let dead = ["ipaddressclaims", "ipaddresses", "ipreservations"];
    let watches = dead.map(|resource| proxy.watches(resource));
    dead.iter()
        .for_each(|resource| proxy.swallow_watches(resource));
    let started = Instant::now();
    consumer.create_claim("after", "web").await;
    consumer.wait_until_bound("after", BOUND).await;
    println!("bound {:?} after the watches died", started.elapsed());
    until_within(BOUND, "all three are watched again", || async {
        Some(
            dead.iter()
                .zip(watches)
                .all(|(resource, before)| proxy.watches(resource) > before),
        )
    })
    .await;
    println!("all are watched again after {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_bound_despite_dead_connections() {
    let (control_plane, consumer) = scene().await;
    let proxy = Proxy::start(&control_plane, 0, None).await;
    // A loaded API server can take seconds for a renewal.
    let flags = [
        "--leader-elect",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=20s",
    ];
    let mut manager =
        Manager::launch(&control_plane, proxy.kubeconfig(), &flags).may_lack_permissions();
    manager.wait_until_ready();
    consumer.create_pool("web", "10.0.0.0/24").await;
    // Many concurrent requests leave many open connections.
    let names: Vec<String> = numbered("c", 100);
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;

    proxy.swallow_connections();
    let started = Instant::now();
    consumer.create_claim("after", "web").await;
    consumer.wait_until_bound("after", BOUND).await;
    println!("bound {:?} after all connections died", started.elapsed());
    assert!(manager.is_running(), "it stays leader:\n{}", manager.log());
}
