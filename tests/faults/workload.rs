//! Workloads: short sequences of requests to the provider, in a separate namespace with separate
//! pools.
//!
//! All addresses of these pools are allocatable, so that the oracle can count them by their ranges
//! alone.

mod clusters;
mod early;
mod joining;
mod networks;
mod requested;
mod sets;
mod slices;
mod sticky;
mod views;

use capi_ipam_api::Pool;
use serde::{Deserialize, Serialize};
use support::prelude::*;

pub use networks::NETWORK_LABEL;
pub use slices::SLICE_LABEL;

/// How long a workload waits for one condition, despite faults: less than the minute after which
/// the manager would end a turn or release a foreign address without being woken.
const TIMEOUT: Duration = Duration::from_secs(55);

/// About as long as one write takes.
const STEP: Duration = Duration::from_millis(4);

/// The finalizer of a machine that uses an address.
const IN_USE: &str = "example.com/in-use";

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Three claims are bound.
    Allocate,
    /// Thirty claims are bound concurrently.
    Scale,
    /// Claims are bound and deleted.
    Delete,
    /// The address of a deleted claim is released although another controller keeps the claim.
    Early,
    /// Claims are deleted and recreated with the same names, while other claims need their
    /// addresses.
    Recreate,
    /// Claims are deleted and recreated with the same names, with many free addresses.
    Again,
    /// Claims are deleted while they are being bound, and other claims need all addresses.
    Abandon,
    /// Claims wait for addresses that other claims release.
    Exhaust,
    /// A released address cools down before another claim gets it.
    Cooldown,
    /// Claims of a sticky pool are recreated, and others need the addresses that are kept for them.
    Sticky,
    /// Claims of a set fill two pools, others wait for any of them, and another pool
    /// replaces them.
    Sets,
    /// The slice of an owner without an address is returned, and another owner needs it.
    Slices,
    /// Addresses in use are removed from a pool and added again.
    Shrink,
    /// A pool is paused while claims are created and deleted.
    Pause,
    /// A pool is deleted while its addresses are in use, and recreated.
    Replace,
    /// Two pools of one network have the same addresses.
    Network,
    /// A pool with addresses in use joins a network.
    Join,
    /// A pool with addresses in use leaves a network.
    Leave,
    /// A pool joins and leaves a network by its label, and one with another block length does not.
    Relabel,
    /// The network of two pools is invalid, is deleted, is removed by force, and is created again.
    Unavailable,
    /// The specification of a pool whose gateway another pool of its network contains is not valid.
    Invalid,
    /// Claims move from one manager to the other by their label.
    Handover,
    /// The other manager serves another namespace.
    Apart,
    /// A pool is deleted while claims are being bound.
    Corner,
    /// Clusters get the addresses of their endpoints, are deleted and created again.
    Clusters,
    /// Clusters get them in the request that creates them, of which some are refused.
    Requested,
}

/// The webhook of the manager, which the API server can call.
#[derive(Clone, Copy)]
pub struct Webhook<'a> {
    pub plane: &'a ControlPlane,
    pub webhooks: &'a Webhooks,
}

impl Workload {
    pub const ALL: [Self; 26] = [
        Self::Allocate,
        Self::Scale,
        Self::Delete,
        Self::Early,
        Self::Recreate,
        Self::Again,
        Self::Abandon,
        Self::Exhaust,
        Self::Cooldown,
        Self::Sticky,
        Self::Sets,
        Self::Slices,
        Self::Shrink,
        Self::Pause,
        Self::Replace,
        Self::Network,
        Self::Join,
        Self::Leave,
        Self::Relabel,
        Self::Unavailable,
        Self::Invalid,
        Self::Handover,
        Self::Apart,
        Self::Corner,
        Self::Clusters,
        Self::Requested,
    ];

    /// The minimum number of managers.
    pub fn managers(self) -> usize {
        if matches!(self, Self::Handover | Self::Apart) {
            2
        } else {
            1
        }
    }

    /// The maximum number of managers. Two managers observe that a pool joins a network, or has a
    /// gateway, at different times, and may allocate one address twice until both have observed it.
    /// The API server calls the webhook of one manager.
    pub fn max_managers(self) -> usize {
        if matches!(
            self,
            Self::Join | Self::Leave | Self::Relabel | Self::Invalid | Self::Requested
        ) {
            1
        } else {
            2
        }
    }

