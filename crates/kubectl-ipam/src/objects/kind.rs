//! The kinds of the provider and of the contract that the program reads.

use capi_ipam_api::{InClusterKind, PoolSetKind, names};

/// A kind that the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pool(InClusterKind),
    PoolSet(PoolSetKind),
    Address,
    Claim,
    Network,
    Registry,
    Reservation,
    Slice,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 12] = [
        Self::Claim,
        Self::Address,
        Self::Pool(InClusterKind::IPPool),
        Self::Pool(InClusterKind::GlobalIPPool),
        Self::Pool(InClusterKind::PrefixPool),
        Self::Pool(InClusterKind::GlobalPrefixPool),
        Self::PoolSet(PoolSetKind::Namespaced),
        Self::PoolSet(PoolSetKind::Global),
        Self::Network,
        Self::Registry,
        Self::Reservation,
        Self::Slice,
    ];

    /// All kinds of pools.
    pub(crate) const POOLS: [Self; 4] = [
        Self::Pool(InClusterKind::IPPool),
        Self::Pool(InClusterKind::GlobalIPPool),
        Self::Pool(InClusterKind::PrefixPool),
        Self::Pool(InClusterKind::GlobalPrefixPool),
    ];

    /// All kinds of sets of pools.
    pub(crate) const POOL_SETS: [Self; 2] = [
        Self::PoolSet(PoolSetKind::Namespaced),
        Self::PoolSet(PoolSetKind::Global),
    ];

    /// The kind of a kind of pools.
    pub(crate) fn of_pool(self) -> InClusterKind {
        match self {
            Self::Pool(kind) => kind,
            _ => InClusterKind::IPPool,
        }
    }

    /// The kind of a kind of sets of pools.
    pub(crate) fn of_pool_set(self) -> PoolSetKind {
        match self {
            Self::PoolSet(kind) => kind,
            _ => PoolSetKind::Namespaced,
        }
    }

    /// Whether the kind is part of the contract of Cluster API.
    pub(crate) fn is_of_contract(self) -> bool {
        matches!(self, Self::Address | Self::Claim)
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Pool(kind) => kind.plural(),
            Self::PoolSet(kind) => kind.plural(),
            Self::Address => "ipaddresses",
            Self::Claim => "ipaddressclaims",
            Self::Network => "ipnetworks",
            Self::Registry => "ipregistries",
            Self::Reservation => "ipreservations",
            Self::Slice => "ipslices",
        }
    }

    /// The supported versions, the preferred first.
    pub(crate) fn versions(self) -> &'static [&'static str] {
        match self {
            Self::Address | Self::Claim => &["v1beta2", "v1beta1"],
            _ => &[names::POOL_VERSION],
        }
    }

    /// Whether the Go provider has no such kind: it has only pools of addresses.
    pub(crate) fn is_optional(self) -> bool {
        match self {
            Self::Pool(kind) => kind.has_prefixes(),
            Self::Address | Self::Claim => false,
            Self::PoolSet(_) | Self::Network | Self::Registry | Self::Reservation | Self::Slice => {
                true
            }
        }
    }

    pub(crate) fn is_global(self) -> bool {
        match self {
            Self::Pool(kind) => kind.is_global(),
            Self::PoolSet(kind) => kind.is_global(),
            Self::Address | Self::Claim => false,
            Self::Network | Self::Registry | Self::Reservation | Self::Slice => true,
        }
    }
}
