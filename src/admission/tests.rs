//! The clusters of the tests of admission.

use capi_ipam_api::{IPNetwork, IPRegistry, IPReservation, IPSlice, Pool};
use capi_ipam_ledger::{Ledger, Observe};
use capi_ipam_provider::api::IPAddress;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::View;

/// A cluster with some objects. Nothing is known of it as long as they are being listed.
pub(super) struct Cluster(Option<Mutex<Ledger>>);

impl Default for Cluster {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl View for Cluster {
    fn with_ledger(&self, read: &mut dyn FnMut(&Ledger)) {
        if let Some(ledger) = &self.0 {
            read(&ledger.lock());
        }
    }
}

impl Cluster {
    /// A cluster whose objects are being listed.
    pub(super) fn incomplete() -> Self {
        Self(None)
    }

    /// A cluster with these objects, which have a kind. All are listed.
    pub(super) fn with(objects: &[Value]) -> Self {
        let mut ledger = Ledger::default();
        Observe::<IPNetwork>::init(&mut ledger);
        Observe::<IPRegistry>::init(&mut ledger);
        for object in objects {
            add(&mut ledger, object);
        }
        Observe::<IPRegistry>::init_done(&mut ledger);
        Observe::<IPNetwork>::init_done(&mut ledger);
        Self(Some(Mutex::new(ledger)))
    }
}

fn add(ledger: &mut Ledger, object: &Value) {
    match object["kind"].as_str() {
        Some("IPAddress") => ledger.apply(&decoded::<IPAddress>(object)),
        Some("IPReservation") => ledger.apply(&decoded::<IPReservation>(object)),
        Some("IPSlice") => ledger.apply(&decoded::<IPSlice>(object)),
        Some("IPNetwork") => ledger.apply(&decoded::<IPNetwork>(object)),
        Some("IPRegistry") => {
            let registry: IPRegistry = decoded(object);
            let name = registry.metadata.name.as_deref().unwrap();
            let cluster = registry.spec.cluster_id.as_deref().unwrap();
            ledger.set_management_cluster(name, cluster);
            ledger.apply(&registry);
        }
        _ => ledger.apply_pool(&decoded::<Pool>(object)),
    }
}

fn decoded<K: DeserializeOwned>(object: &Value) -> K {
    serde_json::from_value(object.clone()).unwrap()
}

/// A pool in the namespace `n` that is initialized.
pub(super) fn pool(kind: &str, name: &str, spec: &Value) -> Value {
    let finalizers = ["ipam.cluster.x-k8s.io/ProtectPool"];
    json!({
        "kind": kind,
        "metadata": {"namespace": "n", "name": name, "uid": name, "finalizers": finalizers},
        "spec": spec,
    })
}

/// The InClusterIPPool `p`.
pub(super) fn pool_of(addresses: &str) -> Value {
    pool(
        "InClusterIPPool",
        "p",
        &json!({"addresses": [addresses], "prefix": 24}),
    )
}

/// An address in use of the InClusterIPPool `p`.
pub(super) fn address(name: &str, address: &str) -> Value {
    json!({
        "kind": "IPAddress", "metadata": {"namespace": "n", "name": name, "uid": name},
        "spec": {
            "claimRef": {"name": name}, "address": address, "prefix": 24,
            "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"},
        },
    })
}

/// The reservation of a user for an address of the InClusterIPPool `p` in a scope.
pub(super) fn reservation(scope: &str, address: &str) -> Value {
    let name = format!("{scope}.{address}");
    json!({
        "kind": "IPReservation", "metadata": {"name": name, "uid": name},
        "spec": {
            "scope": scope, "address": address,
            "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"},
        },
    })
}

/// A network that accepts all pools.
pub(super) fn network(name: &str, change: &Value) -> Value {
    let finalizers = ["ipam.cluster.x-k8s.io/ProtectNetwork"];
    let mut network = json!({
        "kind": "IPNetwork", "metadata": {"name": name, "uid": name, "finalizers": finalizers},
        "spec": {"namespaces": {"from": "All"}}, "status": {"blockLengths": {"ipv4": 32}},
    });
    json_patch::merge(&mut network, change);
    network
}

/// The network `lab`, which shares blocks of 64 addresses through the registry `site`.
pub(super) fn sharing_network() -> Value {
    let blocks = json!({"registry": "site", "size": 64});
    network("lab", &json!({"spec": {"blocks": blocks}}))
}

/// The registry `site`.
pub(super) fn registry() -> Value {
    let spec = json!({"clusterID": "west", "nats": {"servers": ["nats://n"], "bucket": "b"}});
    json!({"kind": "IPRegistry", "metadata": {"name": "site", "uid": "site"}, "spec": spec})
}

/// A block of 64 addresses of the network `lab` that the management cluster has from `site`.
pub(super) fn slice(first: &str) -> Value {
    let name = format!("n.lab.{first}-26");
    let time = "2026-01-01T00:00:00Z";
    json!({
        "kind": "IPSlice", "metadata": {"name": name, "uid": name},
        "spec": {
            "scope": "n.lab", "block": format!("{first}/26"), "registry": "site",
            "owner": {"kind": "ManagementCluster", "name": "west"},
            "assignedAt": time, "confirmedAt": time,
        },
    })
}
