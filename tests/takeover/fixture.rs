//! What the Go provider leaves in a cluster: loads `tests/data/takeover/objects.json` into a control plane, as it is
//! stored there, and adds what is missing in it: claims of the paused Cluster.

use std::collections::HashMap;

use capi_ipam::api::names::{PROTECT_ADDRESS, RELEASE_ADDRESS};
use capi_ipam::go_provider::{claim, GoProvider};
use capi_ipam::store::{add_finalizer, CONSUMER, GO_PROVIDER, has_finalizer, OPERATOR, remove_finalizer, RESTORE, Store, text};
use serde_json::{json, Value};

/// The consumer's finalizer that holds `m-1`.
pub(crate) const HELD: &str = "vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection";

/// Claims that the clients made through the older version of the contract.
const THROUGH_V1BETA1: [&str; 6] = ["old-1", "old-2", "g-1", "og-1", "waiting", "m-1"];

/// The objects of the data, in the order in which they are to be made.
pub(crate) fn stored() -> Vec<Value> {
    let list: Value = serde_json::from_str(include_str!("../data/takeover/objects.json")).expect("the data is JSON");
    list["items"].as_array().expect("it is a list").clone()
}

/// Loads all of it.
pub(crate) async fn load(store: &Store) {
    for namespace in ["tenant-a", "tenant-b"] {
        store.namespace(namespace).await;
    }
    let mut loader = Loader { store, uids: HashMap::new() };
    for object in stored() {
        match text(&object, "/kind") {
            "Cluster" => loader.cluster(&object).await,
            "IPAddressClaim" => loader.claim(&object).await,
            "IPAddress" => loader.address(&object).await,
            _ => loader.pool(&object).await,
        }
    }
    claims_of_the_paused_cluster(store).await;
}

/// `b-0` and `b-1` have addresses, and `b-1` is being deleted; `b-2` came after the Cluster was paused.
async fn claims_of_the_paused_cluster(store: &Store) {
    let go = GoProvider::new(store);
    let pool = store.there("InClusterIPPool", "tenant-b", "v6").await;
    for (name, address) in [("b-0", "fd00:1::3"), ("b-1", "fd00:1::4")] {
        let claim = store.create(CONSUMER, &in_beta(name)).await;
        go.give(&claim, &pool, address).await;
    }
    store.delete("IPAddressClaim", "tenant-b", "b-1").await;
    store.create(CONSUMER, &in_beta("b-2")).await;
}

fn in_beta(name: &str) -> Value {
    let mut claim = claim("v1beta2", "tenant-b", name, ("InClusterIPPool", "v6"));
    claim["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "beta"});
    claim
}

/// Makes objects anew that were stored elsewhere.
struct Loader<'a> {
    store: &'a Store,
    /// From the uids of the data to those of the objects here.
    uids: HashMap<String, String>,
}

impl Loader<'_> {
    fn made(&mut self, stored: &Value, made: &Value) {
        self.uids.insert(text(stored, "/metadata/uid").to_owned(), text(made, "/metadata/uid").to_owned());
    }

    async fn cluster(&mut self, stored: &Value) {
        self.store.create(OPERATOR, &fresh(stored)).await;
    }

    async fn pool(&mut self, stored: &Value) {
        let mut made = self.store.create(OPERATOR, &fresh(stored)).await;
        self.made(stored, &made);
        made["metadata"]["finalizers"] = stored["metadata"]["finalizers"].clone();
        let mut made = self.store.replace(GO_PROVIDER, &made).await;
        made["status"] = stored["status"].clone();
        self.store.replace_status(GO_PROVIDER, &made).await;
    }

    /// The consumer makes the claim, the Go provider adds its finalizer and the status. One that is deleted may have
    /// lost that finalizer since.
    async fn claim(&mut self, stored: &Value) {
        let (namespace, name) = (text(stored, "/metadata/namespace"), text(stored, "/metadata/name"));
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
        let mut made = self.store.change(GO_PROVIDER, of, |claim| add_finalizer(claim, RELEASE_ADDRESS)).await;
        if !stored["status"].is_null() {
            made["status"] = stored["status"].clone();
            self.store.replace_status(GO_PROVIDER, &made).await;
        }
        if !stored["metadata"]["deletionTimestamp"].is_null() {
            self.store.delete("IPAddressClaim", namespace, name).await;
        }
        if !has_finalizer(stored, RELEASE_ADDRESS) {
            self.store.change(GO_PROVIDER, of, |claim| remove_finalizer(claim, RELEASE_ADDRESS)).await;
        }
    }

    async fn address(&mut self, stored: &Value) {
        let mut wanted = fresh(stored);
        let metadata = &stored["metadata"];
        wanted["metadata"]["finalizers"] = metadata["finalizers"].clone();
        wanted["metadata"]["ownerReferences"] = metadata["ownerReferences"].clone();
        for owner in wanted["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            owner["uid"] = json!(self.uids[text(owner, "/uid")]);
        }
        let restored = metadata["ownerReferences"].is_null();
        let made = self.store.create(if restored { RESTORE } else { GO_PROVIDER }, &wanted).await;
        assert_eq!(has_finalizer(&made, PROTECT_ADDRESS), has_finalizer(stored, PROTECT_ADDRESS));
    }
}

/// An object to be created: as stored, without what the API server or somebody else adds later.
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
