//! The baseline: the writes of a provider, issued directly. It reads nothing and decides nothing.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use futures::TryStreamExt as _;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use crate::api::{AT_ONCE, Api, GROUP, Identity, folder};

pub(crate) struct Baseline {
    api: Api,
    namespace: String,
    pools: Vec<Identity>,
    pub(crate) reserve: bool,
    permits: Semaphore,
    /// The watches of the complete baseline. Their events are discarded.
    watches: JoinSet<std::io::Result<()>>,
    /// The IPAddress and the reservation of each claim.
    held: Mutex<HashMap<String, (Identity, Option<Identity>)>>,
}

impl Baseline {
    /// A baseline for the claims of a namespace, without reservations and watches.
    pub(crate) fn bare(api: &Api, namespace: &str, pools: &[Identity]) -> Self {
        Self {
            api: api.clone(),
            namespace: namespace.to_owned(),
            pools: pools.to_vec(),
            reserve: false,
            permits: Semaphore::new(AT_ONCE),
            watches: JoinSet::new(),
            held: Mutex::default(),
        }
    }

    /// As this one, with reservations, and with the watches of a provider if it is `complete`.
    pub(crate) async fn with_reservations(mut self, complete: bool) -> Self {
        self.reserve = true;
        if complete {
            for plural in ["ipaddressclaims", "ipaddresses", "ipreservations"] {
                let path = folder("", plural);
                let events = self.api.watch(&path, "resourceVersion=0").await;
                self.watches.spawn(events.try_for_each(async |_| Ok(())));
            }
        }
        self
    }

    pub(crate) async fn bind(&self, number: usize, claim: Identity) {
        let _permit = self.permits.acquire().await;
        let Self { api, namespace, .. } = self;
        let (pool, name) = (&self.pools[number % self.pools.len()], &claim.name);
        let path = format!("{}/{name}", folder(namespace, "ipaddressclaims"));
        let finalizer = json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]);
        let claim = api
            .patch(&path, &claim, "/metadata/finalizers", finalizer)
            .await;
        let (address, prefix) = self.address(number);
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
            reservation = Some(api.create(&folder("", "ipreservations"), &object).await);
        }
        let owner = |kind: &str, owner: &Identity, version: &str, controller: bool| {
            json!({
                "apiVersion": format!("{GROUP}/{version}"), "kind": kind, "name": owner.name, "uid": owner.uid,
                "controller": controller, "blockOwnerDeletion": true,
            })
        };
        let object = json!({
            "apiVersion": format!("{GROUP}/v1beta2"), "kind": "IPAddress",
            "metadata": {
                "name": name, "namespace": namespace, "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"],
                "ownerReferences": [
                    owner("IPAddressClaim", &claim, "v1beta2", true),
                    owner("InClusterIPPool", pool, "v1alpha2", false),
                ],
            },
            "spec": {
                "claimRef": {"name": name}, "address": address, "prefix": prefix,
                "poolRef": {"apiGroup": GROUP, "kind": "InClusterIPPool", "name": pool.name},
            },
        });
        let address = api.create(&folder(namespace, "ipaddresses"), &object).await;
        api.patch(
            &format!("{path}/status"),
            &claim,
            "/status",
            self.status(name),
        )
        .await;
        self.held
            .lock()
            .await
            .insert(claim.name, (address, reservation));
    }

    fn status(&self, name: &str) -> Value {
        let mut status = json!({"addressRef": {"name": name}});
        if !self.watches.is_empty() {
            let now = now();
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
            status["deprecated"] = json!({"v1beta1": {"conditions": [ready]}});
            status["conditions"] = json!([{
                "type": "Ready", "status": "True", "lastTransitionTime": now, "observedGeneration": 1,
                "reason": "AddressAllocated", "message": "",
            }]);
        }
        status
    }

    /// The address of the claim with a number, and the prefix of its pool.
    fn address(&self, number: usize) -> (Ipv4Addr, u8) {
        let (pool, place) = (number % self.pools.len(), number / self.pools.len() + 1);
        let address = u32::try_from(0x0a00_0000 + (pool << 16) + place)
            .expect("the pools have enough addresses");
        (address.into(), if self.pools.len() == 1 { 12 } else { 16 })
    }

    pub(crate) async fn release(&self, claim: Identity) {
        let _permit = self.permits.acquire().await;
        let Self { api, namespace, .. } = self;
        let held = self.held.lock().await.remove(&claim.name);
        let (address, reservation) = held.expect("the baseline has bound this claim");
        let path = format!("{}/{}", folder(namespace, "ipaddresses"), claim.name);
        let address = api
            .patch(&path, &address, "/metadata/finalizers", json!([]))
            .await;
        api.delete(&path, &address.uid).await;
        if let Some(reservation) = reservation {
            let path = format!("{}/{}", folder("", "ipreservations"), reservation.name);
            api.delete(&path, &reservation.uid).await;
        }
        let path = format!("{}/{}", folder(namespace, "ipaddressclaims"), claim.name);
        api.patch(&path, &claim, "/metadata/finalizers", json!([]))
            .await;
    }
}

/// The time as Kubernetes writes it.
pub(crate) fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}
