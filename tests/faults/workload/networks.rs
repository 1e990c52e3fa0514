//! Pools of one network.

use capi_ipam_api::{
    InClusterKind::{IPPool, PrefixPool},
    Pool,
    names::LEAVE_NETWORK_ANNOTATION,
};
use support::prelude::*;

use super::{TIMEOUT, Work, names, range};

/// The label by which a network selects its pools. Its value is the name of the network.
pub const NETWORK_LABEL: &str = "network";

/// A specification that only the webhook refuses, which is not installed: the range ends before it
/// begins.
const INVALID_EXCLUSION: &str = "fd00::9-fd00::1";

impl Work<'_> {
    /// A pool joins a network by its label, and another one leaves it. A pool with another block
    /// length has the label as well: its claims keep what they have, and nothing of it moves.
    pub(super) async fn relabel_pools(&self) {
        let network = self.consumer.namespace.clone();
        self.create_selecting_network().await;
        self.consumer
            .create_labelled_pool(
                IPPool,
                "other",
                json!({ NETWORK_LABEL: network }),
                range(4, 12),
            )
            .await;
        // Until it is recorded that a pool is in the network, it has its own scope.
        self.wait_until_noticed("other", Some(&network)).await;
        self.consumer.create_pool("web", range(1, 9)).await;
        let prefixes = json!({ "prefixes": ["10.1.0.0/28"], "allocationPrefixLength": 30 });
        self.consumer
            .create_pool_of(PrefixPool, "blocks", prefixes)
            .await;
        let (first, blocks, kept) = (names("c", 3), names("b", 2), names("d", 2));
        for name in &blocks {
            self.consumer
                .create_claim_of(PrefixPool, name, "blocks")
                .await;
        }
        self.create_and_bind(&first).await;
        self.wait_until_bound(&blocks).await;
        self.consumer.create_claims(&kept, "other").await;
        self.wait_until_bound(&kept).await;
        let labels = json!({ NETWORK_LABEL: network });
        self.set_labels(PrefixPool, "blocks", &labels).await;
        self.set_labels(IPPool, "web", &labels).await;
        self.wait_until_noticed("web", Some(&network)).await;
        self.wait_until_moved("web").await;
        self.wait_until_refused(PrefixPool).await;
        let leave = |pool: &mut Value| {
            pool["metadata"]["labels"] = json!({});
            pool["metadata"]["annotations"][LEAVE_NETWORK_ANNOTATION] = json!(network);
        };
        let pools = self.consumer.pools();
        self.consumer.modify(&pools, "other", leave).await;
        self.create_and_bind(&names("e", 2)).await;
        self.wait_until_moved("other").await;
        self.wait_until_noticed("other", None).await;
        // A refused pool releases addresses.
        self.delete_all(&blocks[..1]).await;
        self.wait_until_deleted(&blocks[..1]).await;
    }

    /// Both pools of a network have addresses in use and free addresses in common. The network is
    /// made invalid and is repaired, then it is deleted, removed by force and created again. Claims
    /// wait as long as it is not usable.
    pub(super) async fn unavailable(&self) {
        self.create_selecting_network().await;
        let labels = json!({ NETWORK_LABEL: self.consumer.namespace });
        for (pool, spec) in [("web", range(1, 12)), ("other", range(1, 14))] {
            self.consumer
                .create_labelled_pool(IPPool, pool, labels.clone(), spec)
                .await;
            self.wait_until_noticed(pool, Some(&self.consumer.namespace))
                .await;
        }
        self.create_and_bind(&names("c", 2)).await;
        self.consumer.create_claims(&names("d", 2), "other").await;
        self.wait_until_bound(&names("d", 2)).await;

        self.exclude(json!([INVALID_EXCLUSION])).await;
        self.wait_until_refused(IPPool).await;
        self.create_claims_of_both("e").await;
        self.wait_until_reported(&names("e", 2)).await;
        self.exclude(json!([])).await;
        self.wait_until_bound(&names("e", 2)).await;

        let networks = self.consumer.networks();
        self.consumer
            .delete_object(&networks, &self.consumer.namespace)
            .await;
        self.wait_until_refused(IPPool).await;
        self.create_claims_of_both("f").await;
        self.wait_until_reported(&names("f", 2)).await;
        self.remove_network().await;
        self.create_claims_of_both("g").await;
        self.wait_until_reported(&names("g", 2)).await;
        self.create_selecting_network().await;
        for letter in ["f", "g"] {
            self.wait_until_bound(&names(letter, 2)).await;
        }
        self.wait_until_noticed("web", Some(&self.consumer.namespace))
            .await;
    }

    /// A pool whose gateway another pool of its network contains is made invalid: an address is in
    /// two of its ranges, which only the webhook refuses. Nothing allocates the gateway until a
    /// valid specification has none, and what the pool has in use is released.
    pub(super) async fn invalid(&self) {
        let network = &self.consumer.namespace;
        self.consumer.create_open_network(network).await;
        let gateway = "10.0.0.8";
        let (mut web, mut other) = (range(1, 4), range(5, 8));
        web["gateway"] = json!(gateway);
        web["network"] = json!(network);
        other["network"] = json!(network);
        self.consumer.create_pool("web", web).await;
        let first = names("c", 2);
        self.create_and_bind(&first).await;

        self.consumer
            .modify_pool("web", |spec| {
                let overlapping = json!({ "addresses": ["10.0.0.4"], "prefix": 24 });
                spec["ranges"] = json!([overlapping]);
            })
            .await;
        self.consumer
            .wait_for_pool_condition("web", "False", "InvalidSpec")
            .await;
        self.consumer.create_pool("other", other).await;
        self.consumer.create_claims(&names("d", 3), "other").await;
        self.wait_until_bound(&names("d", 3)).await;
        let late = names("e", 1);
        self.consumer.create_claims(&late, "other").await;
        self.wait_until_reported(&late).await;
        self.delete_all(&first[..1]).await;
        self.wait_until_deleted(&first[..1]).await;

        self.consumer
            .modify_pool("web", |spec| {
                spec["ranges"] = json!([]);
                spec["gateway"] = Value::Null;
            })
            .await;
        self.wait_until_bound(&late).await;
    }

    /// Creates a network with the name of the namespace, which selects pools by the label.
    async fn create_selecting_network(&self) {
        let network = &self.consumer.namespace;
        let pools = json!({ "matchLabels": { NETWORK_LABEL: network } });
        self.consumer
            .create_network(
                network,
                json!({ "namespaces": { "from": "All" }, "pools": pools }),
            )
            .await;
    }

    async fn exclude(&self, excluded: Value) {
        let (networks, network) = (self.consumer.networks(), &self.consumer.namespace);
        self.consumer
            .modify(&networks, network, |network| {
                network["spec"]["excluded"] = excluded.clone()
            })
            .await;
    }

    /// Removes the finalizers of the network, which is being deleted.
    async fn remove_network(&self) {
        let (networks, name) = (self.consumer.networks(), &self.consumer.namespace);
        eventually_within(TIMEOUT, "the network is removed by force", || async {
            let Some(before) = networks.get(name).await.expect("networks can be read") else {
                return Some(());
            };
            let mut after = before.clone();
            after.finalizers_mut().clear();
            // The manager writes the status concurrently.
            let _ = capi_ipam_controller::patch::write(&networks, &before, &after).await;
            None
        })
        .await;
    }

    /// Creates a claim of each pool.
    async fn create_claims_of_both(&self, letter: &str) {
        let both = names(letter, 2);
        self.create_claims(&both[..1]).await;
        self.consumer.create_claims(&both[1..], "other").await;
    }

    /// Waits until a manager has observed that no pool of a kind can use its network.
    async fn wait_until_refused(&self, kind: InClusterKind) {
        let pools = self.consumer.pools_of(kind);
        until_within(
            TIMEOUT,
            "all pools of the kind report that they do not allocate",
            || async {
                let all = pools.list().await.expect("pools can be listed");
                let is_refused = |pool: &Pool| {
                    let conditions = pool
                        .status
                        .as_ref()
                        .map(|status| status.conditions.as_slice())
                        .unwrap_or_default();
                    conditions
                        .iter()
                        .any(|condition| condition.type_ == "Ready" && condition.status == "False")
                };
                Some(all.iter().all(is_refused))
            },
        )
        .await;
    }

    async fn set_labels(&self, kind: InClusterKind, pool: &str, labels: &Value) {
        let pools = self.consumer.pools_of(kind);
        self.consumer
            .modify(&pools, pool, |pool| {
                pool["metadata"]["labels"] = labels.clone()
            })
            .await;
    }
}
