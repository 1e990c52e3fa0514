//! How some objects of other API groups are selected.

use capi_ipam_api::names;
use kube::api::ListParams;

/// The plural of the kind Cluster, which the program does not read.
pub(crate) const CLUSTERS: &str = "clusters";

/// Selects the Deployments and the pods in the manifests of both providers.
pub(crate) fn provider_selector() -> ListParams {
    ListParams::default().labels("cluster.x-k8s.io/provider=ipam-in-cluster")
}

/// Selects the lease for which the replicas of the provider compete, in all namespaces.
pub(crate) fn lease_selector() -> ListParams {
    ListParams::default().fields(&format!("metadata.name={}", names::IN_CLUSTER_LEASE))
}
