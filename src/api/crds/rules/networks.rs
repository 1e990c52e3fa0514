//! Limits and validation rules for networks.

use serde_json::Value;

use super::{Rule, access, add, limit, pools};
use crate::api::crds::CrdError;

/// The maximum number of excluded entries.
const MAX_ITEMS: usize = 1_000;

/// Adds the limits and rules to the schema of networks.
pub(in crate::api::crds) fn networks(schema: &mut Value) -> Result<(), CrdError> {
    let name = Rule::of(
        "metadata",
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        "the name must be a DNS label: at most 63 lower case letters, digits and dashes, without a dash at either end",
    );
    add(schema, "", [name])?;
    pools::entries(schema, "spec.excluded", "spec.excluded[]")?;
    limit(schema, "spec.excluded", "maxItems", MAX_ITEMS)?;
    access::namespaces(schema, "spec.namespaces", ["spec.namespaces.names", "spec.namespaces.names[]"])
}
