//! Pools with common addresses, in one network and in none.

use capi_ipam_api::{ProblemStatus, conditions, names::LEAVE_NETWORK_ANNOTATION};
use capi_ipam_controller::finalizer;
use support::prelude::*;

use crate::{consumer, kstatus::kstatus};

#[tokio::test]
async fn pools_of_one_network_never_allocate_the_same_address() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec =
        |addresses: &str| json!({"addresses": [addresses], "prefix": 24, "network": network});
    consumer.create_open_network(&network).await;
    consumer.create_pool("p", spec("10.20.0.1-10.20.0.3")).await;
    consumer.create_pool("q", spec("10.20.0.2-10.20.0.4")).await;
    consumer.wait_until_pool_ready("p").await;
    consumer.wait_until_pool_ready("q").await;
    consumer.bind_to("q1", "q", "10.20.0.2").await;
    consumer.bind_to("p1", "p", "10.20.0.1").await;
    consumer.bind_to("p2", "p", "10.20.0.3").await;
    consumer.wait_for_counts("p", (3, 0, 2, 0)).await;
    consumer.wait_for_counts("q", (3, 1, 1, 0)).await;
    let name = format!("n.{network}.10.20.0.2");
    let reservation = read(&consumer.reservations(), &name).await;
    assert_eq!(reservation.spec.pool_ref.name, "q");

    // An address released by one pool is allocated to a claim that waits for another.
    consumer.claim_waits("p3", "p", "PoolExhausted").await;
    consumer.release("q1").await;
    consumer.assert_address("p3", "10.20.0.2").await;
    consumer.wait_for_counts("q", (3, 1, 0, 0)).await;
    consumer
        .wait_for_condition(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap")
        .await;
}

#[tokio::test]
async fn pools_without_a_network_report_overlaps() {
    let consumer = consumer().await;
    let spec = |addresses: &str| json!({"addresses": [addresses], "prefix": 24});
    consumer.create_pool("p", spec("10.21.0.1-10.21.0.3")).await;
    consumer
        .wait_for_condition(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap")
        .await;
    consumer.create_pool("q", spec("10.21.0.3-10.21.0.4")).await;
    assert_contains(
        &consumer
            .wait_for_condition(
                &consumer.pools(),
                "p",
                "Overlapping",
                "True",
                "PoolsOverlap",
            )
            .await,
        &format!("InClusterIPPool {}/q", consumer.namespace),
    );
    consumer
        .wait_for_condition(
            &consumer.pools(),
            "q",
            "Overlapping",
            "True",
            "PoolsOverlap",
        )
        .await;
    consumer.bind_to("a", "q", "10.21.0.3").await;
    for name in ["b", "c", "d"] {
        consumer.bind(name, "p").await;
    }
    assert_eq!(
        consumer.wait_for_address("d").await,
        "10.21.0.3",
        "as before: each pool allocates independently"
    );
    consumer
        .modify_pool("q", |spec| spec["addresses"] = json!(["10.21.0.4"]))
        .await;
    consumer
        .wait_for_condition(&consumer.pools(), "p", "Overlapping", "False", "NoOverlap")
        .await;
    consumer
        .wait_for_condition(
            &consumer.pools(),
            "q",
            "OutOfRange",
            "True",
            "AddressesOutOfRange",
        )
        .await;
}

#[tokio::test]
async fn pools_of_a_network_share_one_allocation_length() {
    let (consumer, network) = (consumer().await, unique("net"));
    consumer.create_open_network(&network).await;
    consumer
        .create_pool(
            "addresses",
            json!({"addresses": ["fd21::/64"], "prefix": 64, "network": network}),
        )
        .await;
    consumer.wait_until_pool_ready("addresses").await;
    let prefixes = consumer.pools_of(InClusterKind::PrefixPool);
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "prefixes",
            json!({"prefixes": ["fd21::/48"], "network": network}),
        )
        .await;
    let text = consumer
        .wait_for_condition(
            &prefixes,
            "prefixes",
            "Ready",
            "False",
            "BlockLengthMismatch",
        )
        .await;
    assert!(
        text.contains("spec.network") && text.contains("128"),
        "{text}"
    );
    consumer
        .create_claim_of(InClusterKind::PrefixPool, "a", "prefixes")
        .await;
    consumer.wait_for_reason("a", "PoolNotReady").await;
    // Another family, or the same length, is allowed.
    consumer
        .create_pool_of(
            InClusterKind::PrefixPool,
            "ipv4",
            json!({"prefixes": ["192.0.2.0/24"], "allocationPrefixLength": 28, "network": network}),
        )
        .await;
    consumer
        .wait_for_condition(&prefixes, "ipv4", "Ready", "True", "PoolReady")
        .await;
    let single =
        json!({"prefixes": ["fd21::/126"], "allocationPrefixLength": 128, "network": network});
    consumer
        .create_pool_of(InClusterKind::PrefixPool, "single", single)
        .await;
    consumer.bind_to("b", "addresses", "fd21::1").await;
    assert_eq!(
        consumer
            .bind_of(InClusterKind::PrefixPool, "c", "single")
            .await,
        "fd21::"
    );
    assert_eq!(
        consumer
            .bind_of(InClusterKind::PrefixPool, "d", "single")
            .await,
        "fd21::2"
    );
}

