//! Namespaces that a manager does not serve: their addresses stay in use, and orphaned reservations
//! there are freed.

use std::time::Duration;

use capi_ipam_api::conditions::DELETING;
use kube::ResourceExt;
use serde_json::json;

use crate::predecessor::{
    create_bound_without_reservation, global_reservation, release_without_reservation,
    reserve_global,
};
use crate::versions::{holdings, version};
use crate::{GLOBAL, serving_namespace, unchanged};
use support::consumer::Consumer;
use support::control_plane::{ControlPlane, Options};
use support::wait::eventually;

/// More than the pause after which a deleted pool is reconciled again.
const DELETION_WAIT: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_unserved_namespaces_are_not_allocated() {
    let plane = ControlPlane::start(Options::default());
    let (unserved, served) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    served
        .create_global_pool(
            "shared",
            json!({"addresses": ["10.0.0.1-10.0.0.4"], "prefix": 24}),
        )
        .await;
    create_bound_without_reservation(&unserved, "first", "shared", "10.0.0.1").await;
    create_bound_without_reservation(&unserved, "third", "shared", "10.0.0.3").await;

    let _manager = serving_namespace(&plane, &served);
    for (name, address) in [("a", "10.0.0.2"), ("b", "10.0.0.4")] {
        served.create_global_claim(name, "shared").await;
        assert_eq!(served.wait_for_address(name).await, address);
    }
    served.create_global_claim("c", "shared").await;
    served.wait_for_reason("c", "PoolExhausted").await;
    served
        .wait_for_counts_of(GLOBAL, "shared", (4, 0, 4, 0))
        .await;
    served.assert_stays_unbound("c").await;
    // An address released by another provider is free.
    release_without_reservation(&unserved, "third").await;
    assert_eq!(served.wait_for_address("c").await, "10.0.0.3");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_in_unserved_namespaces_are_not_written() {
    let plane = ControlPlane::start(Options::default());
    let (unserved, served) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    served
        .create_global_pool(
            "shared",
            json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24}),
        )
        .await;
    create_bound_without_reservation(&unserved, "bound", "shared", "10.0.0.1").await;
    unserved.create_global_claim("unbound", "shared").await;
    unserved.create_global_claim("deleted", "shared").await;
    let before = holdings(&served).await;

    let _manager = serving_namespace(&plane, &served);
    served
        .wait_for_counts_of(GLOBAL, "shared", (9, 8, 1, 0))
        .await;
    // A reservation for the bound claim may be created; no other write is allowed.
    let look = async || {
        let mut now = holdings(&served).await;
        now.retain(|key, _| !key.starts_with("reservation"));
        now
    };
    unchanged(
        "what is in the unserved namespace",
        Duration::from_secs(5),
        &before,
        look,
    )
    .await;
    unserved.delete("deleted").await;
    unserved.wait_until_deleted("deleted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_global_pool_waits_for_unserved_namespaces() {
    let plane = ControlPlane::start(Options::default());
    let (one, two) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    one.create_global_pool(
        "shared",
        json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24}),
    )
    .await;
    let mut of_one = serving_namespace(&plane, &one);
    one.create_global_claim("reserved", "shared").await;
    assert_eq!(one.wait_for_address("reserved").await, "10.0.0.1");
    of_one.stop();
    create_bound_without_reservation(&one, "unreserved", "shared", "10.0.0.2").await;
    let _of_two = serving_namespace(&plane, &two);
    two.create_global_claim("own", "shared").await;
    two.wait_for_address("own").await;

    two.delete_object(&two.global_pools(), "shared").await;
    two.wait_for_condition(&two.global_pools(), "shared", "Ready", "False", DELETING)
        .await;
    two.release("own").await;
    let exists = async || {
        two.global_pools()
            .get("shared")
            .await
            .expect("pools can be read")
            .is_some()
    };
    unchanged(
        "the pool with two addresses in use",
        DELETION_WAIT,
        &true,
        exists,
    )
    .await;

    let _of_one = serving_namespace(&plane, &one);
    one.release("reserved").await;
    unchanged(
        "the pool with an address in use",
        DELETION_WAIT,
        &true,
        exists,
    )
    .await;
    one.release("unreserved").await;
    eventually("the pool is gone", || async {
        (!exists().await).then_some(())
    })
    .await;
    assert_eq!(global_reservation(&one, "shared", "10.0.0.2").await, None);
}

