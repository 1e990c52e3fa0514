//! Limits and validation rules for the records of a registry.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::crds::CrdError;

/// The maximum number of clusters that exclude addresses of a network.
const MAX_CLUSTERS: usize = 256;

/// The maximum number of entries that a cluster excludes: those of `spec.excluded` of a network, which
/// has at most 1,000, and the gateways of its pools.
const MAX_EXCLUDED: usize = 4_000;

/// The maximum length of an excluded entry: a range of two IPv6 addresses.
const MAX_ENTRY_LENGTH: usize = 79;

/// The rule that the name is derived from network and block. CEL cannot format an IPv6 address in the
/// way in which it ends the name.
const IS_NAMED_BY_BLOCK: &str = "!has(self.spec.block) || (self.spec.block.block.contains(':') ? \
     self.metadata.name.startsWith('block.' + self.spec.block.network + '.') : \
     self.metadata.name == 'block.' + self.spec.block.network + '.' + self.spec.block.block.replace('/', '-'))";

/// The rule that there is one record of the registry.
const IS_NAMED_REGISTRY: &str = "!has(self.spec.registry) || self.metadata.name == 'registry'";

/// The rule that the name is derived from one field of the record.
fn is_named_by(record: &str, field: &str) -> String {
    format!(
        "!has(self.spec.{record}) || self.metadata.name == '{record}.' + self.spec.{record}.{field}"
    )
}

/// Adds the rules to the schema of records.
pub(in crate::crds) fn records(schema: &mut Value) -> Result<(), CrdError> {
    let one = Rule::new(
        "[has(self.block), has(self.cluster), has(self.network), has(self.registry)].filter(is_set, is_set).size() == 1",
        "exactly one of block, cluster, network and registry must be set",
    );
    add(schema, "spec", [one])?;
    let named = [
        IS_NAMED_BY_BLOCK.to_owned(),
        is_named_by("cluster", "cluster"),
        is_named_by("network", "network"),
        IS_NAMED_REGISTRY.to_owned(),
    ];
    let named = named.map(|rule| {
        Rule::of(
            "metadata",
            rule,
            "the name must be the kind of the record, a dot, and its network and block, cluster or network, such as \
             block.NETWORK.10.8.0.64-26; or registry",
        )
    });
    add(schema, "", named)?;
    let block = Rule::new(
        "isCIDR(self) && cidr(self).masked() == cidr(self)",
        "must be a network in CIDR notation without host bits, such as 10.8.0.64/26",
    );
    add(schema, "spec.block.block", [block])?;
    let excluded = "spec.network.excluded";
    limit(schema, excluded, "maxProperties", MAX_CLUSTERS)?;
    limit(schema, "spec.network.excluded{}", "maxItems", MAX_EXCLUDED)?;
    limit(
        schema,
        "spec.network.excluded{}[]",
        "maxLength",
        MAX_ENTRY_LENGTH,
    )
}
