//! API groups, finalizers, labels and annotations of the Cluster API contract.

/// API group of the IPAM contract kinds, and of the in-cluster provider's kinds.
pub const GROUP: &str = "ipam.cluster.x-k8s.io";

/// API group of Cluster.
pub const CLUSTER_GROUP: &str = "cluster.x-k8s.io";

/// Finalizer on a claim: the claim is not removed before its address is released.
pub const RELEASE_ADDRESS: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";

/// Finalizer on an IPAddress: the IPAddress is not removed before its claim is deleted.
pub const PROTECT_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectAddress";

/// Label with the name of the Cluster that an object belongs to.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";

/// Label that selects the manager that reconciles an object (flag `--watch-filter`).
pub const WATCH_FILTER_LABEL: &str = "cluster.x-k8s.io/watch-filter";

/// Annotation that pauses the reconciliation of an object, with any value.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";

/// Annotation on a claim: the address, or the prefix in CIDR notation, that the claim requests.
pub const REQUESTED_ADDRESS: &str = "ipam.cluster.x-k8s.io/requested-address";

/// The annotation of Metal3 with the meaning of [`REQUESTED_ADDRESS`], which has precedence.
pub const METAL3_REQUESTED_ADDRESS: &str = "ipAddress";
/// Annotation on a claim that is being deleted: its address is released although other finalizers
/// are left on the claim. The value is the uid of the claim.
pub const RELEASE_NOW_ANNOTATION: &str = "ipam.cluster.x-k8s.io/release-now";

/// Annotation on a claim: another host answers at its address, with details as the value. When the
/// claim is released, its address is quarantined.
pub const CONFLICT_ANNOTATION: &str = "ipam.cluster.x-k8s.io/conflict";

/// Annotation on a claim with [`CONFLICT_ANNOTATION`]: for how long its address is quarantined.
pub const QUARANTINE_FOR_ANNOTATION: &str = "ipam.cluster.x-k8s.io/quarantine-for";

/// Annotation on a claim for a Cluster that is being created: until the Cluster owns the claim, the
/// claim is reconciled although its Cluster does not exist. The value is that of the last request to
/// create the Cluster.
pub const CLUSTER_REQUESTED: &str = "ipam.cluster.x-k8s.io/cluster-requested";

/// Annotation on objects that `clusterctl move` deletes in the source cluster after it created them
/// in the target cluster.
pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";

/// Label on an object: `clusterctl move` moves it although no moved object owns it. The provider
/// sets it on claims without an owner and on reservations that users create.
pub const MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move";

/// Finalizer of the API server for foreground deletion. It does not mean that an address is in use.
pub const FOREGROUND_DELETION: &str = "foregroundDeletion";

/// Finalizer of the API server for deletion that orphans dependents. It does not mean that an
/// address is in use.
pub const ORPHAN_DEPENDENTS: &str = "orphan";

/// Returns whether a finalizer of a claim belongs to another controller: it is neither
/// [`RELEASE_ADDRESS`] nor one of the API server itself.
pub fn is_foreign_finalizer(finalizer: &str) -> bool {
    ![RELEASE_ADDRESS, FOREGROUND_DELETION, ORPHAN_DEPENDENTS].contains(&finalizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_propagation_finalizers_are_not_foreign() {
        assert!(
            !["foregroundDeletion", "orphan", RELEASE_ADDRESS]
                .into_iter()
                .any(is_foreign_finalizer)
        );
        assert!(is_foreign_finalizer("example.com/in-use"));
    }
}
