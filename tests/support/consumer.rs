//! Creates pools, claims, addresses and reservations as a machine controller and an operator do, and waits for results.

mod changes;
mod waits;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use capi_ipam::api::conditions::{self, Condition};
use capi_ipam::api::{IPReservation, InClusterKind, Pool, names};
use capi_ipam_controller::client::{CallError, ResourceClient, connect};
use capi_ipam_provider::api::{Cluster, ContractVersion, IPAddress, IPAddressClaim};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;

static NAMES: AtomicU32 = AtomicU32::new(0);

/// A name that no other test in this process uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A user of the provider in one namespace.
#[derive(Clone)]
pub struct Consumer {
    pub client: Client,
    pub namespace: String,
}

impl Consumer {
    /// A consumer with a new namespace, as the administrator.
    pub async fn new(control_plane: &ControlPlane) -> Self {
        let client = connect(Some(control_plane.kubeconfig()), "consumer").await.expect("the kubeconfig is valid");
        Self::with_client(client).await
    }

    /// A consumer with a new namespace.
    pub async fn with_client(client: Client) -> Self {
        let consumer = Self { client, namespace: unique("team") };
        let namespace: Namespace = object(json!({ "metadata": { "name": consumer.namespace } }));
        ResourceClient::new(Api::all(consumer.client.clone()), &())
            .create(&namespace)
            .await
            .expect("a namespace can be created");
        consumer
    }

    /// The claims of the namespace.
    pub fn claims(&self) -> ResourceClient<IPAddressClaim> {
        let version = ContractVersion::V1Beta2;
        ResourceClient::new(Api::all_with(self.client.clone(), &version).constrain(&self.namespace), &version)
    }

    /// The addresses of the namespace.
    pub fn addresses(&self) -> ResourceClient<IPAddress> {
        let version = ContractVersion::V1Beta2;
        ResourceClient::new(Api::all_with(self.client.clone(), &version).constrain(&self.namespace), &version)
    }

    /// The Clusters of the namespace.
    pub fn clusters(&self) -> ResourceClient<DynamicObject> {
        let kind = ApiResource::erase::<Cluster>(&ContractVersion::V1Beta2);
        ResourceClient::new(Api::namespaced_with(self.client.clone(), &self.namespace, &kind), &kind)
    }

    /// The pools of a kind: those of the namespace, or the global ones.
    pub fn pools_of(&self, kind: InClusterKind) -> ResourceClient<Pool> {
        let client = self.client.clone();
        let api = if kind.is_global() {
            Api::all_with(client, &kind)
        } else {
            Api::namespaced_with(client, &self.namespace, &kind)
        };
        ResourceClient::new(api, &kind)
    }

    /// The pools of single addresses of the namespace.
    pub fn pools(&self) -> ResourceClient<Pool> {
        self.pools_of(InClusterKind::IPPool)
    }

    /// The global pools of single addresses.
    pub fn global_pools(&self) -> ResourceClient<Pool> {
        self.pools_of(InClusterKind::GlobalIPPool)
    }

    /// All reservations.
    pub fn reservations(&self) -> ResourceClient<IPReservation> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// Creates a pool of single addresses in the namespace.
    pub async fn create_pool(&self, name: &str, spec: Value) -> Pool {
        self.create_pool_of(InClusterKind::IPPool, name, spec).await
    }

    /// Creates a global pool of single addresses.
    pub async fn create_global_pool(&self, name: &str, spec: Value) -> Pool {
        self.create_pool_of(InClusterKind::GlobalIPPool, name, spec).await
    }

