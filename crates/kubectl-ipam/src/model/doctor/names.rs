//! Names of objects in findings.

use capi_ipam_api::{PoolKey, names};
use capi_ipam_controller::namespaced_name::NamespacedName;

use super::snapshot::Snapshot;
use crate::model::finding::{Place, Subject, counted};
use crate::objects::{AddressRow, ClaimRow, NetworkRow};

/// Number of objects that a finding names.
pub(super) const MAX_NAMED: usize = 3;

pub(super) fn of_address(address: &AddressRow) -> Subject {
    let place = Place::Namespace(address.key.namespace().to_owned());
    Subject::from(format!("ipaddress {}", address.key))
        .at(place)
        .of_pool(&address.pool)
}

pub(super) fn of_claim(claim: &ClaimRow) -> Subject {
    Subject::of_claim(&claim.key).of_pool(&claim.pool)
}

/// An object for which claims wait, or that they name.
pub(super) fn of_claims<'a>(
    name: String,
    claims: impl IntoIterator<Item = &'a ClaimRow>,
) -> Subject {
    claims
        .into_iter()
        .fold(Subject::from(name), |subject, claim| {
            let place = Place::Namespace(claim.key.namespace().to_owned());
            subject.at(place).of_pool(&claim.pool)
        })
}

/// A network with its registry, whose problem can be the cause.
pub(super) fn of_network(network: &NetworkRow) -> Subject {
    let subject = Subject::of_network(&network.name);
    match network.registry() {
        Some(registry) => subject.at(Place::Registry(registry.to_owned())),
        None => subject,
    }
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

/// A pool, its network, and the registry of the network.
pub(super) fn places(pool: &PoolKey, snapshot: &Snapshot) -> Vec<Place> {
    let mut places = vec![Place::Pool(pool.clone())];
    let objects = &snapshot.objects;
    let row = objects.pool(pool);
    let network = row.and_then(|row| row.network.as_deref().or_else(|| row.spec.network()));
    let Some(name) = network else {
        return places;
    };
    places.push(Place::Network(name.to_owned()));
    if let Some(registry) = objects.network(name).and_then(NetworkRow::registry) {
        places.push(Place::Registry(registry.to_owned()));
    }
    places
}
