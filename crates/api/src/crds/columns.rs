//! The columns that `kubectl get` prints.

use serde_json::{Value, json};

use crate::InClusterKind;

/// Columns of pools of single addresses.
pub(super) fn addresses() -> Value {
    // The API server prints the first result only: that of the pool, or else that of its first
    // range.
    let path = ".spec..addresses.*";
    let text = "First entry of the addresses that can be allocated.";
    pools(column("Addresses", "string", path, text), "Addresses")
}

/// Columns of pools of prefixes.
pub(super) fn prefixes() -> Value {
    let path = ".spec..prefixes.*";
    let text = "First prefix from which smaller prefixes are allocated.";
    pools(column("Prefixes", "string", path, text), "Prefixes")
}

/// The columns of the Go provider, then the counts that add up to the total with free and used. The
/// last one is what a reader looks for first.
fn pools(entries: Value, what: &str) -> Value {
    let mut columns = vec![entries];
    columns.extend(counts(what));
    columns.extend(remaining_counts(what));
    columns.push(ready());
    Value::Array(columns)
}

/// Columns of pools of single addresses in `v1alpha1`: those of the Go provider, including columns
/// that are always empty.
pub(super) fn old_addresses(kind: InClusterKind) -> Value {
    let own = [
        column(
            "Subnet",
            "string",
            ".spec.subnet",
            "Network whose addresses can be allocated.",
        ),
        column(
            "First",
            "string",
            ".spec.first",
            "Always empty; see spec.start.",
        ),
        column(
            "Last",
            "string",
            ".spec.last",
            "Always empty; see spec.end.",
        ),
    ];
    let addresses = column(
        "Addresses",
        "string",
        ".spec.addresses",
        "Addresses that can be allocated.",
    );
    let addresses = (!kind.is_global()).then_some(addresses);
    Value::Array(
        own.into_iter()
            .chain(addresses)
            .chain(counts("Addresses"))
            .collect(),
    )
}

/// Columns of networks.
pub(super) fn networks() -> Value {
    summed("network")
}

/// Columns of sets of pools.
pub(super) fn pool_sets() -> Value {
    summed("set")
}

/// Columns of what has several pools.
fn summed(what: &str) -> Value {
    let number = |name: &str, field: &str, text: &str| {
        column(name, "integer", &format!(".status.{field}"), text)
    };
    json!([
        number("Pools", "pools", &format!("Pools of the {what}.")),
        number(
            "Total",
            "total",
            "Addresses that the pools can allocate, in use or not."
        ),
        number("Free", "free", "Addresses that can be allocated now."),
        number("Used", "used", "Addresses in use."),
        column(
            "Ready",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].status",
            &format!("Whether the {what} is valid.")
        ),
    ])
}

/// Columns of registries.
pub(super) fn registries() -> Value {
    json!([
        // Of the status or the specification: if both have it, it is the same.
        column(
            "Cluster",
            "string",
            ".*.clusterID",
            "Identity of this management cluster."
        ),
        ready(),
        column(
            "Age",
            "date",
            ".metadata.creationTimestamp",
            "Time since the registry was created."
        ),
    ])
}

/// Columns of reservations. A reservation that a claim holds has the UID of the claim, one that is
/// promised to the next claim of a name has only the name, and one that excludes its address has no
/// claim.
pub(super) fn reservations() -> Value {
    // An excluded address has no claim, but a pool.
    let namespace = ".spec['claimRef','poolRef'].namespace";
    json!([
        column(
            "Address",
            "string",
            ".spec.address",
            "The reserved address."
        ),
        column(
            "Pool",
            "string",
            ".spec.poolRef.name",
            "Pool of the address."
        ),
        column(
            "Namespace",
            "string",
            namespace,
            "Namespace of the claim, or without a claim that of the pool."
        ),
        column(
            "Claim",
            "string",
            ".spec.claimRef.name",
            "Claim that gets the address. Empty if the address is excluded from allocation."
        ),
        column(
            "Released",
            "date",
            ".spec.releasedAt",
            "Time since the address was released."
        ),
        column(
            "Age",
            "date",
            ".metadata.creationTimestamp",
            "Time since the address was reserved."
        ),
        column(
            "UID",
            "string",
            ".spec.claimRef.uid",
            "UID of the claim that holds the address, or held it before the release. Empty if the address is promised to \
             the next claim of the name."
        ),
    ])
}