    /// Creates a pool of a kind.
    pub async fn create_pool_of(&self, kind: InClusterKind, name: &str, spec: Value) -> Pool {
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(),
            "metadata": { "name": name, "namespace": (!kind.is_global()).then_some(&self.namespace) }, "spec": spec,
        }));
        self.pools_of(kind).create(&pool).await.expect("the pool can be created")
    }

    /// Creates a claim for a pool of a kind.
    pub async fn create_claim_of(&self, kind: InClusterKind, name: &str, pool: &str) -> IPAddressClaim {
        self.create_claim_with(name, kind.name(), pool, json!({})).await
    }

    /// Creates a claim for a pool of the namespace.
    pub async fn create_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.create_claim_with(name, InClusterKind::IPPool.name(), pool, json!({})).await
    }

    /// Creates a claim for a global pool.
    pub async fn create_global_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.create_claim_with(name, InClusterKind::GlobalIPPool.name(), pool, json!({})).await
    }

    /// Creates a claim with more metadata. A field `clusterName` in it sets `spec.clusterName`.
    pub async fn create_claim_with(&self, name: &str, kind: &str, pool: &str, metadata: Value) -> IPAddressClaim {
        self.try_create_claim(name, kind, pool, metadata).await.expect("the claim can be created")
    }

    /// Like [`Self::create_claim_with`], and returns an error.
    pub async fn try_create_claim(
        &self,
        name: &str,
        kind: &str,
        pool: &str,
        metadata: Value,
    ) -> Result<IPAddressClaim, CallError> {
        self.try_create_claim_for(name, json!({ "apiGroup": names::GROUP, "kind": kind, "name": pool }), metadata).await
    }

    /// Creates a claim with any pool reference.
    pub async fn try_create_claim_for(
        &self,
        name: &str,
        pool: Value,
        mut metadata: Value,
    ) -> Result<IPAddressClaim, CallError> {
        let cluster = metadata.as_object_mut().and_then(|fields| fields.remove("clusterName"));
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(self.namespace);
        let mut claim = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "metadata": metadata,
            "spec": { "poolRef": pool },
        });
        if let Some(cluster) = cluster {
            claim["spec"]["clusterName"] = cluster;
        }
        self.claims().create(&object(claim)).await
    }

    /// Creates many claims for a pool of the namespace, 16 at a time.
    pub async fn create_claims(&self, names: &[String], pool: &str) {
        futures::stream::iter(names)
            .for_each_concurrent(16, |name| async { drop(self.create_claim(name, pool).await) })
            .await;
    }

    /// Creates an IPAddress without owners and finalizer, as a restore or an operator does.
    pub async fn create_address(&self, name: &str, pool: &str, address: &str) -> IPAddress {
        let pool = json!({ "apiGroup": names::GROUP, "kind": InClusterKind::IPPool.name(), "name": pool });
        self.create_address_for(name, pool, address).await
    }

    /// Like [`Self::create_address`], with any pool reference.
    pub async fn create_address_for(&self, name: &str, pool: Value, address: &str) -> IPAddress {
        let address = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "claimRef": { "name": name }, "address": address, "prefix": 24, "poolRef": pool },
        });
        self.addresses().create(&object(address)).await.expect("the IPAddress can be created")
    }

    /// Creates an IPAddress with the finalizer of the provider, as it remains when its claim is force-deleted.
    pub async fn create_leftover_address(&self, name: &str, pool: Value, address: &str) {
        self.create_address_for(name, pool, address).await;
        self.modify(&self.addresses(), name, |object| {
            object["metadata"]["finalizers"] = json!([names::PROTECT_ADDRESS]);
        })
        .await;
    }

    /// Creates an IPAddress with the finalizer of the provider and the label of a Cluster.
    pub async fn create_address_in_cluster(&self, name: &str, pool: &str, address: &str, cluster: &str) {
        let address = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": { "cluster.x-k8s.io/cluster-name": cluster },
                "finalizers": [names::PROTECT_ADDRESS],
            },
            "spec": {
                "claimRef": { "name": name }, "address": address, "prefix": 24,
                "poolRef": { "apiGroup": names::GROUP, "kind": InClusterKind::IPPool.name(), "name": pool },
            },
        });
        self.addresses().create(&object(address)).await.expect("the IPAddress can be created");
    }

    /// Creates a reservation of an IPv4 address of a pool of the namespace, as an operator does. `claim` is the claim
    /// reference, null for none.
    pub async fn reserve(&self, pool: &str, address: &str, claim: Value) -> IPReservation {
        self.try_reserve(pool, address, claim).await.expect("the reservation can be created")
    }

    /// Like [`Self::reserve`], and returns an error.
    pub async fn try_reserve(&self, pool: &str, address: &str, claim: Value) -> Result<IPReservation, CallError> {
        let scope = format!("p.{}.{pool}", self.namespace);
        let mut reservation = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": { "name": format!("{scope}.{address}") },
            "spec": {
                "scope": scope, "address": address,
                "poolRef": { "kind": InClusterKind::IPPool.name(), "namespace": self.namespace, "name": pool },
            },
        });
        if !claim.is_null() {
            reservation["spec"]["claimRef"] = claim;
        }
        self.reservations().create(&object(reservation)).await
    }

    /// The reservation of an IPv4 address of a pool of the namespace.
    pub async fn reservation(&self, pool: &str, address: &str) -> Option<IPReservation> {
        let name = format!("p.{}.{pool}.{address}", self.namespace);
        self.reservations().get(&name).await.expect("reservations can be read")
    }

    /// The IPAddress objects of the namespace: name and address.
    pub async fn allocated_addresses(&self) -> BTreeMap<String, String> {
        let all = self.addresses().list().await.expect("addresses can be read");
        all.into_iter().map(|address| (address.name_any(), address.spec.address)).collect()
    }

    /// The events about objects of that name in the namespace: type, reason and note.
    pub async fn events(&self, name: &str) -> Vec<(String, String, String)> {
        let events: ResourceClient<Event> =
            ResourceClient::new(Api::namespaced(self.client.clone(), &self.namespace), &());
        let all = events.list().await.expect("events can be read").into_iter();
        let about =
            all.filter(|event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name));
        let or_empty = Option::unwrap_or_default;
        about.map(|event| (or_empty(event.type_), or_empty(event.reason), or_empty(event.note))).collect()
    }

    /// Creates a Cluster.
    pub async fn create_cluster(&self, name: &str, paused: bool) {
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": {
                "paused": paused,
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": name },
            },
        });
        self.clusters().create(&object(cluster)).await.expect("the Cluster can be created");
    }
}

/// The condition `Ready` of a claim, empty when there is none.
pub fn ready(claim: &IPAddressClaim) -> Condition {
    let status = claim.status.as_ref();
    status.and_then(|status| conditions::find(&status.conditions, conditions::READY)).cloned().unwrap_or_default()
}

/// A pool's counts as (total, free, used, out of range).
pub fn counts_of(pool: &Pool) -> Option<(i64, i64, i64, i64)> {
    let counts = pool.status.as_ref()?.ip_addresses?;
    Some((counts.total, counts.free, counts.used, counts.out_of_range))
}

/// An object from its JSON.
pub fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test writes valid objects")
}
