//! Stress test of the sweeper: it sweeps continuously while objects are delayed, deleted, damaged
//! and recreated. A monitor asserts that no address in use is freed.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use capi_ipam_provider::api::IPAddress;
use support::prelude::*;

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];
const DURATION: Duration = Duration::from_secs(40);
/// How long a bound claim may lack a manually deleted reservation, while the API server responds.
const MAX_REPAIR_TIME: Duration = Duration::from_secs(30);
/// How long a manager may take to start before the other one is killed all the same.
const MAX_START_TIME: Duration = Duration::from_secs(30);
const CLAIMS: usize = 10;
/// A finalizer of the user of the address.
const IN_USE: &str = "example.com/in-use";

/// Repeats a call until it succeeds, since the API server restarts. The delay leaves the processor
/// to the programs under test.
async fn try_for_long<T, F: Future<Output = Option<T>>>(mut call: impl FnMut() -> F) -> Option<T> {
    let patience = Patience::new(Duration::from_mins(2));
    loop {
        if let Some(answer) = call().await {
            return Some(answer);
        }
        if patience.is_over() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn retry<T, F: Future<Output = Option<T>>>(what: &str, call: impl FnMut() -> F) -> T {
    try_for_long(call)
        .await
        .unwrap_or_else(|| panic!("does not succeed: {what}"))
}

async fn create(consumer: &Consumer, name: &str) -> IPAddressClaim {
    retry("a claim is created", || async {
        let _ = consumer
            .try_create_claim(name, "InClusterIPPool", "web", json!({}))
            .await;
        consumer
            .claims()
            .get(name)
            .await
            .ok()
            .flatten()
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
    })
    .await
}

/// Waits until the claim is bound and has IPAddress and reservation.
async fn wait_until_complete(consumer: &Consumer, claim: &IPAddressClaim) -> IPAddress {
    let (name, uid) = (claim.name_any(), claim.uid());
    let address = try_for_long(|| async {
        consumer
            .claims()
            .get(&name)
            .await
            .ok()?
            .filter(|found| found.uid() == uid)?
            .bound_address()?;
        let address = consumer.addresses().get(&name).await.ok()??;
        let ours = address
            .owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == uid.as_ref());
        let reserved = format!("p.{}.web.{}", consumer.namespace, address.spec.address);
        let holder = consumer
            .reservations()
            .get(&reserved)
            .await
            .ok()??
            .spec
            .claim_ref?;
        (ours && holder.uid == uid && address.metadata.deletion_timestamp.is_none())
            .then_some(address)
    })
    .await;
    if let Some(address) = address {
        return address;
    }
    let found = (
        consumer.claims().get(&name).await,
        consumer.addresses().get(&name).await,
    );
    let reserved = consumer.reservations().list().await;
    panic!(
        "claim {name} of {uid:?} does not become complete: IPAddress {found:?}, reservation {reserved:?}"
    )
}

/// Deletes a claim and waits until it does not exist.
async fn delete(consumer: &Consumer, claim: &IPAddressClaim) {
    let (name, uid) = (claim.name_any(), claim.uid().unwrap_or_default());
    retry(&format!("claim {name} is deleted"), || async {
        match consumer.claims().delete(&name, &uid).await {
            Err(error) if !error.is_conflict() => None,
            _ => Some(()),
        }
    })
    .await;
    retry(&format!("claim {name} is gone"), || async {
        let found = consumer.claims().get(&name).await.ok()?;
        found
            .is_none_or(|found| found.uid().as_ref() != Some(&uid))
            .then_some(())
    })
    .await;
}

async fn set_finalizers<K>(
    calls: &capi_ipam_controller::client::ResourceClient<K>,
    name: &str,
    finalizers: &serde_json::Value,
) where
    K: capi_ipam_controller::client::ApiObject,
{
    let patch = json!([{"op": "add", "path": "/metadata/finalizers", "value": finalizers}]);
    retry("finalizers are set", || async {
        let patch = serde_json::from_value(patch.clone())
            .expect("the test writes patches as they should be");
        match calls.patch(name, patch).await {
            Err(error) if !error.is_not_found() && !error.is_invalid() => None,
            _ => Some(()),
        }
    })
    .await;
}

/// State shared between the consumers and the monitor.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    lives: AtomicU32,
    /// The uids of claims whose reservation was deleted manually.
    unreserved: Mutex<HashSet<String>>,
}

impl Shared {
    fn unreserved(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unreserved.lock().expect("the lock is not poisoned")
    }
}

