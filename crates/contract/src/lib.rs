//! The kinds of the Cluster API IPAM contract, with their names and conditions.
//!
//! [`IPAddressClaim`], [`IPAddress`], the fields of [`Cluster`] that pause reconciliation, and those
//! of [`AddressableCluster`] that hold addresses. The types read every version of the contract ([`ContractVersion`]) and ignore unknown fields. The
//! crate sends no request.

pub mod advice;
pub mod conditions;
pub mod names;
pub mod references;

pub use capi_ipam_objects::uid::Uid;

mod address;
mod addressable;
mod claim;
mod cluster;
mod conflict;
mod contract;
mod machine;
mod metadata;

pub use address::{IPAddress, IPAddressSpec, is_claim_owner};
pub use addressable::{
    AddressableClusterSpec, Cluster as AddressableCluster, ClusterNetwork, Endpoint, NetworkRanges,
    Topology, Variable,
};
pub use claim::{
    DeprecatedStatus, IPAddressClaim, IPAddressClaimSpec, IPAddressClaimStatus, MAX_REQUEST_LENGTH,
    NestedConditions,
};
pub use cluster::{Cluster, ClusterSpec};
pub use conflict::{
    AddressConflict, DEFAULT_QUARANTINE, MAX_QUARANTINE, MAX_REASON_LENGTH, parse_quarantine,
    quarantine_reason,
};
pub use contract::{ContractVersion, LocalReference, PoolReference};
pub use machine::{
    InfrastructureReference, Machine, MachineAddress, MachineIndex, MachineOwner, MachineSpec,
    MachineStatus,
};
pub use metadata::{is_label_value, is_paused, without_managed_fields};
