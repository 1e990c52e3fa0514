//! Names of objects in findings.

use capi_ipam_api::names;
use capi_ipam_controller::namespaced_name::NamespacedName;

use crate::model::finding::counted;
use crate::objects::{AddressRow, ClaimRow};

/// Number of objects that a finding names.
pub(super) const MAX_NAMED: usize = 3;

pub(super) fn of_address(address: &AddressRow) -> String {
    format!("ipaddress {}", address.key)
}

pub(super) fn of_claim(claim: &ClaimRow) -> String {
    format!("ipaddressclaim {}", claim.key)
}

/// The first names, and the number of the others: `a/x, a/y, a/z and 5 more`.
pub(super) fn first_names<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let mut names = Vec::new();
    let mut more: usize = 0;
    for name in all {
        if names.len() < MAX_NAMED {
            names.push(name.to_string());
        } else {
            more = more.saturating_add(1);
        }
    }
    let names = names.join(", ");
    if more > 0 {
        format!("{names} and {more} more")
    } else {
        names
    }
}

/// The number of claims that wait, with the first names: `2 claims wait (a/x, a/y)`.
pub(super) fn claims_wait<'a>(claims: impl IntoIterator<Item = &'a ClaimRow>) -> String {
    let keys: Vec<&NamespacedName> = claims.into_iter().map(|claim| &claim.key).collect();
    let verb = if keys.len() == 1 { "waits" } else { "wait" };
    format!(
        "{} {verb} ({})",
        counted(keys.len(), "claim"),
        first_names(&keys)
    )
}

/// The command that shows an object.
pub(super) fn describe(plural: &str, key: &NamespacedName) -> String {
    let (namespace, name) = key.parts();
    format!(
        "kubectl describe {plural}.{} {name} --namespace {namespace}",
        names::GROUP
    )
}
