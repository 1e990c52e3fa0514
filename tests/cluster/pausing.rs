//! Pausing by Cluster, pool and claim, for allocation and release; and Clusters that do not exist.

use capi_ipam_api::conditions::{self, Condition};
use support::prelude::*;

use crate::consumer;

/// The object that is paused.
#[derive(Clone, Copy, Debug)]
enum By {
    ClusterSpec,
    ClusterAnnotation,
    Pool,
    Claim,
}

impl By {
    const ALL: [Self; 4] = [
        Self::ClusterSpec,
        Self::ClusterAnnotation,
        Self::Pool,
        Self::Claim,
    ];

    /// The reason of `Ready`, and parts of its message.
    fn expected(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::ClusterSpec | Self::ClusterAnnotation => {
                ("Paused", &["Cluster alpha is paused", "unpause it"])
            }
            Self::Pool => (
                "PoolNotReady",
                &["/web is paused", "cluster.x-k8s.io/paused"],
            ),
            Self::Claim => (
                "Paused",
                &["the claim is paused", "cluster.x-k8s.io/paused"],
            ),
        }
    }
}

/// A namespace with a Cluster `alpha` and a pool `web` of two addresses.
struct Scene {
    consumer: Consumer,
    by: By,
}

impl Scene {
    async fn new(by: By) -> Self {
        let consumer = consumer().await;
        consumer.create_cluster("alpha", false).await;
        consumer.create_pool("web", "10.0.0.1-10.0.0.2").await;
        Self { consumer, by }
    }

    /// Creates the claim `a`. It names its Cluster by label or in its spec, with the same effect.
    async fn create_claim(&self) {
        let cluster = match self.by {
            By::ClusterSpec => json!({"clusterName": "alpha"}),
            _ => json!({"labels": {"cluster.x-k8s.io/cluster-name": "alpha"}}),
        };
        self.consumer
            .create_claim_with_metadata("a", "web", cluster)
            .await;
    }

    /// Pauses and waits until the manager has observed it, or unpauses.
    async fn set_paused(&self, paused: bool) {
        let consumer = &self.consumer;
        let spec = |cluster: &mut Value| cluster["spec"]["paused"] = json!(paused);
        match self.by {
            By::ClusterSpec => drop(consumer.modify(&consumer.clusters(), "alpha", spec).await),
            By::ClusterAnnotation => {
                consumer
                    .set_paused(&consumer.clusters(), "alpha", paused)
                    .await
            }
            By::Pool => consumer.set_paused(&consumer.pools(), "web", paused).await,
            By::Claim => consumer.set_paused(&consumer.claims(), "a", paused).await,
        }
        match self.by {
            By::ClusterSpec | By::ClusterAnnotation => {
                wait_until_cluster_observed(consumer, "alpha", paused).await
            }
            By::Pool if paused => drop(
                consumer
                    .wait_for_pool_condition("web", "False", "Paused")
                    .await,
            ),
            By::Pool => consumer.wait_until_pool_ready("web").await,
            By::Claim => drop(reason_of_a_new_claim(consumer, json!({})).await),
        }
    }

    /// Waits until the claim reports that it is paused.
    async fn wait_until_reported(&self) {
        let (reason, texts) = self.by.expected();
        let claim = eventually(
            &format!("claim a reports that it is paused by {:?}", self.by),
            || async {
                let claim = self.consumer.claims().get("a").await.ok()??;
                condition(&claim, conditions::PAUSED).map(|_| claim)
            },
        )
        .await;
        for type_ in [conditions::READY, conditions::PAUSED] {
            let found = condition(&claim, type_).expect("both conditions exist");
            let expected = if type_ == conditions::READY {
                ("False", reason)
            } else {
                ("True", "Paused")
            };
            assert_eq!(
                (
                    found.status.as_ref(),
                    found.reason.as_deref().unwrap_or_default()
                ),
                expected,
                "{:?}",
                self.by
            );
            let message = found.message.unwrap_or_default();
            assert!(
                texts.iter().all(|part| message.contains(part)),
                "{texts:?} are missing: {message}"
            );
        }
        let legacy = json!(claim.status)["deprecated"]["v1beta1"]["conditions"].clone();
        assert_eq!(legacy[0]["reason"], reason, "{:?}", self.by);
    }
}