    /// The flag that limits what a manager serves.
    pub fn flags(self, manager: usize, namespace: &str) -> Option<String> {
        match (self, manager) {
            (Self::Handover, 0) => Some("--watch-filter=blue".to_owned()),
            (Self::Handover, _) => Some("--watch-filter=red".to_owned()),
            (Self::Apart, 0) => Some(format!("--namespace={namespace}")),
            (Self::Apart, _) => Some(format!("--namespace=not-{namespace}")),
            (Self::Clusters | Self::Requested, _) => Some("--cluster-addressing".to_owned()),
            _ => None,
        }
    }

    /// Whether the manager serves the webhook of Clusters.
    pub fn has_webhook(self) -> bool {
        self == Self::Requested
    }

    /// Runs the workload. Several managers observe a change at different times.
    ///
    /// # Panics
    /// When a condition does not hold in time.
    pub async fn run(self, consumer: &Consumer, managers: usize, webhook: Option<Webhook<'_>>) {
        let work = Work {
            consumer,
            is_alone: managers == 1,
        };
        match self {
            Self::Allocate => work.allocate(3, 10).await,
            Self::Scale => work.allocate(30, 40).await,
            Self::Delete => work.delete().await,
            Self::Early => work.early().await,
            Self::Recreate => work.recreate().await,
            Self::Again => work.again().await,
            Self::Abandon => work.abandon().await,
            Self::Exhaust => work.exhaust().await,
            Self::Cooldown => work.cooldown().await,
            Self::Sticky => work.sticky().await,
            Self::Sets => work.sets().await,
            Self::Slices => work.slices().await,
            Self::Shrink => work.shrink().await,
            Self::Pause => work.pause().await,
            Self::Replace => work.replace().await,
            Self::Network => work.network().await,
            Self::Join => work.join().await,
            Self::Leave => work.leave().await,
            Self::Relabel => work.relabel_pools().await,
            Self::Unavailable => work.unavailable().await,
            Self::Invalid => work.invalid().await,
            Self::Handover => work.handover().await,
            Self::Apart => work.apart().await,
            Self::Corner => work.corner().await,
            Self::Clusters => work.clusters().await,
            Self::Requested => work.requested(webhook).await,
        }
    }
}

/// Deletes all objects of a workload.
///
/// # Panics
/// When the provider does not release an object in time.
pub async fn clean_up(consumer: &Consumer) {
    clusters::clean_up(consumer).await;
    let work = Work {
        consumer,
        is_alone: true,
    };
    let claims = work.claims().await;
    let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
    work.delete_all(&names).await;
    work.wait_until_deleted(&names).await;
    sets::delete_sets(consumer).await;
    delete_pools(consumer, &consumer.pools()).await;
    delete_pools(consumer, &consumer.pools_of(InClusterKind::PrefixPool)).await;
    delete_pools(consumer, &consumer.global_pools()).await;
    // The reservation with the allocation length of a network is never deleted by the provider.
    for made in consumer
        .reservations()
        .list()
        .await
        .expect("reservations can be listed")
    {
        if made.spec.claim_ref.is_none() {
            let uid = made.uid().unwrap_or_default();
            consumer
                .reservations()
                .delete(&made.name_any(), &uid)
                .await
                .expect("reservations can be deleted");
        }
    }
}

async fn delete_pools(consumer: &Consumer, pools: &ResourceClient<Pool>) {
    for pool in pools.list().await.expect("pools can be listed") {
        let name = pool.name_any();
        consumer.delete_object(pools, &name).await;
        eventually_within(TIMEOUT, &format!("pool {name} is gone"), || async {
            pools
                .get(&name)
                .await
                .expect("pools can be read")
                .is_none()
                .then_some(())
        })
        .await;
    }
}

struct Work<'a> {
    consumer: &'a Consumer,
    /// Only one manager runs.
    is_alone: bool,
}

fn names(letter: &str, count: usize) -> Vec<String> {
    (1..=count)
        .map(|number| format!("{letter}{number}"))
        .collect()
}

fn range(first: usize, last: usize) -> Value {
    json!({ "addresses": [format!("10.0.0.{first}-10.0.0.{last}")], "prefix": 24 })
}

