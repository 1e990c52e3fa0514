//! Limits and validation rules for networks.

use serde_json::Value;

use super::{Rule, add, limit, pools};
use crate::api::crds::CrdError;

/// The maximum number of excluded entries, and of names of namespaces.
const MAX_ITEMS: usize = 1_000;
/// The maximum length of a DNS label.
const MAX_LABEL_LENGTH: usize = 63;

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
    limit(schema, "spec.namespaces.names", "maxItems", MAX_ITEMS)?;
    limit(schema, "spec.namespaces.names[]", "maxLength", MAX_LABEL_LENGTH)?;
    add(
        schema,
        "spec.namespaces",
        [
            Rule::of(
                "selector",
                "(self.from == 'Selector') == has(self.selector)",
                "is required with from: Selector, and not possible otherwise",
            ),
            Rule::of("names", "self.from == 'Names' || !has(self.names)", "is only possible with from: Names"),
        ],
    )
}
