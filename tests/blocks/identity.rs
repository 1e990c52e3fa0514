//! Two management clusters with one identity.

use std::sync::Arc;

use capi_ipam_api::IPRegistry;
use capi_ipam_registry::Record;
use k8s_openapi::api::core::v1::Namespace;
use support::prelude::*;

use crate::faults::start_with_api_server;
use crate::interceptor::{Held, Interceptor};
use crate::site::{FLAGS, Hub, ManagementCluster, NETWORK, Site};

/// How long the manager can do something that it must not do.
const WAIT: Duration = Duration::from_secs(5);

/// The other one takes up none of its blocks, and says why, before anything is allocated.
#[tokio::test]
async fn cluster_with_the_id_of_another_uses_none_of_its_blocks() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let mut site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    for cluster in [west, east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.15").await;
    }
    west.bind("p", &numbered("w-", 3)).await;
    site.wait_for_record("cluster.west").await;

    east.consumer.create_claim("e", "p").await;
    assert_eq!(east.consumer.wait_for_address("e").await, "10.0.1.4");
    replace_registry(east, site.hub.registry("west")).await;
    let text = east.wait_for_registry("False", "ClusterIDInUse").await;
    assert!(text.contains("registry adopt --registry site"), "{text}");
    east.consumer.create_claim("f", "p").await;
    east.consumer
        .wait_for_message(
            "f",
            "WaitingForBlock",
            "identity of this management cluster",
        )
        .await;
    // The first one notices nothing.
    west.bind("p", &numbered("x-", 1)).await;
    west.wait_for_registry("True", "RegistryReady").await;

    // An operator gives the blocks to the other one, as if the first one was gone.
    adopt(&site, east).await;
    east.wait_for_registry("True", "RegistryReady").await;
    west.wait_for_registry("False", "ClusterIDInUse").await;
    west.consumer.release("x-0").await;
    west.consumer.create_claim("y", "p").await;
    west.consumer
        .wait_for_message(
            "y",
            "WaitingForBlock",
            "identity of this management cluster",
        )
        .await;

    // Nor does it after a restart, while the registry cannot be reached.
    site.hub.stop();
    let west = &site.west;
    west.restart();
    west.consumer.create_claim("z", "p").await;
    west.consumer
        .wait_for_reason("z", "RegistryUnreachable")
        .await;
    tokio::time::sleep(WAIT).await;
    for claim in ["y", "z"] {
        west.consumer.assert_stays_unbound(claim).await;
    }
}

/// Another management cluster with the same identity may begin at the same moment: they notice each other
/// by their records.
#[tokio::test(flavor = "multi_thread")]
async fn no_block_is_taken_before_the_first_sign_of_life() {
    let interceptor = Arc::new(Interceptor::default());
    interceptor.hold(Held::ClusterRecords, true);
    let hub = Hub::kubernetes();
    let west = start_with_api_server(&interceptor, &hub, "west").await;
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    west.create_network(NETWORK, blocks).await;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.consumer.create_claim("c", "p").await;
    tokio::time::sleep(WAIT).await;
    let address = west.consumer.addresses().get("c").await;
    let address = address.expect("addresses can be read");
    assert!(address.is_none(), "{address:?}");
    interceptor.hold(Held::ClusterRecords, false);
    west.consumer.wait_for_address("c").await;
}

/// Gives the blocks of west to the cluster, as `kubectl ipam registry adopt` does.
async fn adopt(site: &Site, cluster: &ManagementCluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.consumer.client.clone());
    let found = namespaces.get("kube-system").await;
    let uid = found.expect("the namespace exists").metadata.uid;
    let registry = site.hub.open().await;
    eventually("the record names the cluster", || async {
        let held = registry.read("cluster.west").await.ok()??;
        let Some(Record::Cluster(record)) = held.record() else {
            return None;
        };
        let mut record = record.clone();
        record.uid.clone_from(&uid);
        registry.update(&held, &Record::Cluster(record)).await.ok()
    })
    .await;
}

/// Both processes stop taking and using blocks, and say why. The other one goes on when one has ended.
#[tokio::test]
async fn two_processes_with_one_id_use_no_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("w-", 3)).await;

    let mut other = west.start_another();
    let text = west.wait_for_registry("False", "ClusterIDInUse").await;
    assert!(text.contains("clusterID west"), "{text}");
    west.consumer.create_claim("more", "p").await;
    west.consumer
        .wait_for_message(
            "more",
            "WaitingForBlock",
            "identity of this management cluster",
        )
        .await;
    // A restart does not forget the other process.
    west.restart();
    west.consumer.assert_stays_unbound("more").await;
    other.kill();
    west.wait_for_registry("True", "RegistryReady").await;
    assert_eq!(west.consumer.wait_for_address("more").await, "10.0.1.3");
}