/// Ends the disturbance when the test ends, also with a failure.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Creates one claim after the other with one name; each is damaged while it is bound.
async fn live(consumer: &Consumer, name: &str, shared: &Shared) {
    while !shared.over.load(Ordering::Relaxed) {
        let claim = create(consumer, name).await;
        let (addresses, reservations) = (consumer.addresses(), consumer.reservations());
        if rand::random_ratio(1, 4) {
            // Immediately, during the binding.
            delete(consumer, &claim).await;
            continue;
        }
        let address = wait_until_complete(consumer, &claim).await;
        let reserved = format!("p.{}.web.{}", consumer.namespace, address.spec.address);
        match rand::random_range(0..4) {
            0 => {
                let _ = addresses
                    .delete(name, &address.uid().unwrap_or_default())
                    .await;
                set_finalizers(&addresses, name, &json!([])).await;
            }
            1 => {
                shared.unreserved().extend(claim.uid());
                if let Ok(Some(found)) = reservations.get(&reserved).await {
                    let _ = reservations
                        .delete(&reserved, &found.uid().unwrap_or_default())
                        .await;
                }
            }
            2 => {
                // Deleted, and in use until its machine is deleted.
                let both = json!(["ipam.cluster.x-k8s.io/ReleaseAddress", IN_USE]);
                set_finalizers(&consumer.claims(), name, &both).await;
                let _ = consumer
                    .claims()
                    .delete(name, &claim.uid().unwrap_or_default())
                    .await;
                tokio::time::sleep(Duration::from_millis(rand::random_range(500..4000))).await;
                set_finalizers(
                    &consumer.claims(),
                    name,
                    &json!(["ipam.cluster.x-k8s.io/ReleaseAddress"]),
                )
                .await;
            }
            _ => {
                let same = wait_until_complete(consumer, &claim).await;
                assert_eq!(same.spec, address.spec, "claim {name} has another address");
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..3000))).await;
            }
        }
        delete(consumer, &claim).await;
        shared.lives.fetch_add(1, Ordering::Relaxed);
    }
    let claim = create(consumer, name).await;
    wait_until_complete(consumer, &claim).await;
}

/// The observed state of claims that are bound and in use, by uid.
#[derive(Default)]
struct Monitor {
    /// The address of each claim.
    had: HashMap<String, String>,
    /// Since when a reservation is missing while the API server responds.
    missing: HashMap<String, Instant>,
    looks: usize,
    /// How often the API server did not respond.
    blind: usize,
    longest: Duration,
}

impl Monitor {
    /// Reads all objects; claims both before and after, so that a condition that holds in both held
    /// in between.
    async fn check(&mut self, consumer: &Consumer, shared: &Shared) -> Option<()> {
        let bound = async || {
            let claims = consumer.claims().list().await.ok()?;
            let held = |claim: &IPAddressClaim| {
                claim
                    .finalizers()
                    .iter()
                    .any(|finalizer| finalizer == IN_USE)
            };
            let stays =
                |claim: &IPAddressClaim| claim.metadata.deletion_timestamp.is_none() || held(claim);
            let bound = claims
                .into_iter()
                .filter(|claim| claim.bound_address().is_some() && stays(claim));
            Some(
                bound
                    .map(|claim| (claim.uid().unwrap_or_default(), claim.name_any()))
                    .collect::<BTreeMap<_, _>>(),
            )
        };
        let before = bound().await?;
        let addresses = consumer.addresses().list().await.ok()?;
        let reservations = consumer.reservations().list().await.ok()?;
        let after = bound().await?;
        let all: BTreeMap<_, _> = before
            .into_iter()
            .filter(|(uid, _)| after.contains_key(uid))
            .collect();
        for address in &addresses {
            let owner = address
                .owner_references()
                .iter()
                .find(|owner| all.contains_key(&owner.uid));
            let Some(uid) = owner.map(|owner| owner.uid.clone()) else {
                continue;
            };
            let known = self
                .had
                .entry(uid.clone())
                .or_insert_with(|| address.spec.address.clone());
            assert_eq!(
                *known, address.spec.address,
                "claim {} of {uid} has another address",
                all[&uid]
            );
        }
        let mut holders: HashMap<&String, &String> = HashMap::new();
        for uid in all.keys() {
            let Some(address) = self.had.get(uid) else {
                continue;
            };
            if let Some(other) = holders.insert(address, uid) {
                panic!(
                    "{address} belongs to both {} ({uid}) and {} ({other})",
                    all[uid], all[other]
                );
            }
            let held_by = |reservation: &&capi_ipam_api::IPReservation| {
                reservation.spec.address == *address
                    && reservation
                        .spec
                        .claim_ref
                        .as_ref()
                        .and_then(|claim| claim.uid.as_ref())
                        == Some(uid)
            };
            if reservations.iter().any(|reservation| held_by(&reservation)) {
                self.missing.remove(uid);
            } else {
                assert!(
                    shared.unreserved().contains(uid),
                    "the reservation of {address} of {} was freed",
                    all[uid]
                );
                let missing = self
                    .missing
                    .entry(uid.clone())
                    .or_insert_with(Instant::now)
                    .elapsed();
                self.longest = self.longest.max(missing);
                assert!(
                    missing < MAX_REPAIR_TIME,
                    "{address} of {} is not reserved for {missing:?}",
                    all[uid]
                );
            }
        }
        self.missing.retain(|uid, _| all.contains_key(uid));
        self.looks += 1;
        Some(())
    }
}

