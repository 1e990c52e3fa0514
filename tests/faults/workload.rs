//! What is asked of the provider: short, and in a namespace and pools of its own.
//!
//! All addresses of these pools can be given out, so that the oracle can count them by their ranges alone.

mod views;

use std::time::Duration;

use capi_ipam::api::Pool;
use capi_ipam::support::consumer::{Consumer, eventually_within, ready};
use capi_ipam_controller::client::Calls;
use capi_ipam_provider::api::IPAddressClaim;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

/// How long a workload waits for one thing, whatever goes wrong meanwhile.
const PATIENCE: Duration = Duration::from_secs(45);

/// About as long as one write takes.
const STEP: Duration = Duration::from_millis(4);

/// The finalizer of a machine that uses an address.
const IN_USE: &str = "example.com/in-use";

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Three claims are served.
    Allocate,
    /// Thirty claims are served at once.
    Scale,
    /// Claims are served and deleted.
    Delete,
    /// Claims are deleted and come again under the same names, and others want their addresses.
    Recreate,
    /// Claims are deleted and come again under the same names, with plenty of addresses.
    Again,
    /// Claims are deleted while they are being served, and others want all addresses.
    Abandon,
    /// Claims wait for addresses that others give back.
    Exhaust,
    /// A released address rests before another claim gets it.
    Rest,
    /// A pool loses addresses that are in use, and gets them again.
    Shrink,
    /// A pool is paused while claims come and go.
    Pause,
    /// A pool is deleted while its addresses are in use, and made anew.
    Replace,
    /// Two pools of one network have the same addresses.
    Network,
    /// Claims pass from one manager to the other by their label.
    Handover,
    /// The other manager serves another namespace.
    Apart,
    /// A pool is deleted while claims are being served from it.
    Corner,
}

impl Workload {
    pub const ALL: [Self; 15] = [
        Self::Allocate,
        Self::Scale,
        Self::Delete,
        Self::Recreate,
        Self::Again,
        Self::Abandon,
        Self::Exhaust,
        Self::Rest,
        Self::Shrink,
        Self::Pause,
        Self::Replace,
        Self::Network,
        Self::Handover,
        Self::Apart,
        Self::Corner,
    ];

    /// How many managers it takes at least.
    pub fn managers(self) -> usize {
        if matches!(self, Self::Handover | Self::Apart) { 2 } else { 1 }
    }

    /// What each manager serves.
    pub fn flags(self, manager: usize, namespace: &str) -> Option<String> {
        match (self, manager) {
            (Self::Handover, 0) => Some("--watch-filter=blue".to_owned()),
            (Self::Handover, _) => Some("--watch-filter=red".to_owned()),
            (Self::Apart, 0) => Some(format!("--namespace={namespace}")),
            (Self::Apart, _) => Some(format!("--namespace=not-{namespace}")),
            _ => None,
        }
    }

    /// Does it. Of several managers each learns of a change in its own time.
    ///
    /// # Panics
    /// When something does not happen in time.
    pub async fn run(self, consumer: &Consumer, managers: usize) {
        let work = Work { consumer, is_alone: managers == 1 };
        match self {
            Self::Allocate => work.allocate(3, 10).await,
            Self::Scale => work.allocate(30, 40).await,
            Self::Delete => work.delete().await,
            Self::Recreate => work.recreate().await,
            Self::Again => work.again().await,
            Self::Abandon => work.abandon().await,
            Self::Exhaust => work.exhaust().await,
            Self::Rest => work.rest().await,
            Self::Shrink => work.shrink().await,
            Self::Pause => work.pause().await,
            Self::Replace => work.replace().await,
            Self::Network => work.network().await,
            Self::Handover => work.handover().await,
            Self::Apart => work.apart().await,
            Self::Corner => work.corner().await,
        }
    }
}

/// Removes all that a workload made.
///
/// # Panics
/// When the provider does not let go of something in time.
pub async fn clean_up(consumer: &Consumer) {
    let work = Work { consumer, is_alone: true };
    let claims = work.claims().await;
    let names: Vec<String> = claims.iter().map(ResourceExt::name_any).collect();
    work.delete_all(&names).await;
    work.gone(&names).await;
    remove_pools(consumer, &consumer.pools()).await;
    remove_pools(consumer, &consumer.global_pools()).await;
    // What the pools of a network agreed on is theirs for good.
    for made in consumer.reservations().list().await.expect("reservations can be listed") {
        if made.spec.claim_ref.is_none() {
            let uid = made.uid().unwrap_or_default();
            consumer.reservations().delete(&made.name_any(), &uid).await.expect("reservations can be deleted");
        }
    }
}