/// A copy of a management cluster gets another identity as the documentation says. Its blocks stay
/// those of the original.
#[tokio::test]
async fn copy_with_another_identity_takes_no_block_of_the_original() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let copy = &site.east;
    copy.create_pool("p", "10.0.1.0-10.0.1.15").await;

    // It takes a block with the identity of the original, whose manager does not run.
    site.wait_for_record("cluster.west").await;
    site.west.kill();
    replace_registry(copy, site.hub.registry("west")).await;
    copy.wait_for_registry("False", "ClusterIDInUse").await;
    adopt(&site, copy).await;
    copy.wait_for_registry("True", "RegistryReady").await;
    let of_original = copy.bind("p", &numbered("o-", 3)).await;
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;

    copy.delete_registry().await;
    let created = create(&copy.registries(), &object(site.hub.registry("east"))).await;
    created.expect("the registry is valid");
    let text = copy.wait_for_conflict("True").await;
    assert!(text.contains("west"), "{text}");

    // The last address of the block is not allocated.
    let more = copy.bind("p", &numbered("n-", 1)).await;
    assert_eq!(more["n-0"], "10.0.1.4");
    for name in of_original.keys() {
        copy.consumer.release(name).await;
    }
    copy.wait_for_conflict("False").await;
    copy.wait_for_blocks(&["10.0.1.4/30"]).await;
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;
}

/// The identity of an IPRegistry is immutable: another one takes its place.
async fn replace_registry(cluster: &ManagementCluster, registry: serde_json::Value) {
    cluster.delete_registry().await;
    let created = create(&cluster.registries(), &object(registry)).await;
    created.expect("the registry is valid");
}

/// A management cluster with two namespaces and a network that shares blocks, without a manager.
async fn two_namespaces(hub: &Hub) -> (ControlPlane, Consumer, Consumer) {
    hub.create_bucket().await;
    let control_plane = ControlPlane::start(Options::default());
    let one = Consumer::new(&control_plane).await;
    let two = Consumer::new(&control_plane).await;
    let registries: ResourceClient<IPRegistry> =
        ResourceClient::new(Api::all(one.client.clone()), &());
    let created = create(&registries, &object(hub.registry("west"))).await;
    created.expect("the registry is valid");
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let spec = json!({"namespaces": {"from": "All"}, "blocks": blocks});
    one.create_network(NETWORK, spec).await;
    (control_plane, one, two)
}

/// Managers that serve one namespace each have the identity of their management cluster together.
#[tokio::test]
async fn managers_of_one_cluster_share_its_blocks() {
    let hub = Hub::nats();
    let (control_plane, one, two) = two_namespaces(&hub).await;
    let managers = [&one, &two].map(|consumer| {
        let namespace = format!("--namespace={}", consumer.namespace);
        Manager::start(&control_plane, &[&FLAGS[..], &[&namespace]].concat())
    });

    // Both allocate from the same range at the same time.
    let spec = json!({"addresses": ["10.0.1.0-10.0.1.15"], "prefix": 16, "network": NETWORK});
    one.create_pool("p", spec.clone()).await;
    two.create_pool("p", spec).await;
    let claims = numbered("c-", 6);
    futures::join!(
        one.create_claims(&claims, "p"),
        two.create_claims(&claims, "p")
    );
    let (of_one, of_two) = futures::join!(
        one.wait_for_addresses(&claims),
        two.wait_for_addresses(&claims)
    );
    let all: BTreeSet<&String> = of_one.values().chain(of_two.values()).collect();
    assert_eq!(
        all.len(),
        12,
        "an address is in use twice: {of_one:?}, {of_two:?}"
    );

    // Neither returns a block that the other one uses, and one of them returns the unused ones.
    one.release_all(&claims).await;
    let used: BTreeSet<String> = of_two.values().map(|address| block_of(address)).collect();
    eventually("only the blocks in use are left", || async {
        let owners = one.slice_owners().await;
        (owners.into_keys().collect::<BTreeSet<_>>() == used).then_some(())
    })
    .await;
    for (claim, address) in &of_two {
        assert_eq!(&two.wait_for_address(claim).await, address);
    }
    assert!(managers.iter().all(|manager| !manager.was_forbidden()));
}

/// No manager serves the part of the objects in which the address is in use.
#[tokio::test]
async fn address_without_a_reservation_keeps_its_block() {
    let hub = Hub::nats();
    let (control_plane, one, two) = two_namespaces(&hub).await;
    let spec = json!({"addresses": ["10.0.1.0-10.0.1.15"], "prefix": 16, "network": NETWORK});
    one.create_pool("p", spec.clone()).await;
    two.create_pool("p", spec).await;
    let manager_of = |consumer: &Consumer| {
        let namespace = format!("--namespace={}", consumer.namespace);
        Manager::start(&control_plane, &[&FLAGS[..], &[&namespace]].concat())
    };
    let manager = manager_of(&two);
    two.create_claims(&numbered("b-", 1), "p").await;
    let address = two.wait_for_address("b-0").await;
    drop(manager);
    for reservation in one.reservations().list().await.expect("the list succeeds") {
        let name = reservation.metadata.name.expect("it has a name");
        let uid = reservation.metadata.uid.expect("it has a uid");
        let deleted = one.reservations().delete(&name, &uid).await;
        deleted.expect("the reservation can be deleted");
    }

    let manager = manager_of(&one);
    tokio::time::sleep(WAIT).await;
    let owners = one.slice_owners().await;
    assert!(owners.contains_key(&block_of(&address)), "{owners:?}");
    assert!(!manager.was_forbidden());
}

/// The block of four addresses that contains an address.
fn block_of(address: &str) -> String {
    let (begin, last) = address.rsplit_once('.').expect("it is an IPv4 address");
    let last: u8 = last.parse().expect("it is an IPv4 address");
    format!("{begin}.{}/30", last / 4 * 4)
}