/// Kills managers, and sometimes the API server; in the end one manager runs.
fn disturb(mut control_plane: ControlPlane, over: &AtomicBool) -> (ControlPlane, Manager) {
    let start = |control_plane: &ControlPlane| {
        // The API server does not know all roles immediately after its start.
        Manager::launch(control_plane, control_plane.provider_kubeconfig(), &FLAGS)
            .may_lack_permissions()
    };
    // Two at once, without leader election.
    let mut managers = vec![start(&control_plane), start(&control_plane)];
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(rand::random_range(1000..4000)));
        round += 1;
        // On a loaded machine each would be killed while it starts, and nothing would be repaired.
        let patience = Patience::new(MAX_START_TIME);
        while managers.last().is_some_and(|newest| !newest.is_ready()) && !patience.is_over() {
            std::thread::sleep(Duration::from_millis(50));
        }
        if round % 5 == 0 {
            control_plane.stop_api_server();
            control_plane.start_api_server();
        } else {
            managers.remove(0).kill();
            managers.push(start(&control_plane));
        }
    }
    let last = managers.pop().expect("there are two");
    (control_plane, last)
}

/// Whether the addresses of enough claims were checked often enough.
fn has_seen_enough(onlooker: &Monitor, shared: &Shared) -> bool {
    onlooker.looks > 20 && shared.lives.load(Ordering::Relaxed) > 10
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_in_use_are_never_freed() {
    let (control_plane, consumer) = scene().await;
    // Few more addresses than claims: a freed address is allocated again immediately.
    consumer.create_pool("web", "10.0.0.1-10.0.0.12").await;
    let shared = Arc::new(Shared::default());
    let _ends = Ends(Arc::clone(&shared));
    let disturbed = tokio::task::spawn_blocking({
        let shared = Arc::clone(&shared);
        move || disturb(control_plane, &shared.over)
    });
    let mut onlooker = Monitor::default();
    let watched = async {
        let (begin, patience) = (Instant::now(), Patience::new(DURATION));
        // On a loaded machine the claims live longer.
        while begin.elapsed() < DURATION
            || !(has_seen_enough(&onlooker, &shared) || patience.is_over())
        {
            if onlooker.check(&consumer, &shared).await.is_none() {
                onlooker.blind += 1;
                onlooker.missing.clear();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        shared.over.store(true, Ordering::Relaxed);
    };
    let names: Vec<String> = numbered("c", CLAIMS);
    let claims = futures::future::join_all(names.iter().map(|name| live(&consumer, name, &shared)));
    let (_, (), disturbed) = tokio::join!(claims, watched, disturbed);
    let (_control_plane, _manager) = disturbed.expect("managers can be killed");
    println!(
        "{} claims bound; checked {} times, {} checks failed; longest time without a reservation {:?}",
        shared.lives.load(Ordering::Relaxed),
        onlooker.looks,
        onlooker.blind,
        onlooker.longest
    );
    assert!(has_seen_enough(&onlooker, &shared));
    let held: Vec<(String, String)> = eventually("no object is left over", || async {
        let given = consumer.allocated_addresses().await;
        let reserved = consumer.reservations().list().await.ok()?;
        (given.len() == CLAIMS && reserved.len() == CLAIMS).then(|| given.into_iter().collect())
    })
    .await;
    assert_eq!(held.len(), CLAIMS);
    consumer.wait_for_counts("web", (12, 2, 10, 0)).await;
}