async fn remove_pools<P: Pool>(consumer: &Consumer, pools: &Calls<P>) {
    for pool in pools.list().await.expect("pools can be listed") {
        let name = pool.name_any();
        consumer.remove(pools, &name).await;
        eventually_within(PATIENCE, &format!("pool {name} is gone"), || async {
            pools.get(&name).await.expect("pools can be read").is_none().then_some(())
        })
        .await;
    }
}

struct Work<'a> {
    consumer: &'a Consumer,
    /// One manager does all the work.
    is_alone: bool,
}

fn names(letter: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{letter}{number}")).collect()
}

fn range(first: usize, last: usize) -> Value {
    json!({ "addresses": [format!("10.0.0.{first}-10.0.0.{last}")], "prefix": 24 })
}

impl Work<'_> {
    async fn claims(&self) -> Vec<IPAddressClaim> {
        self.consumer.claims().list().await.expect("claims can be listed")
    }

    /// Waits until something is so of all claims of these names.
    async fn wait(&self, names: &[String], what: &str, holds: impl Fn(Option<&IPAddressClaim>) -> bool) {
        eventually_within(PATIENCE, &format!("{names:?} {what}"), || async {
            let claims = self.claims().await;
            let find = |name: &String| claims.iter().find(|claim| claim.metadata.name.as_ref() == Some(name));
            names.iter().all(|name| holds(find(name))).then_some(())
        })
        .await;
    }

    async fn bound(&self, names: &[String]) {
        self.wait(names, "are bound", |claim| claim.is_some_and(|claim| claim.bound_address().is_some())).await;
    }

    async fn gone(&self, names: &[String]) {
        self.wait(names, "are gone", |claim| claim.is_none()).await;
    }

    /// Waits until claims wait and say why. A manager that has not heard yet may serve them still.
    async fn told(&self, names: &[String]) {
        let says_why = |claim: &IPAddressClaim| {
            let is_bound = claim.bound_address().is_some();
            if is_bound { !self.is_alone } else { ready(claim).reason.is_some() }
        };
        self.wait(names, "say why they wait", |claim| claim.is_some_and(says_why)).await;
    }

    async fn claim_all(&self, names: &[String]) {
        self.consumer.claim_all(names, "web").await;
    }

    async fn served(&self, names: &[String]) {
        self.claim_all(names).await;
        self.bound(names).await;
    }

    async fn delete_all(&self, names: &[String]) {
        futures::future::join_all(names.iter().map(|name| self.consumer.delete(name))).await;
    }

    async fn allocate(&self, claims: usize, addresses: usize) {
        self.consumer.pool("web", range(1, addresses)).await;
        self.served(&names("c", claims)).await;
    }

    async fn delete(&self) {
        self.consumer.pool("web", range(1, 4)).await;
        let (names, in_use) = (names("c", 3), names("u", 1));
        self.consumer.claim_with("u1", "InClusterIPPool", "web", json!({ "finalizers": [IN_USE] })).await;
        self.claim_all(&names).await;
        self.bound(&in_use).await;
        self.bound(&names).await;
        self.delete_all(&names).await;
        self.delete_all(&in_use).await;
        self.gone(&names).await;
        // Its machine lasts longer than the claim wants to.
        self.consumer
            .change(&self.consumer.claims(), "u1", |claim| {
                claim["metadata"]["finalizers"].as_array_mut().expect("it has some").retain(|all| all != IN_USE);
            })
            .await;
        self.gone(&in_use).await;
    }

    async fn recreate(&self) {
        self.consumer.pool("web", range(1, 4)).await;
        let old = names("c", 2);
        self.served(&old).await;
        self.delete_all(&old).await;
        let rivals = names("r", 2);
        tokio::join!(self.recreate_all(&old), self.claim_all(&rivals));
        self.bound(&rivals).await;
        self.bound(&old).await;
    }

    async fn again(&self) {
        self.consumer.pool("web", range(1, 9)).await;
        let names = names("c", 3);
        self.served(&names).await;
        self.delete_all(&names).await;
        self.recreate_all(&names).await;
        self.bound(&names).await;
    }

    /// Creates claims as soon as those of the same names are gone.
    async fn recreate_all(&self, names: &[String]) {
        for name in names {
            eventually_within(PATIENCE, &format!("{name} comes again"), || async {
                self.consumer.try_claim(name, "InClusterIPPool", "web", json!({})).await.ok()
            })
            .await;
        }
    }

    async fn abandon(&self) {
        self.consumer.pool("web", range(1, 6)).await;
        // Each a little later than the one before, so that something else is under way.
        let abandoned = names("a", 6);
        let in_turn = abandoned.iter().zip(0..).map(async |(name, number)| {
            self.claim_all(std::slice::from_ref(name)).await;
            tokio::time::sleep(STEP * number).await;
            self.consumer.delete(name).await;
        });
        futures::future::join_all(in_turn).await;
        self.gone(&abandoned).await;
        self.served(&names("r", 6)).await;
    }

    async fn exhaust(&self) {
        let pool = &self.consumer.namespace;
        self.consumer.global_pool(pool, range(1, 3)).await;
        let first = names("c", 3);
        for name in &first {
            self.consumer.global_claim(name, pool).await;
        }
        self.bound(&first).await;
        let late = names("w", 3);
        for name in &late {
            self.consumer.global_claim(name, pool).await;
        }
        self.told(&late).await;
        self.delete_all(&first[..2]).await;
        self.gone(&first[..2]).await;
        // One goes on waiting.
        eventually_within(PATIENCE, "two of those that wait are bound", || async {
            let claims = self.claims().await;
            let bound = claims.iter().filter(|claim| claim.bound_address().is_some()).count();
            (bound == 3).then_some(())
        })
        .await;
    }

    async fn rest(&self) {
        let mut spec = range(1, 2);
        spec["addressReuseGracePeriodSeconds"] = json!(1);
        self.consumer.pool("web", spec).await;
        let first = names("c", 2);
        self.served(&first).await;
        self.delete_all(&first).await;
        self.gone(&first).await;
        self.served(&names("d", 2)).await;
    }

    async fn shrink(&self) {
        self.consumer.pool("web", range(1, 6)).await;
        let first = names("c", 3);
        self.served(&first).await;
        // Of the three addresses that are in use, two are left.
        let given = self.consumer.given().await;
        let left = [&given["c1"], &given["c2"]];
        self.consumer.change_pool("web", |spec| spec["addresses"] = json!(left)).await;
        self.consumer.pool_says("web", "True", "PoolReady").await;
        let late = names("d", 1);
        self.claim_all(&late).await;
        self.told(&late).await;
        self.consumer.change_pool("web", |spec| spec["addresses"] = json!(["10.0.0.1-10.0.0.5"])).await;
        self.bound(&late).await;
    }

    async fn pause(&self) {
        self.consumer.pool("web", range(1, 4)).await;
        let first = names("c", 2);
        self.served(&first).await;
        self.consumer.pause(&self.consumer.pools(), "web", true).await;
        self.consumer.pool_says("web", "False", "Paused").await;
        let late = names("d", 2);
        self.claim_all(&late).await;
        self.delete_all(&first[..1]).await;
        self.told(&late).await;
        self.consumer.pause(&self.consumer.pools(), "web", false).await;
        self.bound(&late).await;
        self.gone(&first[..1]).await;
    }

    async fn replace(&self) {
        self.consumer.pool("web", range(1, 4)).await;
        let first = names("c", 2);
        self.served(&first).await;
        self.consumer.remove(&self.consumer.pools(), "web").await;
        self.consumer.pool_says("web", "False", "Deleting").await;
        let late = names("d", 1);
        self.claim_all(&late).await;
        self.told(&late).await;
        self.delete_all(&first).await;
        self.gone(&first).await;
        let is_served = self.claims().await.iter().any(|claim| claim.bound_address().is_some());
        if is_served {
            self.delete_all(&late).await;
            self.gone(&late).await;
        }
        let pools = self.consumer.pools();
        let is_gone = || async { pools.get("web").await.expect("pools can be read").is_none().then_some(()) };
        eventually_within(PATIENCE, "the pool is gone", is_gone).await;
        self.consumer.pool("web", range(1, 4)).await;
        if is_served {
            self.claim_all(&late).await;
        }
        self.bound(&late).await;
    }

    async fn network(&self) {
        for pool in ["web", "other"] {
            let mut spec = range(1, 6);
            spec["network"] = json!(self.consumer.namespace);
            self.consumer.pool(pool, spec).await;
        }
        let (first, second) = (names("c", 3), names("d", 3));
        tokio::join!(self.claim_all(&first), self.consumer.claim_all(&second, "other"));
        self.bound(&first).await;
        self.bound(&second).await;
        self.delete_all(&first[..1]).await;
        let late = names("e", 1);
        self.consumer.claim_all(&late, "other").await;
        self.bound(&late).await;
        self.gone(&first[..1]).await;
    }
}
