//! Condition types and reasons: those of the Cluster API contract, and those of pools and
//! reservations.

pub use capi_ipam_contract::conditions::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Sets `Ready`, and if it is False `Reconciling` or `Stalled`. A registry that cannot be reached,
/// or that waits for other management clusters, is reconciling, and so are its networks, a
/// ClusterAddressing whose claims are not bound yet, and a set of pools that are not ready.
pub fn set_ready(conditions: &mut Vec<Condition>, ready: Condition, now: Time) -> bool {
    let retried = [
        INITIALIZATION_FAILED,
        REGISTRY_UNREACHABLE,
        REGISTRY_RESTORED,
        ADDRESSES_PENDING,
        NO_POOLS,
    ];
    let reason = ready.reason();
    let is_retried = retried.contains(&reason);
    set_ready_or_retried(conditions, ready, is_retried, now)
}

/// Condition type of pools: another pool of a different scope contains the same addresses.
pub const OVERLAPPING: &str = "Overlapping";

/// Condition type of pools: addresses in use are no longer in the pool.
pub const OUT_OF_RANGE: &str = "OutOfRange";

/// Condition type of pools: nothing says any more that the pool belongs to its network, and it
/// stays because addresses of it are in use there.
pub const KEPT_IN_NETWORK: &str = "KeptInNetwork";

/// Reason of an event of a pool: optional fields of its specification were removed.
pub const FIELDS_REMOVED: &str = "FieldsRemoved";

/// Condition type of global pools with access rules: addresses in use exceed what the rules allow.
pub const OVER_LIMIT: &str = "OverLimit";

/// Condition type of pools with draining parts: addresses of these parts are in use.
pub const DRAINING: &str = "Draining";

/// Condition type of pools with slices: no slice can be assigned.
pub const SLICES_EXHAUSTED: &str = "SlicesExhausted";

/// Reason of a claim whose owner has no free address, and a pool without a slice that can be
/// assigned.
pub const NO_FREE_SLICE: &str = "NoFreeSlice";

/// Reason of the event on a claim that requests an address of a pool which accepts no requests.
pub const REQUEST_IGNORED: &str = "RequestIgnored";

/// Reason of the events on a claim that reports a conflict of its address, and on the pool.
pub const ADDRESS_CONFLICT: &str = "AddressConflict";

/// Reason of a pool with slices that can be assigned.
pub const SLICES_FREE: &str = "SlicesFree";

/// Reason of a claim whose owner has as many slices as it may have, without a free address.
pub const SLICE_LIMIT: &str = "SliceLimit";

/// Reason of a claim without the label or cluster name by which the slices of its pool are
/// assigned.
pub const SLICE_OWNER_MISSING: &str = "SliceOwnerMissing";

/// Reason of a pool that overlaps with other pools.
pub const POOLS_OVERLAP: &str = "PoolsOverlap";

/// Reason of a network whose pools contain the same addresses.
pub const MEMBERS_OVERLAP: &str = "MembersOverlap";

/// Reason of a pool that overlaps with no other pool.
pub const NO_OVERLAP: &str = "NoOverlap";

/// Reason of a pool with addresses in use that it no longer contains.
pub const ADDRESSES_OUT_OF_RANGE: &str = "AddressesOutOfRange";

/// Reason of a pool whose addresses in use outside of its range are all in blocks of its network
/// that this management cluster does not have to itself.
pub const ADDRESSES_IN_OTHER_BLOCKS: &str = "AddressesInOtherBlocks";

/// Reason of a pool that contains all its addresses in use.
pub const ALL_IN_RANGE: &str = "AllInRange";

/// Reason of a pool with more addresses in use than its limits or allowed namespaces allow.
pub const LIMITS_EXCEEDED: &str = "LimitsExceeded";

/// Reason of a pool whose addresses in use are within its limits and allowed namespaces.
pub const WITHIN_LIMITS: &str = "WithinLimits";

/// Reason of a pool with addresses in use in its draining parts.
pub const ADDRESSES_IN_USE: &str = "AddressesInUse";

/// Reason of a pool without addresses in use in its draining parts.
pub const DRAINED: &str = "Drained";

/// Reason of the event on a reservation that has no effect.
pub const INVALID_RESERVATION: &str = "InvalidReservation";

/// Reason of a pool that names a network that does not exist.
pub const NETWORK_NOT_FOUND: &str = "NetworkNotFound";

/// Reason of a pool whose network does not allow the namespace of the pool.
pub const NETWORK_NOT_ALLOWED: &str = "NetworkNotAllowed";

/// Reason of a pool whose network is invalid or being deleted, or that several networks select.
pub const NETWORK_NOT_READY: &str = "NetworkNotReady";

