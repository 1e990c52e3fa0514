//! `--watch-filter`: a label selects the manager of a claim. Changing it writes nothing and frees
//! nothing.

use capi_ipam_api::names::{RELEASE_ADDRESS, WATCH_FILTER_LABEL};
use support::{control_plane::ProviderRequest, prelude::*};

use crate::{serving, settled, unchanged, versions::version};

/// Several passes of the sweeper.
const SEVERAL_PASSES: Duration = Duration::from_secs(5);

/// A consumer with a pool `web` of `count` addresses, which the manager for `blue` serves.
pub(crate) async fn with_blue_pool(plane: &ControlPlane, count: u8) -> Consumer {
    let consumer = Consumer::new(plane).await;
    consumer
        .create_pool("web", format!("10.0.0.1-10.0.0.{count}"))
        .await;
    consumer.label_pool("web", labels("blue")).await;
    consumer
        .wait_for_counts("web", (count.into(), count.into(), 0, 0))
        .await;
    consumer
}

fn labels(value: &str) -> Value {
    json!({ WATCH_FILTER_LABEL: value })
}

/// Creates a claim for the pool `web` with this value of the label.
pub(crate) async fn labelled_claim(consumer: &Consumer, name: &str, value: &str) -> IPAddressClaim {
    consumer
        .create_claim_with_metadata(name, "web", json!({"labels": labels(value)}))
        .await
}

/// Sets or removes the label of a claim; nothing else is written.
pub(crate) async fn relabel(
    consumer: &Consumer,
    name: &str,
    value: Option<&str>,
) -> IPAddressClaim {
    let change = |claim: &mut Value| match value {
        Some(value) => claim["metadata"]["labels"][WATCH_FILTER_LABEL] = json!(value),
        None => {
            let labels = claim["metadata"]["labels"]
                .as_object_mut()
                .expect("the claim has the label");
            labels.remove(WATCH_FILTER_LABEL);
        }
    };
    consumer.modify(&consumer.claims(), name, change).await
}

/// The objects of a bound claim: its IPAddress, and the reservation of that address in the pool
/// `web`.
#[derive(Debug, PartialEq)]
struct Holding {
    address: Option<String>,
    reservation: Option<String>,
}

impl Holding {
    async fn of(consumer: &Consumer, name: &str, value: &str) -> Self {
        let address = consumer
            .addresses()
            .get(name)
            .await
            .expect("addresses can be read");
        let address = address.filter(|address| address.metadata.deletion_timestamp.is_none());
        let reservation = consumer.reservation("web", value).await;
        let reservation = reservation.filter(|reservation| reservation.spec.released_at.is_none());
        Self {
            address: address.as_ref().map(version),
            reservation: reservation.as_ref().map(version),
        }
    }

    fn is_complete(&self) -> bool {
        self.address.is_some() && self.reservation.is_some()
    }
}

/// Waits until a claim is bound to the first address of the pool, and returns it with its objects.
async fn bound_first(consumer: &Consumer, name: &str) -> (IPAddressClaim, Holding) {
    labelled_claim(consumer, name, "blue").await;
    consumer.assert_address(name, "10.0.0.1").await;
    let holding = Holding::of(consumer, name, "10.0.0.1").await;
    assert!(holding.is_complete(), "{holding:?}");
    (current(consumer, name).await, holding)
}

