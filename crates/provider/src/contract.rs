//! Clients for the contract kinds, in the versions that the API server serves.

use capi_ipam_controller::client::{ApiObject, CallError, PrunedFields, ResourceClient};
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::health::Health;
use capi_ipam_controller::server_clock;
use capi_ipam_controller::watch::WatchApi;
use jiff::Timestamp;
use kube::core::{ApiResource, NamespaceResourceScope};
use kube::{Client, Resource};

use crate::api::{Cluster, ContractVersion, IPAddress, IPAddressClaim, Machine, Uid, names};

/// Creates clients and watches for the contract kinds, in the versions that the API server serves.
/// Cheap to clone.
#[derive(Clone)]
pub struct ContractClient {
    client: Client,
    /// The version in use of IPAddressClaim and IPAddress.
    pub ipam: ContractVersion,
    /// The version in use of Cluster.
    pub cluster: ContractVersion,
    /// The status fields of claims that the served definition does not have.
    pruned_claim_fields: PrunedFields,
}

impl ContractClient {
    /// Discovers the served versions. Waits until IPAddressClaim, IPAddress and Cluster are
    /// installed, and reports those that are missing to `health`.
    pub async fn discover(client: &Client, health: &Health) -> Self {
        let versions = ContractVersion::ALL.map(ContractVersion::as_str);
        let any = ContractVersion::default();
        let find = async |kind: ApiResource| {
            let served = wait_for_kind(client, health, &kind, &versions).await;
            ContractVersion::ALL
                .into_iter()
                .find(|version| version.as_str() == served)
                .unwrap_or_default()
        };
        let claims = find(ApiResource::erase::<IPAddressClaim>(&any));
        let addresses = find(ApiResource::erase::<IPAddress>(&any));
        let clusters = find(ApiResource::erase::<Cluster>(&any));
        let (ipam, _, cluster) = futures::join!(claims, addresses, clusters);
        Self {
            ipam,
            cluster,
            ..Self::with_newest_versions(client)
        }
    }

    /// Uses the newest versions without discovery, for example in tests without an API server.
    pub fn with_newest_versions(client: &Client) -> Self {
        Self {
            client: client.clone(),
            ipam: ContractVersion::default(),
            cluster: ContractVersion::default(),
            pruned_claim_fields: PrunedFields::default(),
        }
    }

    /// A client for the claims of a namespace.
    pub fn claims(&self, namespace: &str) -> ResourceClient<IPAddressClaim> {
        let claims = self.objects(self.ipam, namespace);
        claims.with_pruned_fields(self.pruned_claim_fields.clone())
    }

    /// A client for the addresses of a namespace. With an empty namespace it can only list, in all
    /// namespaces.
    pub fn addresses(&self, namespace: &str) -> ResourceClient<IPAddress> {
        self.objects(self.ipam, namespace)
    }

    /// A client for the Clusters of a namespace.
    pub fn clusters(&self, namespace: &str) -> ResourceClient<Cluster> {
        self.objects(self.cluster, namespace)
    }

    /// A client for the Machines of a namespace.
    pub fn machines(&self, namespace: &str) -> ResourceClient<Machine> {
        self.objects(self.cluster, namespace)
    }

    /// A client for the claims in the namespace of an object.
    pub(super) fn claims_beside<K: Resource>(&self, object: &K) -> ResourceClient<IPAddressClaim> {
        self.claims(namespace_of(object))
    }

    /// A client for the addresses in the namespace of an object.
    pub(super) fn addresses_beside<K: Resource>(&self, object: &K) -> ResourceClient<IPAddress> {
        self.addresses(namespace_of(object))
    }

    fn objects<K>(&self, version: ContractVersion, namespace: &str) -> ResourceClient<K>
    where
        K: ApiObject + Resource<DynamicType = ContractVersion, Scope = NamespaceResourceScope>,
    {
        let api = kube::Api::all_with(self.client.clone(), &version).constrain(namespace);
        ResourceClient::new(api, &version)
    }

    /// The time of the API server, see [`server_clock`](capi_ipam_controller::server_clock).
    pub async fn server_now(&self) -> Result<Timestamp, CallError> {
        server_clock::server_now(&self.client).await
    }

    /// The watch of the claims of all namespaces.
    pub(super) fn watched_claims(&self) -> WatchApi<IPAddressClaim> {
        WatchApi::all_with(self.client.clone(), &self.ipam)
    }

    /// The watch of the addresses of all namespaces.
    pub fn watched_addresses(&self) -> WatchApi<IPAddress> {
        WatchApi::all_with(self.client.clone(), &self.ipam)
    }
}

pub(crate) fn namespace_of<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

/// The uid of an object.
pub(crate) fn uid_of<K: Resource>(object: &K) -> Uid {
    Uid::of(object.meta().uid.as_deref().unwrap_or_default())
}

/// The `apiVersion` of claims and addresses in a version of the contract.
pub(super) fn api_version(version: ContractVersion) -> String {
    format!("{}/{}", names::GROUP, version.as_str())
}
