//! What `kubectl get` shows of our kinds.

use serde_json::{json, Value};

use crate::api::InClusterKind;

/// Of pools of single addresses.
pub(super) fn addresses() -> Value {
    let own = column("Addresses", "string", ".spec.addresses", "Addresses that claims are served from.");
    Value::Array(
        [own].into_iter().chain(counts("Addresses")).chain([ready()]).chain(more_counts("Addresses")).collect(),
    )
}

/// Of pools of prefixes.
pub(super) fn prefixes() -> Value {
    let own = column("Prefixes", "string", ".spec.prefixes", "Prefixes that smaller ones are carved from.");
    Value::Array([own].into_iter().chain(counts("Prefixes")).chain([ready()]).chain(more_counts("Prefixes")).collect())
}

/// Of pools of single addresses in `v1alpha1`: as the Go provider has them, also those that are always empty.
pub(super) fn old_addresses(kind: InClusterKind) -> Value {
    let own = [
        column("Subnet", "string", ".spec.subnet", "Network that claims are served from."),
        column("First", "string", ".spec.first", "Always empty; the first address is the field start."),
        column("Last", "string", ".spec.last", "Always empty; the last address is the field end."),
    ];
    let addresses = column("Addresses", "string", ".spec.addresses", "Addresses that claims are served from.");
    let addresses = (!kind.is_global()).then_some(addresses);
    Value::Array(own.into_iter().chain(addresses).chain(counts("Addresses")).collect())
}

/// Of reservations.
pub(super) fn reservations() -> Value {
    json!([
        column("Address", "string", ".spec.address", "The reserved address."),
        column("Pool", "string", ".spec.poolRef.name", "Pool that the address was taken from."),
        column("Namespace", "string", ".spec.claimRef.namespace", "Namespace of the claim that holds the address."),
        column("Claim", "string", ".spec.claimRef.name", "Claim that holds the address."),
        column("Released", "date", ".spec.releasedAt", "When the address was given back, while it rests."),
        column("Age", "date", ".metadata.creationTimestamp", "Time since the address was reserved."),
    ])
}

fn counts(what: &str) -> [Value; 3] {
    [
        count(what, "Total", "total", "that can be given to claims."),
        count(what, "Free", "free", "that can be allocated now."),
        count(what, "Used", "used", "in use."),
    ]
}

/// Together with the others they add up to the total.
fn more_counts(what: &str) -> [Value; 2] {
    [
        count(what, "Reserved", "reserved", "reserved by hand, being allocated, or in use by another pool."),
        count(what, "Cooling", "coolingDown", "released, and not reusable before their grace period ends."),
    ]
}

fn count(what: &str, name: &str, field: &str, rest: &str) -> Value {
    column(name, "integer", &format!(".status.ipAddresses.{field}"), &format!("{what} {rest}"))
}

fn ready() -> Value {
    column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", "Whether claims are served.")
}

fn column(name: &str, type_: &str, path: &str, description: &str) -> Value {
    json!({ "name": name, "type": type_, "jsonPath": path, "description": description })
}
