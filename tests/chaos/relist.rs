//! All watches break while many objects of each kind exist: 700, which are more than one page of a
//! list, or the number in the variable `CAPI_IPAM_OBJECTS`.

use std::net::Ipv4Addr;

use capi_ipam_controller::client::CallError;
use futures::StreamExt as _;
use support::prelude::*;

const AT_ONCE: usize = 32;
const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];

/// The number of claims, addresses and reservations each.
fn count() -> u32 {
    std::env::var("CAPI_IPAM_OBJECTS").map_or(700, |count| {
        count.parse().expect("CAPI_IPAM_OBJECTS is a number")
    })
}

/// Creates a bound claim with its address and reservation, as the provider does.
async fn seed(consumer: &Consumer, pool_uid: &str, number: u32) -> Result<(), CallError> {
    let (namespace, name) = (&consumer.namespace, format!("c{number}"));
    let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + number).to_string();
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "big"});
    let version = "ipam.cluster.x-k8s.io/v1beta2";
    let claim = json!({
        "apiVersion": version, "kind": "IPAddressClaim",
        "metadata": {"namespace": namespace, "name": name, "finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]},
        "spec": {"poolRef": pool},
    });
    let claim = consumer.claims().create(&object(claim)).await?;
    let uid = claim.uid().unwrap_or_default();
    let owners = json!([
        {"apiVersion": version, "kind": "IPAddressClaim", "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true},
        {"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "name": "big", "uid": pool_uid,
         "controller": false, "blockOwnerDeletion": true},
    ]);
    let made = json!({
        "apiVersion": version, "kind": "IPAddress",
        "metadata": {"namespace": namespace, "name": name, "ownerReferences": owners,
                     "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"]},
        "spec": {"claimRef": {"name": name}, "address": address, "prefix": 16, "poolRef": pool},
    });
    consumer.addresses().create(&object(made)).await?;
    consumer
        .reserve(
            "big",
            &address,
            json!({"namespace": namespace, "name": name, "uid": uid}),
        )
        .await;
    let bind = json!([{"op": "add", "path": "/status", "value": {"addressRef": {"name": name}}}]);
    consumer
        .claims()
        .patch_status(&name, object(bind))
        .await
        .map(drop)
}

/// The number of writes of our kinds since the start of the API server.
fn writes(control_plane: &ControlPlane) -> u64 {
    let ours = control_plane
        .request_count()
        .into_iter()
        .filter(|(key, _)| {
            key.group == "ipam.cluster.x-k8s.io"
                && !["GET", "LIST", "WATCH"].contains(&key.verb.as_str())
        });
    ours.map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn relist_of_all_objects_writes_nothing() {
    listings_of_many_objects(Options::default()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paginated_relist_of_all_objects_writes_nothing() {
    listings_of_many_objects(Options {
        in_pages: true,
        ..Options::default()
    })
    .await;
}

async fn listings_of_many_objects(options: Options) {
    let (count, in_pages) = (count(), options.in_pages);
    let mut control_plane = ControlPlane::start(options);
    let consumer = Consumer::new(&control_plane).await;
    let pool = consumer
        .create_pool("big", json!({"addresses": ["10.1.0.0/16"], "prefix": 16}))
        .await;
    let (started, uid) = (Instant::now(), pool.uid().unwrap_or_default());
    let seeded = |number| {
        let (consumer, uid) = (&consumer, &uid);
        async move {
            seed(consumer, uid, number)
                .await
                .expect("objects can be created")
        }
    };
    futures::stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, seeded)
        .await;
    println!(
        "{count} claims, addresses and reservations made in {:?}",
        started.elapsed()
    );
    let started = Instant::now();
    let mut manager = Manager::start(&control_plane, &FLAGS);
    println!("ready {:?} after the start", started.elapsed());
    let in_use = i64::from(count);
    consumer
        .wait_for_counts("big", (65_534, 65_534 - in_use, in_use, 0))
        .await;

    for round in 0..2 {
        control_plane.stop_api_server();
        control_plane.start_api_server();
        let answers = Instant::now();
        let name = format!("new{round}");
        consumer.create_claim(&name, "big").await;
        consumer
            .wait_until_bound(&name, Duration::from_mins(2))
            .await;
        println!(
            "a new claim is bound {:?} after the API server responds",
            answers.elapsed()
        );
        consumer.release(&name).await;
        consumer
            .wait_for_counts("big", (65_534, 65_534 - in_use, in_use, 0))
            .await;
        // The status of the pool is written later.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let patience = Patience::new(Duration::from_mins(1));
        let mut before = writes(&control_plane);
        loop {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let now = writes(&control_plane);
            if now == before {
                break;
            }
            assert!(
                !patience.is_over(),
                "it does not stop writing: {before}, then {now}"
            );
            before = now;
        }
        // Claim, its finalizer twice, reservation, address, status, and statuses of the pool; not
        // all objects.
        assert!(before < 200, "{before} writes for one claim");
    }
    assert!(manager.is_running(), "{}", manager.log());
    for kind in [
        "IPAddressClaim",
        "IPAddress",
        "IPReservation",
        "InClusterIPPool",
    ] {
        let expected = format!("the objects are listed in pages kind={kind}");
        assert_eq!(
            manager.log().contains(&expected),
            in_pages,
            "{expected}: {}",
            manager.log()
        );
    }
}
