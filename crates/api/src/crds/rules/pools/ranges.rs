//! Validation rules for the ranges of a pool. A range is an entry of a list, so that its rules
//! cannot use the old value.

use capi_ipam_ip::{MAX_ENTRY_LENGTH, MAX_RANGES};
use serde_json::Value;

use super::{
    MAX_ADDRESS_LENGTH, entry_rule, gateway_rule, is_v4, prefix_rules, required, within_subnet,
};
use crate::crds::CrdError;
use crate::crds::rules::{Rule, add, limit};

/// The maximum number of entries of a range. All ranges together have as many entries as the other
/// lists.
pub(super) const MAX_ENTRIES: usize = 64;

/// Adds the limits and rules of the ranges of a pool of single addresses.
pub(super) fn addresses(schema: &mut Value) -> Result<(), CrdError> {
    shared(schema)?;
    let (list, entry) = ("spec.ranges[].addresses", "spec.ranges[].addresses[]");
    limit(schema, list, "maxItems", MAX_ENTRIES)?;
    limit(schema, entry, "maxLength", MAX_ENTRY_LENGTH)?;
    add(schema, list, [required("addresses is required")])?;
    add(schema, entry, [entry_rule()])?;
    let first = "self.addresses[0]";
    add(
        schema,
        "spec.ranges[]",
        [
            Rule::of(
                "prefix",
                format!(
                    "size(self.addresses) == 0 || !{} || self.prefix <= 32",
                    is_v4(first)
                ),
                "must be at most 32 for IPv4 addresses",
            ),
            Rule::of(
                "addresses",
                format!("size(self.addresses) == 0 || {}", within_subnet(first)),
                "all entries must be within one subnet: the subnet of the first entry with the given prefix length",
            ),
        ],
    )
}

/// Adds the limits and rules of the ranges of a pool of prefixes.
pub(super) fn prefixes(schema: &mut Value) -> Result<(), CrdError> {
    shared(schema)?;
    let (list, entry) = ("spec.ranges[].prefixes", "spec.ranges[].prefixes[]");
    limit(schema, list, "maxItems", MAX_ENTRIES)?;
    limit(schema, entry, "maxLength", MAX_ENTRY_LENGTH)?;
    add(schema, list, [required("prefixes is required")])?;
    add(schema, entry, prefix_rules())
}

fn shared(schema: &mut Value) -> Result<(), CrdError> {
    limit(schema, "spec.ranges", "maxItems", MAX_RANGES)?;
    limit(
        schema,
        "spec.ranges[].gateway",
        "maxLength",
        MAX_ADDRESS_LENGTH,
    )?;
    add(schema, "spec.ranges[].gateway", [gateway_rule()])
}
