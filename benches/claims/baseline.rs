//! The floor: what the contract asks of any provider, done by nobody in particular, with as few writes as there can be.
//!
//! No provider can be faster. The floor need not find out what to do: it is handed each claim as the API server answered
//! its creation or deletion, so it watches nothing, reads nothing and decides nothing. With a reservation it makes one
//! more object for each address, as a provider has to whose uniqueness rests on the API server.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use capi_ipam::calls::{addresses, Calls, claims, GROUP, Identity, reservations};
use capi_ipam::pool::{address_of, Pool};
use serde_json::json;

/// Writes for claims of one namespace.
pub(crate) struct Floor {
    pub(crate) calls: Calls,
    pub(crate) namespace: String,
    pub(crate) pools: Vec<Pool>,
    pub(crate) reserve: bool,
    held: Mutex<HashMap<String, Held>>,
}

/// What was made for a claim.
#[derive(Clone)]
struct Held {
    address: Identity,
    reservation: Option<Identity>,
}

impl Floor {
    pub(crate) fn new(calls: &Calls, namespace: &str, pools: &[Pool], reserve: bool) -> Self {
        let held = Mutex::default();
        Self { calls: calls.clone(), namespace: namespace.to_owned(), pools: pools.to_vec(), reserve, held }
    }

    /// Finalizer, reservation, IPAddress, status.
    pub(crate) async fn bind(&self, number: usize, claim: Identity) {
        let Self { calls, namespace, .. } = self;
        let pool = &self.pools[number % self.pools.len()];
        let name = &claim.name;
        let path = format!("{}/{name}", claims(namespace));
        let finalizer = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
        let claim = calls.patch(&path, &claim, &[("/metadata/finalizers", finalizer)]).await;
        let (address, prefix) = address_of(number, self.pools.len());
        let mut reservation = None;
        if self.reserve {
            let scope = format!("p.{namespace}.{}", pool.name);
            let object = json!({
                "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPReservation",
                "metadata": {"name": format!("{scope}.{address}")},
                "spec": {
                    "scope": scope, "address": address,
                    "poolRef": {"kind": "InClusterIPPool", "namespace": namespace, "name": pool.name},
                    "claimRef": {"namespace": namespace, "name": name, "uid": claim.uid},
                },
            });
            reservation = Some(calls.create(&reservations(), &object).await);
        }
        let owner = |kind: &str, name: &str, uid: &str, version: &str, controller: bool| {
            json!({
                "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "name": name, "uid": uid,
                "controller": controller, "blockOwnerDeletion": true,
            })
        };
        let object = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "IPAddress",
            "metadata": {
                "name": name, "namespace": namespace,
                "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"],
                "ownerReferences": [
                    owner("IPAddressClaim", name, &claim.uid, "v1beta2", true),
                    owner("InClusterIPPool", &pool.name, &pool.uid, "v1alpha2", false),
                ],
            },
            "spec": {
                "claimRef": {"name": name}, "address": address, "prefix": prefix,
                "poolRef": {"apiGroup": GROUP, "kind": "InClusterIPPool", "name": pool.name},
            },
        });
        let address = calls.create(&addresses(namespace), &object).await;
        let status = json!({"addressRef": {"name": name}});
        calls.patch(&format!("{path}/status"), &claim, &[("/status", status)]).await;
        let held = Held { address, reservation };
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.name, held);
    }

    /// The finalizer of the IPAddress, the IPAddress, the reservation, the finalizer of the claim.
    pub(crate) async fn release(&self, claim: Identity) {
        let Self { calls, namespace, .. } = self;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&claim.name);
        let Held { address, reservation } = held.expect("the floor bound this claim");
        let path = format!("{}/{}", addresses(namespace), claim.name);
        let none = [("/metadata/finalizers", json!([]))];
        let address = calls.patch(&path, &address, &none).await;
        calls.delete(&path, &address.uid).await;
        if let Some(reservation) = reservation {
            calls.delete(&format!("{}/{}", reservations(), reservation.name), &reservation.uid).await;
        }
        calls.patch(&format!("{}/{}", claims(namespace), claim.name), &claim, &none).await;
    }
}
