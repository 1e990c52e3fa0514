//! Mistakes in the addresses of Clusters that their definition does not find.

use support::prelude::*;

use crate::{
    api_client::{ApiClient, JSON},
    shared,
};

#[tokio::test]
async fn one_field_cannot_have_two_addresses() {
    let consumer = Consumer::new(&shared().plane).await;
    let client = ApiClient::new(&consumer);
    let path = format!(
        "/apis/ipam.cluster.x-k8s.io/v1alpha2/namespaces/{}/clusteraddressings?dryRun=All",
        consumer.namespace
    );
    let item = |name: &str, path: &str| {
        json!({"name": name, "to": [{"variable": {"name": "network", "path": path}}],
            "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "vips"}})
    };
    let review = async |selector: Value, paths: [&str; 2]| {
        let items = [item("a", paths[0]), item("b", paths[1])];
        let addressing = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "ClusterAddressing",
            "metadata": {"name": "bonn"}, "spec": {"clusterSelector": selector, "items": items},
        });
        client.call("POST", &path, JSON, &addressing).await
    };
    review(json!({}), ["vip", "lb.vip"]).await.into_object();
    let denied = eventually("it is denied", async || {
        let response = review(json!({}), ["lb", "lb.vip"]).await;
        (!response.is_ok()).then_some(response)
    })
    .await;
    denied.assert_denied(422, "spec.items[1].to[0]", "spec.items[0].to[0] writes");
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
    let denied = review(selector, ["vip", "lb.vip"]).await;
    denied.assert_denied(422, "spec.clusterSelector", "");
}
