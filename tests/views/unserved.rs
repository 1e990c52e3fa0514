//! Namespaces that a manager does not serve: their addresses stay in use, and orphaned reservations
//! there are freed.

use capi_ipam_api::conditions::DELETING;
use support::prelude::*;

use crate::{
    GLOBAL,
    predecessor::{
        create_bound_without_reservation, global_reservation, release_without_reservation,
        reserve_global,
    },
    serving_namespace, unchanged,
    versions::{holdings, version},
};

/// More than the pause after which a deleted pool is reconciled again.
const DELETION_WAIT: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_unserved_namespaces_are_not_allocated() {
    let plane = ControlPlane::new();
    let (unserved, served) = two_consumers(&plane).await;
    served
        .create_global_pool("shared", "10.0.0.1-10.0.0.4")
        .await;
    create_bound_without_reservation(&unserved, "first", "shared", "10.0.0.1").await;
    create_bound_without_reservation(&unserved, "third", "shared", "10.0.0.3").await;

    let _manager = serving_namespace(&plane, &served);
    for (name, address) in [("a", "10.0.0.2"), ("b", "10.0.0.4")] {
        served.bind_global_to(name, "shared", address).await;
    }
    served
        .global_claim_waits("c", "shared", "PoolExhausted")
        .await;
    served
        .wait_for_counts_of(GLOBAL, "shared", (4, 0, 4, 0))
        .await;
    served.assert_stays_unbound("c").await;
    // An address released by another provider is free.
    release_without_reservation(&unserved, "third").await;
    served.assert_address("c", "10.0.0.3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_in_unserved_namespaces_are_not_written() {
    let plane = ControlPlane::new();
    let (unserved, served) = two_consumers(&plane).await;
    served
        .create_global_pool("shared", "10.0.0.1-10.0.0.9")
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
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    one.create_global_pool("shared", "10.0.0.1-10.0.0.9").await;
    let mut of_one = serving_namespace(&plane, &one);
    one.bind_global_to("reserved", "shared", "10.0.0.1").await;
    of_one.stop();
    create_bound_without_reservation(&one, "unreserved", "shared", "10.0.0.2").await;
    let _of_two = serving_namespace(&plane, &two);
    two.bind_global("own", "shared").await;

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
    until("the pool is gone", async || Some(!exists().await)).await;
    assert_eq!(global_reservation(&one, "shared", "10.0.0.2").await, None);
}

/// No manager ever creates reservations for the addresses of another provider there.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_global_pool_waits_for_addresses_without_reservation() {
    let plane = ControlPlane::new();
    let (unserved, served) = two_consumers(&plane).await;
    served
        .create_global_pool("shared", "10.0.0.1-10.0.0.9")
        .await;
    create_bound_without_reservation(&unserved, "in-use", "shared", "10.0.0.1").await;
    let _manager = serving_namespace(&plane, &served);
    until("the pool has the finalizer", async || {
        let pool = served.global_pools().get("shared").await.ok()??;
        Some(!pool.finalizers().is_empty())
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
    until("the pool is gone", async || Some(!exists().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservation_of_a_dead_claim_is_freed_by_any_manager() {
    let plane = ControlPlane::new();
    let (unserved, served) = two_consumers(&plane).await;
    served
        .create_global_pool("shared", "10.0.0.1-10.0.0.4")
        .await;
    create_bound_without_reservation(&unserved, "bound", "shared", "10.0.0.1").await;
    let bound = unserved.the_claim("bound").await;
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
        until(&format!("{address} is free"), || async {
            Some(
                global_reservation(&unserved, "shared", address)
                    .await
                    .is_none(),
            )
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
    served.bind_global_to("a", "shared", "10.0.0.3").await;
}

/// A manager that serves no claim with this label frees the reservation of a dead claim.
#[tokio::test(flavor = "multi_thread")]
async fn reservation_of_a_dead_claim_is_freed_with_any_label() {
    let (plane, consumer) = scene().await;
    let mut unlimited = crate::serving(&plane, &[]);
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.bind_to("live", "web", "10.0.0.1").await;
    unlimited.stop();
    let dead = json!({"namespace": consumer.namespace, "name": "dead", "uid": "00000000-0000-0000-0000-000000000000"});
    consumer.reserve("web", "10.0.0.2", dead).await;
    let _blue = crate::serving(&plane, &["--watch-filter=blue"]);
    until("the reservation of the dead claim is gone", || async {
        Some(consumer.reservation("web", "10.0.0.2").await.is_none())
    })
    .await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "live")])
        .await;
    consumer.assert_address("live", "10.0.0.1").await;
}
