//! Names that other programs rely on: groups, finalizers, labels, annotations. They are those of the Cluster API
//! contract and of the Go in-cluster provider, which this product takes over from in place.

/// Group of the contract kinds and of our own kinds.
pub const GROUP: &str = "ipam.cluster.x-k8s.io";
/// Group of the Cluster kind.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";
/// Version in which our own kinds are stored.
pub const POOL_VERSION: &str = "v1alpha2";
/// Older version of the pools of single addresses. It is still served, and converted.
pub const OLD_POOL_VERSION: &str = "v1alpha1";

/// Finalizer on a claim: its address is given back before the claim goes.
pub const RELEASE_ADDRESS: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";
/// Finalizer on an IPAddress: it stays as long as its claim does.
pub const PROTECT_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectAddress";
/// Finalizer on a pool: it stays as long as an address of it is in use.
pub const PROTECT_POOL: &str = "ipam.cluster.x-k8s.io/ProtectPool";

/// Label with the name of the Cluster an object belongs to.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label that says which of several managers looks after an object (`--watch-filter`).
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Annotation that pauses an object, whatever its value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation with the fields of an object that only its other version has, as JSON.
pub const CONVERSION_DATA_ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

/// Annotation on a pool that may be deleted although addresses of it are in use.
pub const SKIP_VALIDATE_DELETE: &str = "ipam.cluster.x-k8s.io/skip-validate-delete-webhook";
/// Annotation on objects that `clusterctl move` deletes because they are in another cluster now.
pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// On an object: `clusterctl move` takes it along. The provider puts it on what nothing owns: claims without owner, and
/// reservations made by hand.
pub const MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move";
/// On a definition: `clusterctl move` takes the objects of that kind along, with all that they own.
pub const MOVE_HIERARCHY_LABEL: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";
/// On a definition: the versions of the kind that go with a version of Cluster API's contract.
pub const CONTRACT_LABELS: [&str; 2] = ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"];

/// Finalizer of the API server for foreground deletion; it says nothing about the use of an address.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";
/// Finalizer of the API server for deletion that leaves dependents; it says nothing about the use of an address.
pub const ORPHAN_DEPENDENTS: &str = "orphan";

/// Name of the Lease of the in-cluster provider, the same as that of the Go provider, so that the two never work at
/// the same time.
pub const IN_CLUSTER_LEASE: &str = "7bb7acb4.ipam.cluster.x-k8s.io";
