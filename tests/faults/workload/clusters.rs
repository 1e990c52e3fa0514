//! Clusters whose addresses are allocated, and written into them.

use capi_ipam_api::ClusterAddressing;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use support::prelude::*;

use super::{TIMEOUT, Work, names, range, requested};

/// The annotation of a Cluster that has its addresses.
const RECORD: &str = "addressing.ipam.cluster.x-k8s.io/bonn";

impl Work<'_> {
    /// Clusters get their endpoints. One is deleted, and created again while another one needs its
    /// address; one has an endpoint of the user.
    pub(super) async fn clusters(&self) {
        self.consumer.create_pool("web", range(1, 3)).await;
        self.create_addressing().await;
        let first = names("a", 2);
        for name in &first {
            self.consumer.create_cluster(name, false).await;
        }
        let before = self.wait_for_endpoints(&first).await;
        self.delete_cluster("a1").await;
        self.wait_until_deleted(&["a1-vip".to_owned()]).await;
        let late = names("a", 4);
        for name in ["a1", "a3", "a4"] {
            self.consumer.create_cluster(name, false).await;
        }
        // One of them waits.
        until_within(
            TIMEOUT,
            "two of the Clusters have an endpoint",
            async || Some(self.endpoints().await.len() == 3),
        )
        .await;
        self.delete_cluster("a2").await;
        let left: Vec<String> = late.into_iter().filter(|name| name != "a2").collect();
        let after = self.wait_for_endpoints(&left).await;
        let distinct: BTreeSet<&String> = after.values().collect();
        assert_eq!(distinct.len(), after.len(), "{after:?}");
        assert!(before.len() == 2, "{before:?}");
    }

    /// Creates the ClusterAddressing of all Clusters.
    pub(super) async fn create_addressing(&self) {
        let to = json!([{"controlPlaneEndpoint": {"port": 6443}}, {"resource": "Values"}]);
        let pool =
            json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
        let addressing: ClusterAddressing = object(json!({
            "metadata": {"name": "bonn", "namespace": self.consumer.namespace},
            "spec": {"clusterSelector": {}, "items": [{"name": "vip", "poolRef": pool, "to": to}]},
        }));
        create(&addressings(self.consumer), &addressing)
            .await
            .expect("the ClusterAddressing can be created");
    }

    async fn delete_cluster(&self, name: &str) {
        let clusters = self.consumer.clusters();
        self.consumer.delete_object(&clusters, name).await;
    }

    /// Deletes the ConfigMaps of Clusters that do not exist, as the garbage collection does. A late
    /// write can create one afterwards.
    async fn collect_garbage(&self, clusters: &[DynamicObject]) {
        let api = Api::namespaced(self.consumer.client.clone(), &self.consumer.namespace);
        let config_maps = ResourceClient::<ConfigMap>::new(api, &());
        let uids: BTreeSet<Option<String>> = clusters.iter().map(ResourceExt::uid).collect();
        for found in answered(config_maps.list().await).unwrap_or_default() {
            let owner = found
                .owner_references()
                .first()
                .map(|owner| owner.uid.clone());
            if owner.is_some() && !uids.contains(&owner) {
                let uid = found.uid().unwrap_or_default();
                let deleted = config_maps.delete(&found.name_any(), &uid).await;
                deleted.expect("ConfigMaps can be deleted");
            }
        }
    }

    /// The endpoints of the Clusters that have their addresses, which are those of their claims.
    async fn endpoints(&self) -> BTreeMap<String, String> {
        let clusters = self.consumer.clusters().list().await;
        let clusters = clusters.expect("Clusters can be listed");
        self.collect_garbage(&clusters).await;
        let mut found = BTreeMap::new();
        for cluster in clusters {
            if !cluster.annotations().contains_key(RECORD) {
                continue;
            }
            let host = cluster.data["spec"]["controlPlaneEndpoint"]["host"].as_str();
            let host = host.expect("it has an endpoint").to_owned();
            found.insert(cluster.name_any(), host);
        }
        // A claim whose Cluster exists keeps its address.
        let allocated = self.consumer.allocated_addresses().await;
        for (name, host) in &found {
            assert_eq!(allocated.get(&format!("{name}-vip")), Some(host), "{name}");
        }
        found
    }

    pub(super) async fn wait_for_endpoints(&self, names: &[String]) -> BTreeMap<String, String> {
        eventually_within(TIMEOUT, &format!("{names:?} have endpoints"), || async {
            let found = self.endpoints().await;
            let is_complete = names.iter().all(|name| found.contains_key(name));
            is_complete.then_some(found)
        })
        .await
    }
}

fn addressings(consumer: &Consumer) -> ResourceClient<ClusterAddressing> {
    let api = Api::namespaced(consumer.client.clone(), &consumer.namespace);
    ResourceClient::new(api, &())
}

/// Deletes the Clusters and their ClusterAddressing, and waits until their claims are gone.
pub(super) async fn clean_up(consumer: &Consumer) {
    let addressings = addressings(consumer);
    let clusters = consumer.clusters();
    for cluster in clusters.list().await.expect("Clusters can be listed") {
        consumer.delete_object(&clusters, &cluster.name_any()).await;
    }
    requested::end_requests(consumer).await;
    let found = addressings.list().await;
    for addressing in found.expect("ClusterAddressings can be listed") {
        let name = addressing.name_any();
        consumer.delete_object(&addressings, &name).await;
        until_within(TIMEOUT, &format!("{name} is gone"), async || {
            let is_gone = answered(addressings.get(&name).await)?.is_none();
            let claims = answered(consumer.claims().list().await)?;
            Some(is_gone && claims.is_empty())
        })
        .await;
    }
}
