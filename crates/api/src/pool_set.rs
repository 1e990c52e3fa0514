use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::core::{DynamicResourceScope, ObjectMeta, Selector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::access::{SelectorProblem, parse_selector};
use super::conditions::{self, Condition};
use super::field_problem::FieldProblem;
use super::{InClusterKind, PoolKey, PoolSetKey, PoolSetKind, names};

/// The maximum number of pools of a set, in its list or by its selector. A waiting claim is in the queue of each.
pub const MAX_SET_POOLS: usize = 64;

pub(crate) const POOLS_OR_SELECTOR: &str =
    "exactly one of spec.pools and spec.selector must be set";
pub(crate) const UNIQUE_POOLS: &str = "each pool must be listed once";
pub(crate) const ONE_SORT: &str =
    "all pools must have single addresses, or all of them must have prefixes";
const MEMBER_KINDS: &str = "must be InClusterIPPool, GlobalInClusterIPPool, \
    InClusterPrefixPool or GlobalInClusterPrefixPool; a set contains no sets";
const GLOBAL_MEMBER_KINDS: &str = "must be GlobalInClusterIPPool or \
    GlobalInClusterPrefixPool; a GlobalIPPoolSet contains neither pools of a namespace nor sets";
pub(crate) const FALLBACK: &str = "must only be set with spec.choose ByFailureDomain";

/// Pools of which each claim gets an address of one. A claim names it instead of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSet {
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
    /// The pools, and how one is chosen.
    #[serde(default)]
    pub spec: PoolSetSpec,
    /// The observed state of the set.
    #[serde(
        default,
        deserialize_with = "conditions::written_status",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<PoolSetStatus>,
}

impl Resource for PoolSet {
    type DynamicType = PoolSetKind;
    type Scope = DynamicResourceScope;

    fn kind(kind: &PoolSetKind) -> Cow<'_, str> {
        kind.name().into()
    }

    fn group(_: &PoolSetKind) -> Cow<'_, str> {
        names::GROUP.into()
    }

    fn version(_: &PoolSetKind) -> Cow<'_, str> {
        names::POOL_VERSION.into()
    }

    fn plural(kind: &PoolSetKind) -> Cow<'_, str> {
        kind.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The specification of a [`PoolSet`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The pools, and how the pool of a claim is chosen.")]
pub struct PoolSetSpec {
    /// The pools of the set, in order. Either this or the selector is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<SetMember>,
    /// Selects pools of single addresses by their labels, in the order of their names. An IPPoolSet
    /// selects pools of its namespace and global ones, a GlobalIPPoolSet global ones. An empty
    /// selector selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::access::selector_schema")]
    pub selector: Option<LabelSelector>,
    /// How the pool of a claim is chosen. Listed, the default: the first pool with a free address.
    /// MostFree: the pool with most free addresses. ByFailureDomain: the first pool with a free
    /// address whose label topology.kubernetes.io/zone has the value that the claim, or else its
    /// Machine, has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choose: Option<PoolChoice>,
    /// With ByFailureDomain: whether a claim gets an address of another pool if no pool of its
    /// failure domain has a free one, or if it has no failure domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<bool>,
}

/// A pool of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetMember {
    /// Kind of the pool. A pool of a namespace is one of the namespace of the set.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What is wrong with a pool of another kind.
pub(crate) const fn member_kinds(kind: PoolSetKind) -> &'static str {
    match kind {
        PoolSetKind::Namespaced => MEMBER_KINDS,
        PoolSetKind::Global => GLOBAL_MEMBER_KINDS,
    }
}

/// How the pool of a claim is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PoolChoice {
    /// The first pool with a free address.
    #[default]
    Listed,
    /// The pool with most free addresses.
    MostFree,
    /// The first pool with a free address in the failure domain of the claim.
    ByFailureDomain,
}

/// The pools of a set.
#[derive(Clone, Debug, PartialEq)]
pub enum SetMembers {
    /// These pools, in order.
    Listed(Vec<PoolKey>),
    /// The pools whose labels match.
    Selected(Selector),
}

