//! The objects that the Go provider leaves in a cluster: loads `tests/data/takeover/objects.json`
//! into a control plane and adds the claims of the paused Cluster, which the file does not contain.

use std::collections::HashMap;

use capi_ipam_api::names::{PROTECT_ADDRESS, RELEASE_ADDRESS};
use support::prelude::*;

use crate::go_provider::{GoProvider, claim};
use crate::store::{
    CONSUMER, GO_PROVIDER, OPERATOR, RESTORE, Store, add_finalizer, has_finalizer,
    remove_finalizer, text,
};

/// The finalizer of the consumer on `m-1`.
pub(crate) const HELD: &str = "vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection";

/// Claims that were created in the older version of the contract.
const THROUGH_V1BETA1: [&str; 6] = ["old-1", "old-2", "g-1", "og-1", "waiting", "m-1"];

/// The objects of the file, in the order in which they must be created.
pub(crate) fn stored() -> Vec<Value> {
    let list: Value = serde_json::from_str(include_str!("../data/takeover/objects.json"))
        .expect("the data is JSON");
    list["items"].as_array().expect("it is a list").clone()
}

/// Loads all objects.
pub(crate) async fn load(store: &Store) {
    for namespace in ["tenant-a", "tenant-b"] {
        store.namespace(namespace).await;
    }
    let mut loader = Loader {
        store,
        uids: HashMap::new(),
    };
    for object in stored() {
        match text(&object, "/kind") {
            "Cluster" => loader.create_cluster(&object).await,
            "IPAddressClaim" => loader.create_claim(&object).await,
            "IPAddress" => loader.create_address(&object).await,
            _ => loader.create_pool(&object).await,
        }
    }
    claims_of_the_paused_cluster(store).await;
}

/// `b-0` and `b-1` have addresses, and `b-1` is being deleted; `b-2` was created after the Cluster
/// was paused.
async fn claims_of_the_paused_cluster(store: &Store) {
    let go = GoProvider::new(store);
    let pool = store
        .get_existing("InClusterIPPool", "tenant-b", "v6")
        .await;
    for (name, address) in [("b-0", "fd00:1::3"), ("b-1", "fd00:1::4")] {
        let claim = store.create(CONSUMER, &in_beta(name)).await;
        go.allocate(&claim, &pool, address).await;
    }
    store.delete("IPAddressClaim", "tenant-b", "b-1").await;
    store.create(CONSUMER, &in_beta("b-2")).await;
}

fn in_beta(name: &str) -> Value {
    let mut claim = claim("v1beta2", "tenant-b", name, ("InClusterIPPool", "v6"));
    claim["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "beta"});
    claim
}

/// Recreates objects of another cluster.
struct Loader<'a> {
    store: &'a Store,
    /// Maps the uids in the file to those of the created objects.
    uids: HashMap<String, String>,
}

impl Loader<'_> {
    fn made(&mut self, stored: &Value, made: &Value) {
        self.uids.insert(
            text(stored, "/metadata/uid").to_owned(),
            text(made, "/metadata/uid").to_owned(),
        );
    }

    async fn create_cluster(&mut self, stored: &Value) {
        self.store.create(OPERATOR, &fresh(stored)).await;
    }

    async fn create_pool(&mut self, stored: &Value) {
        let mut made = self.store.create(OPERATOR, &fresh(stored)).await;
        self.made(stored, &made);
        made["metadata"]["finalizers"] = stored["metadata"]["finalizers"].clone();
        let mut made = self.store.replace(GO_PROVIDER, &made).await;
        made["status"] = stored["status"].clone();
        self.store.replace_status(GO_PROVIDER, &made).await;
    }

    /// The consumer creates the claim, the Go provider adds its finalizer and the status. A deleted
    /// claim may have lost that finalizer.
    async fn create_claim(&mut self, stored: &Value) {
        let (namespace, name) = (
            text(stored, "/metadata/namespace"),
            text(stored, "/metadata/name"),
        );
        let mut wanted = fresh(stored);
        if THROUGH_V1BETA1.contains(&name) {
            wanted["apiVersion"] = json!("ipam.cluster.x-k8s.io/v1beta1");
        }
        if has_finalizer(stored, HELD) {
            add_finalizer(&mut wanted, HELD);
        }
        let made = self.store.create(CONSUMER, &wanted).await;
        self.made(stored, &made);
        let of = ("IPAddressClaim", namespace, name);
        let mut made = self
            .store
            .change(GO_PROVIDER, of, |claim| {
                add_finalizer(claim, RELEASE_ADDRESS)
            })
            .await;
        if !stored["status"].is_null() {
            made["status"] = stored["status"].clone();
            self.store.replace_status(GO_PROVIDER, &made).await;
        }
        if !stored["metadata"]["deletionTimestamp"].is_null() {
            self.store.delete("IPAddressClaim", namespace, name).await;
        }
        if !has_finalizer(stored, RELEASE_ADDRESS) {
            self.store
                .change(GO_PROVIDER, of, |claim| {
                    remove_finalizer(claim, RELEASE_ADDRESS)
                })
                .await;
        }
    }

    async fn create_address(&mut self, stored: &Value) {
        let mut wanted = fresh(stored);
        let metadata = &stored["metadata"];
        wanted["metadata"]["finalizers"] = metadata["finalizers"].clone();
        wanted["metadata"]["ownerReferences"] = metadata["ownerReferences"].clone();
        for owner in wanted["metadata"]["ownerReferences"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            owner["uid"] = json!(self.uids[text(owner, "/uid")]);
        }
        let restored = metadata["ownerReferences"].is_null();
        let made = self
            .store
            .create(if restored { RESTORE } else { GO_PROVIDER }, &wanted)
            .await;
        assert_eq!(
            has_finalizer(&made, PROTECT_ADDRESS),
            has_finalizer(stored, PROTECT_ADDRESS)
        );
    }
}

/// The object without the fields that the API server or other clients add later.
fn fresh(stored: &Value) -> Value {
    let metadata = &stored["metadata"];
    json!({
        "apiVersion": stored["apiVersion"], "kind": stored["kind"], "spec": stored["spec"],
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"],
            "annotations": metadata["annotations"], "labels": metadata["labels"],
        },
    })
}
