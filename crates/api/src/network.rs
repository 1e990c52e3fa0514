use capi_ipam_ip::{Family, ParseError, SpanSet, parse_entry};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;
use kube::core::Selector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::{AllowedNamespaces, NamespaceAccess, SelectorProblem, parse_selector};
use super::conditions::{self, Condition};
use super::field_problem::FieldProblem;
use super::shared_blocks::{BlockRules, BlockStatus, SharedBlocks};

/// A network: the pools of a network never allocate the same address.
///
/// Its owner decides which pools belong to it. A pool belongs to the network that its specification
/// names, or else to the one whose selector matches it, if the network allows the namespace of the
/// pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPNetwork {
    /// API group and version; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard object metadata, without `managedFields`.
    #[serde(
        default,
        deserialize_with = "capi_ipam_contract::without_managed_fields"
    )]
    pub metadata: ObjectMeta,
    /// The pools of the network, and what they must not allocate.
    #[serde(default)]
    pub spec: IPNetworkSpec,
    /// The observed state of the network.
    #[serde(
        default,
        deserialize_with = "conditions::written_status",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<IPNetworkStatus>,
}

super::resource::cluster_resource!(IPNetwork, "ipnetworks");

/// The specification of an [`IPNetwork`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The pools of the network, and what they must not allocate.")]
pub struct IPNetworkSpec {
    /// Namespaces whose pools can belong to the network: none by default. Global pools always can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<NamespaceAccess>,
    /// Selects pools that belong to the network although they do not name it. An empty selector
    /// selects all pools. Pools that name another network, and pools in namespaces that are not
    /// allowed, are not selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::access::selector_schema")]
    pub pools: Option<LabelSelector>,
    /// Addresses, networks or ranges that no pool of the network allocates, in the same notation as
    /// the addresses of a pool. Both IP families are possible.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Length of the blocks that the pools of the network allocate. By default it is that of the
    /// first pool. Immutable once set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_lengths: Option<BlockLengths>,
    /// Shares the ranges of the network with other management clusters: the pools allocate only
    /// addresses of blocks that this management cluster has taken from the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<SharedBlocks>,
}

/// Lengths of blocks by IP family, in bits: 32 and 128 for single addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockLengths {
    /// Length of the IPv4 blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32))]
    pub ipv4: Option<u8>,
    /// Length of the IPv6 blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub ipv6: Option<u8>,
}

impl BlockLengths {
    /// The length for a family.
    pub fn of(self, family: Family) -> Option<u8> {
        match family {
            Family::V4 => self.ipv4,
            Family::V6 => self.ipv6,
        }
    }

    /// Sets the length for a family.
    pub fn set(&mut self, family: Family, length: u8) {
        match family {
            Family::V4 => self.ipv4 = Some(length),
            Family::V6 => self.ipv6 = Some(length),
        }
    }
}

/// The observed state of a network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPNetworkStatus {
    /// Generation of the network that counts and conditions describe. It is -1 if no provider has
    /// processed the network.
    #[serde(
        default,
        deserialize_with = "conditions::observed_generation",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// Number of pools of the network.
    #[serde(default)]
    pub pools: i64,
    /// Addresses that pools of the network can allocate, in use or not. Each is counted once.
    #[serde(default)]
    pub total: i64,
    /// Addresses of the pools that are in use.
    #[serde(default)]
    pub used: i64,
    /// Addresses that can be allocated now.
    #[serde(default)]
    pub free: i64,
    /// Length of the blocks that the pools of the network allocate. It does not change while the
    /// network has reservations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_lengths: Option<BlockLengths>,
    /// The blocks that this management cluster shares with others; omitted without spec.blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<BlockStatus>,
    /// The pools of the network, at most 50. Those that join or leave it are first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<NetworkMember>,
    /// Conditions of the network. Ready is False if the specification is invalid. Overlapping is
    /// True if pools overlap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

/// A pool of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkMember {
    /// Kind of the pool.
    pub kind: String,
    /// Namespace of the pool; omitted for a global pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the pool.
    pub name: String,
    /// Joining while addresses of the pool are still reserved outside of the network, then Member.
    /// Leaving while a pool that no longer belongs to the network has addresses that are reserved
    /// in it.
    pub phase: MemberPhase,
}