/// Columns of the records of a registry.
pub(super) fn blocks() -> Value {
    json!([
        column(
            "Network",
            "string",
            ".spec.block.network",
            "Network of the block."
        ),
        column(
            "Block",
            "string",
            ".spec.block.block",
            "Addresses of the block."
        ),
        column(
            "Cluster",
            "string",
            ".spec.block.cluster",
            "Cluster that holds the block."
        ),
        column(
            "Returned",
            "date",
            ".spec.block.returnedAt",
            "Time at which the cluster returned the block."
        ),
        column(
            "Seen",
            "date",
            ".spec.cluster.seen",
            "Time at which the cluster wrote its record."
        ),
        column(
            "Age",
            "date",
            ".metadata.creationTimestamp",
            "Time since the creation of the record."
        ),
    ])
}

/// Columns of slices.
pub(super) fn slices() -> Value {
    json!([
        column("Block", "string", ".spec.block", "Addresses of the slice."),
        column("Owner", "string", ".spec.owner.kind", "Kind of the owner."),
        column(
            "Namespace",
            "string",
            ".spec.owner.namespace",
            "Namespace of the owner."
        ),
        column("Name", "string", ".spec.owner.name", "Name of the owner."),
        column(
            "Empty",
            "date",
            ".spec.emptySince",
            "Time since which no address of the slice is in use."
        ),
        column(
            "Age",
            "date",
            ".metadata.creationTimestamp",
            "Time since the slice was assigned."
        ),
    ])
}

/// Columns of the addresses of Clusters.
pub(super) fn cluster_addressings() -> Value {
    json!([
        column(
            "Clusters",
            "integer",
            ".status.clusters",
            "Number of selected Clusters."
        ),
        column(
            "With addresses",
            "integer",
            ".status.ready",
            "Number of selected Clusters that have their addresses."
        ),
        column(
            "Ready",
            "string",
            ".status.conditions[?(@.type==\"Ready\")].status",
            "Whether all selected Clusters have their addresses."
        ),
        column(
            "Age",
            "date",
            ".metadata.creationTimestamp",
            "Time since the creation of the object."
        ),
    ])
}

fn counts(what: &str) -> [Value; 3] {
    [
        count(
            what,
            "Total",
            "total",
            "that the pool can allocate, in use or not.",
        ),
        count(what, "Free", "free", "that can be allocated now."),
        count(what, "Used", "used", "in use."),
    ]
}

/// The counts that, with free and used, add up to the total.
fn remaining_counts(what: &str) -> [Value; 3] {
    [
        count(
            what,
            "Reserved",
            "reserved",
            "reserved by a user, being allocated, or in use by another pool.",
        ),
        count(
            what,
            "Cooling",
            "coolingDown",
            "released, and not reusable before the grace period ends.",
        ),
        count(
            what,
            "Drained",
            "drained",
            "of draining parts that are not in use.",
        ),
    ]
}

fn count(what: &str, name: &str, field: &str, rest: &str) -> Value {
    column(
        name,
        "integer",
        &format!(".status.ipAddresses.{field}"),
        &format!("{what} {rest}"),
    )
}

fn ready() -> Value {
    column(
        "Ready",
        "string",
        ".status.conditions[?(@.type==\"Ready\")].status",
        "Whether the pool serves claims.",
    )
}

fn column(name: &str, type_: &str, path: &str, description: &str) -> Value {
    json!({ "name": name, "type": type_, "jsonPath": path, "description": description })
}
