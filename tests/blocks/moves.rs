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

const PAUSED: &str = "cluster.x-k8s.io/paused";

/// The proxy between the source and the registry, as the interceptor knows it.
const REGISTRY: &str = "registry of west";

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
        self.create_in_target().await;
        // What is moved is paused, so the manager does not release it.
        self.west.signal("STOP");
        self.delete_address().await;
        let source = &self.west.consumer;
        let claims = source.claims();
        source.modify(&claims, "m-0", remove_finalizers).await;
        source.delete_object(&claims, "m-0").await;
        self.west.signal("CONT");
    }

    /// Moves a claim. The source sees that the IPAddress is gone and the claim not paused, and adds its
    /// finalizer at the moment at which the claim is deleted.
    async fn run_unpaused(&self, interceptor: &Interceptor) {
        self.create_in_target().await;
        let source = &self.west.consumer;
        let claims = source.claims();
        let pause = |claim: &mut Value| claim["metadata"]["annotations"][PAUSED] = json!("");
        source.modify(&claims, "m-0", pause).await;
        self.delete_address().await;
        interceptor.hold(Held::Claims, true);
        let resume = |claim: &mut Value| {
            claim["metadata"]["annotations"] = json!({});
            remove_finalizers(claim);
        };
        source.modify(&claims, "m-0", resume).await;
        interceptor.wait_until_held(Held::Claims).await;
        source.delete_object(&claims, "m-0").await;
        interceptor.hold(Held::Claims, false);
    }

    async fn create_in_target(&self) {
        let target = &self.east.consumer;
        let [address, ..] = ADDRESSES;
        target.create_address("m-0", "p", address).await;
        target.create_claim("m-0", "p").await;
        assert_eq!(target.wait_for_address("m-0").await, address);
    }

    async fn delete_address(&self) {
        let source = &self.west.consumer;
        let addresses = source.addresses();
        source.modify(&addresses, "m-0", remove_finalizers).await;
        source.delete_object(&addresses, "m-0").await;
    }

    async fn assert_waits(&self) {
        self.west.consumer.assert_stays_unbound("x").await;
    }
}

fn remove_finalizers(object: &mut Value) {
    object["metadata"]["finalizers"] = json!([]);
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
    let site = Box::pin(with_proxies(&interceptor)).await;
    interceptor.cut_off(REGISTRY);
    site.run().await;
    assert_kept(&site, &interceptor).await;
}

/// The source has not seen yet that the claim is paused, and finds that it is gone when it binds it.
#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_vanished_claim_is_kept_without_the_registry() {
    let interceptor = Arc::new(Interceptor::default());
    let site = Box::pin(with_proxies(&interceptor)).await;
    interceptor.cut_off(REGISTRY);
    site.run_unpaused(&interceptor).await;
    assert_kept(&site, &interceptor).await;
}

/// A site whose source reaches its API server and the registry through proxies.
async fn with_proxies(interceptor: &Arc<Interceptor>) -> Move {
    let hub = Hub::nats();
    hub.create_bucket().await;
    let Hub::Nats(node) = &hub else {
        panic!("the registry is a server of NATS");
    };
    let proxy = NatsProxy::start(interceptor, node, REGISTRY).await;
    let west = start_cluster(interceptor, "west").await;
    let registry = hub.registry_at("west", Some(vec![proxy.url().to_owned()]));
    west.create_registry(registry, None).await;
    west.create_network(NETWORK, blocks()).await;
    // The proxy runs as long as the test.
    std::mem::forget(proxy);
    let blocks = blocks();
    let east = ManagementCluster::start("east", &hub, &blocks).await;
    Move::prepare(hub, west, east).await
}

/// The address is kept for as long as the source cannot reach the registry, and not used afterwards.
async fn assert_kept(site: &Move, interceptor: &Interceptor) {
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
