//! Owner references in a version of the contract that will no longer be served.

use support::prelude::*;

use crate::{
    MACHINE,
    go_provider::{GoProvider, claim},
    store::{CONSUMER, GO_PROVIDER, GROUP, Store, text},
};

const NAMESPACE: &str = "owners";
const KIND: &str = "InClusterIPPool";

/// Creates a bound claim with the IPAddress that version 1.0 of the Go provider created.
async fn allocate(store: &Store, pool: &Value, name: &str, cluster: Option<&str>, address: &str) {
    let mut wanted = claim("v1beta1", NAMESPACE, name, (KIND, "web"));
    if let Some(cluster) = cluster {
        wanted["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": cluster});
    }
    let claim = store.create(CONSUMER, &wanted).await;
    GoProvider::new(store).allocate(&claim, pool, address).await;
    let old = format!("{GROUP}/v1beta1");
    let of = ("IPAddress", NAMESPACE, name);
    store
        .change(GO_PROVIDER, of, |address| {
            address["metadata"]["ownerReferences"][0]["apiVersion"] = json!(old)
        })
        .await;
}

/// An IPAddress without what each write changes.
async fn address(store: &Store, name: &str) -> Value {
    let mut address = store.get_existing("IPAddress", NAMESPACE, name).await;
    for field in ["resourceVersion", "managedFields"] {
        address["metadata"][field].take();
    }
    address
}

fn owner_version(address: &Value) -> &str {
    text(address, "/metadata/ownerReferences/0/apiVersion")
}

/// No longer serves the old version of a kind, as Cluster API v1.16.
fn drop_old_version(plane: &ControlPlane, plural: &str) {
    let name = format!("{plural}.{GROUP}");
    let text = plane.kubectl(&["get", "crd", &name, "--output=json"]);
    let mut definition: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
    definition["metadata"]["resourceVersion"].take();
    for version in definition["spec"]["versions"]
        .as_array_mut()
        .expect("there are versions")
    {
        version["served"] = json!(version["name"] == "v1beta2");
    }
    plane.kubectl_replace(&definition.to_string());
    plane.wait_until_served(&name);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_rewritten_before_their_version_is_removed() {
    let _machine = MACHINE.read().await;
    let plane = ControlPlane::start(Options {
        controller_manager: true,
        ..Options::default()
    });
    let store = Store::new(&plane).await;
    store.namespace(NAMESPACE).await;
    store.create_cluster(NAMESPACE, "resting", true).await;
    let spec = json!({"addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24});
    let pool = store.create_pool(NAMESPACE, "web", spec).await;
    for (name, cluster, address) in [
        ("a", None, "10.0.0.10"),
        ("b", None, "10.0.0.11"),
        ("c", Some("resting"), "10.0.0.12"),
    ] {
        allocate(&store, &pool, name, cluster, address).await;
    }
    let before = [address(&store, "a").await, address(&store, "c").await];
    let manager = Manager::start(&plane, &[]);
    let current = format!("{GROUP}/v1beta2");
    for name in ["a", "b"] {
        until("the owner is rewritten", async || {
            Some(owner_version(&address(&store, name).await) == current)
        })
        .await;
    }
    manager.wait_for_log("rewrote owner references");
    let [mut expected, paused] = before;
    expected["metadata"]["ownerReferences"][0]["apiVersion"] = json!(current);
    assert_eq!(
        address(&store, "a").await,
        expected,
        "nothing else is changed"
    );
    assert_eq!(
        address(&store, "c").await,
        paused,
        "a paused Cluster is not touched"
    );

    // The garbage collector finds the owners without the old version.
    drop_old_version(&plane, "ipaddressclaims");
    drop_old_version(&plane, "ipaddresses");
    let namespace = format!("--namespace={NAMESPACE}");
    plane.kubectl(&[
        "delete",
        "ipaddressclaim",
        "a",
        &namespace,
        "--cascade=foreground",
        "--wait=false",
    ]);
    until("the claim and its IPAddress are deleted", async || {
        let claim = store.get("IPAddressClaim", NAMESPACE, "a").await;
        let address = store.get("IPAddress", NAMESPACE, "a").await;
        Some(claim.is_none() && address.is_none())
    })
    .await;
    assert_eq!(owner_version(&address(&store, "b").await), current);
}