async fn current(consumer: &Consumer, name: &str) -> IPAddressClaim {
    consumer.the_claim(name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn relabelled_claim_keeps_its_address() {
    let plane = ControlPlane::new();
    let _blue = serving(&plane, &["--watch-filter=blue"]);
    let consumer = with_blue_pool(&plane, 20).await;
    let (before, holding) = bound_first(&consumer, "kept").await;
    for (number, value) in [Some("red"), None, Some("blue")].into_iter().enumerate() {
        let written = relabel(&consumer, "kept", value).await;
        let other = format!("other{number}");
        labelled_claim(&consumer, &other, "blue").await;
        assert_ne!(
            consumer.wait_for_address(&other).await,
            "10.0.0.1",
            "the address is in use, with the label {value:?}"
        );
        unchanged(
            &format!("what the claim with the label {value:?} holds"),
            SEVERAL_PASSES,
            &holding,
            || Holding::of(&consumer, "kept", "10.0.0.1"),
        )
        .await;
        let found = current(&consumer, "kept").await;
        assert_eq!(found.status, before.status, "with the label {value:?}");
        assert_eq!(
            version(&found),
            version(&written),
            "only the label is written, with the label {value:?}"
        );
    }
    consumer.wait_for_counts("web", (20, 16, 4, 0)).await;
    consumer.release("kept").await;
    consumer.wait_for_counts("web", (20, 17, 3, 0)).await;
    labelled_claim(&consumer, "next", "blue").await;
    consumer.assert_address("next", "10.0.0.1").await;
}

/// How often the provider wrote claims, addresses and reservations.
fn writes(plane: &ControlPlane) -> usize {
    let ours = ["ipaddressclaims", "ipaddresses", "ipreservations"];
    let is_write = |request: &&ProviderRequest| {
        let resource = request.resource.split('/').next().unwrap_or_default();
        ours.contains(&resource) && !["get", "list", "watch"].contains(&request.verb.as_str())
    };
    plane.provider_requests().iter().filter(is_write).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_relabels_write_only_the_label() {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    });
    let _managers = [
        serving(&plane, &["--watch-filter=blue"]),
        serving(&plane, &["--watch-filter=red"]),
    ];
    let consumer = with_blue_pool(&plane, 20).await;
    let (before, holding) = bound_first(&consumer, "kept").await;
    let writes_before = settled("writes in the audit log", || writes(&plane)).await;
    let mut last = version(&before);
    for round in 0..100 {
        assert_eq!(
            version(&current(&consumer, "kept").await),
            last,
            "written by another client in round {round}"
        );
        let value = if round % 2 == 0 { "red" } else { "blue" };
        last = version(&relabel(&consumer, "kept", Some(value)).await);
        assert_eq!(
            Holding::of(&consumer, "kept", "10.0.0.1").await,
            holding,
            "round {round}"
        );
        // In some rounds both managers have time to act.
        let pause = if round % 20 == 0 {
            2000
        } else {
            round % 7 * 10
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    unchanged("what the claim holds", SEVERAL_PASSES, &holding, || {
        Holding::of(&consumer, "kept", "10.0.0.1")
    })
    .await;
    let found = current(&consumer, "kept").await;
    assert_eq!((version(&found), &found.status), (last, &before.status));
    assert_eq!(
        writes(&plane),
        writes_before,
        "the provider wrote a claim, an IPAddress or a reservation"
    );

    // The manager that serves it now releases it.
    relabel(&consumer, "kept", Some("red")).await;
    consumer.release("kept").await;
    consumer.wait_for_reservations("web", &[]).await;
    consumer.wait_for_counts("web", (20, 20, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_deleted_after_relabelling_are_released() {
    let plane = ControlPlane::new();
    let _managers = [
        serving(&plane, &["--watch-filter=blue"]),
        serving(&plane, &["--watch-filter=red"]),
    ];
    let consumer = with_blue_pool(&plane, 20).await;
    let names: Vec<String> = numbered("c", 16);
    for name in &names {
        labelled_claim(&consumer, name, "blue").await;
    }
    consumer.wait_for_addresses(&names).await;
    for name in &names {
        relabel(&consumer, name, Some("red")).await;
        consumer.delete(name).await;
    }
    for name in &names {
        consumer.wait_until_deleted(name).await;
    }
    consumer.wait_for_reservations("web", &[]).await;
    consumer.wait_for_counts("web", (20, 20, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_claim_that_no_manager_serves_keeps_its_address() {
    let plane = ControlPlane::new();
    let _blue = serving(&plane, &["--watch-filter=blue"]);
    let consumer = with_blue_pool(&plane, 20).await;
    let (_, holding) = bound_first(&consumer, "kept").await;
    relabel(&consumer, "kept", Some("green")).await;
    consumer.delete("kept").await;
    unchanged(
        "what the deleted claim holds",
        SEVERAL_PASSES,
        &holding,
        || Holding::of(&consumer, "kept", "10.0.0.1"),
    )
    .await;
    let claim = current(&consumer, "kept").await;
    assert!(claim.metadata.deletion_timestamp.is_some());
    assert_eq!(claim.finalizers(), [RELEASE_ADDRESS]);
    labelled_claim(&consumer, "other", "blue").await;
    consumer.assert_address("other", "10.0.0.2").await;

    relabel(&consumer, "kept", Some("blue")).await;
    consumer.wait_until_deleted("kept").await;
    until("the address is free", || async {
        Some(consumer.reservation("web", "10.0.0.1").await.is_none())
    })
    .await;
    consumer.wait_for_counts("web", (20, 19, 1, 0)).await;
}
