//! The kinds of the in-cluster provider, their CustomResourceDefinitions, and the types that
//! identify pools and addresses. This crate has no I/O. The kinds of the Cluster API contract are
//! in [`capi_ipam_contract`].
//!
//! - [`Pool`]: a pool of one of four kinds ([`InClusterKind`]): of single addresses or of prefixes,
//!   namespaced or global. Their wire format is that of the Go in-cluster provider;
//! - [`IPReservation`]: records which claim holds an address;
//! - [`IPSlice`]: assigns a slice of a pool to an owner, or a block of a network to the management
//!   cluster;
//! - [`IPNetwork`]: the owner of a network decides which pools belong to it;
//! - [`IPRegistry`]: where management clusters record which blocks of networks they have taken;
//! - [`PoolSet`]: pools of which a claim gets an address of one, of two kinds ([`PoolSetKind`]);
//! - [`ClusterAddressing`]: which addresses Clusters get, and where they are written;
//! - [`IPBlock`]: a record of a registry that management clusters share, at a hub API server only;
//! - [`PoolKey`]: identifies a pool; [`Scope`]: the set within which an address is unique, a pool
//!   or a named network; [`Slot`]: an address or prefix of a scope;
//! - [`NetworkRefusal`], [`ScopeChange`], [`NetworkView`], [`OverLimit`]: what is known about
//!   networks and limits;
//! - [`AllocationEvent`]: a line of the allocation log;
//! - [`Audience`]: hides the names of objects in other namespaces from messages;
//! - [`conditions`]: condition types and reasons; [`names`]: finalizers, labels, annotations, API
//!   groups;
//! - [`crds`]: the CustomResourceDefinitions, generated from the types; [`installed`]: names of the
//!   installed objects.

pub mod advice;
pub mod conditions;
pub mod crds;
pub mod installed;
mod name_servers;
pub mod names;

mod access;
mod address_metadata;
mod allocation;
mod allocation_event;
mod cluster_addressing;
mod dns;
mod field_problem;
mod ip_block;
mod ip_pool;
mod named_pool;
mod network;
mod network_refusal;
mod network_view;
mod pool;
mod pool_dns;
mod pool_fields;
mod pool_key;
mod pool_kind;
mod pool_name;
mod pool_problems;
mod pool_set;
mod pool_set_key;
mod pool_spec;
mod pool_v1alpha1;
mod prefix_pool;
mod problem_status;
mod ranges;
mod reclaim;
mod registry;
mod reservation;
mod resource;
mod scope;
mod scope_change;
mod shared_blocks;
mod slice;
mod slice_policy;
mod spec_warnings;
mod visibility;

pub use access::{
    AccessRules, AllowedNamespaces, Headroom, NamespaceAccess, NamespaceSource, OverLimit,
    PoolAccess, PoolLimits, SelectorProblem,
};
pub use address_metadata::{AddressMetadata, MetadataProblem, MetadataProblemKind};
pub use allocation::{AllocationOrder, AllocationPolicy, STICKY_SECONDS};
pub use allocation_event::{
    AllocationCause, AllocationEvent, AllocationEventKind, AllocationTarget,
};
pub use cluster_addressing::{
    AddressFormat, AddressResource, AddressTarget, AddressingItem, ClusterAddressing,
    ClusterAddressingSpec, ClusterAddressingStatus, ClusterField, ClusterNetworkKind,
    ClusterProblem, Destination, EndpointTarget, VariableTarget,
};
pub use dns::{is_dns_label, is_dns_subdomain};
pub use field_problem::FieldProblem;
pub use ip_block::{
    BlockRecord, ClusterRecord, IPBlock, IPBlockSpec, MAX_CONTENDERS, MAX_EXCLUSIONS,
    NetworkRecord, RegistryRecord, exclusions_hash,
};
pub use ip_pool::IPPoolSpec;
pub use name_servers::{
    DnsRecord, DnsSettings, MAX_DNS_SERVERS, MAX_SEARCH_DOMAINS, NameServers, PoolDns,
};
pub use named_pool::NamedPool;
pub use network::{
    BlockLengths, IPNetwork, IPNetworkSpec, IPNetworkStatus, MemberPhase, NetworkMember,
    NetworkProblem, NetworkRules,
};
pub use network_refusal::NetworkRefusal;
pub use network_view::NetworkView;
pub use pool::{AddressCounts, DrainingStatus, Pool, PoolNetwork, PoolStatus, SliceCounts};
pub use pool_fields::PoolFields;
pub use pool_key::PoolKey;
pub use pool_kind::InClusterKind;
pub use pool_name::PoolName;
pub use pool_set::{
    MAX_SET_POOLS, PoolChoice, PoolSet, PoolSetSpec, PoolSetStatus, SetMember, SetMembers,
};
pub use pool_set_key::{PoolSetKey, PoolSetKind};
pub use pool_spec::PoolSpec;
pub use pool_v1alpha1::IPPoolSpecV1Alpha1;
pub use prefix_pool::PrefixPoolSpec;
pub use problem_status::ProblemStatus;
pub use ranges::{AddressRange, PrefixRange};
pub use reclaim::{MIN_TERMINATING_SECONDS, ReclaimPolicy, TerminatingPolicy, VerifyMode};
pub use registry::{
    IPRegistry, IPRegistrySpec, IPRegistryStatus, KubernetesRegistry, LAST_SEEN_PRECISION,
    NatsRegistry, RegistryCluster,
};
pub use reservation::{
    ClaimProblem, IPReservation, IPReservationSpec, Quarantine, ReservationClaim, ReservationPool,
    ReservationProblem,
};
pub use scope::{
    Scope, Slot, address_in_name, block_of_name, reservation_name, slot_of_name, split_block_name,
};
pub use scope_change::ScopeChange;
pub use shared_blocks::{BlockRules, BlockStatus, SharedBlocks};
pub use slice::{
    IPSlice, IPSliceSpec, SliceConflict, SliceOwner, SliceOwnerKind, SliceProblem, slice_name,
};
pub use slice_policy::{SlicePolicy, SliceRules};
pub use spec_warnings::{gateway_warnings, host_bits_warning, network_warnings, pool_warnings};
pub use visibility::{Audience, counted, first_texts};