#[tokio::test]
async fn manual_reservation_excludes_an_address_from_a_network() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = json!({"addresses": ["10.22.0.1-10.22.0.3"], "prefix": 24, "network": network});
    consumer.create_open_network(&network).await;
    consumer.create_pool("p", spec.clone()).await;
    consumer.create_pool("q", spec).await;
    let reserve = async |last: u8, claim: serde_json::Value| {
        let (address, scope) = (format!("10.22.0.{last}"), format!("n.{network}"));
        let mut made = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": {"name": format!("{scope}.{address}")},
            "spec": {"scope": scope, "address": address,
                     "poolRef": {"kind": "InClusterIPPool", "namespace": consumer.namespace, "name": "p"}},
        });
        if !claim.is_null() {
            made["spec"]["claimRef"] = claim;
        }
        create(&consumer.reservations(), &object(made))
            .await
            .expect("it can be created");
    };
    reserve(1, json!(null)).await;
    reserve(2, json!({"namespace": consumer.namespace, "name": "vip"})).await;
    consumer.wait_for_counts("q", (3, 1, 0, 0)).await;
    consumer.bind_to("a", "q", "10.22.0.3").await;
    consumer.bind_to("vip", "p", "10.22.0.2").await;
}

#[tokio::test]
async fn invalid_reservation_is_reported_until_it_is_corrected() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.23.0.1-10.23.0.3").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
    consumer.reserve_for("web", "10.23.0.200", "vip").await;
    let name = format!("p.{}.web.10.23.0.200", consumer.namespace);
    // Events about global objects are in the namespace `default`.
    let default = consumer.in_namespace("default");
    default
        .wait_for_event(&name, "Warning", "InvalidReservation", "10.23.0.200")
        .await;
    // A reservation of an address outside the pool has no effect.
    consumer.bind_to("vip", "web", "10.23.0.1").await;
    let reservations = consumer.reservations();
    let wait_for = async |reason: &str, expected: &str| {
        eventually(&format!("the reservation reports {reason}"), || async {
            let found = reservations.get(&name).await.ok()??;
            let ready = found.status.as_ref()?.conditions.first()?;
            let is_reported = ready.reason.as_deref() == Some(reason);
            (is_reported && kstatus(&found) == expected).then_some(found)
        })
        .await
    };
    let failed = wait_for("Error", "Failed").await;
    let problem = failed.status.as_ref().and_then(ProblemStatus::problem);
    assert!(
        problem.is_some_and(|text| text.contains("10.23.0.200")),
        "{problem:?}"
    );
    consumer
        .modify_pool("web", |spec| {
            spec["addresses"] = json!(["10.23.0.1-10.23.0.3", "10.23.0.200"]);
        })
        .await;
    wait_for("Validated", "Current").await;
    let of_other = consumer.reserve_for("other", "10.23.0.2", "other").await;
    let other = of_other.metadata.name.as_deref().unwrap_or_default();
    default
        .wait_for_event(
            other,
            "Warning",
            "InvalidReservation",
            "other does not exist",
        )
        .await;
    // The reservation of a claim has no status, and is written only once.
    let of_claim = format!("p.{}.web.10.23.0.1", consumer.namespace);
    let held = reservations.get(&of_claim).await.expect("it can be read");
    let held = held.expect("it exists");
    assert_eq!((held.status, held.metadata.generation), (None, Some(1)));
}

