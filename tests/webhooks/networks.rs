//! Networks in use are not deleted, and pools that join or leave a network with addresses in use
//! are warned about.

use capi_ipam::admission::routes::VALIDATE_NETWORK;
use capi_ipam_api::{
    InClusterKind::{GlobalPrefixPool, IPPool, PrefixPool},
    names,
};
use support::{prelude::*, webhooks::direct::review};

use crate::{
    api_client::{ApiClient, JSON, MERGE, Response, parse, spec_of},
    shared,
};

/// The label by which a network selects its pools.
const LABEL: &str = "example.com/network";
/// The rules do not depend on the kind of the pools.
const KINDS: [InClusterKind; 2] = [IPPool, GlobalPrefixPool];

/// A network that selects pools by a label, with the name of the network as value.
struct Lab {
    consumer: Consumer,
    client: ApiClient,
    name: String,
}

impl Lab {
    async fn create() -> Self {
        let consumer = Consumer::new(&shared().plane).await;
        let (client, name) = (ApiClient::new(&consumer), unique("lab"));
        let selector = json!({"matchLabels": {LABEL: name}});
        consumer
            .create_network(
                &name,
                json!({"namespaces": {"from": "All"}, "pools": selector}),
            )
            .await;
        Self {
            consumer,
            client,
            name,
        }
    }

    fn path(&self) -> String {
        format!(
            "/apis/ipam.cluster.x-k8s.io/v1alpha2/ipnetworks/{}",
            self.name
        )
    }

    /// Creates a pool that the network selects.
    async fn create_pool(&self, kind: InClusterKind, name: &str, spec: &Value) {
        let mut pool = self.client.pool(kind, name, spec);
        pool["metadata"]["labels"] = json!({LABEL: self.name});
        self.client
            .call("POST", &self.client.path(kind, "v1alpha2", ""), JSON, &pool)
            .await
            .into_object();
        self.wait_until_member(kind, name).await;
    }

    async fn wait_until_member(&self, kind: InClusterKind, name: &str) {
        let path = self.client.path(kind, "v1alpha2", name);
        until("the pool is a member", async || {
            let pool = self.client.get(&path).await;
            let network = &pool["status"]["network"];
            Some(network["name"] == json!(self.name) && network["phase"] == "Member")
        })
        .await;
    }

    /// Binds a claim of a pool, and waits until the address is counted.
    async fn bind(&self, kind: InClusterKind, pool: &str) -> String {
        let claim = unique("holder");
        self.consumer
            .create_claim_with(&claim, kind.name(), pool, json!({}))
            .await;
        let address = self.consumer.wait_for_address(&claim).await;
        let path = self.client.path(kind, "v1alpha2", pool);
        until("the address is counted", async || {
            Some(self.client.get(&path).await["status"]["ipAddresses"]["used"] == 1)
        })
        .await;
        address
    }

    async fn relabel(&self, kind: InClusterKind, pool: &str, value: Value) -> Response {
        self.client
            .dry_run_patch(kind, pool, &json!({"metadata": {"labels": {LABEL: value}}}))
            .await
    }

    /// Changes the network with a dry run.
    async fn change(&self, spec: Value) -> Response {
        self.client
            .call(
                "PATCH",
                &format!("{}?dryRun=All", self.path()),
                MERGE,
                &json!({"spec": spec}),
            )
            .await
    }

    async fn delete(&self) -> Response {
        self.client
            .call("DELETE", &self.path(), JSON, &Value::Null)
            .await
    }

    async fn annotate(&self, annotation: &str) {
        let patch = json!({"metadata": {"annotations": {annotation: ""}}});
        self.client
            .call("PATCH", &self.path(), MERGE, &patch)
            .await
            .into_object();
    }
}

#[tokio::test]
async fn network_in_use_cannot_be_deleted() {
    for kind in KINDS {
        let (lab, pool) = (Lab::create().await, unique("member"));
        lab.create_pool(kind, &pool, &spec_of(kind)).await;
        let denied = lab.delete().await;
        denied.assert_denied(
            400,
            "",
            "IPNetwork has pools or reservations. Cannot delete IPNetwork until all pools",
        );
        let object = lab.client.get(&lab.path()).await;
        let review = review("DELETE", "IPNetwork", &object, &Value::Null);
        let direct = parse(
            &shared()
                .webhooks
                .post_review(VALIDATE_NETWORK, &review)
                .await,
        );
        direct.assert_denied(400, "", "0 reservations");
        lab.bind(kind, &pool).await;
        lab.delete().await.assert_denied(400, "", "1 reservation;");
        assert_eq!(
            lab.client.get(&lab.path()).await["metadata"]["deletionTimestamp"],
            Value::Null
        );
    }
}

#[tokio::test]
async fn unused_network_can_be_deleted() {
    let lab = Lab::create().await;
    eventually("the network has its finalizer", || async {
        lab.client.get(&lab.path()).await["metadata"]["finalizers"]
            .is_array()
            .then_some(())
    })
    .await;
    lab.delete().await.into_object();
    until("the network is deleted", async || {
        Some(
            lab.client
                .call("GET", &lab.path(), JSON, &Value::Null)
                .await
                .code
                == 404,
        )
    })
    .await;
}

