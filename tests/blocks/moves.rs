//! A claim is moved to another management cluster, as `clusterctl move` does it, while the source is
//! busy or cannot reach the registry.

use std::sync::Arc;
use support::prelude::*;

use crate::faults::start_cluster;
use crate::interceptor::{Held, Interceptor, NatsProxy};
use crate::site::{Hub, ManagementCluster, NETWORK};

/// The time after which an abandoned reservation is released, with the flags of these tests, and the
/// mark of an empty block is old.
const GRACE: Duration = Duration::from_secs(5);

/// The addresses of the pool that is moved.
const ADDRESSES: [&str; 3] = ["10.0.1.0", "10.0.1.1", "10.0.1.2"];

fn blocks() -> Value {
    json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0})
}

/// The source and the target of a move.
struct Move {
    hub: Hub,
    west: ManagementCluster,
    east: ManagementCluster,
}

impl Move {
    /// Both clusters have a pool of three addresses. West has bound them, and a claim waits.
    async fn prepare(hub: Hub, west: ManagementCluster, east: ManagementCluster) -> Self {
        for cluster in [&west, &east] {
            cluster.create_pool("p", "10.0.1.0-10.0.1.2").await;
        }
        for (name, address) in numbered("m-", 3).into_iter().zip(ADDRESSES) {
            west.consumer.create_claim(&name, "p").await;
            assert_eq!(west.consumer.wait_for_address(&name).await, address);
        }
        west.consumer.claim_waits("x", "p", "PoolExhausted").await;
        Self { hub, west, east }
    }

    /// Moves a claim from west to east. West does not release its address.
    async fn run(&self) {
        let target = &self.east.consumer;
        let [address, ..] = ADDRESSES;
        target.create_address("m-0", "p", address).await;
        target.create_claim("m-0", "p").await;
        assert_eq!(target.wait_for_address("m-0").await, address);
        // What is moved is paused, so the manager does not release it.
        self.west.signal("STOP");
        let source = &self.west.consumer;
        let (claims, addresses) = (source.claims(), source.addresses());
        let remove = |object: &mut Value| object["metadata"]["finalizers"] = json!([]);
        source.modify(&addresses, "m-0", remove).await;
        source.delete_object(&addresses, "m-0").await;
        source.modify(&claims, "m-0", remove).await;
        source.delete_object(&claims, "m-0").await;
        self.west.signal("CONT");
    }

    async fn assert_waits(&self) {
        self.west.consumer.assert_stays_unbound("x").await;
    }
}

/// A site whose source sends the requests to its API server through a proxy.
async fn with_slow_lists(interceptor: &Arc<Interceptor>) -> Move {
    let hub = Hub::nats();
    hub.create_bucket().await;
    let west = async {
        let west = start_cluster(interceptor, "west").await;
        west.create_registry(hub.registry("west"), hub.secret())
            .await;
        west.create_network(NETWORK, blocks()).await;
        west
    };
    let blocks = blocks();
    let east = ManagementCluster::start("east", &hub, &blocks);
    let (west, east) = futures::join!(Box::pin(west), Box::pin(east));
    Move::prepare(hub, west, east).await
}

/// Empties blocks of west that are returned after a list, which gets no answer.
async fn begin_return(site: &Move, interceptor: &Interceptor) {
    let west = &site.west;
    west.create_pool("q", "10.0.2.0-10.0.2.31").await;
    let claims = numbered("q-", 32);
    west.bind("q", &claims).await;
    interceptor.hold(Held::Lists, true);
    west.consumer.release_all(&claims).await;
    west.wait_for_mark("10.0.2.0/30", true).await;
    tokio::time::sleep(GRACE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contested_block_is_not_used_while_others_are_returned() {
    let interceptor = Arc::new(Interceptor::default());
    let site = Box::pin(with_slow_lists(&interceptor)).await;
    begin_return(&site, &interceptor).await;
    // The IPSlice does not get the mark of the conflict either.
    interceptor.hold(Held::Slices, true);
    site.run().await;
    tokio::time::sleep(GRACE).await;
    site.assert_waits().await;
    interceptor.hold(Held::Slices, false);
    interceptor.hold(Held::Lists, false);
    site.west.wait_for_conflict("True").await;
    site.west.wait_for_blocks(&["10.0.1.0/30"]).await;
    site.assert_waits().await;
    // West has no address of the block any more, and returns it.
    for name in ["m-1", "m-2"] {
        site.west.consumer.release(name).await;
    }
    site.east.wait_for_conflict("False").await;
    drop(site.hub);
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_gets_a_block_while_others_are_returned() {
    let interceptor = Arc::new(Interceptor::default());
    let site = Box::pin(with_slow_lists(&interceptor)).await;
    begin_return(&site, &interceptor).await;
    site.west.create_pool("r", "10.0.3.0-10.0.3.3").await;
    site.west.bind("r", &numbered("r-", 1)).await;
    interceptor.hold(Held::Lists, false);
    site.west
        .wait_for_blocks(&["10.0.1.0/30", "10.0.3.0/30"])
        .await;
}

/// The source cannot reach the registry, so it does not know what the target reports there.
#[tokio::test(flavor = "multi_thread")]
async fn moved_address_is_not_freed_without_the_registry() {
    let interceptor = Arc::new(Interceptor::default());
    let hub = Hub::nats();
    hub.create_bucket().await;
    let Hub::Nats(node) = &hub else {
        panic!("the registry is a server of NATS");
    };
    let proxy = NatsProxy::start(&interceptor, node, "west").await;
    let control_plane = ControlPlane::start(Options::default());
    let kubeconfig = control_plane.provider_kubeconfig().to_owned();
    let west = ManagementCluster::with_kubeconfig("west", control_plane, kubeconfig).await;
    let registry = hub.registry_at("west", Some(vec![proxy.url().to_owned()]));
    west.create_registry(registry, None).await;
    west.create_network(NETWORK, blocks()).await;
    let blocks = blocks();
    let east = ManagementCluster::start("east", &hub, &blocks).await;
    let site = Box::pin(Move::prepare(hub, west, east)).await;

    interceptor.cut_off("west");
    site.run().await;
    tokio::time::sleep(GRACE).await;
    site.assert_waits().await;
    site.west
        .wait_for_registry("False", "RegistryUnreachable")
        .await;
    let reservations = site.west.consumer.reservations();
    let kept = reservations.get(&format!("n.{NETWORK}.10.0.1.0")).await;
    let kept = kept.expect("it can be read").expect("it is kept");
    assert!(kept.spec.released_at.is_none());

    interceptor.revive();
    site.west.wait_for_conflict("True").await;
    site.assert_waits().await;
}
