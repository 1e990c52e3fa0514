use std::net::IpAddr;

use capi_ipam_ip::{PoolAddresses, PoolPrefixes, PoolProblem, UsableBlocks, parse_lenient};
use capi_ipam_objects::maybe_invalid::readable;
use serde::Serialize;
use serde_json::Value;

use super::access::PoolAccess;
use super::address_metadata::AddressMetadata;
use super::allocation::{AllocationOrder, AllocationPolicy};
use super::field_problem::FieldProblem;
use super::ip_pool::IPPoolSpec;
use super::pool_fields::PoolFields;
use super::pool_kind::InClusterKind;
use super::prefix_pool::PrefixPoolSpec;
use super::ranges::{AddressRange, PrefixRange};
use super::reclaim::ReclaimPolicy;
use super::slice_policy::{SlicePolicy, SliceRules};

/// The specification of a pool of any kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PoolSpec {
    /// The specification of a pool of single addresses.
    Addresses(IPPoolSpec),
    /// The specification of a pool of prefixes.
    Prefixes(PrefixPoolSpec),
}

impl PoolSpec {
    /// Returns a specification without addresses for a pool of this kind.
    pub(super) fn empty(kind: InClusterKind) -> Self {
        if kind.has_prefixes() {
            Self::Prefixes(PrefixPoolSpec::default())
        } else {
            Self::Addresses(IPPoolSpec::default())
        }
    }

    /// Returns what can be read of a specification that cannot be decoded: the fields that have the
    /// right type.
    pub fn readable(kind: InClusterKind, spec: &Value) -> Self {
        if kind.has_prefixes() {
            Self::Prefixes(readable(spec))
        } else {
            Self::Addresses(readable(spec))
        }
    }

    /// The gateways that can be read of a specification, which may not be valid.
    pub fn readable_gateways(&self) -> Vec<IpAddr> {
        let mut texts = Vec::new();
        match self {
            Self::Addresses(spec) => {
                texts.extend(&spec.gateway);
                texts.extend(spec.ranges.iter().flat_map(|range| &range.gateway));
            }
            Self::Prefixes(spec) => {
                texts.extend(&spec.gateway);
                texts.extend(spec.ranges.iter().flat_map(|range| &range.gateway));
            }
        }
        let gateways = texts.into_iter().map(|text| parse_lenient(text));
        gateways.flatten().collect()
    }

    /// The optional fields that are set.
    pub fn optional_fields(&self) -> PoolFields {
        let is_set = match self {
            Self::Addresses(spec) => [
                spec.network.is_some(),
                !spec.excluded_addresses.is_empty(),
                false,
                !spec.ranges.is_empty(),
                !spec.draining.is_empty(),
                spec.slices.is_some(),
                spec.allocation.is_some(),
                spec.reclaim.is_some(),
                spec.allowed_namespaces.is_some(),
                spec.limits.is_some(),
                spec.headroom.is_some(),
                spec.address_metadata.is_some(),
                !spec.dns_servers.is_empty(),
                !spec.search_domains.is_empty(),
                spec.dns.is_some(),
            ],
            Self::Prefixes(spec) => [
                spec.network.is_some(),
                false,
                !spec.excluded_prefixes.is_empty(),
                !spec.ranges.is_empty(),
                !spec.draining.is_empty(),
                spec.slices.is_some(),
                spec.allocation.is_some(),
                spec.reclaim.is_some(),
                spec.allowed_namespaces.is_some(),
                spec.limits.is_some(),
                spec.headroom.is_some(),
                spec.address_metadata.is_some(),
                false,
                false,
                false,
            ],
        };
        PoolFields::new(is_set)
    }

    /// Returns the addresses or prefixes that can be allocated, or all problems of the
    /// specification.
    pub fn usable(&self) -> Result<UsableBlocks, Vec<PoolProblem>> {
        match self {
            Self::Addresses(spec) => PoolAddresses {
                addresses: &spec.addresses,
                excluded: &spec.excluded_addresses,
                prefix: spec.prefix,
                gateway: spec.gateway.as_deref(),
                allocate_reserved: spec.allocate_reserved_ip_addresses,
                ranges: &spec
                    .ranges
                    .iter()
                    .map(AddressRange::to_range)
                    .collect::<Vec<_>>(),
                draining: &spec.draining,
            }
            .usable(),
            Self::Prefixes(spec) => PoolPrefixes {
                prefixes: &spec.prefixes,
                excluded: &spec.excluded_prefixes,
                length: spec.allocation_prefix_length,
                gateway: spec.gateway.as_deref(),
                ranges: &spec
                    .ranges
                    .iter()
                    .map(PrefixRange::to_range)
                    .collect::<Vec<_>>(),
                draining: &spec.draining,
            }
            .usable(),
        }
    }