/// How far a pool belongs to a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberPhase {
    /// Addresses of the pool are still reserved outside of the network.
    Joining,
    /// All addresses of the pool are reserved in the network.
    #[default]
    Member,
    /// The pool no longer belongs to the network, which still has reservations of its addresses.
    Leaving,
}

/// What the specification of a network means.
#[derive(Clone, Debug)]
pub struct NetworkRules {
    /// The namespaces whose pools can belong to the network.
    pub namespaces: AllowedNamespaces,
    /// The pools that belong to the network without naming it; `None` for no pools.
    pub pools: Option<Selector>,
    /// The numbers of the IPv4 addresses that are not allocated.
    pub excluded_v4: SpanSet,
    /// The numbers of the IPv6 addresses that are not allocated.
    pub excluded_v6: SpanSet,
    /// The required block lengths.
    pub block_lengths: BlockLengths,
    /// The blocks that are shared with other management clusters.
    pub blocks: Option<BlockRules>,
}

/// A problem of the specification of a network. Displayed with the path of the field.
#[derive(Debug, thiserror::Error)]
pub enum NetworkProblem {
    /// An excluded entry is not valid.
    #[error("spec.excluded[{index}]: {source}")]
    Excluded {
        /// The index of the entry, starting at 0.
        index: usize,
        /// The entry as written.
        value: String,
        /// Why it is not valid.
        source: ParseError,
    },
    /// A label selector is not valid.
    #[error(transparent)]
    Selector(#[from] SelectorProblem),
    /// A field of the shared blocks is not valid.
    #[error(transparent)]
    Blocks(#[from] FieldProblem),
}

impl NetworkProblem {
    /// The path of the field.
    pub fn field(&self) -> String {
        match self {
            Self::Excluded { index, .. } => format!("spec.excluded[{index}]"),
            Self::Selector(problem) => problem.field.to_owned(),
            Self::Blocks(problem) => problem.field.clone().into_owned(),
        }
    }
}

impl IPNetworkSpec {
    /// Parses the specification; fails with all its problems.
    pub fn rules(&self) -> Result<NetworkRules, Vec<NetworkProblem>> {
        let (rules, problems) = self.read();
        if problems.is_empty() {
            Ok(rules)
        } else {
            Err(problems)
        }
    }

    /// What can be read of a specification that is not valid. A part with a problem is left out: it
    /// selects and allows nothing.
    pub fn readable_rules(&self) -> NetworkRules {
        let (rules, _) = self.read();
        rules
    }

    fn read(&self) -> (NetworkRules, Vec<NetworkProblem>) {
        let mut problems = Vec::new();
        let mut excluded: [Vec<_>; 2] = Default::default();
        let [v4, v6] = &mut excluded;
        for (index, text) in self.excluded.iter().enumerate() {
            match parse_entry(text) {
                Ok(entry) if entry.family == Family::V4 => v4.push(entry.span),
                Ok(entry) => v6.push(entry.span),
                Err(source) => problems.push(NetworkProblem::Excluded {
                    index,
                    value: text.clone(),
                    source,
                }),
            }
        }
        let default = NamespaceAccess::default();
        let access = self.namespaces.as_ref().unwrap_or(&default);
        let namespaces = match access.allowed("spec.namespaces.selector") {
            Ok(namespaces) => namespaces,
            Err(problem) => {
                problems.push(problem.into());
                AllowedNamespaces::Names(Vec::new())
            }
        };
        let selector = self.pools.as_ref();
        let pools = match selector.map(|selector| parse_selector(selector, "spec.pools")) {
            Some(Ok(pools)) => Some(pools),
            Some(Err(problem)) => {
                problems.push(problem.into());
                None
            }
            None => None,
        };
        let blocks = match self.blocks.as_ref().map(SharedBlocks::rules) {
            Some(Ok(rules)) => Some(rules),
            Some(Err(found)) => {
                problems.extend(found.into_iter().map(NetworkProblem::from));
                None
            }
            None => None,
        };
        let [v4, v6] = excluded;
        let rules = NetworkRules {
            namespaces,
            pools,
            excluded_v4: v4.into_iter().collect(),
            excluded_v6: v6.into_iter().collect(),
            block_lengths: self.block_lengths.unwrap_or_default(),
            blocks,
        };
        (rules, problems)
    }
}
