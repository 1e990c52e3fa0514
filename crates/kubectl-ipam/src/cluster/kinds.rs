//! Kinds of other API groups, and how some objects of them are selected.

use capi_ipam_api::names;
use kube::api::ListParams;

/// The plural of the kind Cluster, which the program does not read.
pub(crate) const CLUSTERS: &str = "clusters";

/// A kind of another API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherKind {
    Definition,
    Deployment,
    Event,
    Lease,
    Namespace,
    Pod,
    Secret,
    Webhook,
    EndpointSlice,
}

impl OtherKind {
    /// API group, version and plural.
    pub(super) fn parts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Definition => ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
            Self::Deployment => ("apps", "v1", "deployments"),
            Self::Event => ("", "v1", "events"),
            Self::Secret => ("", "v1", "secrets"),
            Self::Lease => ("coordination.k8s.io", "v1", "leases"),
            Self::Namespace => ("", "v1", "namespaces"),
            Self::Pod => ("", "v1", "pods"),
            Self::Webhook => (
                "admissionregistration.k8s.io",
                "v1",
                "validatingwebhookconfigurations",
            ),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "endpointslices"),
        }
    }
}

/// Selects the Deployments and the pods in the manifests of both providers.
pub(crate) fn provider_selector() -> ListParams {
    ListParams::default().labels("cluster.x-k8s.io/provider=ipam-in-cluster")
}

/// Selects the lease for which the replicas of the provider compete, in all namespaces.
pub(crate) fn lease_selector() -> ListParams {
    ListParams::default().fields(&format!("metadata.name={}", names::IN_CLUSTER_LEASE))
}
