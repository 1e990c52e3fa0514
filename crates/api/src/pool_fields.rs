//! The optional fields of a pool: those that a client which does not know them removes.

const NAMES: [&str; 15] = [
    "spec.network",
    "spec.excludedAddresses",
    "spec.excludedPrefixes",
    "spec.ranges",
    "spec.draining",
    "spec.slices",
    "spec.allocation",
    "spec.reclaim",
    "spec.allowedNamespaces",
    "spec.limits",
    "spec.headroom",
    "spec.addressMetadata",
    "spec.dnsServers",
    "spec.searchDomains",
    "spec.dns",
];

/// A set of optional fields of a specification. A client whose types do not have them removes them
/// when it replaces the specification, and so does a definition that lacks them.
///
/// ```
/// use capi_ipam_api::{IPPoolSpec, PoolSpec};
///
/// let spec = IPPoolSpec { network: Some("lab".to_owned()), ..IPPoolSpec::default() };
/// let (before, after) = (PoolSpec::Addresses(spec), PoolSpec::Addresses(IPPoolSpec::default()));
/// let removed = before.optional_fields().without(after.optional_fields());
/// assert_eq!(removed.names().collect::<Vec<_>>(), ["spec.network"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFields(u16);

impl PoolFields {
    pub(super) fn new(is_set: [bool; NAMES.len()]) -> Self {
        let mut bits = 0;
        for (index, is_set) in is_set.into_iter().enumerate() {
            bits |= u16::from(is_set) << index;
        }
        Self(bits)
    }

    /// The fields of both sets.
    #[must_use]
    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The fields that are not in another set.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names of the fields.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = NAMES.into_iter().enumerate();
        all.filter_map(move |(index, name)| (self.0 & (1 << index) != 0).then_some(name))
    }
}
