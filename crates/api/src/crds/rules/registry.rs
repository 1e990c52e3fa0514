//! Limits and validation rules for the records of a registry.

use serde_json::{Value, json};

use super::{Rule, add, limit, part};
use crate::crds::CrdError;
use crate::ip_block::{HASH_LENGTH, MAX_EXCLUSIONS};

/// The rule that the name is derived from network and block. CEL cannot format an IPv6 address in
/// the way in which it ends the name.
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
    let exclusions = "spec.cluster.exclusions";
    limit(schema, exclusions, "maxProperties", MAX_EXCLUSIONS)?;
    limit(
        schema,
        "spec.cluster.exclusions{}",
        "maxLength",
        HASH_LENGTH,
    )?;
    // An earlier version writes its exclusions into the record, and takes no block before it reads
    // them there.
    let network = part(schema, "spec.network")?;
    network.insert(
        "x-kubernetes-preserve-unknown-fields".to_owned(),
        json!(true),
    );
    Ok(())
}
