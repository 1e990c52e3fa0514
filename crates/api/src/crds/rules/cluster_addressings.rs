//! Limits and validation rules for the addresses of Clusters.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::cluster_addressing::{
    ENDPOINT_POOL, NETWORK_POOL, ONE_TARGET, POOL_KINDS, VARIABLE_NAME, VARIABLE_PATH,
};
use crate::crds::CrdError;

/// The maximum number of items.
const MAX_ITEMS: usize = 16;
/// The maximum number of targets of an item.
const MAX_TARGETS: usize = 8;

/// Adds the limits and rules to the schema of the addresses of Clusters.
pub(in crate::crds) fn cluster_addressings(schema: &mut Value) -> Result<(), CrdError> {
    let name = Rule::of(
        "metadata",
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "the name must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    add(schema, "", [name])?;
    limit(schema, "spec.items", "minItems", 1)?;
    limit(schema, "spec.items", "maxItems", MAX_ITEMS)?;
    let unique = Rule::new(
        "self.all(item, self.exists_one(other, other.name == item.name))",
        "the names of the items must be unique",
    );
    add(schema, "spec.items", [unique])?;
    let label = Rule::new(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    add(schema, "spec.items[].name", [label])?;
    pools(schema)?;
    targets(schema)
}

/// Adds the rules of the pool of an item.
fn pools(schema: &mut Value) -> Result<(), CrdError> {
    let group = Rule::new(
        "self == 'ipam.cluster.x-k8s.io'",
        "must be ipam.cluster.x-k8s.io",
    );
    add(schema, "spec.items[].poolRef.apiGroup", [group])?;
    let kinds = "self in ['InClusterIPPool', 'GlobalInClusterIPPool', 'InClusterPrefixPool', \
                 'GlobalInClusterPrefixPool', 'IPPoolSet', 'GlobalIPPoolSet']";
    add(
        schema,
        "spec.items[].poolRef.kind",
        [Rule::new(kinds, POOL_KINDS)],
    )?;
    let prefixes = "self.poolRef.kind.endsWith('PrefixPool')";
    let endpoint = Rule::of(
        "to",
        format!("!{prefixes} || !self.to.exists(target, has(target.controlPlaneEndpoint))"),
        ENDPOINT_POOL,
    );
    let network = Rule::of(
        "to",
        // What the pools of a set allocate is checked when the claim is bound.
        format!(
            "{prefixes} || self.poolRef.kind.endsWith('PoolSet') || \
             !self.to.exists(target, has(target.clusterNetwork))"
        ),
        NETWORK_POOL,
    );
    add(schema, "spec.items[]", [endpoint, network])
}

/// Adds the rules of the targets of an item.
fn targets(schema: &mut Value) -> Result<(), CrdError> {
    limit(schema, "spec.items[].to", "minItems", 1)?;
    limit(schema, "spec.items[].to", "maxItems", MAX_TARGETS)?;
    let fields = "[has(self.controlPlaneEndpoint), has(self.variable), has(self.clusterNetwork), has(self.resource)]";
    let one = Rule::new(format!("{fields}.exists_one(is_set, is_set)"), ONE_TARGET);
    add(schema, "spec.items[].to[]", [one])?;
    let name = Rule::new("self.matches('^[-_a-zA-Z0-9]+$')", VARIABLE_NAME);
    add(schema, "spec.items[].to[].variable.name", [name])?;
    let path = Rule::new(
        "self.matches('^[-_a-zA-Z0-9]+([.][-_a-zA-Z0-9]+)*$')",
        VARIABLE_PATH,
    );
    add(schema, "spec.items[].to[].variable.path", [path])
}