#[tokio::test]
async fn network_deletion_with_skip_annotation_waits_for_its_pools() {
    for annotation in [names::SKIP_VALIDATE_DELETE, names::DELETE_FOR_MOVE] {
        let (lab, pool) = (Lab::create().await, unique("member"));
        lab.create_pool(IPPool, &pool, &spec_of(IPPool)).await;
        lab.bind(IPPool, &pool).await;
        lab.annotate(annotation).await;
        lab.delete().await.into_object();
        // It can be deleted again, also without the annotation.
        let without = json!({"metadata": {"annotations": null}});
        lab.client
            .call("PATCH", &lab.path(), MERGE, &without)
            .await
            .into_object();
        lab.delete().await.into_object();
        let object = lab.client.get(&lab.path()).await;
        assert_ne!(object["metadata"]["deletionTimestamp"], Value::Null);
    }
}

#[tokio::test]
async fn leaving_a_network_with_addresses_in_use_is_warned_about() {
    for kind in KINDS {
        let (lab, pool) = (Lab::create().await, unique("member"));
        lab.create_pool(kind, &pool, &spec_of(kind)).await;
        let unlabelled = lab.relabel(kind, &pool, Value::Null).await;
        assert_eq!(unlabelled.warnings, [""; 0], "no address is in use");
        let address = lab.bind(kind, &pool).await;

        // The label is removed: the pool stays, unless it says that it leaves.
        let kept = lab.relabel(kind, &pool, Value::Null).await;
        kept.assert_warned("metadata.labels: the pool stays in IPNetwork");
        let command = format!("{}={}", names::LEAVE_NETWORK_ANNOTATION, lab.name);
        assert!(kept.warnings[0].ends_with(&command), "{kept:?}");
        let annotations = json!({names::LEAVE_NETWORK_ANNOTATION: lab.name});
        let change = json!({"metadata": {"labels": {LABEL: null}, "annotations": annotations}});
        let left = lab.client.dry_run_patch(kind, &pool, &change).await;
        let network = &lab.name;
        left.assert_warned(&format!(
            "metadata.labels: the pool leaves IPNetwork {network} with 1 address in use"
        ));
        assert_contains(&left.warnings[0], &format!(": {address}"));
        // The network selects other pools.
        let change = lab.change(json!({"pools": null})).await;
        change.assert_warned("spec.pools: the network does not select these pools any more");
        // The network allows no namespace: its pools stay in it.
        let response = lab.change(json!({"namespaces": {"from": "None"}})).await;
        let is_refused = response
            .warnings
            .iter()
            .any(|text| text.contains("cannot allocate addresses any more"));
        assert_ne!(is_refused, kind.is_global(), "{response:?}");
    }
}

#[tokio::test]
async fn joining_a_network_with_shared_addresses_is_warned_about() {
    for kind in KINDS {
        let (lab, first, second) = (Lab::create().await, unique("first"), unique("second"));
        let client = &lab.client;
        lab.create_pool(kind, &first, &spec_of(kind)).await;
        client
            .create(kind, &second, &spec_of(kind))
            .await
            .into_object();
        lab.bind(kind, &first).await;
        lab.bind(kind, &second).await;
        let joins = format!(
            "the pool joins IPNetwork {} with 1 address in use that other pools",
            lab.name
        );
        let labelled = lab.relabel(kind, &second, json!(lab.name)).await;
        labelled.assert_warned(&format!("metadata.labels: {joins}"));
        let network = json!({"spec": {"network": lab.name}});
        let named = client.dry_run_patch(kind, &second, &network).await;
        named.assert_warned(&format!("spec.network: {joins}"));
        // A selector of this network only: other tests have pools in this control plane.
        let site = json!({"metadata": {"labels": {"example.com/site": lab.name}}});
        client.patch(kind, &second, &site).await.into_object();
        let both = json!({"matchExpressions": [{"key": "example.com/site", "operator": "In", "values": [lab.name]}],
                          "matchLabels": null});
        let selected = lab.change(json!({"pools": both})).await;
        selected.assert_warned("spec: pools join the network with 1 address");
    }
}

#[tokio::test]
async fn pool_with_another_block_length_is_reported_before_it_joins() {
    let (lab, other) = (Lab::create().await, unique("other"));
    lab.create_pool(IPPool, &unique("member"), &spec_of(IPPool))
        .await;
    let spec = json!({"prefixes": ["10.1.0.0/24"], "allocationPrefixLength": 28});
    let client = &lab.client;
    client.create(PrefixPool, &other, &spec).await.into_object();
    let text = "blocks of length";
    let network = json!({"spec": {"network": lab.name}});
    let named = client.dry_run_patch(PrefixPool, &other, &network).await;
    named.assert_denied(422, "spec.network", text);
    // It may have the label, also when it is created.
    let mut pool = client.pool(PrefixPool, &unique("new"), &spec);
    pool["metadata"]["labels"] = json!({LABEL: lab.name});
    for response in [
        lab.relabel(PrefixPool, &other, json!(lab.name)).await,
        client.dry_run(&pool).await,
    ] {
        response.assert_warned("metadata.labels: ");
        assert_contains(&response.warnings.concat(), text);
    }
}
