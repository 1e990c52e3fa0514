//! Addresses in use stay in their pool, pools in use are not deleted; and requests that are always
//! allowed.

use std::path::Path;

use capi_ipam_api::InClusterKind::{GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use support::prelude::*;

use crate::{
    Environment,
    api_client::{ApiClient, JSON, MERGE, post_review, spec_of},
    shared,
};

/// A pool with one address in use.
struct Used {
    consumer: Consumer,
    client: ApiClient,
    kind: InClusterKind,
    name: String,
    address: String,
}

impl Used {
    async fn pool(kind: InClusterKind) -> Self {
        let consumer = Consumer::new(&shared().plane).await;
        let (client, name) = (ApiClient::new(&consumer), unique("used"));
        client
            .create(kind, &name, &spec_of(kind))
            .await
            .into_object();
        consumer
            .create_claim_with("holder", kind.name(), &name, json!({}))
            .await;
        let address = consumer.wait_for_address("holder").await;
        let used = Self {
            consumer,
            client,
            kind,
            name,
            address,
        };
        used.wait_until_counted().await;
        used
    }

    /// Waits until the provider has observed and counted the address.
    async fn wait_until_counted(&self) {
        until("one address is counted", async || {
            Some(self.read().await?["status"]["ipAddresses"]["used"] == 1)
        })
        .await;
    }

    async fn read(&self) -> Option<Value> {
        let path = self.client.path(self.kind, "v1alpha2", &self.name);
        let response = self.client.call("GET", &path, JSON, &Value::Null).await;
        (response.code != 404).then(|| response.into_object())
    }

    async fn annotate(&self, annotation: &str) {
        let patch = json!({"metadata": {"annotations": {annotation: ""}}});
        self.client
            .patch(self.kind, &self.name, &patch)
            .await
            .into_object();
    }
}

#[tokio::test]
async fn part_in_use_is_removed_with_its_entry_after_it_is_drained() {
    for kind in InClusterKind::ALL {
        let used = Used::pool(kind).await;
        let (field, rest, part) = match kind {
            IPPool | GlobalIPPool => ("addresses", "10.0.0.6-10.0.0.9", "10.0.0.5"),
            PrefixPool | GlobalPrefixPool => ("prefixes", "fd00:0:0:1::/64", "fd00::/64"),
        };
        let removal = json!({"spec": {field: [rest], "draining": null}});
        let response = used.client.dry_run_patch(kind, &used.name, &removal).await;
        let in_use = format!("do not contain allocated addresses: {}", used.address);
        response.assert_denied(400, "", &in_use);
        response.assert_denied(400, "", "add them to spec.draining");
        used.client
            .patch(kind, &used.name, &json!({"spec": {"draining": [part]}}))
            .await
            .into_object();
        used.consumer.assert_address("holder", &used.address).await;
        used.client
            .dry_run_patch(kind, &used.name, &removal)
            .await
            .assert_denied(400, "", &used.address);
        used.consumer.release("holder").await;
        eventually("part and entry are removed", || async {
            used.client
                .patch(kind, &used.name, &removal)
                .await
                .is_ok()
                .then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn pool_in_use_cannot_be_deleted() {
    for kind in InClusterKind::ALL {
        let used = Used::pool(kind).await;
        let response = used.client.delete(kind, &used.name).await;
        response.assert_denied(
            400,
            "",
            "Pool has IPAddresses allocated. Cannot delete Pool until all IPAddresses have been",
        );
        response.assert_denied(400, "", &format!("In use: {}", used.address));
        let old = used.read().await.expect("the pool exists");
        assert_eq!(old["metadata"]["deletionTimestamp"], Value::Null);
        post_review(&shared().webhooks, kind, "DELETE", &old, &Value::Null)
            .await
            .assert_denied(400, "", &used.address);
        // Without addresses in use it can be deleted.
        used.consumer.release("holder").await;
        until("the pool can be deleted", async || {
            let response = used.client.delete(kind, &used.name).await;
            Some(response.code != 400)
        })
        .await;
        until("the pool is gone", || async {
            Some(used.read().await.is_none())
        })
        .await;
    }
}

#[tokio::test]
async fn pool_deletion_with_skip_annotation_waits_for_its_claims() {
    let annotations = [
        "ipam.cluster.x-k8s.io/skip-validate-delete-webhook",
        "clusterctl.cluster.x-k8s.io/delete-for-move",
    ];
    for (kind, annotation) in [
        (IPPool, annotations[0]),
        (GlobalIPPool, annotations[1]),
        (PrefixPool, annotations[1]),
        (GlobalPrefixPool, annotations[0]),
    ] {
        let used = Used::pool(kind).await;
        used.annotate(annotation).await;
        assert!(used.client.delete(kind, &used.name).await.is_ok());
        consistently("the pool", || async { used.read().await.is_some() }).await;
        // A terminating pool is checked as any other, and can be deleted again.
        let bare = match kind {
            IPPool | GlobalIPPool => json!({"spec": {"addresses": ["10.0.0.6"]}}),
            PrefixPool | GlobalPrefixPool => json!({"spec": {"prefixes": ["fd00:0:0:2::/64"]}}),
        };
        used.client
            .patch(kind, &used.name, &bare)
            .await
            .assert_denied(400, "", "do not contain allocated addresses");
        let without = json!({"metadata": {"annotations": null}});
        used.client
            .patch(kind, &used.name, &without)
            .await
            .into_object();
        assert!(used.client.delete(kind, &used.name).await.is_ok());
        used.consumer.release("holder").await;
        until("the pool is gone", || async {
            Some(used.read().await.is_none())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_stored_pool_can_be_labelled_and_fixed() {
    let plane = ControlPlane::new();
    plane.drop_rules();
    let consumer = Consumer::new(&plane).await;
    let client = ApiClient::new(&consumer);
    let specs = [
        (
            IPPool,
            json!({"addresses": ["10.0.0.300", "fd00::/64"], "prefix": 24, "gateway": "x"}),
        ),
        (GlobalIPPool, json!({"addresses": [], "prefix": 24})),
        (
            PrefixPool,
            json!({"prefixes": ["fd00::1/48"], "allocationPrefixLength": 64}),
        ),
        (
            GlobalPrefixPool,
            json!({"prefixes": ["fd00::/65"], "allocationPrefixLength": 64, "gateway": "10.0.0.1"}),
        ),
    ];
    for (kind, spec) in &specs {
        eventually("the CRD has no rules", || async {
            client
                .create(*kind, "bad", spec)
                .await
                .is_ok()
                .then_some(())
        })
        .await;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crd/ipam.cluster.x-k8s.io.yaml");
    plane.kubectl(&["replace", "-f", &file.display().to_string()]);
    let shared = Environment::with_plane(plane, &[]);
    for (kind, spec) in &specs {
        // The rules are enforced again.
        until("the rules are enforced", async || {
            Some(client.dry_run_create(*kind, "another", spec).await.code == 422)
        })
        .await;
        let metadata = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.example/f"]}});
        client.patch(*kind, "bad", &metadata).await.into_object();
        let status = format!("{}/status", client.path(*kind, "v1alpha2", "bad"));
        let counts =
            json!({"status": {"ipAddresses": {"total": 0, "free": 0, "used": 0, "outOfRange": 0}}});
        client
            .call("PATCH", &status, MERGE, &counts)
            .await
            .into_object();
        // A change that keeps it invalid is denied.
        client
            .dry_run_patch(*kind, "bad", &json!({"spec": {"gateway": "y"}}))
            .await
            .assert_denied(422, "spec", "");
        client
            .dry_run_replace(*kind, "bad", &spec_of(*kind))
            .await
            .into_object();
        assert!(client.delete(*kind, "bad").await.is_ok());
        client
            .patch(*kind, "bad", &json!({"metadata": {"finalizers": null}}))
            .await
            .into_object();
    }
    drop(shared);
}
