//! Names of objects in findings.

use std::collections::BTreeMap;

use capi_ipam_api::{PoolKey, counted, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use jiff::Timestamp;

use super::snapshot::Snapshot;
use crate::first_names;
use crate::model::finding::{Place, Subject};
use crate::objects::{AddressRow, ClaimRow, NetworkRow, Objects, PoolRow};

/// Number of objects that a finding names.
pub(super) const MAX_NAMED: usize = 3;

pub(super) fn of_address(address: &AddressRow) -> Subject {
    Subject::from(format!("ipaddress {}", address.key))
        .in_namespace(address.key.namespace())
        .of_pool(&address.pool)
}

pub(super) fn of_claim(claim: &ClaimRow, objects: &Objects) -> Subject {
    with_claim(Subject::claim(&claim.key), claim, objects)
}

/// An object for which claims wait, or that they name.
pub(super) fn of_claims(name: String, claims: &[&ClaimRow], objects: &Objects) -> Subject {
    let mut subject = Subject::from(name);
    for claim in claims {
        subject = with_claim(subject, claim, objects);
    }
    subject
}

/// The subject, which is about a claim too.
fn with_claim(subject: Subject, claim: &ClaimRow, objects: &Objects) -> Subject {
    let subject = subject.in_namespace(claim.key.namespace());
    let pool = objects.pool_of(claim);
    pool.into_iter().fold(subject, Subject::of_pool)
}

/// A network with its registry, whose problem can be the cause.
pub(super) fn of_network(network: &NetworkRow) -> Subject {
    let name = &network.name;
    let subject = Subject::from(format!("IPNetwork {name}")).of_network(name);
    match network.registry() {
        Some(registry) => subject.of_registry(registry),
        None => subject,
    }
}

/// The first names, and the number of the others.
pub(super) fn first_names<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    first_names::first_names(all, MAX_NAMED)
}

/// The first names of claims.
pub(super) fn claim_names(claims: &[&ClaimRow]) -> String {
    first_names(claims.iter().map(|claim| &claim.key))
}

/// The number of claims that wait, with the first names: `2 claims wait (a/x, a/y)`.
pub(super) fn claims_wait(claims: &[&ClaimRow]) -> String {
    let count = counted(claims.len(), "claim waits", "claims wait");
    format!("{count} ({})", claim_names(claims))
}

/// Since when the oldest of some claims waits.
pub(super) fn oldest(claims: &[&ClaimRow]) -> Option<Timestamp> {
    claims.iter().filter_map(|claim| claim.created).min()
}

/// Objects with the same key, by key.
pub(crate) fn grouped<K: Ord, T>(
    all: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> BTreeMap<K, Vec<T>> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    for one in all {
        groups.entry(key(&one)).or_default().push(one);
    }
    groups
}

/// An object of Cluster API as an argument of kubectl: plural, name and namespace.
pub(super) fn resource(plural: &str, key: &NamespacedName) -> String {
    let (namespace, name) = key.parts();
    format!("{plural}.{} {name} --namespace {namespace}", names::GROUP)
}

/// A claim as an argument of kubectl.
pub(super) fn claim_resource(key: &NamespacedName) -> String {
    resource("ipaddressclaims", key)
}

/// The command that shows a claim.
pub(super) fn describe_claim(claim: &ClaimRow) -> String {
    format!("kubectl describe {}", claim_resource(&claim.key))
}

/// The network to which a pool belongs, or which it names.
pub(super) fn network_of(pool: &PoolRow) -> Option<&str> {
    pool.network.as_deref().or_else(|| pool.spec.network())
}

/// A pool, its network, and the registry of the network.
pub(super) fn places(pool: &PoolKey, snapshot: &Snapshot) -> Vec<Place> {
    let mut places = vec![Place::Pool(pool.clone())];
    let objects = &snapshot.objects;
    if let Some(name) = objects.pool(pool).and_then(network_of) {
        places.push(Place::Network(name.to_owned()));
        let registry = objects.network(name).and_then(NetworkRow::registry);
        places.extend(registry.map(|name| Place::Registry(name.to_owned())));
    }
    places
}