impl PoolSetSpec {
    /// Parses the pools of the set `key`. Fails with all problems of the specification.
    pub fn members(&self, key: &PoolSetKey) -> Result<SetMembers, Vec<FieldProblem>> {
        let mut problems = self.problems(key.kind);
        if let Some(selector) = &self.selector {
            match parse_selector(selector, "spec.selector") {
                Ok(selector) if problems.is_empty() => return Ok(SetMembers::Selected(selector)),
                Ok(_) => {}
                Err(SelectorProblem { field, source }) => {
                    problems.push(FieldProblem::new(field, json!(null), source.to_string()));
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let namespace = key.namespace.as_deref();
        let pools = self.pools.iter();
        let pools =
            pools.filter_map(|member| PoolKey::of_kind(&member.kind, namespace, &member.name));
        Ok(SetMembers::Listed(pools.collect()))
    }

    /// What is wrong with the specification, apart from the syntax of the selector.
    fn problems(&self, kind: PoolSetKind) -> Vec<FieldProblem> {
        let mut problems = Vec::new();
        let mut add = |field: String, value, text: &str| {
            problems.push(FieldProblem::new(field, value, text));
        };
        if self.pools.is_empty() == self.selector.is_none() {
            add("spec.pools".to_owned(), json!(null), POOLS_OR_SELECTOR);
        }
        let mut sorts = Vec::new();
        for (index, member) in self.pools.iter().enumerate() {
            match InClusterKind::of(&member.kind) {
                Some(pool) if kind.may_contain(pool) => sorts.push(pool.has_prefixes()),
                _ => {
                    let field = format!("spec.pools[{index}].kind");
                    add(field, json!(member.kind), member_kinds(kind));
                }
            }
            if self.pools.iter().take(index).any(|other| other == member) {
                let field = format!("spec.pools[{index}]");
                add(field, json!(member), UNIQUE_POOLS);
            }
        }
        sorts.dedup();
        if sorts.len() > 1 {
            add("spec.pools".to_owned(), json!(null), ONE_SORT);
        }
        let is_by_domain = self.choose == Some(PoolChoice::ByFailureDomain);
        if self.fallback.is_some() && !is_by_domain {
            add("spec.fallback".to_owned(), json!(self.fallback), FALLBACK);
        }
        problems
    }
}

/// The observed state of a set of pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSetStatus {
    /// Generation of the set that counts and conditions describe. It is -1 if no provider has
    /// processed the set.
    #[serde(
        default,
        deserialize_with = "conditions::observed_generation",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,
    /// Number of pools of the set that exist.
    #[serde(default)]
    pub pools: i64,
    /// Addresses that these pools can allocate, in use or not: the sum of their counts.
    #[serde(default)]
    pub total: i64,
    /// Addresses of these pools that are in use, also by claims that do not name the set.
    #[serde(default)]
    pub used: i64,
    /// Addresses of these pools that can be allocated now.
    #[serde(default)]
    pub free: i64,
    /// Conditions of the set. Ready is False with reason InvalidSpec if the specification is
    /// invalid, and with reason NoPools if no pool of the set can allocate addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(kind: PoolSetKind, spec: &Value) -> Vec<String> {
        let spec: PoolSetSpec = serde_json::from_value(spec.clone()).unwrap();
        let metadata = ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some("s".to_owned()),
            ..ObjectMeta::default()
        };
        match spec.members(&PoolSetKey::new(kind, &metadata)) {
            Ok(_) => Vec::new(),
            Err(found) => found
                .iter()
                .map(|problem| problem.field.to_string())
                .collect(),
        }
    }

    #[test]
    fn each_problem_names_its_field() {
        let pool = |kind: &str| json!({"kind": kind, "name": "p"});
        let (own, global) = (pool("InClusterIPPool"), pool("GlobalInClusterIPPool"));
        let set = pool("IPPoolSet");
        for (spec, namespaced, in_global) in [
            (json!({}), vec!["spec.pools"], vec!["spec.pools"]),
            (json!({"pools": [global]}), vec![], vec![]),
            (json!({"selector": {}}), vec![], vec![]),
            (
                json!({"pools": [global], "selector": {}}),
                vec!["spec.pools"],
                vec!["spec.pools"],
            ),
            (json!({"pools": [own]}), vec![], vec!["spec.pools[0].kind"]),
            (
                json!({"pools": [global, set]}),
                vec!["spec.pools[1].kind"],
                vec!["spec.pools[1].kind"],
            ),
            (
                json!({"pools": [global, global]}),
                vec!["spec.pools[1]"],
                vec!["spec.pools[1]"],
            ),
            (
                json!({"pools": [global, pool("GlobalInClusterPrefixPool")]}),
                vec!["spec.pools"],
                vec!["spec.pools"],
            ),
            (
                json!({"selector": {}, "fallback": true}),
                vec!["spec.fallback"],
                vec!["spec.fallback"],
            ),
            (
                json!({"selector": {}, "fallback": true, "choose": "ByFailureDomain"}),
                vec![],
                vec![],
            ),
            (
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
                vec!["spec.selector"],
                vec!["spec.selector"],
            ),
        ] {
            assert_eq!(
                problems(PoolSetKind::Namespaced, &spec),
                namespaced,
                "{spec}"
            );
            assert_eq!(problems(PoolSetKind::Global, &spec), in_global, "{spec}");
        }
    }
}