#[tokio::test]
async fn network_decides_which_pools_belong_to_it() {
    let (consumer, network) = (consumer().await, unique("net"));
    let pools = consumer.pools();
    consumer
        .create_pool("web", ("10.24.0.1-10.24.0.9", json!({"network": network})))
        .await;
    assert_contains(
        &consumer
            .wait_for_condition(&pools, "web", "Ready", "False", "NetworkNotFound")
            .await,
        &format!("IPNetwork {network} does not exist"),
    );
    consumer.claim_waits("a", "web", "PoolNotReady").await;
    consumer.create_network(&network, json!({})).await;
    consumer
        .wait_for_condition(&pools, "web", "Ready", "False", "NetworkNotAllowed")
        .await;
    let all = consumer.networks();
    let allow = |from: &'static str| {
        consumer.modify(&all, &network, move |object| {
            object["spec"]["namespaces"] = json!({"from": from})
        })
    };
    allow("All").await;
    consumer.assert_address("a", "10.24.0.1").await;
    consumer
        .wait_for_condition(&pools, "web", "Ready", "True", "PoolReady")
        .await;

    // A claim that is bound keeps its address, and new ones wait.
    allow("None").await;
    consumer
        .wait_for_condition(&pools, "web", "Ready", "False", "NetworkNotAllowed")
        .await;
    consumer.claim_waits("b", "web", "PoolNotReady").await;
    consumer.assert_address("a", "10.24.0.1").await;
    let reservation = format!("n.{network}.10.24.0.1");
    assert!(
        consumer
            .reservations()
            .get(&reservation)
            .await
            .expect("it can be read")
            .is_some()
    );
    consumer.release("a").await;
    allow("All").await;
    consumer.assert_address("b", "10.24.0.1").await;
}

#[tokio::test]
async fn network_in_use_is_not_deleted() {
    let (consumer, network) = (consumer().await, unique("net"));
    consumer.create_open_network(&network).await;
    consumer
        .create_pool("web", ("10.25.0.1-10.25.0.9", json!({"network": network})))
        .await;
    consumer.bind_to("a", "web", "10.25.0.1").await;
    let networks = consumer.networks();
    eventually("the status counts pools and addresses", async || {
        let status = networks.get(&network).await.ok()??.status?;
        let member = status.members.first()?;
        let counts = (
            status.pools,
            status.total,
            status.used,
            status.free,
            member.name.as_str(),
        );
        (counts == (1, 9, 1, 8, "web")).then_some(())
    })
    .await;
    consumer.delete_object(&networks, &network).await;
    let text = consumer
        .wait_for_network_condition(&network, "False", "Deleting")
        .await;
    assert!(
        text.contains("1 pool to leave") && text.contains("1 reservation to be"),
        "{text}"
    );
    // The address is released, and no other one is allocated.
    consumer.claim_waits("b", "web", "PoolNotReady").await;
    consumer.release("a").await;
    consumer.release("b").await;
    consumer.delete_unused_pool(&consumer.pools(), "web").await;
    consumer.wait_until_gone(&networks, &network).await;
}

