//! Creates pools and reservations of the in-cluster provider, and claims for them, as an operator
//! and a machine controller do.

mod waits;

use std::collections::BTreeMap;
use std::ops::Deref;

use capi_ipam_api::{IPNetwork, IPReservation, IPSlice, InClusterKind, Pool, names};
use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use capi_ipam_testing::consumer as generic;
pub use capi_ipam_testing::consumer::{
    answered, create, object, read, ready, retry_unanswered, unique,
};
use futures::StreamExt;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::manager::Manager;

/// A user of the in-cluster provider in one namespace.
#[derive(Clone)]
pub struct Consumer(generic::Consumer);

impl Deref for Consumer {
    type Target = generic::Consumer;

    fn deref(&self) -> &generic::Consumer {
        &self.0
    }
}

impl Consumer {
    /// A consumer with a new namespace, as the administrator.
    pub async fn new(control_plane: &ControlPlane) -> Self {
        Self(generic::Consumer::new(control_plane).await)
    }

    /// A consumer with a new namespace.
    pub async fn with_client(client: Client) -> Self {
        Self(generic::Consumer::with_client(client).await)
    }

    /// A consumer in another namespace, with the same client. An empty namespace selects the whole
    /// cluster.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self(self.0.in_namespace(namespace))
    }

    /// A consumer in the same namespace, with another client.
    #[must_use]
    pub fn with_client_of(&self, client: Client) -> Self {
        Self(self.0.with_client_of(client))
    }

    /// See [`generic::Consumer::with_log_of`].
    #[must_use]
    pub fn with_log_of(self, manager: &'static Manager) -> Self {
        Self(self.0.with_log_of(manager))
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

    /// All networks.
    pub fn networks(&self) -> ResourceClient<IPNetwork> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// All slices.
    pub fn slices(&self) -> ResourceClient<IPSlice> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// The owner of each slice, by its block.
    pub async fn slice_owners(&self) -> BTreeMap<String, String> {
        let slices = self.slices();
        let all = retry_unanswered(|| slices.list())
            .await
            .expect("slices can be listed");
        all.into_iter()
            .map(|slice| (slice.spec.block, slice.spec.owner.to_string()))
            .collect()
    }

    /// Creates a slice by hand.
    pub async fn pin_slice(&self, scope: &str, block: &str, owner: Value) -> IPSlice {
        let slice = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPSlice",
            "metadata": { "name": format!("{scope}.{}", block.replace('/', "-")) },
            "spec": { "scope": scope, "block": block, "owner": owner },
        }));
        create(&self.slices(), &slice)
            .await
            .expect("the slice can be created")
    }

    /// Creates a network.
    pub async fn create_network(&self, name: &str, spec: Value) -> IPNetwork {
        let network = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPNetwork", "metadata": { "name": name },
            "spec": spec,
        }));
        create(&self.networks(), &network)
            .await
            .expect("the network can be created")
    }

    /// Creates a network that all pools can join.
    pub async fn create_open_network(&self, name: &str) {
        self.create_network(name, json!({ "namespaces": { "from": "All" } }))
            .await;
    }

    /// Creates a pool of single addresses in the namespace.
    pub async fn create_pool(&self, name: &str, spec: impl Into<PoolSpec>) -> Pool {
        self.create_pool_of(InClusterKind::IPPool, name, spec).await
    }

    /// Creates a global pool of single addresses.
    pub async fn create_global_pool(&self, name: &str, spec: impl Into<PoolSpec>) -> Pool {
        self.create_pool_of(InClusterKind::GlobalIPPool, name, spec)
            .await
    }

    /// Creates a pool of a kind.
    pub async fn create_pool_of(
        &self,
        kind: InClusterKind,
        name: &str,
        spec: impl Into<PoolSpec>,
    ) -> Pool {
        self.create_labelled_pool(kind, name, json!({}), spec).await
    }

    /// Creates a pool of a kind with labels.
    pub async fn create_labelled_pool(
        &self,
        kind: InClusterKind,
        name: &str,
        labels: Value,
        spec: impl Into<PoolSpec>,
    ) -> Pool {
        let PoolSpec(spec) = spec.into();
        let namespace = (!kind.is_global()).then_some(&self.namespace);
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(),
            "metadata": { "name": name, "namespace": namespace, "labels": labels }, "spec": spec,
        }));
        create(&self.pools_of(kind), &pool)
            .await
            .expect("the pool can be created")
    }

    /// Creates a claim for a pool of a kind.
    pub async fn create_claim_of(
        &self,
        kind: InClusterKind,
        name: &str,
        pool: &str,
    ) -> IPAddressClaim {
        self.create_claim_with(name, kind.name(), pool, json!({}))
            .await
    }

    /// Creates a claim for a pool of the namespace.
    pub async fn create_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.create_claim_with(name, InClusterKind::IPPool.name(), pool, json!({}))
            .await
    }

    /// Creates a claim for a global pool.
    pub async fn create_global_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.create_claim_with(name, InClusterKind::GlobalIPPool.name(), pool, json!({}))
            .await
    }

    /// The claim with a name, which exists.
    pub async fn the_claim(&self, name: &str) -> IPAddressClaim {
        read(&self.claims(), name).await
    }

    /// The pool of the namespace with a name, which exists.
    pub async fn the_pool(&self, name: &str) -> Pool {
        read(&self.pools(), name).await
    }

    /// The IPAddress with a name, which exists.
    pub async fn the_address(&self, name: &str) -> IPAddress {
        read(&self.addresses(), name).await
    }

    /// Creates a claim for a pool of the namespace, and returns its address.
    pub async fn bind(&self, claim: &str, pool: &str) -> String {
        self.create_claim(claim, pool).await;
        self.wait_for_address(claim).await
    }

    /// Creates a claim for a global pool, and returns its address.
    pub async fn bind_global(&self, claim: &str, pool: &str) -> String {
        self.create_global_claim(claim, pool).await;
        self.wait_for_address(claim).await
    }

    /// Creates a claim for a pool of the namespace, which gets this address.
    pub async fn bind_to(&self, claim: &str, pool: &str, address: impl AsRef<str>) {
        assert_eq!(self.bind(claim, pool).await, address.as_ref(), "{claim}");
    }

    /// Creates a claim for a global pool, which gets this address.
    pub async fn bind_global_to(&self, claim: &str, pool: &str, address: impl AsRef<str>) {
        assert_eq!(
            self.bind_global(claim, pool).await,
            address.as_ref(),
            "{claim}"
        );
    }

    /// Creates a claim for a pool of the namespace that reports this reason, and returns the
    /// message.
    pub async fn claim_waits(&self, claim: &str, pool: &str, reason: &str) -> String {
        self.create_claim(claim, pool).await;
        self.wait_for_reason(claim, reason).await
    }

    /// Like [`Self::claim_waits`], for a global pool.
    pub async fn global_claim_waits(&self, claim: &str, pool: &str, reason: &str) -> String {
        self.create_global_claim(claim, pool).await;
        self.wait_for_reason(claim, reason).await
    }

    /// Waits until a claim is bound, to this address.
    pub async fn assert_address(&self, claim: &str, address: impl AsRef<str>) {
        assert_eq!(
            self.wait_for_address(claim).await,
            address.as_ref(),
            "{claim}"
        );
    }

    /// Creates a claim for a pool of a kind, and returns its address.
    pub async fn bind_of(&self, kind: InClusterKind, claim: &str, pool: &str) -> String {
        self.create_claim_of(kind, claim, pool).await;
        self.wait_for_address(claim).await
    }

    /// Creates a claim for a pool of the namespace, with more metadata as in
    /// [`Self::create_claim_with`].
    pub async fn create_claim_with_metadata(
        &self,
        name: &str,
        pool: &str,
        metadata: Value,
    ) -> IPAddressClaim {
        self.create_claim_with(name, InClusterKind::IPPool.name(), pool, metadata)
            .await
    }

    /// Like [`Self::create_claim_with_metadata`], and returns the address.
    pub async fn bind_with_metadata(&self, name: &str, pool: &str, metadata: Value) -> String {
        self.create_claim_with_metadata(name, pool, metadata).await;
        self.wait_for_address(name).await
    }

    /// Creates a paused claim for a pool of the namespace, and waits until it says so.
    pub async fn create_paused_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        let paused = json!({ "annotations": { names::PAUSED_ANNOTATION: "" } });
        let claim = self.create_claim_with_metadata(name, pool, paused).await;
        self.wait_for_reason(name, "Paused").await;
        claim
    }

    /// Creates a claim with more metadata. A field `clusterName` in it sets `spec.clusterName`.
    pub async fn create_claim_with(
        &self,
        name: &str,
        kind: &str,
        pool: &str,
        metadata: Value,
    ) -> IPAddressClaim {
        self.try_create_claim(name, kind, pool, metadata)
            .await
            .expect("the claim can be created")
    }

    /// Like [`Self::create_claim_with`], and returns an error.
    pub async fn try_create_claim(
        &self,
        name: &str,
        kind: &str,
        pool: &str,
        metadata: Value,
    ) -> Result<IPAddressClaim, CallError> {
        self.try_create_claim_for(
            name,
            json!({ "apiGroup": names::GROUP, "kind": kind, "name": pool }),
            metadata,
        )
        .await
    }

    /// Creates many claims for a pool of the namespace, 16 at a time.
    pub async fn create_claims(&self, names: &[String], pool: &str) {
        self.create_claims_with(names, InClusterKind::IPPool, pool, json!({}))
            .await;
    }

    /// Creates many claims for a global pool, 16 at a time.
    pub async fn create_global_claims(&self, names: &[String], pool: &str) {
        self.create_claims_with(names, InClusterKind::GlobalIPPool, pool, json!({}))
            .await;
    }

    /// Creates many claims for a pool of a kind, each with this metadata, 16 at a time.
    pub async fn create_claims_with(
        &self,
        names: &[String],
        kind: InClusterKind,
        pool: &str,
        metadata: Value,
    ) {
        let create = |name| self.create_claim_with(name, kind.name(), pool, metadata.clone());
        futures::stream::iter(names)
            .for_each_concurrent(16, |name| async { drop(create(name).await) })
            .await;
    }

    /// Creates an IPAddress without owners and finalizer, as a restore or an operator does.
    pub async fn create_address(&self, name: &str, pool: &str, address: &str) -> IPAddress {
        let pool =
            json!({ "apiGroup": names::GROUP, "kind": InClusterKind::IPPool.name(), "name": pool });
        self.create_address_for(name, pool, address).await
    }

    /// Creates an IPAddress with the finalizer of the provider and the label of a Cluster.
    pub async fn create_address_in_cluster(
        &self,
        name: &str,
        pool: &str,
        address: &str,
        cluster: &str,
    ) {
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
        create(&self.addresses(), &object(address))
            .await
            .expect("the IPAddress can be created");
    }

    /// Creates a reservation of an IPv4 address of a pool of the namespace, as an operator does.
    /// `claim` is the claim reference, null for none.
    pub async fn reserve(&self, pool: &str, address: &str, claim: Value) -> IPReservation {
        self.try_reserve(pool, address, claim)
            .await
            .expect("the reservation can be created")
    }

    /// Reserves an IPv4 address of a pool of the namespace for a name of claims.
    pub async fn reserve_for(&self, pool: &str, address: &str, claim: &str) -> IPReservation {
        let claim = json!({ "namespace": self.namespace, "name": claim });
        self.reserve(pool, address, claim).await
    }

    /// Like [`Self::reserve`], and returns an error.
    pub async fn try_reserve(
        &self,
        pool: &str,
        address: &str,
        claim: Value,
    ) -> Result<IPReservation, CallError> {
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
        create(&self.reservations(), &object(reservation)).await
    }

    /// The reservation of an IPv4 address of a pool of the namespace.
    pub async fn reservation(&self, pool: &str, address: &str) -> Option<IPReservation> {
        let (reservations, name) = (
            self.reservations(),
            format!("p.{}.{pool}.{address}", self.namespace),
        );
        retry_unanswered(|| reservations.get(&name))
            .await
            .expect("reservations can be read")
    }

    /// Deletes the reservation of an IPv4 address of a pool of the namespace.
    pub async fn delete_reservation(&self, pool: &str, address: &str) {
        let name = format!("p.{}.{pool}.{address}", self.namespace);
        self.delete_object(&self.reservations(), &name).await;
    }

    /// Pauses a pool of the namespace, and waits until the manager has observed it.
    pub async fn pause_pool(&self, pool: &str) {
        self.set_paused(&self.pools(), pool, true).await;
        self.wait_for_pool_condition(pool, "False", "Paused").await;
    }

    /// Ends the pause of a pool of the namespace.
    pub async fn resume_pool(&self, pool: &str) {
        self.set_paused(&self.pools(), pool, false).await;
    }

    /// Replaces the labels of a pool of the namespace.
    pub async fn label_pool(&self, pool: &str, labels: Value) {
        self.modify(&self.pools(), pool, |pool| {
            pool["metadata"]["labels"] = labels.clone()
        })
        .await;
    }

    /// Waits until a pool of the namespace is ready.
    pub async fn wait_until_pool_ready(&self, pool: &str) {
        self.wait_for_pool_condition(pool, "True", "PoolReady")
            .await;
    }

    /// Deletes a pool of the namespace and does not wait.
    pub async fn delete_pool(&self, pool: &str) {
        self.delete_object(&self.pools(), pool).await;
    }

    /// Waits until a pool of the namespace does not exist.
    pub async fn wait_until_pool_gone(&self, pool: &str) {
        self.wait_until_gone(&self.pools(), pool).await;
    }

    /// Changes the specification of a pool of the namespace.
    pub async fn modify_pool(&self, pool: &str, change: impl Fn(&mut Value)) {
        self.modify(&self.pools(), pool, |pool| change(&mut pool["spec"]))
            .await;
    }
}

/// Names of objects: the prefix and a number from 0.
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}{number}"))
        .collect()
}

/// Asserts that a message contains a text.
pub fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text:?}");
}

/// The specification of a pool: as JSON, or the addresses with the prefix length 24, separated by
/// spaces, and other fields.
pub struct PoolSpec(Value);

impl From<Value> for PoolSpec {
    fn from(spec: Value) -> Self {
        Self(spec)
    }
}

impl From<(&str, Value)> for PoolSpec {
    fn from((addresses, more): (&str, Value)) -> Self {
        let addresses: Vec<&str> = addresses.split(' ').collect();
        let mut spec = json!({ "addresses": addresses, "prefix": 24 });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        Self(spec)
    }
}

impl From<&str> for PoolSpec {
    fn from(addresses: &str) -> Self {
        (addresses, json!({})).into()
    }
}

impl From<String> for PoolSpec {
    fn from(addresses: String) -> Self {
        addresses.as_str().into()
    }
}

/// A pool's counts as (total, free, used, out of range).
pub fn counts_of(pool: &Pool) -> Option<(i64, i64, i64, i64)> {
    let counts = pool.status.as_ref()?.ip_addresses?;
    Some((counts.total, counts.free, counts.used, counts.out_of_range))
}