impl Work<'_> {
    async fn claims(&self) -> Vec<IPAddressClaim> {
        self.consumer
            .claims()
            .list()
            .await
            .expect("claims can be listed")
    }

    /// Waits until a condition holds for all claims of these names.
    async fn wait_for(
        &self,
        names: &[String],
        what: &str,
        holds: impl Fn(Option<&IPAddressClaim>) -> bool,
    ) {
        until_within(TIMEOUT, &format!("{names:?} {what}"), || async {
            let claims = self.claims().await;
            let find = |name: &String| {
                claims
                    .iter()
                    .find(|claim| claim.metadata.name.as_ref() == Some(name))
            };
            Some(names.iter().all(|name| holds(find(name))))
        })
        .await;
    }

    async fn wait_until_bound(&self, names: &[String]) {
        self.wait_for(names, "are bound", |claim| {
            claim.is_some_and(|claim| claim.bound_address().is_some())
        })
        .await;
    }

    async fn wait_until_deleted(&self, names: &[String]) {
        self.wait_for(names, "are gone", |claim| claim.is_none())
            .await;
    }

    /// Waits until claims report why they wait. A second manager with stale caches may still bind
    /// them.
    async fn wait_until_reported(&self, names: &[String]) {
        let reports_why = |claim: &IPAddressClaim| {
            let is_bound = claim.bound_address().is_some();
            if is_bound {
                !self.is_alone
            } else {
                ready(claim).reason.is_some()
            }
        };
        self.wait_for(names, "report why they wait", |claim| {
            claim.is_some_and(reports_why)
        })
        .await;
    }

    async fn create_claims(&self, names: &[String]) {
        self.consumer.create_claims(names, "web").await;
    }

    async fn create_and_bind(&self, names: &[String]) {
        self.create_claims(names).await;
        self.wait_until_bound(names).await;
    }

    async fn delete_all(&self, names: &[String]) {
        self.consumer.delete_all(names).await;
    }

    async fn allocate(&self, claims: usize, addresses: usize) {
        self.consumer.create_pool("web", range(1, addresses)).await;
        self.create_and_bind(&names("c", claims)).await;
    }

    async fn delete(&self) {
        self.consumer.create_pool("web", range(1, 4)).await;
        let (names, in_use) = (names("c", 3), names("u", 1));
        self.consumer
            .create_claim_with_metadata("u1", "web", json!({ "finalizers": [IN_USE] }))
            .await;
        self.create_claims(&names).await;
        self.wait_until_bound(&in_use).await;
        self.wait_until_bound(&names).await;
        self.delete_all(&names).await;
        self.delete_all(&in_use).await;
        self.wait_until_deleted(&names).await;
        // Its machine still exists when the claim is deleted.
        self.release_machine("u1").await;
        self.wait_until_deleted(&in_use).await;
    }

    async fn recreate(&self) {
        self.consumer.create_pool("web", range(1, 4)).await;
        let old = names("c", 2);
        self.create_and_bind(&old).await;
        self.delete_all(&old).await;
        let rivals = names("r", 2);
        tokio::join!(self.recreate_all(&old), self.create_claims(&rivals));
        self.wait_until_bound(&rivals).await;
        self.wait_until_bound(&old).await;
    }

    async fn again(&self) {
        self.consumer.create_pool("web", range(1, 9)).await;
        let names = names("c", 3);
        self.create_and_bind(&names).await;
        self.delete_all(&names).await;
        self.recreate_all(&names).await;
        self.wait_until_bound(&names).await;
    }

    /// Creates claims as soon as the previous ones of the same names do not exist.
    async fn recreate_all(&self, names: &[String]) {
        for name in names {
            eventually_within(TIMEOUT, &format!("{name} is recreated"), || async {
                self.consumer
                    .try_create_claim(name, "InClusterIPPool", "web", json!({}))
                    .await
                    .ok()
            })
            .await;
        }
    }

    async fn abandon(&self) {
        self.consumer.create_pool("web", range(1, 6)).await;
        // Each after a longer delay, so that another step is in progress.
        let abandoned = names("a", 6);
        let in_turn = abandoned.iter().zip(0..).map(async |(name, number)| {
            self.create_claims(std::slice::from_ref(name)).await;
            tokio::time::sleep(STEP * number).await;
            self.consumer.delete(name).await;
        });
        futures::future::join_all(in_turn).await;
        self.wait_until_deleted(&abandoned).await;
        self.create_and_bind(&names("r", 6)).await;
    }

    async fn exhaust(&self) {
        let pool = &self.consumer.namespace;
        self.consumer.create_global_pool(pool, range(1, 3)).await;
        let first = names("c", 3);
        self.consumer.create_global_claims(&first, pool).await;
        self.wait_until_bound(&first).await;
        let late = names("w", 3);
        self.consumer.create_global_claims(&late, pool).await;
        self.wait_until_reported(&late).await;
        self.delete_all(&first[..2]).await;
        self.wait_until_deleted(&first[..2]).await;
        // One keeps waiting.
        until_within(TIMEOUT, "two of the waiting claims are bound", || async {
            let claims = self.claims().await;
            let bound = claims
                .iter()
                .filter(|claim| claim.bound_address().is_some())
                .count();
            Some(bound == 3)
        })
        .await;
    }

    async fn cooldown(&self) {
        let mut spec = range(1, 3);
        spec["addressReuseGracePeriodSeconds"] = json!(1);
        self.consumer.create_pool("web", spec).await;
        // What an interrupted process leaves behind.
        let dead = json!({"namespace": self.consumer.namespace, "name": "dead", "uid": "dead"});
        self.consumer.reserve("web", "10.0.0.3", dead).await;
        let first = names("c", 2);
        self.create_and_bind(&first).await;
        self.delete_all(&first).await;
        self.wait_until_deleted(&first).await;
        self.create_and_bind(&names("d", 2)).await;
    }

    async fn shrink(&self) {
        self.consumer.create_pool("web", range(1, 6)).await;
        let first = names("c", 3);
        self.create_and_bind(&first).await;
        // Two of the three addresses in use remain in the pool.
        let given = self.consumer.allocated_addresses().await;
        let left = [&given["c1"], &given["c2"]];
        self.consumer
            .modify_pool("web", |spec| spec["addresses"] = json!(left))
            .await;
        self.consumer.wait_until_pool_ready("web").await;
        let late = names("d", 1);
        self.create_claims(&late).await;
        self.wait_until_reported(&late).await;
        self.consumer
            .modify_pool("web", |spec| {
                spec["addresses"] = json!(["10.0.0.1-10.0.0.5"])
            })
            .await;
        self.wait_until_bound(&late).await;
    }

    async fn pause(&self) {
        self.consumer.create_pool("web", range(1, 4)).await;
        let first = names("c", 2);
        self.create_and_bind(&first).await;
        self.consumer.pause_pool("web").await;
        let late = names("d", 2);
        self.create_claims(&late).await;
        self.delete_all(&first[..1]).await;
        self.wait_until_reported(&late).await;
        self.consumer.resume_pool("web").await;
        self.wait_until_bound(&late).await;
        self.wait_until_deleted(&first[..1]).await;
    }

    async fn replace(&self) {
        self.consumer.create_pool("web", range(1, 4)).await;
        let first = names("c", 2);
        self.create_and_bind(&first).await;
        self.consumer.delete_pool("web").await;
        self.consumer
            .wait_for_pool_condition("web", "False", "Deleting")
            .await;
        let late = names("d", 1);
        self.create_claims(&late).await;
        self.wait_until_reported(&late).await;
        self.delete_all(&first).await;
        self.wait_until_deleted(&first).await;
        let is_served = self
            .claims()
            .await
            .iter()
            .any(|claim| claim.bound_address().is_some());
        if is_served {
            self.delete_all(&late).await;
            self.wait_until_deleted(&late).await;
        }
        let pools = self.consumer.pools();
        let is_gone = || async {
            pools
                .get("web")
                .await
                .expect("pools can be read")
                .is_none()
                .then_some(())
        };
        eventually_within(TIMEOUT, "the pool is gone", is_gone).await;
        self.consumer.create_pool("web", range(1, 4)).await;
        if is_served {
            self.create_claims(&late).await;
        }
        self.wait_until_bound(&late).await;
    }

    async fn network(&self) {
        self.consumer
            .create_open_network(&self.consumer.namespace)
            .await;
        for pool in ["web", "other"] {
            let mut spec = range(1, 6);
            spec["network"] = json!(self.consumer.namespace);
            self.consumer.create_pool(pool, spec).await;
        }
        let (first, second) = (names("c", 3), names("d", 3));
        tokio::join!(
            self.create_claims(&first),
            self.consumer.create_claims(&second, "other")
        );
        self.wait_until_bound(&first).await;
        self.wait_until_bound(&second).await;
        self.delete_all(&first[..1]).await;
        let late = names("e", 1);
        self.consumer.create_claims(&late, "other").await;
        self.wait_until_bound(&late).await;
        self.wait_until_deleted(&first[..1]).await;
    }
}
