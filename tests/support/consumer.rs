//! Does what a machine controller and an operator do: makes pools and claims, waits for addresses, gives them back.

use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use capi_ipam::api::conditions::{self, Condition};
use capi_ipam::api::{
    Cluster, ContractVersion, GlobalInClusterIPPool, IPAddress, IPAddressClaim, IPReservation, InClusterIPPool, Pool,
};
use capi_ipam::runtime::client::{CallError, Calls, connect};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;

/// How long a test waits for what should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

static NAMES: AtomicU32 = AtomicU32::new(0);

/// A name that no other test in this process uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// Calls `look` every 20 ms until it finds something.
///
/// # Panics
/// When it finds nothing in time.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "did not happen within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Works in one namespace.
#[derive(Clone)]
pub struct Consumer {
    pub client: Client,
    pub namespace: String,
}

impl Consumer {
    /// Someone with a namespace of their own, as the administrator.
    pub async fn new(control_plane: &ControlPlane) -> Self {
        let client = connect(Some(control_plane.kubeconfig())).await.expect("the kubeconfig is good");
        Self::with_client(client).await
    }

    /// Someone with a namespace of their own.
    pub async fn with_client(client: Client) -> Self {
        let consumer = Self { client, namespace: unique("team") };
        let namespace: Namespace = object(json!({ "metadata": { "name": consumer.namespace } }));
        Calls::new(Api::all(consumer.client.clone()), &()).create(&namespace).await.expect("a namespace can be made");
        consumer
    }

    /// The claims of the namespace.
    pub fn claims(&self) -> Calls<IPAddressClaim> {
        let version = ContractVersion::V1Beta2;
        Calls::new(Api::all_with(self.client.clone(), &version).constrain(&self.namespace), &version)
    }

    /// The addresses of the namespace.
    pub fn addresses(&self) -> Calls<IPAddress> {
        let version = ContractVersion::V1Beta2;
        Calls::new(Api::all_with(self.client.clone(), &version).constrain(&self.namespace), &version)
    }

    /// The Clusters of the namespace.
    pub fn clusters(&self) -> Calls<DynamicObject> {
        let kind = ApiResource::erase::<Cluster>(&ContractVersion::V1Beta2);
        Calls::new(Api::namespaced_with(self.client.clone(), &self.namespace, &kind), &kind)
    }

    /// The pools of the namespace.
    pub fn pools(&self) -> Calls<InClusterIPPool> {
        Calls::new(Api::namespaced(self.client.clone(), &self.namespace), &())
    }

    /// The global pools.
    pub fn global_pools(&self) -> Calls<GlobalInClusterIPPool> {
        Calls::new(Api::all(self.client.clone()), &())
    }

    /// All reservations.
    pub fn reservations(&self) -> Calls<IPReservation> {
        Calls::new(Api::all(self.client.clone()), &())
    }