fn condition(claim: &IPAddressClaim, type_: &str) -> Option<Condition> {
    conditions::find(&claim.status.clone()?.conditions, type_).cloned()
}

/// Creates a claim, waits until it reports a reason for not being ready, and deletes it. Then the
/// manager has observed all earlier changes of claims.
async fn reason_of_a_new_claim(consumer: &Consumer, metadata: Value) -> String {
    let name = unique("probe");
    consumer
        .create_claim_with_metadata(&name, "nowhere", metadata)
        .await;
    let reason = eventually("the claim has a reason", || async {
        let claim = consumer.claims().get(&name).await.ok()??;
        ready(&claim).reason
    })
    .await;
    consumer.delete(&name).await;
    reason.into_owned()
}

/// Waits until the manager has observed whether a Cluster is paused, by the reason of its claims.
async fn wait_until_cluster_observed(consumer: &Consumer, cluster: &str, paused: bool) {
    until("the manager has observed the Cluster", async || {
        let reason = reason_of_a_new_claim(consumer, json!({"clusterName": cluster})).await;
        Some((reason == "Paused") == paused)
    })
    .await;
}

#[tokio::test]
async fn nothing_is_allocated_while_paused() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        match by {
            // A claim must be created paused to be paused from the beginning.
            By::Claim => {
                let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": "true"}});
                consumer
                    .create_claim_with_metadata("a", "web", metadata)
                    .await;
            }
            _ => {
                scene.set_paused(true).await;
                scene.create_claim().await;
            }
        }
        scene.wait_until_reported().await;
        consumer.assert_stays_unbound("a").await;
        assert!(consumer.allocated_addresses().await.is_empty(), "{by:?}");
        consumer.wait_for_reservations("web", &[]).await;

        scene.set_paused(false).await;
        consumer.assert_address("a", "10.0.0.1").await;
        let claim = consumer.the_claim("a").await;
        assert_eq!(condition(&claim, conditions::PAUSED), None, "{by:?}");
    }))
    .await;
}

#[tokio::test]
async fn nothing_is_released_while_paused() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        scene.create_claim().await;
        let before = consumer.wait_for_ip_address("a").await;
        scene.set_paused(true).await;
        consumer.delete("a").await;
        scene.wait_until_reported().await;
        consistently(
            &format!("the address exists while paused by {by:?}"),
            || async {
                consumer
                    .addresses()
                    .get("a")
                    .await
                    .expect("addresses can be read")
                    .as_ref()
                    == Some(&before)
            },
        )
        .await;
        consumer
            .wait_for_reservations("web", &[("10.0.0.1", "a")])
            .await;

        scene.set_paused(false).await;
        consumer.wait_until_deleted("a").await;
        consumer.wait_for_counts("web", (2, 2, 0, 0)).await;
    }))
    .await;
}

#[tokio::test]
async fn pausing_does_not_change_bound_claims() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        scene.create_claim().await;
        consumer.wait_for_address("a").await;
        let version = async || {
            let claim = consumer.the_claim("a").await;
            let address = consumer
                .addresses()
                .get("a")
                .await
                .expect("addresses can be read");
            (claim.resource_version(), address)
        };
        let mut before = version().await;
        for paused in [true, false] {
            scene.set_paused(paused).await;
            if matches!(by, By::Claim) {
                before = version().await;
            }
            consistently(
                &format!("claim and address are unchanged, paused by {by:?}: {paused}"),
                || async { version().await == before },
            )
            .await;
        }
    }))
    .await;
}

#[tokio::test]
async fn nothing_is_repaired_while_paused() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        scene.create_claim().await;
        consumer.wait_for_address("a").await;
        scene.set_paused(true).await;
        consumer.force_delete(&consumer.addresses(), "a").await;
        consistently(
            &format!("the address is not recreated while paused by {by:?}"),
            || async { consumer.allocated_addresses().await.is_empty() },
        )
        .await;
        scene.set_paused(false).await;
        eventually("the address is recreated", || async {
            consumer.allocated_addresses().await.remove("a")
        })
        .await;
        consumer.assert_address("a", "10.0.0.1").await;
    }))
    .await;
}

