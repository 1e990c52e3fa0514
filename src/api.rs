//! The Kubernetes types this product reads and writes, and the names that go with them. Types only, no behaviour that
//! talks to a server.
//!
//! - the contract of Cluster API: [`IPAddressClaim`], [`IPAddress`] and the few fields of [`Cluster`] that matter here.
//!   They read every version of the contract ([`ContractVersion`]) and pass over fields they do not know;
//! - our own kinds: the pools [`InClusterIPPool`] and [`GlobalInClusterIPPool`], whose wire format is that of the Go
//!   in-cluster provider, and [`IPReservation`], which says who holds one address;
//! - [`conditions`]: condition types and reasons; [`names`]: finalizers, labels, annotations, groups;
//! - [`crds`]: the definitions of our kinds, made from the types.

pub mod conditions;
pub mod crds;
pub mod names;

mod address;
mod claim;
mod cluster;
mod contract;
mod pool;
mod pool_v1alpha1;
mod reservation;
mod uid;

pub use address::{IPAddress, IPAddressSpec};
pub use claim::{Deprecated, IPAddressClaim, IPAddressClaimSpec, IPAddressClaimStatus, LegacyConditions};
pub use cluster::{Cluster, ClusterSpec};
pub use contract::{ContractVersion, LocalReference, PoolReference};
pub use pool::{AddressCounts, GlobalInClusterIPPool, IPPoolSpec, InClusterIPPool, Pool, PoolStatus};
pub use pool_v1alpha1::IPPoolSpecV1Alpha1;
pub use reservation::{IPReservation, IPReservationSpec, ReservationClaim, ReservationPool};
pub use uid::Uid;