#[tokio::test]
async fn pool_in_use_joins_and_leaves_a_network() {
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = json!({"addresses": ["10.26.0.1-10.26.0.9"], "prefix": 24, "addressReuseGracePeriodSeconds": 600});
    consumer.create_pool("web", spec).await;
    for name in ["a", "b"] {
        consumer.bind(name, "web").await;
    }
    // An address that cools down, one that is excluded, and one that is promised.
    consumer.release("b").await;
    consumer.reserve("web", "10.26.0.3", json!(null)).await;
    consumer.reserve_for("web", "10.26.0.5", "vip").await;
    consumer.wait_for_counts("web", (9, 5, 1, 0)).await;
    let selector = json!({"matchLabels": {"site": network}});
    consumer
        .create_network(
            &network,
            json!({"namespaces": {"from": "All"}, "pools": selector}),
        )
        .await;
    let label = async |labels: serde_json::Value| {
        consumer.label_pool("web", labels.clone()).await;
    };
    label(json!({"site": network})).await;
    let reserved = async |prefix: &str| {
        let reservations = consumer.reservations();
        let all = retry_unanswered(|| reservations.list())
            .await
            .expect("they can be listed");
        let names = all.into_iter().filter_map(|found| found.metadata.name);
        let mut addresses: Vec<_> = names
            .filter_map(|name| Some(name.strip_prefix(prefix)?.to_owned()))
            .collect();
        addresses.sort();
        addresses
    };
    let (inside, outside) = (
        format!("n.{network}."),
        format!("p.{}.web.", consumer.namespace),
    );
    let moved = ["10.26.0.1", "10.26.0.2", "10.26.0.3", "10.26.0.5"];
    eventually("the reservations are in the network", async || {
        (reserved(&inside).await == moved && reserved(&outside).await.is_empty()).then_some(())
    })
    .await;
    // Another pool of the network allocates none of them.
    consumer
        .create_pool(
            "other",
            ("10.26.0.1-10.26.0.9", json!({"network": network})),
        )
        .await;
    consumer.bind_to("c", "other", "10.26.0.4").await;
    consumer.bind_to("d", "web", "10.26.0.6").await;
    consumer.bind_to("vip", "web", "10.26.0.5").await;
    consumer.wait_for_counts("web", (9, 3, 3, 0)).await;

    // Another writer removes the label: the pool is in use, and stays.
    label(json!({})).await;
    let text = consumer
        .wait_for_condition(
            &consumer.pools(),
            "web",
            conditions::KEPT_IN_NETWORK,
            "True",
            "AddressesInUse",
        )
        .await;
    let leave = format!(
        "kubectl annotate --namespace {} inclusterippools web {LEAVE_NETWORK_ANNOTATION}={network}",
        consumer.namespace
    );
    assert!(
        text.contains("last recorded writer of the pool: ") && text.ends_with(&leave),
        "{text}"
    );
    assert_eq!(reserved(&inside).await.len(), 6, "{inside}");
    consumer.wait_for_counts("web", (9, 3, 3, 0)).await;
    consumer
        .modify(&consumer.pools(), "web", |pool| {
            pool["metadata"]["annotations"][LEAVE_NETWORK_ANNOTATION] = json!(network);
        })
        .await;
    let mine = [
        "10.26.0.1",
        "10.26.0.2",
        "10.26.0.3",
        "10.26.0.5",
        "10.26.0.6",
    ];
    eventually("the reservations are outside of the network", async || {
        (reserved(&outside).await == mine && reserved(&inside).await == ["10.26.0.4"]).then_some(())
    })
    .await;
    assert_eq!(
        consumer.bind("e", "web").await,
        "10.26.0.4",
        "the pool is on its own again"
    );
    consumer.wait_for_counts("web", (9, 3, 4, 0)).await;
    consumer.release("a").await;
    eventually("the address cools down", async || {
        let found = consumer
            .reservations()
            .get(&format!("{outside}10.26.0.1"))
            .await
            .ok()??;
        found.spec.released_at.map(drop)
    })
    .await;
}

/// The reservation that is being deleted protects the address only until it is gone.
#[tokio::test]
async fn reservation_is_not_moved_to_one_that_is_being_deleted() {
    const FINALIZER: &str = "example.com/keep";
    let (consumer, network) = (consumer().await, unique("net"));
    let spec = json!({"addresses": ["10.25.0.1-10.25.0.9"], "prefix": 24});
    consumer.create_pool("web", spec).await;
    let address = consumer.bind("a", "web").await;
    let old = consumer.reservation("web", &address).await;
    let old = old.expect("the address is reserved");

    // An earlier move has left a copy in the network, which waits for a finalizer.
    let name = format!("n.{network}.{address}");
    let mut copy = old.clone();
    copy.metadata = kube::api::ObjectMeta {
        name: Some(name.clone()),
        finalizers: Some(vec![FINALIZER.to_owned()]),
        ..Default::default()
    };
    copy.spec.scope = format!("n.{network}");
    let reservations = consumer.reservations();
    let copy = create(&reservations, &copy).await;
    let copy = copy.expect("the reservation can be created");
    let uid = copy.metadata.uid.as_deref().unwrap_or_default();
    let deleted = retry_unanswered(|| reservations.delete(&name, uid)).await;
    deleted.expect("the reservation can be deleted");

    let selector = json!({"matchLabels": {"site": network}});
    let spec = json!({"namespaces": {"from": "All"}, "pools": selector});
    consumer.create_network(&network, spec).await;
    consumer.label_pool("web", json!({"site": network})).await;
    // The pool has joined: it allocates in the network, and the other address stays reserved twice.
    eventually("the pool allocates in the network", async || {
        consumer
            .create_claim_of(InClusterKind::IPPool, "b", "web")
            .await;
        let other = consumer.wait_for_address("b").await;
        let inside = reservations.get(&format!("n.{network}.{other}")).await;
        inside.ok()?.map(drop)
    })
    .await;
    // A move would take place now.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let kept = consumer.reservation("web", &address).await;
    assert_eq!(kept.and_then(|kept| kept.metadata.uid), old.metadata.uid);

    let terminating = reservations.get(&name).await.expect("it can be read");
    let terminating = terminating.expect("it waits for its finalizer");
    assert!(terminating.metadata.deletion_timestamp.is_some());
    let removed = finalizer::remove(&reservations, &terminating, FINALIZER).await;
    removed.expect("the finalizer can be removed");
    eventually("the reservation is moved", async || {
        let moved = reservations.get(&name).await.ok()??;
        let is_new = moved.metadata.deletion_timestamp.is_none();
        let old = consumer.reservation("web", &address).await;
        (is_new && old.is_none()).then_some(())
    })
    .await;
}

