//! Claims that name a set of pools.

use capi_ipam_api::{PoolSet, PoolSetKind};
use support::prelude::*;

use super::{TIMEOUT, Work, names};

const KIND: PoolSetKind = PoolSetKind::Namespaced;

fn sets(consumer: &Consumer) -> ResourceClient<PoolSet> {
    let api = Api::namespaced_with(consumer.client.clone(), &consumer.namespace, &KIND);
    ResourceClient::new(api, &KIND)
}

fn members(pools: &[&str]) -> Value {
    let member = |name: &&str| json!({ "kind": "InClusterIPPool", "name": name });
    pools.iter().map(member).collect()
}

/// Deletes all sets.
pub(super) async fn delete_sets(consumer: &Consumer) {
    let sets = sets(consumer);
    for set in sets.list().await.expect("sets can be listed") {
        let name = set.name_any();
        consumer.delete_object(&sets, &name).await;
        eventually_within(TIMEOUT, &format!("set {name} is gone"), || async {
            let found = sets.get(&name).await.expect("sets can be read");
            found.is_none().then_some(())
        })
        .await;
    }
}

impl Work<'_> {
    /// Claims fill two pools, others wait for any of them, and another pool replaces them.
    pub(super) async fn sets(&self) {
        let pools = [
            ("one", "10.0.1.1-10.0.1.2"),
            ("two", "10.0.2.1-10.0.2.2"),
            ("three", "10.0.3.1"),
        ];
        for (pool, range) in pools {
            self.consumer.create_pool(pool, range).await;
        }
        let set = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": KIND.name(),
            "metadata": { "name": "racks", "namespace": self.consumer.namespace },
            "spec": { "pools": members(&["one", "two"]) },
        }));
        create(&sets(self.consumer), &set)
            .await
            .expect("the set can be created");
        let (first, late) = (names("c", 4), names("w", 2));
        self.create_claims_of_set(&first).await;
        self.wait_until_bound(&first).await;
        self.create_claims_of_set(&late).await;
        self.wait_until_reported(&late).await;
        self.delete_all(&first[1..3]).await;
        self.wait_until_deleted(&first[1..3]).await;
        self.wait_until_bound(&late).await;
        let before = self.consumer.allocated_addresses().await;
        self.consumer
            .modify(&sets(self.consumer), "racks", |set| {
                set["spec"]["pools"] = members(&["three"])
            })
            .await;
        self.delete_all(&late).await;
        self.wait_until_deleted(&late).await;
        let last = names("d", 1);
        self.create_claims_of_set(&last).await;
        self.wait_until_bound(&last).await;
        let after = self.consumer.allocated_addresses().await;
        for name in [&first[0], &first[3]] {
            assert_eq!(before[name], after[name], "{name}");
        }
    }

    async fn create_claims_of_set(&self, names: &[String]) {
        let create = |name| {
            self.consumer
                .create_claim_with(name, KIND.name(), "racks", json!({}))
        };
        join_all(names.iter().map(|name| create(name))).await;
    }
}
