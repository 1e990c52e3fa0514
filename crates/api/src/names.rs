//! Names that other programs rely on: those of the Cluster API contract and those of the Go
//! in-cluster provider, which this provider replaces in place.

pub use capi_ipam_contract::names::*;
use kube::core::ObjectMeta;

/// Storage version of the kinds of this provider.
pub const POOL_VERSION: &str = "v1alpha2";

/// Deprecated version of the pools of single addresses. It is still served, through conversion.
pub const OLD_POOL_VERSION: &str = "v1alpha1";

/// Annotation on an IPAddress of a pool with the order RoundRobin: when the address was allocated.
pub const ALLOCATED_AT_ANNOTATION: &str = "ipam.cluster.x-k8s.io/allocated-at";

/// Annotation on an IPAddress of a claim that names a set of pools: kind and name of the pool of the
/// address, such as `InClusterIPPool/rack-1`.
pub const MEMBER_POOL_ANNOTATION: &str = "ipam.cluster.x-k8s.io/member-pool";

/// Annotation on an IPAddress: the addresses of the name servers of its pool, separated by commas.
pub const DNS_SERVERS_ANNOTATION: &str = "ipam.cluster.x-k8s.io/dns-servers";

/// Annotation on an IPAddress: the search domains of its pool, separated by commas.
pub const SEARCH_DOMAINS_ANNOTATION: &str = "ipam.cluster.x-k8s.io/search-domains";

/// Annotation on an IPAddress: its DNS name, in the zone of its pool.
pub const DNS_NAME_ANNOTATION: &str = "ipam.cluster.x-k8s.io/dns-name";

/// Label of pools, claims and Machines with the failure domain, for sets of pools.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Annotation on an IPReservation that existed when another one was moved to its scope: the uid and
/// the resourceVersion of the other one.
pub const MOVED_FROM_ANNOTATION: &str = "ipam.cluster.x-k8s.io/moved-from";
/// The annotation of an IPRegistry with the identity of a registry that another one replaces:
/// blocks are taken from the other one.
pub const REPLACED_REGISTRY_ANNOTATION: &str = "ipam.cluster.x-k8s.io/replaced-registry";

/// The annotation of a pool with the name of the network that it leaves although addresses of it
/// are in use there.
pub const LEAVE_NETWORK_ANNOTATION: &str = "ipam.cluster.x-k8s.io/leave-network";

/// Finalizer on a pool or a set of pools: it is not removed while an address of it is in use.
pub const PROTECT_POOL: &str = "ipam.cluster.x-k8s.io/ProtectPool";

/// Annotation that preserves the fields that only the other API version has, as JSON.
pub const CONVERSION_DATA_ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

/// Annotation on a pool that allows its deletion while addresses of it are in use.
pub const SKIP_VALIDATE_DELETE: &str = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook";

/// Label on a CustomResourceDefinition: `clusterctl move` moves the objects of this kind and
/// everything that they own.
pub const MOVE_HIERARCHY_LABEL: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";

/// Labels on a CustomResourceDefinition, one per version of the Cluster API contract: the value
/// names the versions of the kind that implement it. That of `v1beta1` is for Cluster API before
/// v1.16, and ends with it.
pub const CONTRACT_LABELS: [&str; 2] = ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"];

/// Name of the Lease for leader election. It is that of the Go provider, so that both are never
/// active at the same time.
pub const IN_CLUSTER_LEASE: &str = "7bb7acb4.ipam.cluster.x-k8s.io";

/// Finalizer on a network: the network is not removed while pools belong to it or addresses are
/// reserved in it.
pub const PROTECT_NETWORK: &str = "ipam.cluster.x-k8s.io/ProtectNetwork";

/// Label on an IPAddressClaim: the name of the ClusterAddressing for which it was created.
pub const CLUSTER_ADDRESSING_LABEL: &str = "ipam.cluster.x-k8s.io/cluster-addressing";

/// Prefix of the annotation on a Cluster that has its addresses; the name of the ClusterAddressing
/// follows. The value is an object in JSON, with each field that was written and its value.
pub const DELIVERED_ANNOTATION_PREFIX: &str = "addressing.ipam.cluster.x-k8s.io/";

/// Finalizer on a ClusterAddressing: it is not removed while a Cluster has addresses of it.
pub const PROTECT_CLUSTER_ADDRESSING: &str = "ipam.cluster.x-k8s.io/ProtectClusterAddressing";

/// Finalizer on an IPAddressClaim of a Cluster: its address is not released before the Cluster is
/// gone.
pub const PROTECT_CLUSTER_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectClusterAddress";

/// Finalizer on a registry: the registry is not removed while networks share blocks through it.
pub const PROTECT_REGISTRY: &str = "ipam.cluster.x-k8s.io/ProtectRegistry";

/// Whether an annotation allows the deletion of an object that is in use.
pub fn allow_deletion_in_use(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    [SKIP_VALIDATE_DELETE, DELETE_FOR_MOVE]
        .iter()
        .any(|name| annotations.is_some_and(|all| all.contains_key(*name)))
}
