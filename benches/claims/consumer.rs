//! The consumer: creates and deletes claims with a given concurrency, and waits for the results.
//!
//! It is the same for a provider and for the baseline: it measures times with a watch. In addition
//! it passes each claim to the baseline.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, GROUP, Identity, addresses, claims, pools};
use crate::baseline::Baseline;
use crate::claim_watch::ClaimWatch;
use crate::pool::Pool;

/// The duration of an operation on many claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timed {
    /// From the first request to the watch event of the last claim.
    pub(crate) whole: Duration,
    /// The same for each claim alone, sorted.
    pub(crate) each: Vec<Duration>,
}

/// Works in one namespace.
pub(crate) struct Consumer {
    pub(crate) api: ApiClient,
    pub(crate) namespace: String,
    pub(crate) pools: Vec<Pool>,
    pub(crate) watch: ClaimWatch,
    pub(crate) at_once: usize,
}

impl Consumer {
    /// A consumer with a new namespace and `count` pools.
    pub(crate) async fn new(
        api: &ApiClient,
        namespace: &str,
        count: usize,
        at_once: usize,
    ) -> Self {
        let named =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.create("/api/v1/namespaces", &named).await;
        let watch = ClaimWatch::start(api, namespace).await;
        let mut consumer = Self {
            api: api.clone(),
            namespace: namespace.to_owned(),
            pools: Vec::new(),
            watch,
            at_once,
        };
        for number in 0..count {
            let (range, prefix) = if count == 1 {
                ("10.0.0.0/12".to_owned(), 12)
            } else {
                (format!("10.{number}.0.0/16"), 16)
            };
            consumer
                .add_pool(&format!("pool-{number}"), &range, prefix)
                .await;
        }
        consumer
    }

