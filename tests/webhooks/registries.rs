//! A registry in use is not deleted, and mistakes with shared blocks are warned about.

use capi_ipam_api::names;
use support::prelude::*;

use crate::{
    api_client::{ApiClient, JSON, MERGE, Response},
    shared,
};

/// A network that shares blocks through a registry which cannot be reached.
struct Site {
    client: ApiClient,
    registry: String,
    network: String,
}

/// The path of the objects of a kind, or of one object.
fn path(plural: &str, name: &str) -> String {
    let path = format!("/apis/ipam.cluster.x-k8s.io/v1alpha2/{plural}/{name}");
    path.trim_end_matches('/').to_owned()
}

impl Site {
    async fn new() -> Self {
        let consumer = Consumer::new(&shared().plane).await;
        Self {
            client: ApiClient::new(&consumer),
            registry: unique("site"),
            network: unique("region"),
        }
    }

    async fn create(&self, plural: &str, kind: &str, name: &str, spec: Value) -> Response {
        let object = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        });
        self.client
            .call("POST", &path(plural, ""), JSON, &object)
            .await
    }

    async fn create_registry(&self) {
        let nats = json!({"servers": ["nats://127.0.0.1:1"], "bucket": "ipam"});
        let spec = json!({"clusterID": "west", "nats": nats});
        self.create("ipregistries", "IPRegistry", &self.registry, spec)
            .await
            .into_object();
    }

    async fn create_network(&self) -> Response {
        let blocks = json!({"registry": self.registry, "size": 64});
        let spec = json!({"namespaces": {"from": "All"}, "blocks": blocks});
        self.create("ipnetworks", "IPNetwork", &self.network, spec)
            .await
    }

    async fn delete_registry(&self) -> Response {
        let path = path("ipregistries", &self.registry);
        self.client.call("DELETE", &path, JSON, &Value::Null).await
    }

    /// Creates a pool of the network with a dry run.
    async fn try_pool(&self, addresses: &str) -> Response {
        let spec = json!({"addresses": [addresses], "prefix": 16, "network": self.network});
        let path = format!("{}?dryRun=All", path("globalinclusterippools", ""));
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
            "metadata": {"name": self.network}, "spec": spec,
        });
        self.client.call("POST", &path, JSON, &pool).await
    }
}

#[tokio::test]
async fn registry_in_use_cannot_be_deleted() {
    let site = Site::new().await;
    site.create_registry().await;
    site.create_network().await.into_object();
    until("the deletion is denied", async || {
        let path = format!("{}?dryRun=All", path("ipregistries", &site.registry));
        let denied = site.client.call("DELETE", &path, JSON, &Value::Null).await;
        Some(!denied.is_ok())
    })
    .await;
    let denied = site.delete_registry().await;
    denied.assert_denied(400, "", "Cannot delete IPRegistry");
    denied.assert_denied(400, "", &site.network);
    let annotation = json!({"metadata": {"annotations": {names::SKIP_VALIDATE_DELETE: ""}}});
    let registry = path("ipregistries", &site.registry);
    let annotate = async |annotation| {
        let changed = site
            .client
            .call("PATCH", &registry, MERGE, annotation)
            .await;
        changed.into_object();
    };
    annotate(&annotation).await;
    let dry_run = format!("{registry}?dryRun=All");
    let allowed = site
        .client
        .call("DELETE", &dry_run, JSON, &Value::Null)
        .await;
    allowed.into_object();
    annotate(&json!({"metadata": {"annotations": null}})).await;

    let without = json!({"spec": {"blocks": null}});
    let changed = site
        .client
        .call("PATCH", &path("ipnetworks", &site.network), MERGE, &without)
        .await;
    changed.assert_warned("spec.blocks: from now on, the pools of the network");
    eventually("the registry is deleted", || async {
        site.delete_registry().await.is_ok().then_some(())
    })
    .await;
}

#[tokio::test]
async fn registry_of_a_network_with_blocks_cannot_be_replaced() {
    let site = Site::new().await;
    site.create_registry().await;
    let other = Site::new().await;
    other.create_registry().await;
    site.create_network().await.into_object();
    let slice = json!({
        "scope": format!("n.{}", site.network), "block": "10.80.0.0/26", "registry": site.registry,
        "owner": {"kind": "ManagementCluster", "name": "west"},
        "assignedAt": "2026-01-01T00:00:00Z", "confirmedAt": "2026-01-01T00:00:00Z",
    });
    let name = format!("n.{}.10.80.0.0-26", site.network);
    let created = site.create("ipslices", "IPSlice", &name, slice).await;
    created.into_object();

    let network = path("ipnetworks", &site.network);
    let without = json!({"spec": {"blocks": null}});
    let changed = site.client.call("PATCH", &network, MERGE, &without).await;
    changed.into_object();
    let share = |registry: &str| json!({"spec": {"blocks": {"registry": registry, "size": 64}}});
    let dry_run = format!("{network}?dryRun=All");
    let denied = eventually("another registry is denied", || async {
        let changed = site
            .client
            .call("PATCH", &dry_run, MERGE, &share(&other.registry))
            .await;
        (!changed.is_ok()).then_some(changed)
    })
    .await;
    let expected = format!(
        "1 block of the network is not yet returned to IPRegistry {}",
        site.registry
    );
    denied.assert_denied(422, "spec.blocks.registry", &expected);
    let same = site
        .client
        .call("PATCH", &network, MERGE, &share(&site.registry))
        .await;
    same.into_object();
}

#[tokio::test]
async fn network_without_its_registry_is_warned_about() {
    let site = Site::new().await;
    let created = site.create_network().await;
    let expected = format!(
        "spec.blocks.registry: IPRegistry {} does not exist",
        site.registry
    );
    created.assert_warned(&expected);
    site.create_registry().await;
    until("there is no warning", async || {
        let path = format!("{}?dryRun=All", path("ipnetworks", &site.network));
        let change = json!({"spec": {"blocks": {"spare": 2}}});
        let changed = site.client.call("PATCH", &path, MERGE, &change).await;
        Some(changed.is_ok() && changed.warnings.is_empty())
    })
    .await;
}

#[tokio::test]
async fn pool_of_one_shared_block_is_warned_about() {
    let site = Site::new().await;
    site.create_registry().await;
    site.create_network().await.into_object();
    // The length of the blocks is known when a pool has joined.
    let first = json!({"addresses": ["10.80.0.0/20"], "prefix": 16, "network": site.network});
    site.create(
        "globalinclusterippools",
        "GlobalInClusterIPPool",
        &format!("{}-all", site.network),
        first,
    )
    .await
    .into_object();
    eventually("one block is warned about", || async {
        let tried = site.try_pool("10.81.0.0-10.81.0.63").await;
        let warning = tried.warnings.first()?;
        warning
            .starts_with("spec.addresses: all addresses are in one block")
            .then_some(())
    })
    .await;
    let tried = site.try_pool("10.81.0.0-10.81.0.64").await;
    assert!(tried.is_ok() && tried.warnings.is_empty(), "{tried:?}");
}