    /// Makes a pool in the namespace.
    pub async fn pool(&self, name: &str, spec: Value) -> InClusterIPPool {
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": InClusterIPPool::KIND,
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        }));
        self.pools().create(&pool).await.expect("the pool can be made")
    }

    /// Makes a global pool.
    pub async fn global_pool(&self, name: &str, spec: Value) -> GlobalInClusterIPPool {
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": GlobalInClusterIPPool::KIND,
            "metadata": { "name": name }, "spec": spec,
        }));
        self.global_pools().create(&pool).await.expect("the pool can be made")
    }

    /// Makes a claim for a pool of the namespace.
    pub async fn claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.claim_with(name, InClusterIPPool::KIND, pool, json!({})).await
    }

    /// Makes a claim for a global pool.
    pub async fn global_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.claim_with(name, GlobalInClusterIPPool::KIND, pool, json!({})).await
    }

    /// Makes a claim with more metadata. `clusterName` in it goes to the specification.
    pub async fn claim_with(&self, name: &str, kind: &str, pool: &str, metadata: Value) -> IPAddressClaim {
        self.try_claim(name, kind, pool, metadata).await.expect("the claim can be made")
    }

    /// Makes a claim, or says why not.
    pub async fn try_claim(
        &self,
        name: &str,
        kind: &str,
        pool: &str,
        mut metadata: Value,
    ) -> Result<IPAddressClaim, CallError> {
        let cluster = metadata.as_object_mut().and_then(|fields| fields.remove("clusterName"));
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(self.namespace);
        let mut claim = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "metadata": metadata,
            "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": pool } },
        });
        if let Some(cluster) = cluster {
            claim["spec"]["clusterName"] = cluster;
        }
        self.claims().create(&object(claim)).await
    }

    /// Makes an IPAddress by hand, as a restore or an operator does: without owners and finalizer.
    pub async fn address_by_hand(&self, name: &str, pool: &str, address: &str) -> IPAddress {
        let made = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "claimRef": { "name": name }, "address": address, "prefix": 24,
                "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": pool },
            },
        });
        self.addresses().create(&object(made)).await.expect("the IPAddress can be made")
    }

    /// Makes a Cluster.
    pub async fn cluster(&self, name: &str, paused: bool) {
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "paused": paused,
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": name },
            },
        });
        self.clusters().create(&object(cluster)).await.expect("the Cluster can be made");
    }

    /// Waits until a claim is bound, checks that claim and address fit together, and returns the address as text.
    pub async fn bound(&self, name: &str) -> String {
        self.bound_address(name).await.spec.address
    }

    /// Like [`Consumer::bound`], with the whole object.
    pub async fn bound_address(&self, name: &str) -> IPAddress {
        let claim = eventually(&format!("claim {}/{name} is bound", self.namespace), || async {
            let claim = self.claims().get(name).await.ok().flatten()?;
            claim.bound_address().is_some().then_some(claim)
        })
        .await;
        assert_eq!(claim.bound_address(), Some(name), "the IPAddress has the claim's name");
        assert!(claim.finalizers().iter().any(|all| all == "ipam.cluster.x-k8s.io/ReleaseAddress"), "{claim:?}");
        let ready = self.ready(&claim);
        assert_eq!((ready.status.as_ref(), ready.reason.as_deref()), ("True", Some("AddressAllocated")), "{claim:?}");
        let address = self.addresses().get(name).await.expect("addresses can be read").expect("the IPAddress exists");
        assert_eq!(address.spec.claim_ref.name, name);
        assert_eq!(address.spec.pool_ref, claim.spec.pool_ref);
        let owners = address.owner_references();
        assert!(owners.iter().any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref()
            && owner.controller == Some(true)
            && owner.block_owner_deletion == Some(true)));
        assert!(owners.iter().any(|owner| owner.name == claim.spec.pool_ref.name && owner.controller == Some(false)));
        assert!(address.finalizers().iter().any(|all| all == "ipam.cluster.x-k8s.io/ProtectAddress"));
        address
    }

    /// The condition `Ready` of a claim, empty when there is none.
    pub fn ready(&self, claim: &IPAddressClaim) -> Condition {
        let status = claim.status.clone().unwrap_or_default();
        conditions::find(&status.conditions, conditions::READY).cloned().unwrap_or_default()
    }

    /// Waits until a claim is not ready for a reason, and returns the text.
    pub async fn waits_for(&self, name: &str, reason: &str) -> String {
        eventually(&format!("claim {}/{name} says {reason}", self.namespace), || async {
            let claim = self.claims().get(name).await.ok().flatten()?;
            let ready = self.ready(&claim);
            assert_ne!(ready.status, "True", "claim {name} is bound, though {reason} was expected");
            (ready.reason.as_deref() == Some(reason)).then(|| ready.message.unwrap_or_default())
        })
        .await
    }

    /// Makes sure that a claim stays unbound for half a second.
    pub async fn stays_unbound(&self, name: &str) {
        for _ in 0..10 {
            let claim = self.claims().get(name).await.expect("claims can be read").expect("the claim exists");
            assert_eq!(claim.bound_address(), None, "claim {name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Deletes a claim and does not wait.
    pub async fn delete(&self, name: &str) {
        let claim = self.claims().get(name).await.expect("claims can be read").expect("the claim exists");
        self.claims().delete(name, &claim.uid().unwrap_or_default()).await.expect("the claim can be deleted");
    }

    /// Waits until claim and address are gone.
    pub async fn gone(&self, name: &str) {
        eventually(&format!("claim {}/{name} and its address are gone", self.namespace), || async {
            let claim = self.claims().get(name).await.expect("claims can be read");
            let address = self.addresses().get(name).await.expect("addresses can be read");
            (claim.is_none() && address.is_none()).then_some(())
        })
        .await;
    }

    /// Deletes a claim and waits until it and its address are gone.
    pub async fn release(&self, name: &str) {
        self.delete(name).await;
        self.gone(name).await;
    }

    /// Waits until a pool's counts are (total, free, used, out of range).
    pub async fn counts(&self, pool: &str, expected: (i64, i64, i64, i64)) {
        eventually(&format!("pool {pool} counts {expected:?}"), || async {
            let pool = self.pools().get(pool).await.expect("pools can be read").expect("the pool exists");
            (counts_of(&pool) == Some(expected)).then_some(())
        })
        .await;
    }

    /// Changes an object by merge patch through a closure over its JSON.
    pub async fn change<K>(&self, calls: &Calls<K>, name: &str, change: impl Fn(&mut Value)) -> K
    where
        K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        for _ in 0..20 {
            let before = calls.get(name).await.expect("objects can be read").expect("the object exists");
            let mut after = serde_json::to_value(&before).expect("objects are JSON");
            change(&mut after);
            let after: K = serde_json::from_value(after).expect("the changed object is still one");
            match capi_ipam::runtime::patch::write(calls, &before, &after).await {
                Ok(written) => return written.unwrap_or(before),
                Err(error) if error.is_conflict() => {}
                Err(error) => panic!("{name} cannot be changed: {}", capi_ipam::runtime::client::chain(&error)),
            }
        }
        panic!("{name} keeps changing");
    }
}

/// A pool's counts as (total, free, used, out of range).
pub fn counts_of<P: Pool>(pool: &P) -> Option<(i64, i64, i64, i64)> {
    let counts = pool.status()?.ip_addresses?;
    Some((counts.total, counts.free, counts.used, counts.out_of_range))
}

/// An object from its JSON.
pub fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test writes objects as they should be")
}
