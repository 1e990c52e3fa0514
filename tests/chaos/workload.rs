//! Creates, releases and recreates claims during faults, and asserts the final state.

use std::collections::HashMap;

use capi_ipam_api::IPReservation;
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_provider::api::IPAddress;
use futures::StreamExt as _;
use kube::Resource;
use support::prelude::*;

/// The maximum time until the state is correct after the last fault.
const TIMEOUT: Duration = Duration::from_mins(3);
/// How long no write may happen in the final state.
const QUIET: Duration = Duration::from_secs(2);

/// Repeats a call until it succeeds.
pub(crate) async fn retry<T>(what: &str, mut call: impl AsyncFnMut() -> Result<T, CallError>) -> T {
    let patience = Patience::new(TIMEOUT);
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(!patience.is_over(), "{what}: {}", error_chain(&error)),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Creates a claim, and retries until it succeeds.
pub(crate) async fn create(consumer: &Consumer, name: &str, pool: &str) {
    create_with(consumer, name, InClusterKind::IPPool, pool, &json!({})).await;
}

/// Creates a claim for a pool of a kind with more metadata, and retries until it succeeds.
pub(crate) async fn create_with(
    consumer: &Consumer,
    name: &str,
    kind: InClusterKind,
    pool: &str,
    metadata: &Value,
) {
    retry("a claim is created", async || {
        match consumer
            .try_create_claim(name, kind.name(), pool, metadata.clone())
            .await
        {
            // A previous attempt whose response was lost.
            Err(error) if error.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    })
    .await;
}

/// Creates claims, 16 at a time, and retries until it succeeds.
pub(crate) async fn create_all(consumer: &Consumer, names: &[String], pool: &str) {
    futures::stream::iter(names)
        .for_each_concurrent(16, |name| create(consumer, name, pool))
        .await;
}

/// Deletes a claim and does not wait, and retries until it succeeds. Returns the uid of the claim,
/// if it existed.
pub(crate) async fn begin_deletion(consumer: &Consumer, name: &str) -> Option<String> {
    let claims = consumer.claims();
    let uid = retry("a claim is read", async || claims.get(name).await)
        .await?
        .uid()?;
    retry("a claim is deleted", async || {
        claims.delete(name, &uid).await.map(drop)
    })
    .await;
    Some(uid)
}

/// Deletes a claim and waits until it does not exist, and retries until it succeeds.
pub(crate) async fn delete(consumer: &Consumer, name: &str) {
    let claims = consumer.claims();
    let Some(uid) = begin_deletion(consumer, name).await else {
        return;
    };
    until_within(TIMEOUT, &format!("claim {name} is gone"), || async {
        let found = retry("a claim is read", async || claims.get(name).await).await;
        Some(found.is_none_or(|found| found.uid().as_ref() != Some(&uid)))
    })
    .await;
}

/// Waits until a claim is bound.
async fn wait_until_bound(consumer: &Consumer, name: &str) {
    eventually_within(TIMEOUT, &format!("claim {name} is bound"), || async {
        consumer
            .claims()
            .get(name)
            .await
            .ok()
            .flatten()?
            .bound_address()
            .map(drop)
    })
    .await;
}

/// Creates claims. A third of them is released when it is bound, another third immediately, and
/// both are recreated. In the end all claims exist.
pub(crate) async fn churn(consumer: &Consumer, names: &[String], pool: &str) {
    let one = |(number, name): (usize, &String)| {
        let name = name.clone();
        async move {
            create(consumer, &name, pool).await;
            match number % 3 {
                0 => return,
                1 => wait_until_bound(consumer, &name).await,
                _ => {}
            }
            delete(consumer, &name).await;
            create(consumer, &name, pool).await;
        }
    };
    let all = futures::stream::iter(names.iter().enumerate().map(one).collect::<Vec<_>>());
    all.for_each_concurrent(16, |claim| claim).await;
}

/// The objects of a namespace.
struct Snapshot {
    claims: Vec<IPAddressClaim>,
    addresses: Vec<IPAddress>,
    reservations: Vec<IPReservation>,
}

impl Snapshot {
    async fn read(consumer: &Consumer) -> Option<Self> {
        let mut reservations = consumer.reservations().list().await.ok()?;
        reservations.retain(|reservation| is_for_namespace(reservation, &consumer.namespace));
        let claims = consumer.claims().list().await.ok()?;
        Some(Self {
            claims,
            addresses: consumer.addresses().list().await.ok()?,
            reservations,
        })
    }

    /// The first violation of the expected state.
    fn violation(&self, names: &[String]) -> Option<String> {
        let expected: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let claims: HashMap<String, &IPAddressClaim> = self
            .claims
            .iter()
            .map(|claim| (claim.name_any(), claim))
            .collect();
        let unbound = expected.iter().filter(|name| {
            claims
                .get(**name)
                .is_none_or(|claim| claim.bound_address() != Some(**name) || claim.uid().is_none())
        });
        let unbound = unbound.count();
        if unbound > 0 || claims.len() != expected.len() {
            return Some(format!(
                "{} claims instead of {}, {unbound} unbound",
                claims.len(),
                expected.len()
            ));
        }
        let uid_of = |name: &str| claims.get(name).and_then(|claim| claim.uid());
        let mut by_address: BTreeMap<&str, String> = BTreeMap::new();
        for address in &self.addresses {
            let (name, value) = (address.name_any(), address.spec.address.as_str());
            let owned = address
                .owner_references()
                .iter()
                .any(|owner| Some(&owner.uid) == uid_of(&name).as_ref());
            if !owned {
                return Some(format!("IPAddress {name} with {value} belongs to no claim"));
            }
            if let Some(other) = by_address.insert(value, name.clone()) {
                return Some(format!("{name} and {other} both have {value}"));
            }
        }
        if by_address.len() != expected.len() {
            return Some(format!(
                "{} addresses instead of {}",
                by_address.len(),
                expected.len()
            ));
        }
        for reservation in &self.reservations {
            let holder = reservation.spec.claim_ref.as_ref();
            let right = holder.is_some_and(|holder| {
                holder.uid == uid_of(&holder.name)
                    && by_address.get(reservation.spec.address.as_str()) == Some(&holder.name)
            });
            if !right {
                return Some(format!(
                    "{} is reserved for {holder:?}",
                    reservation.spec.address
                ));
            }
        }
        let count = self.reservations.len();
        (count != expected.len())
            .then(|| format!("{count} reservations instead of {}", expected.len()))
    }

    /// All objects with their resource versions.
    fn versions(&self) -> BTreeSet<(String, String)> {
        fn versions<K: Resource>(objects: &[K]) -> impl Iterator<Item = (String, String)> {
            objects.iter().map(|object| {
                (
                    object.name_any(),
                    object.resource_version().unwrap_or_default(),
                )
            })
        }
        versions(&self.claims)
            .chain(versions(&self.addresses))
            .chain(versions(&self.reservations))
            .collect()
    }
}

/// Whether an address is reserved for a claim of a namespace.
fn is_for_namespace(reservation: &IPReservation, namespace: &str) -> bool {
    reservation
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|claim| claim.namespace == namespace)
}

/// Waits until exactly these claims exist in the namespace, bound to unique addresses, and no other
/// objects; and then until nothing is written for a while. Returns how long the first took.
pub(crate) async fn wait_until_settled(consumer: &Consumer, names: &[String]) -> Duration {
    let (started, patience) = (Instant::now(), Patience::new(TIMEOUT));
    loop {
        let seen = Snapshot::read(consumer).await;
        let wrong = match &seen {
            Some(seen) => seen.violation(names),
            None => Some("the API server does not respond".to_owned()),
        };
        let Some(wrong) = wrong else { break };
        assert!(
            !patience.is_over(),
            "still wrong after {TIMEOUT:?}: {wrong}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = started.elapsed();
    // Time for events and the watch events of the last writes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let patience = Patience::new(TIMEOUT);
    let mut before = Snapshot::read(consumer).await.map(|seen| seen.versions());
    loop {
        tokio::time::sleep(QUIET).await;
        let seen = Snapshot::read(consumer).await;
        assert_eq!(seen.as_ref().and_then(|seen| seen.violation(names)), None);
        let after = seen.map(|seen| seen.versions());
        if after.is_some() && after == before {
            return took;
        }
        assert!(
            !patience.is_over(),
            "objects are still written in the final state"
        );
        before = after;
    }
}