    /// Makes one more pool.
    pub(crate) async fn add_pool(&mut self, name: &str, range: &str, prefix: u8) {
        let pool = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "InClusterIPPool",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"addresses": [range], "prefix": prefix},
        });
        let made = self.api.create(&pools(&self.namespace), &pool).await;
        self.pools.push(Pool {
            name: made.name,
            uid: made.uid,
        });
    }

    /// Deletes the pools.
    pub(crate) async fn delete_pools(&self) {
        for pool in &self.pools {
            self.api
                .delete(
                    &format!("{}/{}", pools(&self.namespace), pool.name),
                    &pool.uid,
                )
                .await;
        }
    }

    /// Creates claims and does not wait for the results.
    pub(crate) async fn create_all(&self, names: &[String]) {
        let all = futures::stream::iter(names.iter().enumerate());
        all.for_each_concurrent(self.at_once, |(number, name)| async move {
            drop(self.create(number, name).await)
        })
        .await;
    }

    /// Creates a claim; the claims of consecutive numbers are for one pool after the other.
    pub(crate) async fn create(&self, number: usize, name: &str) -> Identity {
        self.create_labelled(number, name, 0).await
    }

    /// Creates a claim with one of `racks` values of the label `rack`, or without this label.
    async fn create_labelled(&self, number: usize, name: &str, racks: usize) -> Identity {
        let labels = if racks > 0 {
            json!({"rack": format!("r{}", number % racks)})
        } else {
            json!({})
        };
        let claim = self.claim(name, &self.pools[number % self.pools.len()].name, &labels);
        self.api.create(&claims(&self.namespace), &claim).await
    }

    /// A claim for a pool.
    pub(crate) fn claim(&self, name: &str, pool: &str, labels: &Value) -> Value {
        // Claims of machine controllers have their machine as owner.
        let owner =
            json!({"apiVersion": "example.com/v1", "kind": "Machine", "name": name, "uid": name});
        json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "IPAddressClaim",
            "metadata": {
                "name": name, "namespace": self.namespace, "ownerReferences": [owner], "labels": labels,
            },
            "spec": {"poolRef": {"apiGroup": GROUP, "kind": "InClusterIPPool", "name": pool}},
        })
    }

    /// Deletes a claim, and returns it as in the response.
    pub(crate) async fn delete(&self, name: &str, uid: &str) -> Identity {
        self.api
            .delete(&format!("{}/{name}", claims(&self.namespace)), uid)
            .await
    }

    /// Creates claims and waits until all are bound, by the baseline or by a provider.
    pub(crate) async fn bind(
        &self,
        names: &[String],
        baseline: Option<&Baseline>,
    ) -> (Timed, Vec<Identity>) {
        self.bind_all(names, 0, baseline).await
    }

    /// Creates claims with `racks` values of the label `rack`, and waits until a provider has bound
    /// all of them.
    pub(crate) async fn bind_labelled(
        &self,
        names: &[String],
        racks: usize,
    ) -> (Timed, Vec<Identity>) {
        self.bind_all(names, racks, None).await
    }

    async fn bind_all(
        &self,
        names: &[String],
        racks: usize,
        baseline: Option<&Baseline>,
    ) -> (Timed, Vec<Identity>) {
        let (sender, receiver) = unbounded();
        let before = self.watch.counts().bound;
        let started = Instant::now();
        let create = async {
            let made =
                futures::stream::iter(names.iter().enumerate()).map(|(number, name)| async move {
                    let asked = Instant::now();
                    (
                        number,
                        asked,
                        self.create_labelled(number, name, racks).await,
                    )
                });
            let mut made = made.buffer_unordered(self.at_once);
            let mut all = Vec::with_capacity(names.len());
            while let Some((number, asked, claim)) = made.next().await {
                if baseline.is_some() {
                    sender
                        .unbounded_send((number, claim.clone()))
                        .expect("the baseline receives claims");
                }
                all.push((asked, claim));
            }
            drop(sender);
            all
        };
        let serve = async |receiver: UnboundedReceiver<(usize, Identity)>| {
            let Some(baseline) = baseline else { return };
            receiver
                .for_each_concurrent(self.at_once, |(number, claim)| baseline.bind(number, claim))
                .await;
        };
        let expected = before + names.len();
        let all_bound = self
            .watch
            .until("all claims are bound", |counts| counts.bound >= expected);
        let (made, (), ()) = tokio::join!(create, serve(receiver), all_bound);
        let (mut each, mut last) = (Vec::with_capacity(made.len()), started);
        for (asked, claim) in &made {
            let bound = self
                .watch
                .times(&claim.name)
                .bound
                .expect("all claims are bound");
            last = last.max(bound);
            each.push(bound.saturating_duration_since(*asked));
        }
        each.sort();
        (
            Timed {
                whole: last - started,
                each,
            },
            made.into_iter().map(|(_, claim)| claim).collect(),
        )
    }

    /// Deletes claims and waits until all are deleted.
    pub(crate) async fn release(&self, all: &[Identity], baseline: Option<&Baseline>) -> Timed {
        let (sender, receiver) = unbounded();
        let before = self.watch.counts().gone;
        let started = Instant::now();
        let delete = async {
            let deleted = futures::stream::iter(all).map(|claim| async move {
                let asked = Instant::now();
                (asked, self.delete(&claim.name, &claim.uid).await, claim)
            });
            let mut deleted = deleted.buffer_unordered(self.at_once);
            let mut started_at = HashMap::with_capacity(all.len());
            while let Some((asked, now, claim)) = deleted.next().await {
                if baseline.is_some() {
                    sender
                        .unbounded_send(now)
                        .expect("the baseline receives claims");
                }
                started_at.insert(claim.name.as_str(), asked);
            }
            drop(sender);
            started_at
        };
        let serve = async |receiver: UnboundedReceiver<Identity>| {
            let Some(baseline) = baseline else { return };
            receiver
                .for_each_concurrent(self.at_once, |claim| baseline.release(claim))
                .await;
        };
        let expected = before + all.len();
        let all_gone = self
            .watch
            .until("all claims are gone", |counts| counts.gone >= expected);
        let (started_at, (), ()) = tokio::join!(delete, serve(receiver), all_gone);
        let (mut each, mut last) = (Vec::with_capacity(all.len()), started);
        for (name, asked) in started_at {
            let gone = self.watch.times(name).gone.expect("all claims are gone");
            last = last.max(gone);
            each.push(gone.saturating_duration_since(asked));
        }
        each.sort();
        Timed {
            whole: last - started,
            each,
        }
    }

    /// Asserts that there are `count` IPAddresses, and that no address of a pool is allocated
    /// twice.
    pub(crate) async fn check_addresses(&self, count: usize) {
        let all: Vec<Address> = self.api.list(&addresses(&self.namespace)).await;
        assert_eq!(
            all.len(),
            count,
            "there is one IPAddress for each claim in {}",
            self.namespace
        );
        let mut seen = HashSet::new();
        for Address { spec } in &all {
            let is_new = seen.insert((spec.pool_ref.name.as_str(), spec.address.as_str()));
            assert!(
                is_new,
                "{} of {} is allocated twice",
                spec.address, spec.pool_ref.name
            );
        }
    }
}

#[derive(Deserialize)]
struct Address {
    spec: AddressSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddressSpec {
    address: String,
    pool_ref: PoolRef,
}

#[derive(Deserialize)]
struct PoolRef {
    name: String,
}