/// Reason of a pool whose network allocates blocks of another length.
pub const BLOCK_LENGTH_MISMATCH: &str = "BlockLengthMismatch";

/// Reason of a reservation or a slice that has no effect.
pub const ERROR: &str = "Error";

/// Reason of a reservation of a user that has an effect, and of a slice that is corrected.
pub const VALIDATED: &str = "Validated";

/// Condition type of networks with blocks: another management cluster uses a block as well.
pub const BLOCK_CONFLICT: &str = "BlockConflict";

/// Reason of a network with blocks that another management cluster uses as well.
pub const BLOCKS_SHARED: &str = "BlocksShared";

/// Reason of a network without such blocks.
pub const NO_CONFLICT: &str = "NoConflict";

/// Condition type of networks with blocks, and reason if it is True: another management cluster
/// excludes other addresses.
pub const EXCLUSIONS_DIFFER: &str = "ExclusionsDiffer";

/// Reason of a network without such a management cluster.
pub const EXCLUSIONS_EQUAL: &str = "ExclusionsEqual";

/// Reason of a claim that waits for a block of its network.
pub const WAITING_FOR_BLOCK: &str = "WaitingForBlock";

/// Reason of a registry that cannot be reached, and of a claim and a network that wait for it.
pub const REGISTRY_UNREACHABLE: &str = "RegistryUnreachable";

/// Reason of a pool that is not exhausted: it has no free address, and gets another block for the
/// next claim.
pub const BLOCK_NEEDED: &str = "BlockNeeded";

/// Reason of a network that shares blocks through a registry that does not exist.
pub const REGISTRY_NOT_FOUND: &str = "RegistryNotFound";

/// Reason of a network whose blocks have another size in another management cluster.
pub const BLOCK_SIZE_DIFFERS: &str = "BlockSizeDiffers";

/// Reason of a network whose record in the registry cannot be decoded.
pub const NETWORK_RECORD_INVALID: &str = "NetworkRecordInvalid";

/// Reason of a registry in which another process writes with the identity of this management
/// cluster.
pub const CLUSTER_ID_IN_USE: &str = "ClusterIDInUse";

/// Reason of a registry with another identity than before: other servers, or servers without the
/// records. Also that of a claim and a network that wait for it.
pub const REGISTRY_REPLACED: &str = "RegistryReplaced";
/// Reason: the registry has lost writes, and no block is taken until all management clusters have
/// written again.
pub const REGISTRY_RESTORED: &str = "RegistryRestored";

/// Reason of a registry that can be used.
pub const REGISTRY_READY: &str = "RegistryReady";

/// Reason of a network with a valid specification.
pub const NETWORK_READY: &str = "NetworkReady";

/// Condition type of a ClusterAddressing: somebody changed an address in a Cluster.
pub const DRIFTED: &str = "Drifted";

/// Reason of a ClusterAddressing with Clusters that wait for addresses which are being allocated,
/// and of such a Cluster.
pub const ADDRESSES_PENDING: &str = "AddressesPending";

/// Reason of a ClusterAddressing all of whose Clusters have their addresses.
pub const ADDRESSES_READY: &str = "AddressesReady";

/// Reason of a ClusterAddressing with Clusters whose addresses cannot be written, and of such a
/// Cluster.
pub const DELIVERY_FAILED: &str = "DeliveryFailed";

/// Reason of a Cluster with a value in a field that is to have an address.
pub const VALUE_PRESENT: &str = "ValuePresent";

/// Reason of a Cluster in which somebody changed an address.
pub const ADDRESS_CHANGED: &str = "AddressChanged";

/// Reason of a Cluster with an address whose claim does not exist.
pub const CLAIM_MISSING: &str = "ClaimMissing";

/// Reason of a ClusterAddressing without such a Cluster.
pub const ADDRESSES_UNCHANGED: &str = "AddressesUnchanged";

/// Reason of a Cluster for which an IPAddressClaim cannot be created: another object has its name.
pub const CLAIM_NAME_IN_USE: &str = "ClaimNameInUse";

/// Reason of the event on an IPAddress without a DNSEndpoint: its DNS name is not in the zone of its
/// pool, or another object has the name of the DNSEndpoint.
pub const DNS_NAME_REFUSED: &str = "DNSNameRefused";

/// Reason of the event on a Cluster that has got its addresses.
pub const ADDRESSES_DELIVERED: &str = "AddressesDelivered";

/// Reason of a set of pools of which a pool can allocate addresses.
pub const POOLS_READY: &str = "PoolsReady";

/// Reason of a set of pools without a pool that can allocate addresses, and of a claim for it.
pub const NO_POOLS: &str = "NoPools";

/// Reason of a claim without a failure domain, for a set that chooses by it.
pub const FAILURE_DOMAIN_UNKNOWN: &str = "FailureDomainUnknown";
