//! Clusters that get their addresses in the request that creates them.

use capi_ipam_controller::client::CallError;
use kube::core::DynamicObject;
use support::prelude::*;

use super::{Webhook, Work, names, range};

/// The annotation of a claim whose Cluster a request may still create.
const REQUESTED: &str = "ipam.cluster.x-k8s.io/cluster-requested";

/// A port with which the API server refuses a Cluster, after it has called the webhook.
const INVALID_PORT: u32 = 70_000;

impl Work<'_> {
    /// Clusters are created together. Another one is refused, and then created; one is refused and
    /// never created.
    pub(super) async fn requested(&self, webhook: Option<Webhook<'_>>) {
        let webhook = webhook.expect("the manager serves the webhook");
        self.consumer.create_pool("web", range(1, 6)).await;
        self.create_addressing().await;
        let namespace = &self.consumer.namespace;
        tokio::task::block_in_place(|| {
            let labels = json!({});
            webhook
                .webhooks
                .register_of_clusters(webhook.plane, namespace, &labels);
        });
        let together = names("a", 2);
        let created = together.iter().map(|name| self.request_cluster(name, 6443));
        let mut delivered: Vec<DynamicObject> = Vec::new();
        for created in join_all(created).await {
            delivered.push(created.expect("the Cluster can be created"));
        }
        for name in ["b1", "c1"] {
            let refused = self.request_cluster(name, INVALID_PORT).await;
            refused.expect_err("the Cluster is not valid");
        }
        let created = self.request_cluster("b1", 6443).await;
        delivered.push(created.expect("the Cluster can be created"));
        let all: Vec<String> = delivered.iter().map(ResourceExt::name_any).collect();
        let endpoints = self.wait_for_endpoints(&all).await;
        let distinct: BTreeSet<&String> = endpoints.values().collect();
        assert_eq!(distinct.len(), 3, "{endpoints:?}");
        for cluster in delivered {
            let host = cluster.data["spec"]["controlPlaneEndpoint"]["host"].as_str();
            let name = cluster.name_any();
            assert!(
                host.is_none_or(|host| host == endpoints[&name]),
                "{name} was created with {host:?}, and has {endpoints:?}"
            );
        }
        end_requests(self.consumer).await;
        self.wait_until_deleted(&["c1-vip".to_owned()]).await;
    }

    async fn request_cluster(&self, name: &str, port: u32) -> Result<DynamicObject, CallError> {
        let infrastructure =
            json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": name});
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": self.consumer.namespace},
            "spec": {"infrastructureRef": infrastructure, "clusterNetwork": {"apiServerPort": port}},
        });
        create(&self.consumer.clusters(), &object(cluster)).await
    }
}

/// Removes the annotation of claims that keeps them for a minute after the last request to create
/// their Cluster.
pub(super) async fn end_requests(consumer: &Consumer) {
    let claims = consumer.claims();
    let found = retry_unanswered(|| claims.list()).await;
    for claim in found.expect("claims can be listed") {
        if !claim.annotations().contains_key(REQUESTED) {
            continue;
        }
        let remove = |claim: &mut Value| {
            if let Some(annotations) = claim["metadata"]["annotations"].as_object_mut() {
                annotations.remove(REQUESTED);
            }
        };
        consumer.modify(&claims, &claim.name_any(), remove).await;
    }
}
