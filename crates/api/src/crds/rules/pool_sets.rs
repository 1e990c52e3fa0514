//! Limits and validation rules for sets of pools.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::crds::CrdError;
use crate::pool_set::{
    FALLBACK, MAX_SET_POOLS, ONE_SORT, POOLS_OR_SELECTOR, UNIQUE_POOLS, member_kinds,
};
use crate::{InClusterKind, PoolSetKind};

/// Adds the limits and rules to the schema of a kind of sets.
pub(in crate::crds) fn pool_sets(schema: &mut Value, kind: PoolSetKind) -> Result<(), CrdError> {
    let one = Rule::of(
        "pools",
        "(has(self.pools) && size(self.pools) > 0) != has(self.selector)",
        POOLS_OR_SELECTOR,
    );
    let fallback = Rule::of(
        "fallback",
        "!has(self.fallback) || has(self.choose) && self.choose == 'ByFailureDomain'",
        FALLBACK,
    );
    add(schema, "spec", [one, fallback])?;
    limit(schema, "spec.pools", "maxItems", MAX_SET_POOLS)?;
    let unique = Rule::new(
        "self.all(pool, self.exists_one(other, other.kind == pool.kind && other.name == pool.name))",
        UNIQUE_POOLS,
    );
    let is_of_prefixes = "pool.kind.endsWith('PrefixPool')";
    let same = Rule::new(
        format!("self.all(pool, {is_of_prefixes}) || !self.exists(pool, {is_of_prefixes})"),
        ONE_SORT,
    );
    add(schema, "spec.pools", [unique, same])?;
    let kinds = InClusterKind::ALL.into_iter();
    let kinds = kinds.filter(|pool| kind.may_contain(*pool));
    let names: Vec<String> = kinds.map(|pool| format!("'{pool}'")).collect();
    let member = Rule::new(
        format!("self in [{}]", names.join(", ")),
        member_kinds(kind),
    );
    add(schema, "spec.pools[].kind", [member])
}
