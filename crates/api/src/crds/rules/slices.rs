//! Validation rules for slices, and for how a pool is divided into them.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::crds::CrdError;
use crate::slice_policy::{LABEL_REQUIRED, LABEL_WITHOUT_EFFECT, NO_LABEL_NAME, NO_OWNER};

/// The maximum length of a qualified name: a DNS subdomain, a slash and a name.
const MAX_LABEL_NAME_LENGTH: usize = 317;

const IMMUTABLE: &str = "field is immutable; delete the slice and create another one";

/// Adds the rules to the schema of slices. What identifies a slice is immutable.
pub(in crate::crds) fn slices(schema: &mut Value) -> Result<(), CrdError> {
    // CEL cannot format the block in the way in which it ends the name.
    let name = Rule::of(
        "metadata",
        "oldSelf.hasValue() || self.metadata.name.startsWith('h.') || \
         self.metadata.name.startsWith(self.spec.scope + '.')",
        "the name must be spec.scope, a dot, the first address, a dash, and the length of the block",
    );
    add(schema, "", [name.with_optional_old_self()])?;
    let block = Rule::new(
        "isCIDR(self) && cidr(self).masked() == cidr(self)",
        "must be a network in CIDR notation without host bits, such as 10.8.0.64/26",
    );
    add(schema, "spec.block", [block])?;
    let scope = Rule::new(
        "self.matches('^(g|gp|n)[.].+$') || self.matches('^(p|pp)[.][^.]+[.].+$')",
        "must name a pool or a network: write p.NAMESPACE.POOL, g.POOL, pp.NAMESPACE.POOL, gp.POOL or n.NETWORK",
    );
    add(schema, "spec.scope", [scope])?;
    let has_namespace = Rule::of(
        "namespace",
        "self.kind != 'Cluster' || has(self.namespace)",
        "must be set with kind: Cluster; write the namespace of the Cluster",
    );
    let only_of_cluster = Rule::of(
        "namespace",
        "self.kind == 'Cluster' || !has(self.namespace)",
        "must not be set unless kind is Cluster; remove it",
    );
    add(schema, "spec.owner", [has_namespace, only_of_cluster])?;
    let required = ["scope", "block", "owner"]
        .map(|field| (field, format!("self.{field} == oldSelf.{field}")));
    let optional = ["assignedAt", "registry"].map(|field| {
        let rule = format!(
            "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
        );
        (field, rule)
    });
    let all = required.into_iter().chain(optional);
    add(
        schema,
        "spec",
        all.map(|(field, rule)| Rule::of(field, rule, IMMUTABLE)),
    )?;
    let owner = Rule::of(
        "owner",
        "(self.owner.kind == 'ManagementCluster') == self.scope.startsWith('n.')",
        "a ManagementCluster owns blocks of networks (scope n.NETWORK), and other owners own slices of pools",
    );
    let only_of_network = ["confirmedAt", "conflict", "registry"].map(|field| {
        Rule::of(
            field,
            format!("self.owner.kind == 'ManagementCluster' || !has(self.{field})"),
            "must not be set unless the owner is a ManagementCluster; remove it",
        )
    });
    add(schema, "spec", [owner])?;
    add(schema, "spec", only_of_network)
}

/// The rule that the size of a slice or a block is a power of two.
pub(super) fn power_of_two() -> Rule {
    let power = (0..=20)
        .map(|exponent| (1 << exponent).to_string())
        .collect::<Vec<_>>()
        .join(", ");
    Rule::new(format!("self in [{power}]"), "must be a power of two")
}

/// Adds the limits and rules of how a pool is divided into slices.
pub(super) fn policy(schema: &mut Value) -> Result<(), CrdError> {
    limit(
        schema,
        "spec.slices.label",
        "maxLength",
        MAX_LABEL_NAME_LENGTH,
    )?;
    let per = Rule::new("self != 'ManagementCluster'", NO_OWNER);
    add(schema, "spec.slices.per", [per])?;
    let same_size = Rule::new(
        "self == oldSelf",
        "field is immutable while spec.slices is set; remove spec.slices first",
    );
    add(schema, "spec.slices.size", [power_of_two(), same_size])?;
    let has_label = Rule::of(
        "label",
        "self.per != 'Label' || has(self.label)",
        LABEL_REQUIRED,
    );
    let only_label = Rule::of(
        "label",
        "self.per == 'Label' || !has(self.label)",
        LABEL_WITHOUT_EFFECT,
    );
    add(schema, "spec.slices", [has_label, only_label])?;
    let name = Rule::new(
        "self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",
        NO_LABEL_NAME,
    );
    add(schema, "spec.slices.label", [name])
}
