//! The kinds of the provider and of the contract that the program reads.

use capi_ipam_api::{InClusterKind, names};

/// A kind that the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Pool(InClusterKind),
    Address,
    Claim,
    Network,
    Registry,
    Reservation,
    Slice,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 10] = [
        Self::Claim,
        Self::Address,
        Self::Pool(InClusterKind::IPPool),
        Self::Pool(InClusterKind::GlobalIPPool),
        Self::Pool(InClusterKind::PrefixPool),
        Self::Pool(InClusterKind::GlobalPrefixPool),
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

    /// The kind of a kind of pools.
    pub(crate) fn of_pool(self) -> InClusterKind {
        match self {
            Self::Pool(kind) => kind,
            _ => InClusterKind::IPPool,
        }
    }

    /// Whether the kind is part of the contract of Cluster API.
    pub(crate) fn is_of_contract(self) -> bool {
        matches!(self, Self::Address | Self::Claim)
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Pool(kind) => kind.plural(),
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
            Self::Network | Self::Registry | Self::Reservation | Self::Slice => true,
        }
    }

    pub(crate) fn is_global(self) -> bool {
        match self {
            Self::Pool(kind) => kind.is_global(),
            Self::Address | Self::Claim => false,
            Self::Network | Self::Registry | Self::Reservation | Self::Slice => true,
        }
    }
}
