//! Pausing: by Cluster, by pool, by claim, for allocation and for release; and Clusters that are not there.

use capi_ipam::api::conditions::{self, Condition};
use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::consumer;
use capi_ipam::support::consumer::{Consumer, eventually, ready, stays, unique};
use capi_ipam_provider::api::IPAddressClaim;
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::{json, Value};

/// What can be paused.
#[derive(Clone, Copy, Debug)]
enum By {
    ClusterSpec,
    ClusterAnnotation,
    Pool,
    Claim,
}

impl By {
    const ALL: [Self; 4] = [Self::ClusterSpec, Self::ClusterAnnotation, Self::Pool, Self::Claim];

    /// Reason of `Ready`, and what the text must have.
    fn expected(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::ClusterSpec | Self::ClusterAnnotation => ("Paused", &["Cluster alpha is paused", "unpause it"]),
            Self::Pool => ("PoolNotReady", &["InClusterIPPool web is paused", "cluster.x-k8s.io/paused"]),
            Self::Claim => ("Paused", &["the claim is paused", "cluster.x-k8s.io/paused"]),
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
        consumer.cluster("alpha", false).await;
        consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24})).await;
        Self { consumer, by }
    }

    /// Makes the claim `a`; whether it names its Cluster by label or by specification makes no difference.
    async fn claim(&self) {
        let cluster = match self.by {
            By::ClusterSpec => json!({"clusterName": "alpha"}),
            _ => json!({"labels": {"cluster.x-k8s.io/cluster-name": "alpha"}}),
        };
        self.consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", cluster).await;
    }

    /// Pauses, and waits until the manager must have noticed; or unpauses.
    async fn pause(&self, paused: bool) {
        let consumer = &self.consumer;
        let spec = |cluster: &mut Value| cluster["spec"]["paused"] = json!(paused);
        match self.by {
            By::ClusterSpec => drop(consumer.change(&consumer.clusters(), "alpha", spec).await),
            By::ClusterAnnotation => consumer.pause(&consumer.clusters(), "alpha", paused).await,
            By::Pool => consumer.pause(&consumer.pools(), "web", paused).await,
            By::Claim => consumer.pause(&consumer.claims(), "a", paused).await,
        }
        match self.by {
            By::ClusterSpec | By::ClusterAnnotation => cluster_is_noticed(consumer, "alpha", paused).await,
            By::Pool if paused => drop(consumer.pool_says("web", "False", "Paused").await),
            By::Pool => drop(consumer.pool_says("web", "True", "PoolReady").await),
            By::Claim => drop(reason_of_a_new_claim(consumer, json!({})).await),
        }
    }

    /// Waits until the claim says that it is paused.
    async fn says_so(&self) {
        let (reason, texts) = self.by.expected();
        let claim = eventually(&format!("claim a says that it is paused by {:?}", self.by), || async {
            let claim = self.consumer.claims().get("a").await.ok()??;
            condition(&claim, conditions::PAUSED).map(|_| claim)
        })
        .await;
        for type_ in [conditions::READY, conditions::PAUSED] {
            let found = condition(&claim, type_).expect("both conditions are there");
            let expected = if type_ == conditions::READY { ("False", reason) } else { ("True", "Paused") };
            assert_eq!((found.status.as_ref(), found.reason.as_deref().unwrap_or_default()), expected, "{:?}", self.by);
            let message = found.message.unwrap_or_default();
            assert!(texts.iter().all(|part| message.contains(part)), "{texts:?} are missing: {message}");
        }
        let legacy = json!(claim.status)["deprecated"]["v1beta1"]["conditions"].clone();
        assert_eq!(legacy[0]["reason"], reason, "{:?}", self.by);
    }
}

fn condition(claim: &IPAddressClaim, type_: &str) -> Option<Condition> {
    conditions::find(&claim.status.clone()?.conditions, type_).cloned()
}

/// Makes a claim, waits until it has a reason for not being ready, and deletes it. Then the manager has seen all that
/// happened to claims before.
async fn reason_of_a_new_claim(consumer: &Consumer, metadata: Value) -> String {
    let name = unique("probe");
    consumer.claim_with(&name, InClusterIPPool::KIND.name(), "nowhere", metadata).await;
    let reason = eventually("the claim has a reason", || async {
        let claim = consumer.claims().get(&name).await.ok()??;
        ready(&claim).reason
    })
    .await;
    consumer.delete(&name).await;
    reason.into_owned()
}

/// Waits until claims of a Cluster are held back, or not: until the manager has seen the Cluster.
async fn cluster_is_noticed(consumer: &Consumer, cluster: &str, paused: bool) {
    eventually("the manager has seen the Cluster", || async {
        let reason = reason_of_a_new_claim(consumer, json!({"clusterName": cluster})).await;
        ((reason == "Paused") == paused).then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_address_is_given_while_paused() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        match by {
            // A claim can only be paused once it is there: it is made paused.
            By::Claim => {
                let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": "true"}});
                consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", metadata).await;
            }
            _ => {
                scene.pause(true).await;
                scene.claim().await;
            }
        }
        scene.says_so().await;
        consumer.stays_unbound("a").await;
        assert!(consumer.given().await.is_empty(), "{by:?}");
        consumer.reserved("web", &[]).await;

        scene.pause(false).await;
        assert_eq!(consumer.bound("a").await, "10.0.0.1");
        let claim = consumer.claims().get("a").await.expect("claims can be read").expect("the claim exists");
        assert_eq!(condition(&claim, conditions::PAUSED), None, "{by:?}");
    }))
    .await;
}

