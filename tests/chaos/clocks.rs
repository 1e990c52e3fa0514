//! Clock skew of one hour: timestamps of other writers are in the future or in the past.
//!
//! The clock of a process cannot be changed from outside without a preloaded library. So the timestamps in the objects
//! are shifted instead. The result is the same, since the manager compares its own clock with such a timestamp. The
//! comparing functions have unit tests for both.

use std::time::{Duration, Instant};

use capi_ipam_controller::client::ResourceClient;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;

use crate::support::consumer::{Consumer, object};
use crate::support::control_plane::{ControlPlane, NAMESPACE, Options};
use crate::support::manager::Manager;
use crate::support::wait::{consistently, eventually, eventually_within};

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];
const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn shifted(by: SignedDuration) -> String {
    Timestamp::now().saturating_add(by).expect("an hour is not much").to_string()
}

/// A cool-down with a start in the future ends; one with a start in the past ends immediately; and neither frees an
/// address in use.
#[tokio::test(flavor = "multi_thread")]
async fn cooldown_with_a_skewed_start_frees_no_address_in_use() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.6"], "prefix": 24, "addressReuseGracePeriodSeconds": 5});
    consumer.create_pool("web", spec).await;
    for name in ["a", "b"] {
        consumer.create_claim(name, "web").await;
        consumer.wait_for_address(name).await;
    }
    // Both are in use, and marked as released: in an hour, and an hour ago.
    for (address, by) in [("10.0.0.1", HOUR), ("10.0.0.2", -HOUR)] {
        let name = format!("p.{}.web.{address}", consumer.namespace);
        let patch = json!([{"op": "add", "path": "/spec/releasedAt", "value": shifted(by)}]);
        consumer.reservations().patch(&name, object(patch)).await.expect("a reservation can be released");
    }
    for (name, address) in [("c", "10.0.0.3"), ("d", "10.0.0.4")] {
        consumer.create_claim(name, "web").await;
        assert_eq!(consumer.wait_for_address(name).await, address);
    }
    eventually("both are reserved for their claims again", || async {
        let mut right = true;
        for address in ["10.0.0.1", "10.0.0.2"] {
            right &= consumer.reservation("web", address).await.is_some_and(|found| found.spec.released_at.is_none());
        }
        right.then_some(())
    })
    .await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c"), ("10.0.0.4", "d")])
        .await;
    for name in ["a", "b"] {
        consumer.wait_for_address(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_that_starts_in_the_future_ends_in_bounded_time() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &FLAGS);
    let consumer = Consumer::new(&control_plane).await;
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 3});
    consumer.create_pool("web", spec).await;
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
    consumer.reservations().create(&object(resting)).await.expect("a reservation can be created");
    consumer.create_claim("a", "web").await;
    let started = Instant::now();
    eventually_within(Duration::from_mins(1), "the address is reused", || async {
        consumer.claims().get("a").await.ok()??.bound_address().map(drop)
    })
    .await;
    println!("reused after {:?}", started.elapsed());
}

/// Leader election does not compare timestamps of others: a lease is expired when it has not changed for its duration.
#[tokio::test(flavor = "multi_thread")]
async fn lease_with_skewed_renew_time_is_acquired_after_its_duration() {
    for by in [HOUR, -HOUR] {
        let control_plane = ControlPlane::start(Options::default());
        let consumer = Consumer::new(&control_plane).await;
        let leases: ResourceClient<Lease> =
            ResourceClient::new(Api::namespaced(consumer.client.clone(), NAMESPACE), &());
        let time = Timestamp::now().saturating_add(by).expect("an hour is not much");
        let time = time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({
            "metadata": {"name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 10, "acquireTime": time, "renewTime": time},
        });
        leases.create(&object(lease)).await.expect("a lease can be created");
        let flags = [
            "--leader-elect",
            "--leader-elect-lease-duration=10s",
            "--leader-elect-renew-deadline=8s",
            "--leader-elect-retry-period=200ms",
        ];
        let started = Instant::now();
        // On a loaded machine the lease could expire until it is ready.
        let manager = Manager::launch(&control_plane, control_plane.provider_kubeconfig(), &flags);
        consistently("the lease belongs to the other holder", || async {
            !manager.log().contains("acquired leadership lease")
        })
        .await;
        manager.wait_for_log("acquired leadership lease");
        println!("a lease shifted by {by:#} is taken over after {:?}", started.elapsed());
        assert!(started.elapsed() > Duration::from_secs(8), "{:?}", started.elapsed());
        consumer.create_pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
        consumer.create_claim("a", "web").await;
        consumer.wait_for_address("a").await;
    }
}
