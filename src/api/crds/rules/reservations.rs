//! Rules for reservations. Nothing but the time of release ever changes.

use serde_json::Value;

use crate::api::crds::CrdError;
use super::{add, decimal, Rule};

const FIXED: &str = "cannot be changed; delete the reservation and create another one";

/// Rules for the definition of reservations.
pub(in crate::api::crds) fn reservations(schema: &mut Value) -> Result<(), CrdError> {
    // The end of the name is the address in a form that expressions cannot make.
    let name = Rule::of(
        "metadata",
        "oldSelf.hasValue() || self.metadata.name.startsWith('h.') || \
         self.metadata.name.startsWith(self.spec.scope + '.')",
        "the name has to be spec.scope, a dot, and the address",
    );
    add(schema, "", [name.with_optional_old_self()])?;
    add(schema, "spec.address", [Rule::new("isIP(self)", "is not an IPv4 or IPv6 address")])?;
    let prefix = format!("self.address + '/' + {}", decimal("self.prefixLength"));
    let aligned = format!(
        "!has(self.prefixLength) || self.prefixLength < 0 || self.prefixLength > 128 || !isIP(self.address) || isCIDR({prefix}) && cidr({prefix}).masked() == \
         cidr({prefix})"
    );
    let required = ["scope", "address", "poolRef"].map(|field| (field, format!("self.{field} == oldSelf.{field}")));
    let optional = ["prefixLength", "claimRef"].map(|field| {
        let same = format!("self.{field} == oldSelf.{field}");
        (field, format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"))
    });
    add(
        schema,
        "spec",
        [Rule::of("prefixLength", aligned, "the address is not the first one of a prefix of this length")],
    )?;
    add(schema, "spec", required.into_iter().chain(optional).map(|(field, rule)| Rule::of(field, rule, FIXED)))
}
