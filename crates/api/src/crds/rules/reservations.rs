//! Validation rules for reservations. Only `spec.releasedAt` and `spec.quarantine` are mutable, and a
//! reservation can be taken over: a released one gets another claim, which may be of another pool of
//! its network, and one that is not released gets the uid of another claim of the same name. A
//! quarantine replaces the claim. Whether the address is
//! the first one of its prefix is checked by the webhook; without it the reservation is reported as
//! one without effect.

use serde_json::Value;

use super::{Rule, add};
use crate::crds::CrdError;

const IMMUTABLE: &str = "field is immutable; delete the reservation and create another one";

const UNLESS_RELEASED: &str = "field is immutable unless the address is released; delete the reservation and create another one";

/// Adds the rules to the schema of reservations.
pub(in crate::crds) fn reservations(schema: &mut Value) -> Result<(), CrdError> {
    // CEL cannot format the address in the way in which it ends the name.
    let name = Rule::of(
        "metadata",
        "oldSelf.hasValue() || self.metadata.name.startsWith('h.') || \
         self.metadata.name.startsWith(self.spec.scope + '.')",
        "the name must be spec.scope, a dot, and the address",
    );
    add(schema, "", [name.with_optional_old_self()])?;
    add(
        schema,
        "spec.address",
        [Rule::new("isIP(self)", "must be an IPv4 or IPv6 address")],
    )?;
    let required =
        ["scope", "address"].map(|field| (field, format!("self.{field} == oldSelf.{field}")));
    let optional = ["prefixLength", "claimRef"].map(|field| {
        let same = format!("self.{field} == oldSelf.{field}");
        (
            field,
            format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"),
        )
    });
    let taken_over = "has(oldSelf.releasedAt) && !has(self.releasedAt) && has(self.claimRef) && has(self.claimRef.uid)";
    let [prefix_length, (claim_field, same_claim)] = optional;
    let same_pool = "self.poolRef == oldSelf.poolRef";
    let quarantined = "has(self.quarantine) && !has(self.claimRef)";
    // A reserved word of CEL is escaped.
    let same_name = ["__namespace__", "name"]
        .map(|part| format!("self.claimRef.{part} == oldSelf.claimRef.{part}"));
    let other_uid = format!(
        "!has(self.releasedAt) && !has(oldSelf.releasedAt) && has(self.claimRef) && has(oldSelf.claimRef) && \
         has(self.claimRef.uid) && has(oldSelf.claimRef.uid) && {} && \
         has(self.claimRef.cluster) == has(oldSelf.claimRef.cluster) && \
         (!has(self.claimRef.cluster) || self.claimRef.cluster == oldSelf.claimRef.cluster)",
        same_name.join(" && ")
    );
    let mutable = [
        ("poolRef", format!("{same_pool} || {taken_over}")),
        (
            claim_field,
            format!("{same_claim} || {taken_over} || {other_uid} || {quarantined}"),
        ),
    ];
    let fixed = required
        .into_iter()
        .chain([prefix_length])
        .map(|(field, rule)| Rule::of(field, rule, IMMUTABLE));
    let mutable = mutable.map(|(field, rule)| Rule::of(field, rule, UNLESS_RELEASED));
    let without_claim = Rule::of(
        "quarantine",
        "!has(self.quarantine) || (!has(self.claimRef) && !has(self.releasedAt))",
        "a quarantined address has neither claimRef nor releasedAt",
    );
    add(schema, "spec", fixed.chain(mutable).chain([without_claim]))
}
