//! The consumer of claims, as a machine controller: creates and deletes them, and takes the time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};

use crate::api::{AT_ONCE, Api, GROUP, Identity, folder};
use crate::baseline::Baseline;
use crate::claim_watch::{Change, ClaimWatch};

/// How long something took for a number of claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timed {
    pub(crate) whole: Duration,
    /// The time of each claim, in ascending order.
    pub(crate) each: Vec<Duration>,
}

/// A namespace with pools.
pub(crate) struct Consumer {
    pub(crate) api: Api,
    pub(crate) namespace: String,
    /// The pools: name and uid.
    pub(crate) pools: Vec<Identity>,
    pub(crate) watch: ClaimWatch,
    /// The number of bound claims before the measurements.
    pub(crate) present: usize,
}

impl Consumer {
    pub(crate) async fn new(api: &Api, namespace: &str, count: usize) -> Self {
        let named =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        api.create("/api/v1/namespaces", &named).await;
        let watch = ClaimWatch::start(api, namespace).await;
        let mut consumer = Self {
            api: api.clone(),
            namespace: namespace.to_owned(),
            pools: Vec::new(),
            watch,
            present: 0,
        };
        for number in 0..count {
            let (range, prefix) = match count {
                1 => ("10.0.0.0/12".to_owned(), 12),
                _ => (format!("10.{number}.0.0/16"), 16),
            };
            consumer
                .add_pool(&format!("pool-{number}"), &range, prefix)
                .await;
        }
        consumer
    }

    pub(crate) async fn add_pool(&mut self, name: &str, range: &str, prefix: u8) {
        let pool = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "InClusterIPPool",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"addresses": [range], "prefix": prefix},
        });
        self.pools.push(
            self.api
                .create(&folder(&self.namespace, "inclusterippools"), &pool)
                .await,
        );
    }

    /// The path of a pool.
    pub(crate) fn pool(&self, number: usize) -> String {
        format!(
            "{}/{}",
            folder(&self.namespace, "inclusterippools"),
            self.pools[number].name
        )
    }

    /// Changes fields of the specification of the first pool.
    pub(crate) async fn change_pool(&self, spec: Value) {
        self.api
            .merge(&self.pool(0), &json!({ "spec": spec }))
            .await;
    }

    pub(crate) async fn delete_pools(&self) {
        for (number, pool) in self.pools.iter().enumerate() {
            self.api.delete(&self.pool(number), &pool.uid).await;
        }
    }

    /// Creates a claim for one of the pools. `racks` is the number of values of its label `rack`; 0: no label.
    pub(crate) async fn create(&self, number: usize, name: &str, racks: usize) -> Identity {
        let claim = self.claim(number, name, racks);
        self.api
            .create(&folder(&self.namespace, "ipaddressclaims"), &claim)
            .await
    }

    pub(crate) fn claim(&self, number: usize, name: &str, racks: usize) -> Value {
        let owner =
            json!({"apiVersion": "example.com/v1", "kind": "Machine", "name": name, "uid": name});
        let mut claim = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "IPAddressClaim",
            "metadata": {"name": name, "namespace": self.namespace, "ownerReferences": [owner]},
            "spec": {"poolRef": {
                "apiGroup": GROUP, "kind": "InClusterIPPool", "name": self.pools[number % self.pools.len()].name,
            }},
        });
        if racks > 0 {
            claim["metadata"]["labels"] = json!({"rack": format!("r{}", number % racks)});
        }
        claim
    }

    /// Creates claims and waits until all are bound, by a provider or by a baseline.
    pub(crate) async fn bind(
        &self,
        prefix: &str,
        count: usize,
        racks: usize,
        baseline: Option<&Baseline>,
    ) -> (Timed, Vec<Identity>) {
        let create = move |number: usize| async move {
            let (asked, name) = (Instant::now(), format!("{prefix}-{number}"));
            (number, asked, self.create(number, &name, racks).await)
        };
        let serve = move |(number, asked, claim): (usize, Instant, Identity)| async move {
            if let Some(baseline) = baseline {
                baseline.bind(number, claim.clone()).await;
            }
            (asked, claim)
        };
        let created = stream::iter(0..count).map(create).buffer_unordered(AT_ONCE);
        let served = created.map(serve).buffer_unordered(usize::MAX);
        self.time(count, Change::Bound, served).await
    }

    /// Deletes claims and waits until all are gone.
    pub(crate) async fn release(&self, all: &[Identity], baseline: Option<&Baseline>) -> Timed {
        let folder = &folder(&self.namespace, "ipaddressclaims");
        let delete = move |claim: Identity| async move {
            let asked = Instant::now();
            let deleted = self
                .api
                .delete(&format!("{folder}/{}", claim.name), &claim.uid)
                .await;
            (asked, claim, deleted)
        };
        let serve = move |(asked, claim, deleted): (Instant, Identity, Identity)| async move {
            if let Some(baseline) = baseline {
                baseline.release(deleted).await;
            }
            (asked, claim)
        };
        let deleted = stream::iter(all.to_vec())
            .map(delete)
            .buffer_unordered(AT_ONCE);
        let served = deleted.map(serve).buffer_unordered(usize::MAX);
        self.time(all.len(), Change::Gone, served).await.0
    }

    /// Sends requests, and waits until the watch has seen a change of all claims.
    async fn time(
        &self,
        count: usize,
        change: Change,
        requests: impl Stream<Item = (Instant, Identity)>,
    ) -> (Timed, Vec<Identity>) {
        let expected = self.watch.count(change) + count;
        let started = Instant::now();
        let seen = self.watch.until("all claims are served", || {
            self.watch.count(change) >= expected
        });
        let (served, ()) = tokio::join!(requests.collect::<Vec<_>>(), seen);
        let (mut timed, mut claims) = (Timed::default(), Vec::with_capacity(count));
        for (asked, claim) in served {
            let time = self
                .watch
                .time(&claim.name, change)
                .expect("the watch has seen all claims");
            timed.whole = timed.whole.max(time.saturating_duration_since(started));
            timed.each.push(time.saturating_duration_since(asked));
            claims.push(claim);
        }
        timed.each.sort();
        (timed, claims)
    }

    /// Asserts that the claims that were there and `count` others have one address each.
    pub(crate) async fn check_addresses(&self, count: usize) {
        let all: Vec<Value> = self.api.list(&folder(&self.namespace, "ipaddresses")).await;
        assert_eq!(
            all.len(),
            self.present + count,
            "IPAddresses in {}",
            self.namespace
        );
        let mut seen = HashSet::new();
        for address in &all {
            let spec = &address["spec"];
            let (pool, address) = (spec["poolRef"]["name"].as_str(), spec["address"].as_str());
            assert!(
                seen.insert((pool, address)),
                "{address:?} of {pool:?} is allocated twice"
            );
        }
    }
}
