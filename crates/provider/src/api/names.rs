//! Names of the Cluster API contract that other programs rely on: groups, finalizers, labels, annotations.

/// Group of the contract kinds and of our own kinds.
pub const GROUP: &str = "ipam.cluster.x-k8s.io";

/// Group of the Cluster kind.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";

/// Finalizer on a claim: its address is given back before the claim goes.
pub const RELEASE_ADDRESS: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";

/// Finalizer on an IPAddress: it stays as long as its claim does.
pub const PROTECT_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectAddress";

/// Label with the name of the Cluster an object belongs to.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Label that says which of several managers looks after an object (`--watch-filter`).
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";

/// Annotation that pauses an object, whatever its value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";

/// Annotation on objects that `clusterctl move` deletes because they are in another cluster now.
pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// On an object: `clusterctl move` takes it along. The provider puts it on what nothing owns: claims without owner, and
/// reservations made by hand.
pub const MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move";

/// Finalizer of the API server for foreground deletion; it says nothing about the use of an address.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";

/// Finalizer of the API server for deletion that leaves dependents; it says nothing about the use of an address.
pub const ORPHAN_DEPENDENTS: &str = "orphan";
