//! Names that other programs rely on: those of the Cluster API contract, and those of the Go in-cluster provider, which
//! this product replaces in place.

pub use capi_ipam_provider::api::names::*;

/// Version in which our own kinds are stored.
pub const POOL_VERSION: &str = "v1alpha2";

/// Older version of the pools of single addresses. It is still served, and converted.
pub const OLD_POOL_VERSION: &str = "v1alpha1";

/// Finalizer on a pool: it stays as long as an address of it is in use.
pub const PROTECT_POOL: &str = "ipam.cluster.x-k8s.io/ProtectPool";

/// Annotation with the fields of an object that only its other version has, as JSON.
pub const CONVERSION_DATA_ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

/// Annotation on a pool that may be deleted although addresses of it are in use.
pub const SKIP_VALIDATE_DELETE: &str = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook";

/// On a definition: `clusterctl move` takes the objects of that kind along, with all that they own.
pub const MOVE_HIERARCHY_LABEL: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";

/// Name of the Lease of the in-cluster provider, the same as that of the Go provider, so that the two never work at
/// the same time.
pub const IN_CLUSTER_LEASE: &str = "7bb7acb4.ipam.cluster.x-k8s.io";
