//! Clocks that differ by an hour: the times that others wrote lie in the future, or long ago.
//!
//! The clock of a process cannot be set from outside without a library put under it; so the times in the objects are
//! shifted instead, which comes to the same: what the manager compares is its own clock and such a time. The functions
//! that compare have unit tests with both.

use std::time::{Duration, Instant};

use capi_ipam::support::consumer::{Consumer, eventually, eventually_within, object, stays};
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam_controller::client::ResourceClient;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];
const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn shifted(by: SignedDuration) -> String {
    Timestamp::now().saturating_add(by).expect("an hour is not much").to_string()
}

/// A rest that began in the future by the clock of who wrote it ends; one that began long ago ends at once; and neither
/// frees what is in use.
#[tokio::test(flavor = "multi_thread")]
async fn a_rest_whose_beginning_lies_in_the_future_or_long_ago_frees_nothing_in_use() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.6"], "prefix": 24, "addressReuseGracePeriodSeconds": 5});
    consumer.pool("web", spec).await;
    for name in ["a", "b"] {
        consumer.claim(name, "web").await;
        consumer.bound(name).await;
    }
    // Both are in use, and said to have been released: in an hour, and an hour ago.
    for (address, by) in [("10.0.0.1", HOUR), ("10.0.0.2", -HOUR)] {
        let name = format!("p.{}.web.{address}", consumer.namespace);
        let patch = json!([{"op": "add", "path": "/spec/releasedAt", "value": shifted(by)}]);
        consumer.reservations().patch(&name, object(patch)).await.expect("a reservation can be released");
    }
    for (name, address) in [("c", "10.0.0.3"), ("d", "10.0.0.4")] {
        consumer.claim(name, "web").await;
        assert_eq!(consumer.bound(name).await, address);
    }
    eventually("both are reserved for their claims again", || async {
        let mut right = true;
        for address in ["10.0.0.1", "10.0.0.2"] {
            right &= consumer.reservation("web", address).await.is_some_and(|found| found.spec.released_at.is_none());
        }
        right.then_some(())
    })
    .await;
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c"), ("10.0.0.4", "d")]).await;
    for name in ["a", "b"] {
        consumer.bound(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_rests_since_a_time_to_come_is_given_again_in_bounded_time() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 3});
    consumer.pool("web", spec).await;
    let (namespace, scope) = (&consumer.namespace, format!("p.{}.web", consumer.namespace));
    let resting = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
        "metadata": {"name": format!("{scope}.10.0.0.1")},
        "spec": {
            "scope": scope, "address": "10.0.0.1", "releasedAt": shifted(HOUR),
            "poolRef": {"kind": "InClusterIPPool", "namespace": namespace, "name": "web"},
            "claimRef": {"namespace": namespace, "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"},
        },
    });
    consumer.reservations().create(&object(resting)).await.expect("a reservation can be made");
    consumer.claim("a", "web").await;
    let started = Instant::now();
    eventually_within(Duration::from_mins(1), "the address is given again", || async {
        consumer.claims().get("a").await.ok()??.bound_address().map(drop)
    })
    .await;
    println!("given again after {:?}", started.elapsed());
}

/// The protocol of leases compares no clocks of others: a lease is expired when it has not changed for its duration.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_renewed_in_the_future_or_long_ago_is_taken_over_after_its_duration_and_not_before() {
    for by in [HOUR, -HOUR] {
        let control_plane = ControlPlane::start(Options::default());
        let consumer = Consumer::new(&control_plane).await;
        let leases: ResourceClient<Lease> = ResourceClient::new(Api::namespaced(consumer.client.clone(), NAMESPACE), &());
        let time = Timestamp::now().saturating_add(by).expect("an hour is not much");
        let time = time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({
            "metadata": {"name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 10, "acquireTime": time, "renewTime": time},
        });
        leases.create(&object(lease)).await.expect("a lease can be made");
        let flags = [
            "--leader-elect",
            "--leader-elect-lease-duration=10s",
            "--leader-elect-renew-deadline=8s",
            "--leader-elect-retry-period=200ms",
        ];
        let started = Instant::now();
        let manager = Manager::start(&control_plane, &flags);
        stays("the lease is the other's", || async { !manager.log().contains("acquired leadership lease") }).await;
        manager.wait_for_log("acquired leadership lease");
        println!("a lease shifted by {by:#} is taken over after {:?}", started.elapsed());
        assert!(started.elapsed() > Duration::from_secs(8), "{:?}", started.elapsed());
        consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
        consumer.claim("a", "web").await;
        consumer.bound("a").await;
    }
}
