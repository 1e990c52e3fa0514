//! The contract kinds in the versions that the API server serves.

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::watch::WatchApi;
use kube::Client;
use kube::core::PartialObjectMeta;

use crate::api::{Cluster, ContractVersion, IPAddress, IPAddressClaim, names};

/// ResourceClient for the contract kinds, in the versions that the API server serves.
#[derive(Clone)]
pub struct ContractClient {
    client: Client,
    /// Version of IPAddressClaim and IPAddress.
    pub ipam: ContractVersion,
    /// Version of Cluster.
    pub cluster: ContractVersion,
}

impl ContractClient {
    /// Finds the served versions, and waits for kinds that are not installed yet.
    pub async fn discover(client: &Client) -> Self {
        let versions = ContractVersion::ALL.map(ContractVersion::as_str);
        let find = async |group, plural| {
            let served = wait_for_kind(client, group, plural, &versions).await;
            ContractVersion::ALL.into_iter().find(|version| version.as_str() == served).unwrap_or_default()
        };
        let ipam = find(names::GROUP, "ipaddressclaims").await;
        find(names::GROUP, "ipaddresses").await;
        let cluster = find(names::CLUSTER_GROUP, "clusters").await;
        Self { client: client.clone(), ipam, cluster }
    }

    /// The newest versions, without asking the API server which ones it serves.
    #[cfg(test)]
    pub(crate) fn for_tests(client: &Client) -> Self {
        Self { client: client.clone(), ipam: ContractVersion::default(), cluster: ContractVersion::default() }
    }

    /// The claims of a namespace.
    pub fn claims(&self, namespace: &str) -> ResourceClient<IPAddressClaim> {
        ResourceClient::new(kube::Api::all_with(self.client.clone(), &self.ipam).constrain(namespace), &self.ipam)
    }

    /// The metadata of the claims of a namespace, with `managedFields`.
    pub(super) fn claim_metadata(&self, namespace: &str) -> ResourceClient<PartialObjectMeta<IPAddressClaim>> {
        ResourceClient::new(kube::Api::all_with(self.client.clone(), &self.ipam).constrain(namespace), &self.ipam)
    }

    /// The addresses of a namespace; of all namespaces, only to list, when it is empty.
    pub fn addresses(&self, namespace: &str) -> ResourceClient<IPAddress> {
        ResourceClient::new(kube::Api::all_with(self.client.clone(), &self.ipam).constrain(namespace), &self.ipam)
    }

    /// The Clusters of a namespace.
    pub fn clusters(&self, namespace: &str) -> ResourceClient<Cluster> {
        ResourceClient::new(kube::Api::all_with(self.client.clone(), &self.cluster).constrain(namespace), &self.cluster)
    }

    /// The claims of all namespaces, to watch.
    pub fn watched_claims(&self) -> WatchApi<IPAddressClaim> {
        WatchApi::all_with(self.client.clone(), &self.ipam)
    }

    /// The addresses of all namespaces, to watch.
    pub fn watched_addresses(&self) -> WatchApi<IPAddress> {
        WatchApi::all_with(self.client.clone(), &self.ipam)
    }

    /// The Clusters of a namespace, of all when it is empty, to watch.
    pub fn watched_clusters(&self, namespace: &str) -> WatchApi<Cluster> {
        WatchApi::all_with(self.client.clone(), &self.cluster).constrain(namespace)
    }
}

/// `apiVersion` of the claims and addresses in a version of the contract.
pub(super) fn api_version(version: ContractVersion) -> String {
    format!("{}/{}", names::GROUP, version.as_str())
}