#[tokio::test]
async fn no_address_is_taken_back_while_paused() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        scene.claim().await;
        let before = consumer.bound_address("a").await;
        scene.pause(true).await;
        consumer.delete("a").await;
        scene.says_so().await;
        stays(&format!("the address, paused by {by:?}"), || async {
            consumer.addresses().get("a").await.expect("addresses can be read").as_ref() == Some(&before)
        })
        .await;
        consumer.reserved("web", &[("10.0.0.1", "a")]).await;

        scene.pause(false).await;
        consumer.gone("a").await;
        consumer.counts("web", (2, 2, 0, 0)).await;
    }))
    .await;
}

#[tokio::test]
async fn bound_claims_do_not_change_while_paused_nor_after() {
    join_all(By::ALL.map(async |by| {
        let scene = Scene::new(by).await;
        let consumer = &scene.consumer;
        scene.claim().await;
        consumer.bound("a").await;
        let version = async || {
            let claim = consumer.claims().get("a").await.expect("claims can be read").expect("the claim exists");
            let address = consumer.addresses().get("a").await.expect("addresses can be read");
            (claim.resource_version(), address)
        };
        let mut before = version().await;
        for paused in [true, false] {
            scene.pause(paused).await;
            if matches!(by, By::Claim) {
                before = version().await;
            }
            stays(&format!("claim and address, paused by {by:?}: {paused}"), || async { version().await == before })
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
        scene.claim().await;
        consumer.bound("a").await;
        scene.pause(true).await;
        consumer.force_away(&consumer.addresses(), "a").await;
        stays(&format!("the address, gone while paused by {by:?}"), || async { consumer.given().await.is_empty() })
            .await;
        scene.pause(false).await;
        eventually("the address is back", || async { consumer.given().await.remove("a") }).await;
        assert_eq!(consumer.bound("a").await, "10.0.0.1");
    }))
    .await;
}

#[tokio::test]
async fn claims_of_other_clusters_go_on() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    consumer.cluster("alpha", true).await;
    consumer.cluster("beta", false).await;
    cluster_is_noticed(&consumer, "alpha", true).await;
    let cluster = |name: &str| json!({"clusterName": name});
    consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", cluster("alpha")).await;
    consumer.claim_with("b", InClusterIPPool::KIND.name(), "web", cluster("beta")).await;
    consumer.claim("c", "web").await;
    // Named by specification and by label, the specification counts.
    let mut both = cluster("beta");
    both["labels"] = json!({"cluster.x-k8s.io/cluster-name": "alpha"});
    consumer.claim_with("d", InClusterIPPool::KIND.name(), "web", both).await;
    for name in ["b", "c", "d"] {
        consumer.bound(name).await;
    }
    consumer.waits_for("a", "Paused").await;

    // A Cluster of the same name in another namespace is another Cluster.
    let other = crate::consumer().await;
    other.pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    other.cluster("alpha", false).await;
    other.claim_with("a", InClusterIPPool::KIND.name(), "web", cluster("alpha")).await;
    other.bound("a").await;
}

#[tokio::test]
async fn a_deleted_cluster_is_no_longer_paused_but_missing() {
    let scene = Scene::new(By::ClusterSpec).await;
    scene.pause(true).await;
    scene.claim().await;
    scene.says_so().await;
    scene.consumer.remove(&scene.consumer.clusters(), "alpha").await;
    scene.consumer.waits_for("a", "ClusterNotFound").await;
    let claim = scene.consumer.claims().get("a").await.expect("claims can be read").expect("the claim exists");
    assert_eq!(condition(&claim, conditions::PAUSED), None);
    scene.consumer.release("a").await;
}

#[tokio::test]
async fn a_claim_of_a_missing_cluster_waits_for_it() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    let by_label = json!({"labels": {"cluster.x-k8s.io/cluster-name": "alpha"}});
    for (name, metadata) in [("a", json!({"clusterName": "alpha"})), ("b", by_label)] {
        consumer.claim_with(name, InClusterIPPool::KIND.name(), "web", metadata).await;
        let text = consumer.waits_for(name, "ClusterNotFound").await;
        assert!(text.contains("Cluster alpha does not exist") && text.contains("create it"), "{text}");
    }
    consumer.stays_unbound("a").await;
    // A claim that is being deleted does not wait for it.
    consumer.release("b").await;
    consumer.cluster("alpha", false).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}

#[tokio::test]
async fn a_claim_of_a_cluster_made_paused_waits_on() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", json!({"clusterName": "alpha"})).await;
    consumer.waits_for("a", "ClusterNotFound").await;
    consumer.cluster("alpha", true).await;
    consumer.waits_for("a", "Paused").await;
    consumer.change(&consumer.clusters(), "alpha", |cluster| cluster["spec"]["paused"] = json!(false)).await;
    consumer.bound("a").await;
}

#[tokio::test]
async fn a_paused_pool_is_left_alone() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24})).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.pause(&consumer.pools(), "web", true).await;
    let text = consumer.pool_says("web", "False", "Paused").await;
    assert!(text.contains("cluster.x-k8s.io/paused"), "{text}");
    // Its finalizer stays, though nothing of it is in use.
    consumer.force_away(&consumer.claims(), "a").await;
    consumer.force_away(&consumer.addresses(), "a").await;
    consumer.remove(&consumer.pools(), "web").await;
    let pool = async || consumer.pools().get("web").await.expect("pools can be read");
    stays("the pool", || async { pool().await.is_some_and(|pool| pool.finalizers().len() == 1) }).await;
    consumer.pause(&consumer.pools(), "web", false).await;
    eventually("the pool is gone", || async { pool().await.is_none().then_some(()) }).await;
}