/// Two pools of the same addresses that a network selects, with a claim each: 1 is in use in the
/// first one, 2 in the second one.
async fn two_selected_pools(consumer: &Consumer, network: &str, subnet: &str) {
    let selector = json!({"matchLabels": {"site": network}});
    consumer
        .create_network(
            network,
            json!({"namespaces": {"from": "All"}, "pools": selector}),
        )
        .await;
    let pools = consumer.pools();
    for name in ["web", "db"] {
        let spec = json!({"addresses": [format!("{subnet}.1-{subnet}.4")], "prefix": 24});
        consumer.create_pool(name, spec).await;
        consumer
            .modify(&pools, name, |pool| {
                pool["metadata"]["labels"] = json!({"site": network})
            })
            .await;
        eventually("the pool belongs to the network", async || {
            let network_of = pools.get(name).await.ok()??.status?.network?;
            (network_of.name == network).then_some(())
        })
        .await;
    }
    for (claim, pool, last) in [("web1", "web", 1), ("db1", "db", 2)] {
        let address = format!("{subnet}.{last}");
        consumer.bind_to(claim, pool, address).await;
    }
}

/// No claim gets an address, and the reservations are still in the network.
async fn assert_pools_wait(consumer: &Consumer, network: &str, subnet: &str) {
    for name in ["web", "db"] {
        consumer
            .wait_for_pool_condition(name, "False", "NetworkNotReady")
            .await;
        consumer
            .claim_waits(&format!("{name}2"), name, "PoolNotReady")
            .await;
    }
    for last in [1, 2] {
        let name = format!("n.{network}.{subnet}.{last}");
        assert!(
            consumer
                .reservations()
                .get(&name)
                .await
                .expect("it can be read")
                .is_some(),
            "{name}"
        );
    }
}

#[tokio::test]
async fn deleted_network_keeps_the_pools_that_it_selects() {
    let (consumer, network) = (consumer().await, unique("net"));
    two_selected_pools(&consumer, &network, "10.27.0").await;
    let networks = consumer.networks();
    consumer.delete_object(&networks, &network).await;
    let text = consumer
        .wait_for_network_condition(&network, "False", "Deleting")
        .await;
    assert!(
        text.contains("2 pools") && text.contains("2 reservations"),
        "{text}"
    );
    assert_pools_wait(&consumer, &network, "10.27.0").await;
    assert!(
        networks
            .get(&network)
            .await
            .expect("it can be read")
            .is_some(),
        "its finalizer stays"
    );
    // The explicit way out: it selects no pool any more, and each pool in use may leave.
    consumer
        .modify(&networks, &network, |network| {
            network["spec"]["pools"] = json!(null)
        })
        .await;
    for pool in ["web", "db"] {
        consumer
            .modify(&consumer.pools(), pool, |pool| {
                pool["metadata"]["annotations"][LEAVE_NETWORK_ANNOTATION] = json!(network);
            })
            .await;
    }
    consumer.wait_until_gone(&networks, &network).await;
    assert_eq!(
        consumer.wait_for_address("web2").await,
        "10.27.0.2",
        "each pool is on its own"
    );
    consumer.assert_address("db2", "10.27.0.1").await;
}

#[tokio::test]
async fn network_that_becomes_invalid_keeps_its_pools() {
    let (consumer, network) = (consumer().await, unique("net"));
    two_selected_pools(&consumer, &network, "10.28.0").await;
    let networks = consumer.networks();
    // Only the webhook can refuse this.
    let excluded = |excluded: serde_json::Value| {
        consumer.modify(&networks, &network, move |network| {
            network["spec"]["excluded"] = excluded.clone()
        })
    };
    excluded(json!(["fd00::9-fd00::1"])).await;
    consumer
        .wait_for_network_condition(&network, "False", "InvalidSpec")
        .await;
    assert_pools_wait(&consumer, &network, "10.28.0").await;
    excluded(json!(["10.28.0.200"])).await;
    let mut addresses = [
        consumer.wait_for_address("web2").await,
        consumer.wait_for_address("db2").await,
    ];
    addresses.sort();
    assert_eq!(
        addresses,
        ["10.28.0.3", "10.28.0.4"],
        "no address is allocated twice"
    );
}
