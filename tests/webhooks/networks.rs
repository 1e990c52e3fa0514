//! Networks in use are not deleted, and pools that join or leave a network with addresses in use
//! are warned about.

use capi_ipam::admission::routes::VALIDATE_NETWORK;
use capi_ipam_api::{
    InClusterKind::{GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool},
    names,
};
use support::{prelude::*, webhooks::direct::review};

use crate::{
    api_client::{ApiClient, JSON, MERGE, Response, parse},
    shared,
};

/// The label by which a network selects its pools.
const LABEL: &str = "example.com/network";

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

fn spec(kind: InClusterKind) -> Value {
    match kind {
        IPPool | GlobalIPPool => json!({"addresses": ["10.0.0.5-10.0.0.9"], "prefix": 24}),
        PrefixPool | GlobalPrefixPool => {
            json!({"prefixes": ["fd00::/62"], "allocationPrefixLength": 64})
        }
    }
}

/// A pool of the same family with another block length.
fn other_length(kind: InClusterKind) -> (InClusterKind, Value) {
    match kind {
        IPPool | PrefixPool => {
            let of = if kind == IPPool {
                json!(["10.1.0.0/24"])
            } else {
                json!(["fd01::/62"])
            };
            let length = if kind == IPPool { 28 } else { 65 };
            (
                PrefixPool,
                json!({"prefixes": of, "allocationPrefixLength": length}),
            )
        }
        GlobalIPPool => (
            GlobalPrefixPool,
            json!({"prefixes": ["10.1.0.0/24"], "allocationPrefixLength": 28}),
        ),
        GlobalPrefixPool => (
            GlobalIPPool,
            json!({"addresses": ["fd01::1-fd01::9"], "prefix": 64}),
        ),
    }
}