    /// The entries of addresses that are no longer allocated.
    pub fn draining(&self) -> &[String] {
        match self {
            Self::Addresses(spec) => &spec.draining,
            Self::Prefixes(spec) => &spec.draining,
        }
    }

    /// Labels and annotations of new IPAddress objects.
    pub fn address_metadata(&self) -> Option<&AddressMetadata> {
        match self {
            Self::Addresses(spec) => spec.address_metadata.as_ref(),
            Self::Prefixes(spec) => spec.address_metadata.as_ref(),
        }
    }

    /// The named network; `None` if it is missing or empty.
    pub fn network(&self) -> Option<&str> {
        let network = match self {
            Self::Addresses(spec) => &spec.network,
            Self::Prefixes(spec) => &spec.network,
        };
        network.as_deref().filter(|name| !name.is_empty())
    }

    /// Who may use the pool. Only global pools have such restrictions.
    pub fn access(&self) -> PoolAccess<'_> {
        let (namespaces, limits, headroom) = match self {
            Self::Addresses(spec) => (&spec.allowed_namespaces, &spec.limits, &spec.headroom),
            Self::Prefixes(spec) => (&spec.allowed_namespaces, &spec.limits, &spec.headroom),
        };
        PoolAccess {
            allowed_namespaces: namespaces.as_ref(),
            limits: *limits,
            headroom: headroom.as_ref(),
        }
    }

    /// How the pool chooses the address of a claim.
    pub fn allocation(&self) -> AllocationPolicy {
        let policy = match self {
            Self::Addresses(spec) => spec.allocation,
            Self::Prefixes(spec) => spec.allocation,
        };
        policy.unwrap_or_default()
    }

    /// The order in which the pool allocates its free addresses.
    pub fn order(&self) -> AllocationOrder {
        self.allocation().order.unwrap_or_default()
    }

    /// Whether a claim gets the address back that the last claim of its name had.
    pub fn is_sticky(&self) -> bool {
        self.allocation().sticky.unwrap_or_default()
    }

    /// Whether claims may request an address.
    pub fn accepts_requests(&self) -> bool {
        self.allocation().requests.unwrap_or_default()
    }

    /// How the pool is divided into slices.
    pub fn slices(&self) -> Option<&SlicePolicy> {
        match self {
            Self::Addresses(spec) => spec.slices.as_ref(),
            Self::Prefixes(spec) => spec.slices.as_ref(),
        }
    }

    /// Parses the slices of a pool with these blocks; `None` without slices. Fails with all
    /// problems.
    pub fn slice_rules(
        &self,
        usable: &UsableBlocks,
    ) -> Result<Option<SliceRules>, Vec<FieldProblem>> {
        let Some(policy) = self.slices() else {
            return Ok(None);
        };
        let total = self
            .listed()
            .map_or_else(|| usable.set.len(), |listed| listed.set.len());
        policy.rules(total, usable.length).map(Some)
    }

    /// The blocks that the pool lists, with those that are excluded or reserved.
    fn listed(&self) -> Option<UsableBlocks> {
        let listed = match self.clone() {
            Self::Addresses(spec) => Self::Addresses(IPPoolSpec {
                excluded_addresses: Vec::new(),
                gateway: None,
                allocate_reserved_ip_addresses: true,
                ..spec
            }),
            Self::Prefixes(spec) => Self::Prefixes(PrefixPoolSpec {
                excluded_prefixes: Vec::new(),
                ..spec
            }),
        };
        listed.usable().ok()
    }

    /// Which addresses of the pool count as abandoned although their claims exist.
    pub fn reclaim(&self) -> ReclaimPolicy {
        let policy = match self {
            Self::Addresses(spec) => spec.reclaim,
            Self::Prefixes(spec) => spec.reclaim,
        };
        policy.unwrap_or_default()
    }

    /// Seconds before a released address can be reused; 0 for prefixes.
    pub fn cooldown_seconds(&self) -> i64 {
        match self {
            Self::Addresses(spec) => spec
                .address_reuse_grace_period_seconds
                .unwrap_or_default()
                .max(0)
                .into(),
            Self::Prefixes(_) => 0,
        }
    }
}