#[tokio::test]
async fn claims_of_other_clusters_are_not_paused() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.0/24").await;
    consumer.create_cluster("alpha", true).await;
    consumer.create_cluster("beta", false).await;
    wait_until_cluster_observed(&consumer, "alpha", true).await;
    let cluster = |name: &str| json!({"clusterName": name});
    consumer
        .create_claim_with_metadata("a", "web", cluster("alpha"))
        .await;
    consumer
        .create_claim_with_metadata("b", "web", cluster("beta"))
        .await;
    consumer.create_claim("c", "web").await;
    // `spec.clusterName` takes precedence over the label.
    let mut both = cluster("beta");
    both["labels"] = json!({"cluster.x-k8s.io/cluster-name": "alpha"});
    consumer.create_claim_with_metadata("d", "web", both).await;
    for name in ["b", "c", "d"] {
        consumer.wait_for_address(name).await;
    }
    consumer.wait_for_reason("a", "Paused").await;

    // A Cluster of the same name in another namespace is another Cluster.
    let other = crate::consumer().await;
    other.create_pool("web", "10.0.0.0/24").await;
    other.create_cluster("alpha", false).await;
    other.bind_with_metadata("a", "web", cluster("alpha")).await;
}

#[tokio::test]
async fn claim_of_a_deleted_paused_cluster_reports_it_missing() {
    let scene = Scene::new(By::ClusterSpec).await;
    scene.set_paused(true).await;
    scene.create_claim().await;
    scene.wait_until_reported().await;
    scene
        .consumer
        .delete_object(&scene.consumer.clusters(), "alpha")
        .await;
    scene.consumer.wait_for_reason("a", "ClusterNotFound").await;
    let claim = scene.consumer.the_claim("a").await;
    assert_eq!(condition(&claim, conditions::PAUSED), None);
    scene.consumer.release("a").await;
}

#[tokio::test]
async fn claim_waits_until_its_cluster_exists() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    let by_label = json!({"labels": {"cluster.x-k8s.io/cluster-name": "alpha"}});
    for (name, metadata) in [("a", json!({"clusterName": "alpha"})), ("b", by_label)] {
        consumer
            .create_claim_with_metadata(name, "web", metadata)
            .await;
        let text = consumer.wait_for_reason(name, "ClusterNotFound").await;
        assert!(
            text.contains("Cluster alpha does not exist") && text.contains("create it"),
            "{text}"
        );
    }
    consumer.assert_stays_unbound("a").await;
    // A claim that is being deleted does not wait for its Cluster.
    consumer.release("b").await;
    consumer.create_cluster("alpha", false).await;
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test]
async fn claim_of_a_cluster_created_paused_keeps_waiting() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer
        .create_claim_with_metadata("a", "web", json!({"clusterName": "alpha"}))
        .await;
    consumer.wait_for_reason("a", "ClusterNotFound").await;
    consumer.create_cluster("alpha", true).await;
    consumer.wait_for_reason("a", "Paused").await;
    consumer
        .modify(&consumer.clusters(), "alpha", |cluster| {
            cluster["spec"]["paused"] = json!(false)
        })
        .await;
    consumer.wait_for_address("a").await;
}

#[tokio::test]
async fn paused_pool_is_not_written() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.bind("a", "web").await;
    consumer.set_paused(&consumer.pools(), "web", true).await;
    assert_contains(
        &consumer
            .wait_for_pool_condition("web", "False", "Paused")
            .await,
        "cluster.x-k8s.io/paused",
    );
    // Its finalizer stays although no address is in use.
    consumer.force_delete(&consumer.claims(), "a").await;
    consumer.force_delete(&consumer.addresses(), "a").await;
    consumer.delete_pool("web").await;
    let pool = async || {
        consumer
            .pools()
            .get("web")
            .await
            .expect("pools can be read")
    };
    consistently("the pool", || async {
        pool()
            .await
            .is_some_and(|pool| pool.finalizers().len() == 1)
    })
    .await;
    consumer.resume_pool("web").await;
    until("the pool is gone", || async {
        Some(pool().await.is_none())
    })
    .await;
}