#[tokio::test]
async fn network_in_use_cannot_be_deleted() {
    for kind in InClusterKind::ALL {
        let (lab, pool) = (Lab::create().await, unique("member"));
        lab.create_pool(kind, &pool, &spec(kind)).await;
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
        lab.create_pool(IPPool, &pool, &spec(IPPool)).await;
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
    for kind in InClusterKind::ALL {
        let (lab, pool) = (Lab::create().await, unique("member"));
        lab.create_pool(kind, &pool, &spec(kind)).await;
        assert_eq!(
            lab.relabel(kind, &pool, Value::Null).await.warnings,
            [""; 0],
            "no address is in use"
        );
        let address = lab.bind(kind, &pool).await;
        let leaves = format!(
            "the pool leaves IPNetwork {} with 1 address in use",
            lab.name
        );

        // The label is removed or changed: the pool stays, unless it says that it leaves.
        for value in [Value::Null, json!("elsewhere")] {
            let response = lab.relabel(kind, &pool, value.clone()).await;
            let text = &response.warnings[0];
            let is_kept = text.starts_with("metadata.labels: the pool stays in IPNetwork")
                && text.ends_with(&format!("{}={}", names::LEAVE_NETWORK_ANNOTATION, lab.name));
            assert!(response.is_ok() && is_kept, "{response:?}");
            let annotations = json!({names::LEAVE_NETWORK_ANNOTATION: lab.name});
            let change =
                json!({"metadata": {"labels": {LABEL: value}, "annotations": annotations}});
            let response = lab.client.dry_run_patch(kind, &pool, &change).await;
            let expected = format!("metadata.labels: {leaves}");
            assert!(
                response.is_ok() && response.warnings[0].starts_with(&expected),
                "{response:?}"
            );
            assert!(
                response.warnings[0].contains(&format!(": {address}")),
                "{response:?}"
            );
        }
        // The pool names another network.
        let (other, network) = (unique("other"), json!({"namespaces": {"from": "All"}}));
        lab.consumer.create_network(&other, network).await;
        until("the other network is observed", async || {
            let change = json!({"spec": {"network": other}});
            let response = lab.client.dry_run_patch(kind, &pool, &change).await;
            let expected = format!("spec.network: {leaves}");
            let is_known = !response
                .warnings
                .iter()
                .any(|text| text.contains("does not exist"));
            let is_warned = response
                .warnings
                .iter()
                .any(|text| text.starts_with(&expected));
            Some(response.is_ok() && is_known && is_warned)
        })
        .await;
        // The network selects other pools.
        for change in [
            json!({"pools": null}),
            json!({"pools": {"matchLabels": {LABEL: "elsewhere"}}}),
        ] {
            let response = lab.change(change).await;
            let expected = "spec.pools: the network does not select these pools any more";
            assert!(
                response.is_ok() && response.warnings[0].starts_with(expected),
                "{response:?}"
            );
        }
        // The network allows no namespace: its pools stay in it.
        let response = lab.change(json!({"namespaces": {"from": "None"}})).await;
        let is_refused = response
            .warnings
            .iter()
            .any(|text| text.contains("cannot allocate addresses any more"));
        assert!(
            response.is_ok() && is_refused != kind.is_global(),
            "{response:?}"
        );
        let unchanged = lab
            .client
            .dry_run_patch(kind, &pool, &json!({"metadata": {"labels": {"a": "b"}}}))
            .await;
        assert_eq!(unchanged.warnings, [""; 0]);
    }
}

#[tokio::test]
async fn joining_a_network_with_shared_addresses_is_warned_about() {
    for kind in InClusterKind::ALL {
        let (lab, first, second) = (Lab::create().await, unique("first"), unique("second"));
        lab.create_pool(kind, &first, &spec(kind)).await;
        lab.client
            .create(kind, &second, &spec(kind))
            .await
            .into_object();
        lab.bind(kind, &first).await;
        lab.bind(kind, &second).await;
        let response = lab.relabel(kind, &second, json!(lab.name)).await;
        let joins = format!(
            "the pool joins IPNetwork {} with 1 address in use that other pools",
            lab.name
        );
        let expected = format!("metadata.labels: {joins}");
        assert!(
            response.is_ok() && response.warnings[0].starts_with(&expected),
            "{response:?}"
        );
        let response = lab
            .client
            .dry_run_patch(kind, &second, &json!({"spec": {"network": lab.name}}))
            .await;
        let expected = format!("spec.network: {joins}");
        assert!(
            response.is_ok() && response.warnings[0].starts_with(&expected),
            "{response:?}"
        );
        // A selector of this network only: other tests have pools in this control plane.
        lab.client
            .patch(
                kind,
                &second,
                &json!({"metadata": {"labels": {"example.com/site": lab.name}}}),
            )
            .await
            .into_object();
        let both = json!({"matchExpressions": [{"key": "example.com/site", "operator": "In", "values": [lab.name]}],
                          "matchLabels": null});
        let response = lab.change(json!({"pools": both})).await;
        let joins = response
            .warnings
            .iter()
            .any(|text| text.starts_with("spec: pools join the network with 1 address"));
        assert!(response.is_ok() && joins, "{response:?}");
    }
}

#[tokio::test]
async fn pool_with_another_block_length_is_reported_before_it_joins() {
    for kind in InClusterKind::ALL {
        let (lab, member) = (Lab::create().await, unique("member"));
        lab.create_pool(kind, &member, &spec(kind)).await;
        let ((other_kind, other_spec), other) = (other_length(kind), unique("other"));
        lab.client
            .create(other_kind, &other, &other_spec)
            .await
            .into_object();
        let text = "blocks of length";
        let named = lab
            .client
            .dry_run_patch(other_kind, &other, &json!({"spec": {"network": lab.name}}))
            .await;
        named.assert_denied(422, "spec.network", text);
        let labelled = lab.relabel(other_kind, &other, json!(lab.name)).await;
        let is_reported =
            |warning: &String| warning.starts_with("metadata.labels: ") && warning.contains(text);
        assert!(
            labelled.is_ok() && labelled.warnings.iter().any(is_reported),
            "{labelled:?}"
        );
        // A pool that is created with the label.
        let mut pool = lab.client.pool(other_kind, &unique("new"), &other_spec);
        pool["metadata"]["labels"] = json!({LABEL: lab.name});
        let path = format!("{}?dryRun=All", lab.client.path(other_kind, "v1alpha2", ""));
        let created = lab.client.call("POST", &path, JSON, &pool).await;
        assert!(
            created.is_ok() && created.warnings.iter().any(is_reported),
            "{created:?}"
        );
        // The network selects it by another label.
        let site = json!({"metadata": {"labels": {"example.com/site": lab.name}}});
        lab.client
            .patch(other_kind, &other, &site)
            .await
            .into_object();
        let selector = json!({"matchLabels": {"example.com/site": lab.name, LABEL: null}});
        until("the label is observed", async || {
            let response = lab.change(json!({"pools": selector})).await;
            let is_reported =
                |warning: &String| warning.starts_with("spec: ") && warning.contains(text);
            Some(response.is_ok() && response.warnings.iter().any(is_reported))
        })
        .await;
    }
}