/// No manager ever creates reservations for the addresses of another provider there.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_global_pool_waits_for_addresses_without_reservation() {
    let plane = ControlPlane::start(Options::default());
    let (unserved, served) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    served
        .create_global_pool(
            "shared",
            json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24}),
        )
        .await;
    create_bound_without_reservation(&unserved, "in-use", "shared", "10.0.0.1").await;
    let _manager = serving_namespace(&plane, &served);
    eventually("the pool has the finalizer", || async {
        let pool = served.global_pools().get("shared").await.ok()??;
        (!pool.finalizers().is_empty()).then_some(())
    })
    .await;
    served.delete_object(&served.global_pools(), "shared").await;
    let exists = async || {
        served
            .global_pools()
            .get("shared")
            .await
            .expect("pools can be read")
            .is_some()
    };
    unchanged(
        "the pool with an address in use",
        DELETION_WAIT,
        &true,
        exists,
    )
    .await;
    let text = served
        .wait_for_condition(&served.global_pools(), "shared", "Ready", "False", DELETING)
        .await;
    assert!(
        text.contains('1'),
        "it reports how many addresses are in use: {text}"
    );
    release_without_reservation(&unserved, "in-use").await;
    eventually("the pool is gone", || async {
        (!exists().await).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservation_of_a_dead_claim_is_freed_by_any_manager() {
    let plane = ControlPlane::start(Options::default());
    let (unserved, served) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    served
        .create_global_pool(
            "shared",
            json!({"addresses": ["10.0.0.1-10.0.0.4"], "prefix": 24}),
        )
        .await;
    create_bound_without_reservation(&unserved, "bound", "shared", "10.0.0.1").await;
    let bound = unserved
        .claims()
        .get("bound")
        .await
        .expect("claims can be read")
        .expect("the claim exists");
    reserve_global(
        &unserved,
        "shared",
        "10.0.0.1",
        "bound",
        &bound.uid().unwrap_or_default(),
    )
    .await;
    let alive = unserved.create_global_claim("alive", "shared").await;
    reserve_global(
        &unserved,
        "shared",
        "10.0.0.2",
        "alive",
        &alive.uid().unwrap_or_default(),
    )
    .await;
    reserve_global(
        &unserved,
        "shared",
        "10.0.0.3",
        "dead",
        "00000000-0000-0000-0000-000000000000",
    )
    .await;
    // Of a previous claim of the same name.
    reserve_global(
        &unserved,
        "shared",
        "10.0.0.4",
        "alive",
        "00000000-0000-0000-0000-000000000001",
    )
    .await;
    let live = async || {
        let both = [
            global_reservation(&unserved, "shared", "10.0.0.1").await,
            global_reservation(&unserved, "shared", "10.0.0.2").await,
        ];
        both.map(|found| found.as_ref().map(version))
    };
    let before = live().await;

    let _manager = serving_namespace(&plane, &served);
    for address in ["10.0.0.3", "10.0.0.4"] {
        eventually(&format!("{address} is free"), || async {
            global_reservation(&unserved, "shared", address)
                .await
                .is_none()
                .then_some(())
        })
        .await;
    }
    unchanged(
        "the reservations of live claims",
        Duration::from_secs(5),
        &before,
        live,
    )
    .await;
    served
        .wait_for_counts_of(GLOBAL, "shared", (4, 2, 1, 0))
        .await;
    served.create_global_claim("a", "shared").await;
    assert_eq!(served.wait_for_address("a").await, "10.0.0.3");
}

/// A manager that serves no claim with this label frees the reservation of a dead claim.
#[tokio::test(flavor = "multi_thread")]
async fn reservation_of_a_dead_claim_is_freed_with_any_label() {
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    let mut unlimited = crate::serving(&plane, &[]);
    consumer
        .create_pool(
            "web",
            json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24}),
        )
        .await;
    consumer.create_claim("live", "web").await;
    assert_eq!(consumer.wait_for_address("live").await, "10.0.0.1");
    unlimited.stop();
    let dead = json!({"namespace": consumer.namespace, "name": "dead", "uid": "00000000-0000-0000-0000-000000000000"});
    consumer.reserve("web", "10.0.0.2", dead).await;
    let _blue = crate::serving(&plane, &["--watch-filter=blue"]);
    eventually("the reservation of the dead claim is gone", || async {
        consumer
            .reservation("web", "10.0.0.2")
            .await
            .is_none()
            .then_some(())
    })
    .await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "live")])
        .await;
    assert_eq!(consumer.wait_for_address("live").await, "10.0.0.1");
}
