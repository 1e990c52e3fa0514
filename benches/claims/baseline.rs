//! The baseline: the writes that the contract requires of any provider, issued directly and in the
//! minimum number.
//!
//! No provider can be faster. The baseline gets each claim from the response to its creation or
//! deletion, so it watches, reads and decides nothing. With reservations it creates one more object
//! for each address, like a provider that relies on the API server for uniqueness. With
//! `--complete-baseline` it also does what a provider cannot avoid: it watches these kinds, and
//! writes the conditions that Cluster API and infrastructure providers read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use tokio::task::AbortHandle;

use crate::api_client::{ApiClient, GROUP, Identity, addresses, claims, reservations};
use crate::pool::{Pool, address_of};

/// Binds and releases the claims of one namespace.
pub(crate) struct Baseline {
    pub(crate) api: ApiClient,
    pub(crate) namespace: String,
    pub(crate) pools: Vec<Pool>,
    pub(crate) reserve: bool,
    /// The watches, and whether conditions are written.
    watches: Vec<AbortHandle>,
    held: Mutex<HashMap<String, Held>>,
}

/// The objects of a claim.
#[derive(Clone)]
struct Held {
    address: Identity,
    reservation: Option<Identity>,
}

impl Baseline {
    pub(crate) fn new(api: &ApiClient, namespace: &str, pools: &[Pool], reserve: bool) -> Self {
        let held = Mutex::default();
        let (api, namespace, pools) = (api.clone(), namespace.to_owned(), pools.to_vec());
        Self {
            api,
            namespace,
            pools,
            reserve,
            watches: Vec::new(),
            held,
        }
    }

    /// Opens the watches of a provider, and writes conditions from now on.
    pub(crate) async fn complete(&mut self) {
        let kinds = ["ipaddressclaims", "ipaddresses"]
            .map(|plural| format!("/apis/{GROUP}/v1beta2/{plural}"));
        for folder in kinds.into_iter().chain([reservations()]) {
            self.watches.push(self.api.discard_events(&folder).await);
        }
    }

    /// Finalizer, reservation, IPAddress, status.
    pub(crate) async fn bind(&self, number: usize, claim: Identity) {
        let Self { api, namespace, .. } = self;
        let pool = &self.pools[number % self.pools.len()];
        let name = &claim.name;
        let path = format!("{}/{name}", claims(namespace));
        let finalizer = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
        let claim = api
            .patch(&path, &claim, &[("/metadata/finalizers", finalizer)])
            .await;
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
            reservation = Some(api.create(&reservations(), &object).await);
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
        let address = api.create(&addresses(namespace), &object).await;
        let mut status = json!({"addressRef": {"name": name}});
        if !self.watches.is_empty() {
            let now = jiff::Timestamp::now()
                .strftime("%Y-%m-%dT%H:%M:%SZ")
                .to_string();
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
            status["deprecated"] = json!({"v1beta1": {"conditions": [ready]}});
            status["conditions"] = json!([{
                "type": "Ready", "status": "True", "lastTransitionTime": now, "observedGeneration": 1,
                "reason": "AddressAllocated", "message": "",
            }]);
        }
        api.patch(&format!("{path}/status"), &claim, &[("/status", status)])
            .await;
        let held = Held {
            address,
            reservation,
        };
        self.held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(claim.name, held);
    }

    /// The finalizer of the IPAddress, the IPAddress, the reservation, the finalizer of the claim.
    pub(crate) async fn release(&self, claim: Identity) {
        let Self { api, namespace, .. } = self;
        let held = self
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&claim.name);
        let Held {
            address,
            reservation,
        } = held.expect("the baseline has bound this claim");
        let path = format!("{}/{}", addresses(namespace), claim.name);
        let none = [("/metadata/finalizers", json!([]))];
        let address = api.patch(&path, &address, &none).await;
        api.delete(&path, &address.uid).await;
        if let Some(reservation) = reservation {
            api.delete(
                &format!("{}/{}", reservations(), reservation.name),
                &reservation.uid,
            )
            .await;
        }
        api.patch(
            &format!("{}/{}", claims(namespace), claim.name),
            &claim,
            &none,
        )
        .await;
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}
