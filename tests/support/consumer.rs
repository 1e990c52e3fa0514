//! Does what a machine controller and an operator do: makes pools and claims, waits for addresses, gives them back.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use capi_ipam::api::conditions::{self, Condition};
use capi_ipam::api::{GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterPrefixPool, IPReservation, names, Pool};
use capi_ipam_controller::client::{CallError, ResourceClient, connect};
use capi_ipam_provider::api::{Cluster, ContractVersion, IPAddress, IPAddressClaim};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{json, Value};

use super::control_plane::ControlPlane;

/// How long a test waits for what should take milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

static NAMES: AtomicU32 = AtomicU32::new(0);

/// A name that no other test in this process uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// ResourceClient `look` every 20 ms until it finds something.
///
/// # Panics
/// When it finds nothing in time.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    eventually_within(PATIENCE, what, look).await
}

/// Like [`eventually`], with another patience.
pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "did not happen within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes sure for half a second that something stays as it is.
///
/// # Panics
/// When it does not.
pub async fn stays<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    for _ in 0..10 {
        assert!(look().await, "did not stay: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
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
        let client = connect(Some(control_plane.kubeconfig()), "consumer").await.expect("the kubeconfig is good");
        Self::with_client(client).await
    }

    /// Someone with a namespace of their own.
    pub async fn with_client(client: Client) -> Self {
        let consumer = Self { client, namespace: unique("team") };
        let namespace: Namespace = object(json!({ "metadata": { "name": consumer.namespace } }));
        ResourceClient::new(Api::all(consumer.client.clone()), &()).create(&namespace).await.expect("a namespace can be made");
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

    /// The pools of the namespace.
    pub fn pools(&self) -> ResourceClient<InClusterIPPool> {
        ResourceClient::new(Api::namespaced(self.client.clone(), &self.namespace), &())
    }

    /// The global pools.
    pub fn global_pools(&self) -> ResourceClient<GlobalInClusterIPPool> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// The pools of prefixes of the namespace.
    pub fn prefix_pools(&self) -> ResourceClient<InClusterPrefixPool> {
        ResourceClient::new(Api::namespaced(self.client.clone(), &self.namespace), &())
    }

    /// The global pools of prefixes.
    pub fn global_prefix_pools(&self) -> ResourceClient<GlobalInClusterPrefixPool> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// All reservations.
    pub fn reservations(&self) -> ResourceClient<IPReservation> {
        ResourceClient::new(Api::all(self.client.clone()), &())
    }

    /// Makes a pool in the namespace.
    pub async fn pool(&self, name: &str, spec: Value) -> InClusterIPPool {
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": InClusterIPPool::KIND.name(),
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        }));
        self.pools().create(&pool).await.expect("the pool can be made")
    }

    /// Makes a global pool.
    pub async fn global_pool(&self, name: &str, spec: Value) -> GlobalInClusterIPPool {
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": GlobalInClusterIPPool::KIND.name(),
            "metadata": { "name": name }, "spec": spec,
        }));
        self.global_pools().create(&pool).await.expect("the pool can be made")
    }

    /// Makes a pool of any kind, through the calls for it.
    pub async fn make<P: Pool>(&self, pools: &ResourceClient<P>, name: &str, spec: Value) -> P {
        let pool = object(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": P::KIND.name(),
            "metadata": { "name": name, "namespace": (!P::KIND.is_global()).then_some(&self.namespace) }, "spec": spec,
        }));
        pools.create(&pool).await.expect("the pool can be made")
    }

    /// Makes a claim for a pool of any kind.
    pub async fn claim_of<P: Pool>(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.claim_with(name, P::KIND.name(), pool, json!({})).await
    }

    /// Makes a pool of that kind.
    pub async fn pool_of(&self, kind: &str, name: &str, spec: Value) {
        if kind == GlobalInClusterIPPool::KIND.name() {
            self.global_pool(name, spec).await;
        } else {
            self.pool(name, spec).await;
        }
    }

    /// Makes a claim for a pool of the namespace.
    pub async fn claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.claim_with(name, InClusterIPPool::KIND.name(), pool, json!({})).await
    }

    /// Makes a claim for a global pool.
    pub async fn global_claim(&self, name: &str, pool: &str) -> IPAddressClaim {
        self.claim_with(name, GlobalInClusterIPPool::KIND.name(), pool, json!({})).await
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
        metadata: Value,
    ) -> Result<IPAddressClaim, CallError> {
        self.try_claim_for(name, json!({ "apiGroup": names::GROUP, "kind": kind, "name": pool }), metadata).await
    }

    /// Makes a claim for whatever the reference names.
    pub async fn try_claim_for(
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

    /// Makes many claims for a pool of the namespace, 16 at a time.
    pub async fn claim_all(&self, names: &[String], pool: &str) {
        futures::stream::iter(names).for_each_concurrent(16, |name| async { drop(self.claim(name, pool).await) }).await;
    }

    /// Waits until all these claims are bound, and returns the address of each.
    pub async fn all_bound(&self, names: &[String]) -> BTreeMap<String, String> {
        eventually_within(Duration::from_mins(2), &format!("{} claims are bound", names.len()), || async {
            let claims = self.claims().list().await.ok()?;
            let bound = claims.iter().filter(|claim| claim.bound_address().is_some()).map(ResourceExt::name_any);
            let bound: HashSet<String> = bound.collect();
            names.iter().all(|name| bound.contains(name)).then_some(())
        })
        .await;
        let addresses = self.addresses().list().await.expect("addresses can be listed");
        let of_name = |address: &IPAddress| (address.name_any(), address.spec.address.clone());
        let all: BTreeMap<_, _> = addresses.iter().map(of_name).collect();
        names.iter().map(|name| (name.clone(), all[name].clone())).collect()
    }

    /// Makes an IPAddress by hand, as a restore or an operator does: without owners and finalizer.
    pub async fn address_by_hand(&self, name: &str, pool: &str, address: &str) -> IPAddress {
        let pool = json!({ "apiGroup": names::GROUP, "kind": InClusterIPPool::KIND.name(), "name": pool });
        self.address_by_hand_for(name, pool, address).await
    }

    /// Makes an IPAddress by hand of whatever pool the reference names.
    pub async fn address_by_hand_for(&self, name: &str, pool: Value, address: &str) -> IPAddress {
        let made = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "claimRef": { "name": name }, "address": address, "prefix": 24, "poolRef": pool },
        });
        self.addresses().create(&object(made)).await.expect("the IPAddress can be made")
    }

    /// Makes an IPAddress as a provider leaves it behind when its claim is removed by force: it carries the finalizer.
    pub async fn address_left_behind(&self, name: &str, pool: Value, address: &str) {
        self.address_by_hand_for(name, pool, address).await;
        self.change(&self.addresses(), name, |made| made["metadata"]["finalizers"] = json!([names::PROTECT_ADDRESS]))
            .await;
    }

    /// Makes an IPAddress of a pool of the namespace, with the label of a Cluster, as a provider leaves it behind.
    pub async fn address_in_cluster(&self, name: &str, pool: &str, address: &str, cluster: &str) {
        let made = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": {
                "name": name, "namespace": self.namespace, "labels": { "cluster.x-k8s.io/cluster-name": cluster },
                "finalizers": [names::PROTECT_ADDRESS],
            },
            "spec": {
                "claimRef": { "name": name }, "address": address, "prefix": 24,
                "poolRef": { "apiGroup": names::GROUP, "kind": InClusterIPPool::KIND.name(), "name": pool },
            },
        });
        self.addresses().create(&object(made)).await.expect("the IPAddress can be made");
    }

    /// Makes a reservation of an IPv4 address of a pool of the namespace, as an operator does. `claim` is the claim
    /// reference, null for none.
    pub async fn reserve(&self, pool: &str, address: &str, claim: Value) -> IPReservation {
        self.try_reserve(pool, address, claim).await.expect("the reservation can be made")
    }

    /// As [`Self::reserve`], for what may fail.
    pub async fn try_reserve(&self, pool: &str, address: &str, claim: Value) -> Result<IPReservation, CallError> {
        let scope = format!("p.{}.{pool}", self.namespace);
        let mut made = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": { "name": format!("{scope}.{address}") },
            "spec": {
                "scope": scope, "address": address,
                "poolRef": { "kind": InClusterIPPool::KIND.name(), "namespace": self.namespace, "name": pool },
            },
        });
        if !claim.is_null() {
            made["spec"]["claimRef"] = claim;
        }
        self.reservations().create(&object(made)).await
    }

    /// The reservation of an IPv4 address of a pool of the namespace.
    pub async fn reservation(&self, pool: &str, address: &str) -> Option<IPReservation> {
        let name = format!("p.{}.{pool}.{address}", self.namespace);
        self.reservations().get(&name).await.expect("reservations can be read")
    }

    /// Waits until exactly these addresses of a pool of the namespace are reserved, each for the claim of that name,
    /// and the claim lives.
    pub async fn reserved(&self, pool: &str, expected: &[(&str, &str)]) {
        let scope = format!("p.{}.{pool}", self.namespace);
        eventually(&format!("the reservations of {scope} are {expected:?}"), || async {
            let claims = self.claims().list().await.expect("claims can be read");
            let all = self.reservations().list().await.expect("reservations can be read");
            let mut found: Vec<_> = all.iter().filter(|reservation| reservation.spec.scope == scope).collect();
            found.sort_by_key(|reservation| &reservation.spec.address);
            let holder = |reservation: &&IPReservation| {
                let uid = reservation.spec.claim_ref.as_ref()?.uid.clone()?;
                let claim = claims.iter().find(|claim| claim.metadata.uid.as_ref() == Some(&uid))?;
                Some((reservation.spec.address.clone(), claim.name_any()))
            };
            let expected = expected.iter().map(|(address, claim)| Some(((*address).to_owned(), (*claim).to_owned())));
            found.iter().map(holder).eq(expected).then_some(())
        })
        .await;
    }

    /// The IPAddress objects of the namespace: name and address.
    pub async fn given(&self) -> BTreeMap<String, String> {
        let all = self.addresses().list().await.expect("addresses can be read");
        all.into_iter().map(|address| (address.name_any(), address.spec.address)).collect()
    }

    /// The events about objects of that name in the namespace: type, reason and text.
    pub async fn events(&self, name: &str) -> Vec<(String, String, String)> {
        let events: ResourceClient<Event> = ResourceClient::new(Api::namespaced(self.client.clone(), &self.namespace), &());
        let all = events.list().await.expect("events can be read").into_iter();
        let about =
            all.filter(|event| event.regarding.as_ref().and_then(|object| object.name.as_deref()) == Some(name));
        let or_empty = Option::unwrap_or_default;
        about.map(|event| (or_empty(event.type_), or_empty(event.reason), or_empty(event.note))).collect()
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
        let ready = ready(&claim);
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

    /// Waits until a claim is not ready for a reason, and returns the text.
    pub async fn waits_for(&self, name: &str, reason: &str) -> String {
        eventually(&format!("claim {}/{name} says {reason}", self.namespace), || async {
            let claim = self.claims().get(name).await.ok().flatten()?;
            let ready = ready(&claim);
            assert_ne!(ready.status, "True", "claim {name} is bound, though {reason} was expected");
            (ready.reason.as_deref() == Some(reason)).then(|| ready.message.unwrap_or_default())
        })
        .await
    }

    /// Waits until a bound claim is no longer ready, for a reason, and returns the text.
    pub async fn becomes_unready(&self, name: &str, reason: &str) -> String {
        eventually(&format!("claim {}/{name} says {reason}", self.namespace), || async {
            let ready = ready(&self.claims().get(name).await.ok().flatten()?);
            (ready.status == "False" && ready.reason.as_deref() == Some(reason))
                .then(|| ready.message.unwrap_or_default())
        })
        .await
    }

    /// Makes sure that a claim stays unbound for half a second.
    pub async fn stays_unbound(&self, name: &str) {
        stays(&format!("claim {}/{name} unbound", self.namespace), || async {
            let claim = self.claims().get(name).await.expect("claims can be read").expect("the claim exists");
            claim.bound_address().is_none()
        })
        .await;
    }

    /// Deletes a claim and does not wait.
    pub async fn delete(&self, name: &str) {
        self.remove(&self.claims(), name).await;
    }

    /// Deletes any object and does not wait.
    pub async fn remove<K>(&self, calls: &ResourceClient<K>, name: &str)
    where
        K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        let object = calls.get(name).await.expect("objects can be read").expect("the object exists");
        calls.delete(name, &object.uid().unwrap_or_default()).await.expect("the object can be deleted");
    }

    /// Deletes a pool as soon as that is allowed, and waits until it is gone. Admission refuses it until the manager has
    /// seen the last address of it go.
    pub async fn remove_unused<K>(&self, pools: &ResourceClient<K>, name: &str)
    where
        K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        eventually(&format!("the pool {name} goes"), || async {
            let Some(pool) = pools.get(name).await.expect("pools can be read") else { return Some(()) };
            let _ = pools.delete(name, &pool.uid().unwrap_or_default()).await;
            None
        })
        .await;
    }

    /// Deletes an object whose finalizers hold it, and takes these off.
    pub async fn force_away<K>(&self, calls: &ResourceClient<K>, name: &str)
    where
        K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        self.remove(calls, name).await;
        self.change(calls, name, |object| object["metadata"]["finalizers"] = json!([])).await;
    }

    /// Sets or removes the annotation that pauses an object.
    pub async fn pause<K>(&self, calls: &ResourceClient<K>, name: &str, paused: bool)
    where
        K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        self.change(calls, name, |object| {
            let annotations = &mut object["metadata"]["annotations"];
            if paused {
                annotations[names::PAUSED_ANNOTATION] = json!("");
            } else if let Some(all) = annotations.as_object_mut() {
                all.remove(names::PAUSED_ANNOTATION);
            }
        })
        .await;
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
        wait_for_counts(&self.pools(), pool, expected).await;
    }

    /// Waits until the counts of a pool of that kind are (total, free, used, out of range).
    pub async fn counts_in(&self, kind: &str, pool: &str, expected: (i64, i64, i64, i64)) {
        if kind == GlobalInClusterIPPool::KIND.name() {
            wait_for_counts(&self.global_pools(), pool, expected).await;
        } else {
            self.counts(pool, expected).await;
        }
    }

    /// Waits until the counts of a pool of any kind are (total, free, used, out of range).
    pub async fn counts_of<P: Pool>(&self, pools: &ResourceClient<P>, pool: &str, expected: (i64, i64, i64, i64)) {
        wait_for_counts(pools, pool, expected).await;
    }

    /// Waits until a pool of the namespace is ready, or not, for a reason, and returns the text.
    pub async fn pool_says(&self, pool: &str, status: &str, reason: &str) -> String {
        self.says(&self.pools(), pool, conditions::READY, status, reason).await
    }

    /// Waits until a condition of a pool says so for a reason, and returns the text.
    pub async fn says<P: Pool>(
        &self,
        pools: &ResourceClient<P>,
        name: &str,
        condition: &str,
        status: &str,
        reason: &str,
    ) -> String {
        eventually(&format!("pool {}/{name} says {condition} {status} {reason}", self.namespace), || async {
            let pool = pools.get(name).await.expect("pools can be read").expect("the pool exists");
            let found = conditions::find(&pool.status()?.conditions, condition)?.clone();
            let says = found.status == status && found.reason.as_deref() == Some(reason);
            (says && found.observed_generation == pool.meta().generation).then(|| found.message.unwrap_or_default())
        })
        .await
    }

    /// Changes the specification of a pool of the namespace.
    pub async fn change_pool(&self, pool: &str, change: impl Fn(&mut Value)) {
        self.change(&self.pools(), pool, |pool| change(&mut pool["spec"])).await;
    }

    /// Changes an object by merge patch through a closure over its JSON.
    pub async fn change<K>(&self, calls: &ResourceClient<K>, name: &str, change: impl Fn(&mut Value)) -> K
    where
        K: Resource + Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        for _ in 0..20 {
            let before = calls.get(name).await.expect("objects can be read").expect("the object exists");
            let mut after = serde_json::to_value(&before).expect("objects are JSON");
            change(&mut after);
            let after: K = serde_json::from_value(after).expect("the changed object is still one");
            match capi_ipam_controller::patch::write(calls, &before, &after).await {
                Ok(written) => return written.unwrap_or(before),
                Err(error) if error.is_conflict() => {}
                Err(error) => panic!("{name} cannot be changed: {}", capi_ipam_controller::client::chain(&error)),
            }
        }
        panic!("{name} keeps changing");
    }
}

/// The condition `Ready` of a claim, empty when there is none.
pub fn ready(claim: &IPAddressClaim) -> Condition {
    let status = claim.status.as_ref();
    status.and_then(|status| conditions::find(&status.conditions, conditions::READY)).cloned().unwrap_or_default()
}

async fn wait_for_counts<P: Pool>(pools: &ResourceClient<P>, name: &str, expected: (i64, i64, i64, i64)) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pool = pools.get(name).await.expect("pools can be read").expect("the pool exists");
        let counts = counts_of(&pool);
        if counts == Some(expected) {
            return;
        }
        assert!(Instant::now() < deadline, "pool {name} counts {counts:?} instead of {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
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
