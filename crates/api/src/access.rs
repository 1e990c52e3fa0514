//! Which namespaces may do something, and who may use a global pool.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ParseExpressionError, Selector, SelectorExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A choice of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceAccess {
    /// All namespaces, None, those that the Selector matches, or those with one of the Names.
    pub from: NamespaceSource,
    /// Selects namespaces by their labels; only with from: Selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector_schema")]
    pub selector: Option<LabelSelector>,
    /// Names of namespaces; only with from: Names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// How namespaces are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NamespaceSource {
    /// All namespaces.
    All,
    /// No namespace.
    #[default]
    None,
    /// Namespaces whose labels match the selector.
    Selector,
    /// Namespaces with one of the names.
    Names,
}

/// How many addresses of a global pool its users may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolLimits {
    /// Maximum number of addresses for the claims of a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub per_namespace: Option<i64>,
    /// Maximum number of addresses for the claims of a Cluster. Claims without a cluster name are
    /// not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub per_cluster: Option<i64>,
}

/// Free addresses of a global pool that only some claims get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Headroom {
    /// Number of free addresses that are left for the selected claims.
    #[schemars(range(min = 1))]
    pub addresses: i64,
    /// Selects claims by their labels, or by the labels of the Machine that owns the claim.
    #[serde(rename = "for")]
    #[schemars(schema_with = "selector_schema")]
    pub consumers: LabelSelector,
}

/// The parts of the specification of a global pool that restrict who may use it.
#[derive(Clone, Copy, Debug)]
pub struct PoolAccess<'a> {
    /// The namespaces whose claims may use the pool.
    pub allowed_namespaces: Option<&'a NamespaceAccess>,
    /// How many addresses they may have.
    pub limits: Option<PoolLimits>,
    /// The free addresses that only some claims get.
    pub headroom: Option<&'a Headroom>,
}

/// Who may use a global pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRules {
    /// The namespaces whose claims may use the pool.
    pub namespaces: AllowedNamespaces,
    /// The maximum number of addresses of a namespace.
    pub per_namespace: Option<usize>,
    /// The maximum number of addresses of a Cluster.
    pub per_cluster: Option<usize>,
    /// The number of free addresses that only some claims get, and the labels of these claims.
    pub headroom: Option<(u128, Selector)>,
}

/// Addresses beyond what the rules of a pool allow. They stay in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverLimit {
    /// Namespaces and Clusters with more addresses than their limit.
    pub groups: usize,
    /// The addresses that these have beyond their limits.
    pub addresses: usize,
    /// Addresses in namespaces that may not use the pool.
    pub not_allowed: usize,
}

/// Namespaces that may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// All namespaces.
    All,
    /// Namespaces with one of these names.
    Names(Vec<String>),
    /// Namespaces whose labels match.
    Selector(Selector),
}

/// A label selector that is not valid. Displayed with the path of the field.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {source}")]
pub struct SelectorProblem {
    /// The path of the selector.
    pub field: &'static str,
    /// Why it is not valid.
    pub source: ParseExpressionError,
}

impl PoolAccess<'_> {
    /// Parses the restrictions; `None` if there are none. Fails with all problems.
    pub fn rules(self) -> Result<Option<AccessRules>, Vec<SelectorProblem>> {
        if self.allowed_namespaces.is_none() && self.limits.is_none() && self.headroom.is_none() {
            return Ok(None);
        }
        let namespaces = self
            .allowed_namespaces
            .map(|access| access.allowed("spec.allowedNamespaces.selector"));
        let headroom = self.headroom.map(|headroom| {
            let addresses = u128::try_from(headroom.addresses).unwrap_or_default();
            Ok((
                addresses,
                parse_selector(&headroom.consumers, "spec.headroom.for")?,
            ))
        });
        let count =
            |limit: Option<i64>| limit.map(|limit| usize::try_from(limit).unwrap_or_default());
        let limits = self.limits.unwrap_or_default();
        match (namespaces.transpose(), headroom.transpose()) {
            (Ok(namespaces), Ok(headroom)) => Ok(Some(AccessRules {
                namespaces: namespaces.unwrap_or(AllowedNamespaces::All),
                per_namespace: count(limits.per_namespace),
                per_cluster: count(limits.per_cluster),
                headroom,
            })),
            (namespaces, headroom) => {
                Err(namespaces.err().into_iter().chain(headroom.err()).collect())
            }
        }
    }
}

impl NamespaceAccess {
    /// Parses the selector. `field` is its path, for the error.
    pub fn allowed(&self, field: &'static str) -> Result<AllowedNamespaces, SelectorProblem> {
        Ok(match self.from {
            NamespaceSource::All => AllowedNamespaces::All,
            NamespaceSource::None => AllowedNamespaces::Names(Vec::new()),
            NamespaceSource::Names => AllowedNamespaces::Names(self.names.clone()),
            NamespaceSource::Selector => match &self.selector {
                Some(selector) => AllowedNamespaces::Selector(parse_selector(selector, field)?),
                None => AllowedNamespaces::Names(Vec::new()),
            },
        })
    }
}

impl AllowedNamespaces {
    /// Returns whether a namespace is among them. `labels` are those of the namespace; `None` if
    /// they are not known, for example because it does not exist. Returns `None` if the answer
    /// depends on them.
    pub fn allows(
        &self,
        namespace: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Option<bool> {
        match self {
            Self::All => Some(true),
            Self::Names(names) => Some(names.iter().any(|name| name == namespace)),
            Self::Selector(selector) => labels.map(|labels| selector.matches(labels)),
        }
    }
}

pub(super) fn parse_selector(
    selector: &LabelSelector,
    field: &'static str,
) -> Result<Selector, SelectorProblem> {
    Selector::try_from(selector.clone()).map_err(|source| SelectorProblem { field, source })
}

/// The schema of a label selector, without its description in Kubernetes, which is longer than all
/// others.
pub(super) fn selector_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels that must have these values.",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "type": "array",
                "description": "Requirements that must all be met.",
                "items": {
                    "type": "object",
                    "description": "A requirement of a label.",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "type": "string", "description": "Name of the label." },
                        "operator": { "type": "string", "description": "In, NotIn, Exists or DoesNotExist." },
                        "values": {
                            "type": "array",
                            "description": "Values for In and NotIn.",
                            "items": { "type": "string" },
                        },
                    },
                },
            },
        },
    })
}
