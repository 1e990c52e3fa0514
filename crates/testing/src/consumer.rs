//! Creates claims, addresses and Clusters as a machine controller and an operator do, and waits for
//! results.

mod changes;
mod waits;

pub use changes::read;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use capi_ipam_provider::api::conditions::{self, Condition};
use capi_ipam_provider::api::{
    Cluster, ContractVersion, IPAddress, IPAddressClaim, Machine, names,
};
use capi_ipam_provider::controller::client::{
    ApiObject, CallError, ResourceClient, connect, error_chain,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::manager::Manager;
use crate::patience::Patience;
use crate::wait::{TIMEOUT, pause};

static NAMES: AtomicU32 = AtomicU32::new(0);

/// A name that no other test in this process uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A user of the provider in one namespace.
#[derive(Clone)]
pub struct Consumer {
    /// The client of all requests.
    pub client: Client,
    /// The namespace of all objects.
    pub namespace: String,
    /// Only of a manager that several tests share.
    log: Option<Arc<SharedLog>>,
}

/// What the log of a shared manager contains about a namespace is printed when its test fails.
struct SharedLog {
    manager: &'static Manager,
    namespace: String,
}

impl Drop for SharedLog {
    #[allow(clippy::print_stdout, reason = "it is shown when the test fails")]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        println!("the manager has logged about {}:", self.namespace);
        for line in self.manager.log().lines() {
            if line.contains(&self.namespace) {
                println!("{line}");
            }
        }
    }
}

impl Consumer {
    /// A consumer with a new namespace, as the administrator.
    pub async fn new(control_plane: &ControlPlane) -> Self {
        let client = connect(Some(control_plane.kubeconfig()), "consumer")
            .await
            .expect("the kubeconfig is valid");
        Self::with_client(client).await
    }

    /// A consumer with a new namespace.
    pub async fn with_client(client: Client) -> Self {
        let consumer = Self {
            client,
            namespace: unique("team"),
            log: None,
        };
        let namespace: Namespace = object(json!({ "metadata": { "name": consumer.namespace } }));
        let namespaces = ResourceClient::new(Api::all(consumer.client.clone()), &());
        create(&namespaces, &namespace)
            .await
            .expect("a namespace can be created");
        consumer
    }

    /// A consumer in another namespace, with the same client. An empty namespace selects the whole
    /// cluster.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            log: self.log.clone(),
        }
    }

    /// A consumer in the same namespace, with another client.
    #[must_use]
    pub fn with_client_of(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// Prints what the log of a manager contains about the namespace when the test fails.
    #[must_use]
    pub fn with_log_of(mut self, manager: &'static Manager) -> Self {
        self.log = Some(Arc::new(SharedLog {
            manager,
            namespace: self.namespace.clone(),
        }));
        self
    }

    /// The claims of the namespace.
    pub fn claims(&self) -> ResourceClient<IPAddressClaim> {
        let version = ContractVersion::V1Beta2;
        ResourceClient::new(
            Api::all_with(self.client.clone(), &version).constrain(&self.namespace),
            &version,
        )
    }

    /// The addresses of the namespace.
    pub fn addresses(&self) -> ResourceClient<IPAddress> {
        let version = ContractVersion::V1Beta2;
        ResourceClient::new(
            Api::all_with(self.client.clone(), &version).constrain(&self.namespace),
            &version,
        )
    }

    /// The Clusters of the namespace.
    pub fn clusters(&self) -> ResourceClient<DynamicObject> {
        let kind = ApiResource::erase::<Cluster>(&ContractVersion::V1Beta2);
        ResourceClient::new(
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind),
            &kind,
        )
    }

    /// The Machines of the namespace.
    pub fn machines(&self) -> ResourceClient<DynamicObject> {
        let kind = ApiResource::erase::<Machine>(&ContractVersion::V1Beta2);
        ResourceClient::new(
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind),
            &kind,
        )
    }

    /// Creates a claim for a pool. `metadata` has labels, annotations, finalizers or owner
    /// references, and in the field `clusterName` the value of `spec.clusterName`.
    ///
    /// # Panics
    /// When the API server rejects it.
    pub async fn create_claim_for(
        &self,
        name: &str,
        pool: Value,
        metadata: Value,
    ) -> IPAddressClaim {
        self.try_create_claim_for(name, pool, metadata)
            .await
            .expect("the claim can be created")
    }

    /// Like [`Self::create_claim_for`], and returns an error.
    pub async fn try_create_claim_for(
        &self,
        name: &str,
        pool: Value,
        mut metadata: Value,
    ) -> Result<IPAddressClaim, CallError> {
        let cluster = metadata
            .as_object_mut()
            .and_then(|fields| fields.remove("clusterName"));
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(self.namespace);
        let mut claim = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "metadata": metadata,
            "spec": { "poolRef": pool },
        });
        if let Some(cluster) = cluster {
            claim["spec"]["clusterName"] = cluster;
        }
        create(&self.claims(), &object(claim)).await
    }

    /// Creates an IPAddress without owners and finalizer, as a restore or an operator does.
    pub async fn create_address_for(&self, name: &str, pool: Value, address: &str) -> IPAddress {
        let address = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "claimRef": { "name": name }, "address": address, "prefix": 24, "poolRef": pool },
        });
        create(&self.addresses(), &object(address))
            .await
            .expect("the IPAddress can be created")
    }

    /// Creates an IPAddress with the finalizer of the provider, as it remains when its claim is
    /// force-deleted.
    pub async fn create_leftover_address(&self, name: &str, pool: Value, address: &str) {
        self.create_address_for(name, pool, address).await;
        self.modify(&self.addresses(), name, |object| {
            object["metadata"]["finalizers"] = json!([names::PROTECT_ADDRESS]);
        })
        .await;
    }

    /// The IPAddress objects of the namespace: name and address.
    pub async fn allocated_addresses(&self) -> BTreeMap<String, String> {
        let addresses = self.addresses();
        let all = retry_unanswered(|| addresses.list())
            .await
            .expect("addresses can be read");
        all.into_iter()
            .map(|address| (address.name_any(), address.spec.address))
            .collect()
    }

    /// The events about objects of that name in the namespace: type, reason and note.
    pub async fn events(&self, name: &str) -> Vec<(String, String, String)> {
        retry_unanswered(|| self.list_events(name))
            .await
            .expect("events can be read")
    }

    async fn list_events(&self, name: &str) -> Result<Vec<(String, String, String)>, CallError> {
        let events: ResourceClient<Event> =
            ResourceClient::new(Api::namespaced(self.client.clone(), &self.namespace), &());
        let all = events.list().await?.into_iter();
        let about = all.filter(|event| {
            event
                .regarding
                .as_ref()
                .and_then(|object| object.name.as_deref())
                == Some(name)
        });
        let or_empty = Option::unwrap_or_default;
        Ok(about
            .map(|event| {
                (
                    or_empty(event.type_),
                    or_empty(event.reason),
                    or_empty(event.note),
                )
            })
            .collect())
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
        create(&self.clusters(), &object(cluster))
            .await
            .expect("the Cluster can be created");
    }
}

