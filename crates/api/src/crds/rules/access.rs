//! Limits and validation rules for choices of namespaces, and for who may use a global pool.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::crds::CrdError;

/// The maximum number of names of namespaces.
const MAX_NAMES: usize = 1_000;
/// The maximum length of a DNS label.
const MAX_LABEL_LENGTH: usize = 63;

/// Adds the limits and rules of a choice of namespaces at `path`, with the paths of its names and
/// of each name.
pub(super) fn namespaces(
    schema: &mut Value,
    path: &'static str,
    names: [&'static str; 2],
) -> Result<(), CrdError> {
    let [list, name] = names;
    limit(schema, list, "maxItems", MAX_NAMES)?;
    limit(schema, name, "maxLength", MAX_LABEL_LENGTH)?;
    let has_selector = Rule::of(
        "selector",
        "self.from != 'Selector' || has(self.selector)",
        "must be set with from: Selector; write the labels of the namespaces",
    );
    let only_selector = Rule::of(
        "selector",
        "self.from == 'Selector' || !has(self.selector)",
        "must not be set unless from is Selector; remove it, or write from: Selector",
    );
    let only_names = Rule::of(
        "names",
        "self.from == 'Names' || !has(self.names)",
        "must not be set unless from is Names; remove it, or write from: Names",
    );
    add(schema, path, [has_selector, only_selector, only_names])
}

/// Adds the limits and rules of who may use a global pool.
pub(super) fn pools(schema: &mut Value) -> Result<(), CrdError> {
    let names = [
        "spec.allowedNamespaces.names",
        "spec.allowedNamespaces.names[]",
    ];
    namespaces(schema, "spec.allowedNamespaces", names)?;
    let selects = Rule::of(
        "for",
        "has(self.for.matchLabels) && size(self.for.matchLabels) > 0 || has(self.for.matchExpressions) && \
         size(self.for.matchExpressions) > 0",
        "must select some claims; an empty selector selects all",
    );
    add(schema, "spec.headroom", [selects])
}
