//! Claims that are made, released and made again while nothing can be relied on, and what has to hold in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use capi_ipam::api::IPReservation;
use capi_ipam::support::consumer::{Consumer, eventually_within};
use capi_ipam_controller::client::{CallError, chain};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use futures::StreamExt as _;
use kube::{Resource, ResourceExt};

/// How long everything may take to come right after the last fault.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long nothing may be written once all is right.
const QUIET: Duration = Duration::from_secs(2);

/// So many names of claims.
pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// ResourceClient again until the answer is no error.
async fn insist<T>(what: &str, mut call: impl AsyncFnMut() -> Result<T, CallError>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < deadline, "{what}: {}", chain(&error)),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Makes a claim, whatever happens meanwhile.
pub(crate) async fn make(consumer: &Consumer, name: &str, pool: &str) {
    insist("a claim is made", async || {
        match consumer.try_claim(name, "InClusterIPPool", pool, serde_json::json!({})).await {
            // An earlier attempt, whose answer was lost.
            Err(error) if error.is_already_exists() => Ok(()),
            made => made.map(drop),
        }
    })
    .await;
}

/// Makes claims, 16 at a time, whatever happens meanwhile.
pub(crate) async fn make_all(consumer: &Consumer, names: &[String], pool: &str) {
    futures::stream::iter(names).for_each_concurrent(16, |name| make(consumer, name, pool)).await;
}

/// Deletes a claim and waits until it is gone, whatever happens meanwhile.
pub(crate) async fn unmake(consumer: &Consumer, name: &str) {
    let claims = consumer.claims();
    let found = insist("a claim is read", async || claims.get(name).await).await;
    let Some(uid) = found.and_then(|claim| claim.uid()) else { return };
    insist("a claim is deleted", async || claims.delete(name, &uid).await.map(drop)).await;
    eventually_within(PATIENCE, &format!("claim {name} is gone"), || async {
        let found = insist("a claim is read", async || claims.get(name).await).await;
        found.is_none_or(|found| found.uid().as_ref() != Some(&uid)).then_some(())
    })
    .await;
}

/// Waits until a claim is bound, whatever happens meanwhile.
async fn bound(consumer: &Consumer, name: &str) {
    eventually_within(PATIENCE, &format!("claim {name} is bound"), || async {
        consumer.claims().get(name).await.ok().flatten()?.bound_address().map(drop)
    })
    .await;
}

/// Makes claims; a third of them is released once it is bound, and another third at once, and made again. In the end all
/// of them are there.
pub(crate) async fn churn(consumer: &Consumer, names: &[String], pool: &str) {
    let one = |(number, name): (usize, &String)| {
        let name = name.clone();
        async move {
            make(consumer, &name, pool).await;
            match number % 3 {
                0 => return,
                1 => bound(consumer, &name).await,
                _ => {}
            }
            unmake(consumer, &name).await;
            make(consumer, &name, pool).await;
        }
    };
    let all = futures::stream::iter(names.iter().enumerate().map(one).collect::<Vec<_>>());
    all.for_each_concurrent(16, |claim| claim).await;
}

/// What there is in a namespace and a pool of it.
struct Seen {
    claims: Vec<IPAddressClaim>,
    addresses: Vec<IPAddress>,
    reservations: Vec<IPReservation>,
}

impl Seen {
    async fn look(consumer: &Consumer, pool: &str) -> Option<Self> {
        let scope = format!("p.{}.{pool}", consumer.namespace);
        let mut reservations = consumer.reservations().list().await.ok()?;
        reservations.retain(|reservation| reservation.spec.scope == scope);
        let claims = consumer.claims().list().await.ok()?;
        Some(Self { claims, addresses: consumer.addresses().list().await.ok()?, reservations })
    }

    /// What is not as it should be yet.
    fn wrong(&self, names: &[String]) -> Option<String> {
        let expected: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let claims: HashMap<String, &IPAddressClaim> =
            self.claims.iter().map(|claim| (claim.name_any(), claim)).collect();
        let unbound = expected.iter().filter(|name| {
            claims.get(**name).is_none_or(|claim| claim.bound_address() != Some(**name) || claim.uid().is_none())
        });
        let unbound = unbound.count();
        if unbound > 0 || claims.len() != expected.len() {
            return Some(format!("{} claims instead of {}, {unbound} unbound", claims.len(), expected.len()));
        }
        let uid_of = |name: &str| claims.get(name).and_then(|claim| claim.uid());
        let mut by_address: BTreeMap<&str, String> = BTreeMap::new();
        for address in &self.addresses {
            let (name, value) = (address.name_any(), address.spec.address.as_str());
            let owned = address.owner_references().iter().any(|owner| Some(&owner.uid) == uid_of(&name).as_ref());
            if !owned {
                return Some(format!("IPAddress {name} with {value} belongs to no claim"));
            }
            if let Some(other) = by_address.insert(value, name.clone()) {
                return Some(format!("{name} and {other} both have {value}"));
            }
        }
        if by_address.len() != expected.len() {
            return Some(format!("{} addresses instead of {}", by_address.len(), expected.len()));
        }
        for reservation in &self.reservations {
            let holder = reservation.spec.claim_ref.as_ref();
            let right = holder.is_some_and(|holder| {
                holder.uid == uid_of(&holder.name)
                    && by_address.get(reservation.spec.address.as_str()) == Some(&holder.name)
            });
            if !right {
                return Some(format!("{} is reserved for {holder:?}", reservation.spec.address));
            }
        }
        let count = self.reservations.len();
        (count != expected.len()).then(|| format!("{count} reservations instead of {}", expected.len()))
    }

    /// Everything with its version.
    fn versions(&self) -> BTreeSet<(String, String)> {
        fn versions<K: Resource>(objects: &[K]) -> impl Iterator<Item = (String, String)> {
            objects.iter().map(|object| (object.name_any(), object.resource_version().unwrap_or_default()))
        }
        versions(&self.claims).chain(versions(&self.addresses)).chain(versions(&self.reservations)).collect()
    }
}

/// Waits until exactly these claims are there, bound, with addresses that nobody else has, and nothing else; and makes
/// sure that nothing is written then. Returns how long it took.
pub(crate) async fn settles(consumer: &Consumer, pool: &str, names: &[String]) -> Duration {
    let started = Instant::now();
    loop {
        let seen = Seen::look(consumer, pool).await;
        let wrong = match &seen {
            Some(seen) => seen.wrong(names),
            None => Some("the API server does not answer".to_owned()),
        };
        let Some(wrong) = wrong else { break };
        assert!(started.elapsed() < PATIENCE, "not right after {PATIENCE:?}: {wrong}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = started.elapsed();
    // Events and the echoes of the last writes.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = Seen::look(consumer, pool).await.expect("the API server answers").versions();
    tokio::time::sleep(QUIET).await;
    let after = Seen::look(consumer, pool).await.expect("the API server answers");
    assert_eq!(after.wrong(names), None);
    assert!(after.versions() == before, "something is written though all is right");
    took
}