/// Creates an object. On a machine that runs many API servers one of them can take longer than the
/// timeout of a request: the object is then read, and created if it does not exist.
///
/// # Errors
/// When the API server rejects the object, or does not answer three times.
///
/// # Panics
/// When a former object of that name is still being deleted after a minute.
pub async fn create<K: ApiObject>(client: &ResourceClient<K>, object: &K) -> Result<K, CallError> {
    let mut created = client.create(object).await;
    for _ in 0..2 {
        match created {
            Err(error) if error.outcome_is_unknown() => {
                created = get_or_create(client, object).await
            }
            _ => break,
        }
    }
    created
}

/// Reads the object of this name, or creates it. An object that is being deleted is a former one of
/// that name.
async fn get_or_create<K: ApiObject>(
    client: &ResourceClient<K>,
    object: &K,
) -> Result<K, CallError> {
    let (start, patience) = (Instant::now(), Patience::new(TIMEOUT));
    loop {
        let found = client.get_or_create(object).await?;
        if found.meta().deletion_timestamp.is_none() {
            return Ok(found);
        }
        assert!(
            !patience.is_over(),
            "it is still being deleted after {TIMEOUT:?}: {found:?}"
        );
        pause(start).await;
    }
}

/// Sends a read or a deletion again, up to two times, if the API server does not answer.
///
/// # Errors
/// When the API server rejects the request, or does not answer three times.
pub async fn retry_unanswered<T, F>(request: impl Fn() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut response = request().await;
    for _ in 0..2 {
        match response {
            Err(error) if error.outcome_is_unknown() => response = request().await,
            _ => break,
        }
    }
    response
}

/// What a poll has read: `None` if the API server did not answer, so that the poll is called again.
///
/// # Panics
/// When the API server rejects the request.
pub fn answered<T>(response: Result<T, CallError>) -> Option<T> {
    match response {
        Ok(found) => Some(found),
        Err(error) if error.outcome_is_unknown() => None,
        Err(error) => panic!("{}", error_chain(&error)),
    }
}

/// The condition `Ready` of a claim, empty when there is none.
pub fn ready(claim: &IPAddressClaim) -> Condition {
    let status = claim.status.as_ref();
    status
        .and_then(|status| conditions::find(&status.conditions, conditions::READY))
        .cloned()
        .unwrap_or_default()
}

/// An object from its JSON.
pub fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the test writes valid objects")
}
