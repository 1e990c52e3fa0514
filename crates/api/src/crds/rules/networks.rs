//! Limits and validation rules for networks.

use serde_json::Value;

use super::{Rule, access, add, limit, pools, slices};
use crate::crds::CrdError;

/// The maximum number of excluded entries.
const MAX_ITEMS: usize = 1_000;

const IMMUTABLE_REGISTRY: &str =
    "field is immutable while spec.blocks is set; all blocks have to be returned first";

const IMMUTABLE_SIZE: &str = "field is immutable while the network has blocks; release all addresses of the network, and wait until status.blocks.held is 0";

const IMMUTABLE: &str = "field is immutable once it is set; create another network";

/// The rule that a block length is neither changed nor removed once it is set. It is a rule of the
/// whole object: the API server does not evaluate the transition rules of a field that an update
/// removes.
fn immutable_block_length((family, field): (&str, &'static str)) -> Rule {
    let length_of = |object: &str| format!("{object}.?spec.?blockLengths.?{family}");
    let (before, after) = (length_of("oldSelf"), length_of("self"));
    let expression = format!(
        "!{before}.hasValue() || {after}.hasValue() && {after}.value() == {before}.value()"
    );
    Rule::of(field, expression, IMMUTABLE)
}

/// Adds the limits and rules to the schema of networks.
pub(in crate::crds) fn networks(schema: &mut Value) -> Result<(), CrdError> {
    let name = Rule::of(
        "metadata",
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "the name must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    let [ipv4, ipv6] = [
        ("ipv4", "spec.blockLengths.ipv4"),
        ("ipv6", "spec.blockLengths.ipv6"),
    ]
    .map(immutable_block_length);
    add(schema, "", [name, ipv4, ipv6, block_size()])?;
    blocks(schema)?;
    pools::entries(schema, "spec.excluded", "spec.excluded[]")?;
    limit(schema, "spec.excluded", "maxItems", MAX_ITEMS)?;
    access::namespaces(
        schema,
        "spec.namespaces",
        ["spec.namespaces.names", "spec.namespaces.names[]"],
    )
}

/// Adds the rules of how a network shares its ranges.
fn blocks(schema: &mut Value) -> Result<(), CrdError> {
    let same_registry = Rule::new("self == oldSelf", IMMUTABLE_REGISTRY);
    let label = Rule::new(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "must be the name of an IPRegistry, a DNS label",
    );
    add(schema, "spec.blocks.registry", [label, same_registry])?;
    add(schema, "spec.blocks.size", [slices::power_of_two()])
}

/// The rule that the size of blocks is not changed while the network has one. It is a rule of the
/// whole object, since the status counts the blocks. A network that has another size than the other
/// management clusters can be corrected: it gets no block.
fn block_size() -> Rule {
    let expression = "!has(self.spec.blocks) || !has(oldSelf.spec.blocks) \
        || self.spec.blocks.size == oldSelf.spec.blocks.size || oldSelf.?status.?blocks.?held.orValue(-1) == 0";
    Rule::of("spec.blocks.size", expression.to_owned(), IMMUTABLE_SIZE)
}
