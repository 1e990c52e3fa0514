//! Clock skew: managers whose clocks differ by two minutes, and timestamps of other writers that
//! are an hour in the future or in the past.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use support::{manager, prelude::*};

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=2s"];
const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn shifted(by: SignedDuration) -> String {
    Timestamp::now()
        .saturating_add(by)
        .expect("an hour is not much")
        .to_string()
}

/// Starts a manager of one namespace whose wall clock is wrong by `seconds`, with a preloaded
/// library.
fn start_skewed(control_plane: &ControlPlane, seconds: i64, namespace: &str) -> Manager {
    let folder = control_plane.folder();
    let library = folder.join("skew.so");
    if !library.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chaos/skew.c");
        let mut compile = Command::new("cc");
        compile
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-ldl");
        assert!(
            compile
                .status()
                .expect("a C compiler is installed")
                .success()
        );
    }
    let script = folder.join(format!("manager{seconds}"));
    let manager = manager::manager();
    let text = format!(
        "#!/bin/sh\nexport CLOCK_SKEW_SECONDS={seconds} LD_PRELOAD={}\nexec {} \"$@\"\n",
        library.display(),
        manager.display()
    );
    std::fs::write(&script, text).expect("a file can be written");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755))
        .expect("it can be made executable");
    let namespace = format!("--namespace={namespace}");
    let flags = [&FLAGS[..], &["--webhook-port=0", &namespace]].concat();
    let manager = Manager::start_program(
        control_plane,
        &script,
        control_plane.provider_kubeconfig(),
        &flags,
    );
    manager.wait_until_ready();
    manager
}

/// Two managers share a global pool whose addresses cool down. Each is woken by the status that the
/// other one writes.
#[tokio::test(flavor = "multi_thread")]
async fn managers_with_skewed_clocks_agree_on_cooldowns() {
    let control_plane = ControlPlane::new();
    let (one, other) = two_consumers(&control_plane).await;
    let _ahead = start_skewed(&control_plane, 60, &one.namespace);
    let _behind = start_skewed(&control_plane, -60, &other.namespace);
    let (long, short) = (unique("long"), unique("short"));
    for (pool, network, seconds) in [(&long, 1, 600), (&short, 2, 5)] {
        let addresses = json!([format!("10.0.{network}.1-10.0.{network}.2")]);
        let spec = json!({"addresses": addresses, "prefix": 24, "addressReuseGracePeriodSeconds": seconds});
        one.create_global_pool(pool, spec).await;
        for consumer in [&one, &other] {
            consumer.bind_global(pool, pool).await;
        }
    }

    // The address of the manager that is behind is released last, and ended by either.
    let released = Instant::now();
    for consumer in [&one, &other] {
        consumer.release(&short).await;
    }
    one.bind_global("next", &short).await;
    let took = released.elapsed();
    assert!(
        took >= Duration::from_secs(5),
        "the address is reused after {took:?}"
    );

    for consumer in [&one, &other] {
        consumer.release(&long).await;
    }
    one.wait_for_counts_of(InClusterKind::GlobalIPPool, &long, (2, 0, 0, 0))
        .await;
    let pools = one.global_pools();
    let mut versions = BTreeSet::new();
    for _ in 0..50 {
        let found = read(&pools, &long).await;
        versions.insert(found.metadata.resource_version);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        versions.len() <= 3,
        "the pool has {} states in 5 s",
        versions.len()
    );
}

/// A cool-down with a start in the future ends; one with a start in the past ends immediately; and
/// neither frees an address in use.
#[tokio::test(flavor = "multi_thread")]
async fn cooldown_with_a_skewed_start_frees_no_address_in_use() {
    let (_plane, _manager, consumer) = scene_with_manager(&FLAGS).await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.6"], "prefix": 24, "addressReuseGracePeriodSeconds": 5});
    consumer.create_pool("web", spec).await;
    for name in ["a", "b"] {
        consumer.bind(name, "web").await;
    }
    // Both are in use, and marked as released: in an hour, and an hour ago.
    for (address, by) in [("10.0.0.1", HOUR), ("10.0.0.2", -HOUR)] {
        let name = format!("p.{}.web.{address}", consumer.namespace);
        let patch = json!([{"op": "add", "path": "/spec/releasedAt", "value": shifted(by)}]);
        consumer
            .reservations()
            .patch(&name, object(patch))
            .await
            .expect("a reservation can be released");
    }
    for (name, address) in [("c", "10.0.0.3"), ("d", "10.0.0.4")] {
        consumer.bind_to(name, "web", address).await;
    }
    eventually("both are reserved for their claims again", || async {
        let mut right = true;
        for address in ["10.0.0.1", "10.0.0.2"] {
            right &= consumer
                .reservation("web", address)
                .await
                .is_some_and(|found| found.spec.released_at.is_none());
        }
        right.then_some(())
    })
    .await;
    consumer
        .wait_for_reservations(
            "web",
            &[
                ("10.0.0.1", "a"),
                ("10.0.0.2", "b"),
                ("10.0.0.3", "c"),
                ("10.0.0.4", "d"),
            ],
        )
        .await;
    for name in ["a", "b"] {
        consumer.wait_for_address(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cooldown_that_starts_in_the_future_ends_in_bounded_time() {
    let (_plane, _manager, consumer) = scene_with_manager(&FLAGS).await;
    consumer
        .create_pool(
            "web",
            ("10.0.0.1", json!({"addressReuseGracePeriodSeconds": 3})),
        )
        .await;
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
    consumer
        .reservations()
        .create(&object(resting))
        .await
        .expect("a reservation can be created");
    consumer.create_claim("a", "web").await;
    let started = Instant::now();
    consumer.wait_until_bound("a", Duration::from_mins(1)).await;
    println!("reused after {:?}", started.elapsed());
}

/// Leader election does not compare timestamps of others: a lease is expired when it has not
/// changed for its duration.
#[tokio::test(flavor = "multi_thread")]
async fn lease_with_skewed_renew_time_is_acquired_after_its_duration() {
    for by in [HOUR, -HOUR] {
        let (control_plane, consumer) = scene().await;
        let leases: ResourceClient<Lease> =
            ResourceClient::new(Api::namespaced(consumer.client.clone(), NAMESPACE), &());
        let time = Timestamp::now()
            .saturating_add(by)
            .expect("an hour is not much");
        let time = time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let lease = json!({
            "metadata": {"name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 10, "acquireTime": time, "renewTime": time},
        });
        leases
            .create(&object(lease))
            .await
            .expect("a lease can be created");
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
        println!(
            "a lease shifted by {by:#} is taken over after {:?}",
            started.elapsed()
        );
        assert!(
            started.elapsed() > Duration::from_secs(8),
            "{:?}",
            started.elapsed()
        );
        consumer.create_pool("web", "10.0.0.1").await;
        consumer.bind("a", "web").await;
    }
}
