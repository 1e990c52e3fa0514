//! The Kubernetes types this product reads and writes, and the names that go with them. Types only, no behaviour that
//! talks to a server.
//!
//! - the contract of Cluster API: [`IPAddressClaim`], [`IPAddress`] and the few fields of [`Cluster`] that matter here.
//!   They read every version of the contract ([`ContractVersion`]) and pass over fields they do not know;
//! - our own kinds: the pools of single addresses [`InClusterIPPool`] and [`GlobalInClusterIPPool`] and those of prefixes
//!   [`InClusterPrefixPool`] and [`GlobalInClusterPrefixPool`], whose wire format is that of the Go in-cluster provider,
//!   and [`IPReservation`], which says who holds one address;
//! - [`PoolKey`] names a pool, and [`Scope`] the set within which an address is unique: a pool, or a named network;
//! - [`Audience`] says which of them a text may name: those of its readers' namespace, and global ones;
//! - [`conditions`]: condition types and reasons; [`names`]: finalizers, labels, annotations, groups;
//! - [`crds`]: the definitions of our kinds, made from the types.

pub mod conditions;
pub mod crds;
pub mod names;

mod ip_pool;
mod pool;
mod pool_key;
mod pool_spec;
mod pool_v1alpha1;
mod prefix_pool;
mod reservation;
mod scope;
mod visibility;

pub use ip_pool::IPPoolSpec;
pub use pool::{
    AddressCounts, GlobalInClusterIPPool, GlobalInClusterPrefixPool, InClusterIPPool, InClusterKind,
    InClusterPrefixPool, Pool, PoolStatus,
};
pub use pool_key::PoolKey;
pub use pool_spec::PoolSpec;
pub use pool_v1alpha1::IPPoolSpecV1Alpha1;
pub use prefix_pool::PrefixPoolSpec;
pub use reservation::{IPReservation, IPReservationSpec, ReservationClaim, ReservationPool, ReservationProblem};
pub use scope::{Scope, Slot, network_block_length_name, reservation_name};
pub use visibility::Audience;
