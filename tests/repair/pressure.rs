//! Tries hard to have the sweeper free what is in use: it sweeps all the time, and everything around it is late, gone,
//! damaged or made again. Somebody else looks on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use capi_ipam::support::consumer::{Consumer, eventually};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use kube::ResourceExt;
use serde_json::json;

const FLAGS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];
const DURATION: Duration = Duration::from_secs(40);
/// How long a bound claim may be without a reservation that was deleted by hand, while the API server answers.
const LONGEST_REPAIR: Duration = Duration::from_secs(20);
const CLAIMS: usize = 10;
/// A finalizer of whoever uses the address.
const IN_USE: &str = "example.com/in-use";

/// ResourceClient again until it works: the API server comes and goes. Slowly, so that the machine is left to those who are tested.
async fn try_for_long<T, F: Future<Output = Option<T>>>(mut call: impl FnMut() -> F) -> Option<T> {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(answer) = call().await {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn insist<T, F: Future<Output = Option<T>>>(what: &str, call: impl FnMut() -> F) -> T {
    try_for_long(call).await.unwrap_or_else(|| panic!("does not come to pass: {what}"))
}

async fn make(consumer: &Consumer, name: &str) -> IPAddressClaim {
    insist("a claim is made", || async {
        let _ = consumer.try_claim(name, "InClusterIPPool", "web", json!({})).await;
        consumer.claims().get(name).await.ok().flatten().filter(|claim| claim.metadata.deletion_timestamp.is_none())
    })
    .await
}

/// Waits until the claim is bound, and has IPAddress and reservation.
async fn whole(consumer: &Consumer, claim: &IPAddressClaim) -> IPAddress {
    let (name, uid) = (claim.name_any(), claim.uid());
    let address = try_for_long(|| async {
        consumer.claims().get(&name).await.ok()?.filter(|found| found.uid() == uid)?.bound_address()?;
        let address = consumer.addresses().get(&name).await.ok()??;
        let ours = address.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
        let reserved = format!("p.{}.web.{}", consumer.namespace, address.spec.address);
        let holder = consumer.reservations().get(&reserved).await.ok()??.spec.claim_ref?;
        (ours && holder.uid == uid && address.metadata.deletion_timestamp.is_none()).then_some(address)
    })
    .await;
    if let Some(address) = address {
        return address;
    }
    let found = (consumer.claims().get(&name).await, consumer.addresses().get(&name).await);
    let reserved = consumer.reservations().list().await;
    panic!("claim {name} of {uid:?} does not become whole; there is {found:?}, and reserved is {reserved:?}")
}

/// Deletes a claim and waits until it is gone.
async fn unmake(consumer: &Consumer, claim: &IPAddressClaim) {
    let (name, uid) = (claim.name_any(), claim.uid().unwrap_or_default());
    insist(&format!("claim {name} is deleted"), || async {
        match consumer.claims().delete(&name, &uid).await {
            Err(error) if !error.is_conflict() => None,
            _ => Some(()),
        }
    })
    .await;
    insist(&format!("claim {name} is gone"), || async {
        let found = consumer.claims().get(&name).await.ok()?;
        found.is_none_or(|found| found.uid().as_ref() != Some(&uid)).then_some(())
    })
    .await;
}

async fn set_finalizers<K>(calls: &capi_ipam_controller::client::ResourceClient<K>, name: &str, finalizers: &serde_json::Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let patch = json!([{"op": "add", "path": "/metadata/finalizers", "value": finalizers}]);
    insist("finalizers are set", || async {
        let patch = serde_json::from_value(patch.clone()).expect("the test writes patches as they should be");
        match calls.patch(name, patch).await {
            Err(error) if !error.is_not_found() && !error.is_invalid() => None,
            _ => Some(()),
        }
    })
    .await;
}

/// What those who make claims tell.
#[derive(Default)]
struct Told {
    over: AtomicBool,
    lives: AtomicU32,
    /// The uids of claims whose reservation was deleted by hand.
    unreserved: Mutex<HashSet<String>>,
}

impl Told {
    fn unreserved(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unreserved.lock().expect("nobody panics while holding it")
    }
}

/// Ends the disturbance when the test ends, also by a failure.
struct Ends(Arc<Told>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// One claim after the other under one name; each is damaged while it is bound.
async fn live(consumer: &Consumer, name: &str, told: &Told) {
    while !told.over.load(Ordering::Relaxed) {
        let claim = make(consumer, name).await;
        let (addresses, reservations) = (consumer.addresses(), consumer.reservations());
        if rand::random_ratio(1, 4) {
            // At once, in the middle of being bound.
            unmake(consumer, &claim).await;
            continue;
        }
        let address = whole(consumer, &claim).await;
        let reserved = format!("p.{}.web.{}", consumer.namespace, address.spec.address);
        match rand::random_range(0..4) {
            0 => {
                let _ = addresses.delete(name, &address.uid().unwrap_or_default()).await;
                set_finalizers(&addresses, name, &json!([])).await;
            }
            1 => {
                told.unreserved().extend(claim.uid());
                if let Ok(Some(found)) = reservations.get(&reserved).await {
                    let _ = reservations.delete(&reserved, &found.uid().unwrap_or_default()).await;
                }
            }
            2 => {
                // Deleted, and in use until its machine is gone.
                let both = json!(["ipam.cluster.x-k8s.io/ReleaseAddress", IN_USE]);
                set_finalizers(&consumer.claims(), name, &both).await;
                let _ = consumer.claims().delete(name, &claim.uid().unwrap_or_default()).await;
                tokio::time::sleep(Duration::from_millis(rand::random_range(500..4000))).await;
                set_finalizers(&consumer.claims(), name, &json!(["ipam.cluster.x-k8s.io/ReleaseAddress"])).await;
            }
            _ => {
                let same = whole(consumer, &claim).await;
                assert_eq!(same.spec, address.spec, "claim {name} has another address");
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..3000))).await;
            }
        }
        unmake(consumer, &claim).await;
        told.lives.fetch_add(1, Ordering::Relaxed);
    }
    let claim = make(consumer, name).await;
    whole(consumer, &claim).await;
}

/// What is known of claims that are bound and in use, by uid.
#[derive(Default)]
struct Onlooker {
    /// The address of each.
    had: HashMap<String, String>,
    /// Since when a reservation is missing while the API server answers.
    missing: HashMap<String, Instant>,
    looks: usize,
    /// How often the API server did not answer.
    blind: usize,
    longest: Duration,
}

impl Onlooker {
    /// Reads everything; claims both before and after, so that what holds in both held in between.
    async fn look(&mut self, consumer: &Consumer, told: &Told) -> Option<()> {
        let bound = async || {
            let claims = consumer.claims().list().await.ok()?;
            let held = |claim: &IPAddressClaim| claim.finalizers().iter().any(|finalizer| finalizer == IN_USE);
            let stays = |claim: &IPAddressClaim| claim.metadata.deletion_timestamp.is_none() || held(claim);
            let bound = claims.into_iter().filter(|claim| claim.bound_address().is_some() && stays(claim));
            Some(bound.map(|claim| (claim.uid().unwrap_or_default(), claim.name_any())).collect::<BTreeMap<_, _>>())
        };
        let before = bound().await?;
        let addresses = consumer.addresses().list().await.ok()?;
        let reservations = consumer.reservations().list().await.ok()?;
        let after = bound().await?;
        let all: BTreeMap<_, _> = before.into_iter().filter(|(uid, _)| after.contains_key(uid)).collect();
        for address in &addresses {
            let owner = address.owner_references().iter().find(|owner| all.contains_key(&owner.uid));
            let Some(uid) = owner.map(|owner| owner.uid.clone()) else { continue };
            let known = self.had.entry(uid.clone()).or_insert_with(|| address.spec.address.clone());
            assert_eq!(*known, address.spec.address, "claim {} of {uid} has another address", all[&uid]);
        }
        let mut holders: HashMap<&String, &String> = HashMap::new();
        for uid in all.keys() {
            let Some(address) = self.had.get(uid) else { continue };
            if let Some(other) = holders.insert(address, uid) {
                panic!("{address} belongs to both {} ({uid}) and {} ({other})", all[uid], all[other]);
            }
            let held_by = |reservation: &&capi_ipam::api::IPReservation| {
                reservation.spec.address == *address
                    && reservation.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref()) == Some(uid)
            };
            if reservations.iter().any(|reservation| held_by(&reservation)) {
                self.missing.remove(uid);
            } else {
                assert!(told.unreserved().contains(uid), "the reservation of {address} of {} was freed", all[uid]);
                let missing = self.missing.entry(uid.clone()).or_insert_with(Instant::now).elapsed();
                self.longest = self.longest.max(missing);
                assert!(missing < LONGEST_REPAIR, "{address} of {} is not reserved for {missing:?}", all[uid]);
            }
        }
        self.missing.retain(|uid, _| all.contains_key(uid));
        self.looks += 1;
        Some(())
    }
}

/// Kills managers, and now and then the API server; in the end one manager runs.
fn disturb(mut control_plane: ControlPlane, over: &AtomicBool) -> (ControlPlane, Manager) {
    let start = |control_plane: &ControlPlane| {
        // An API server that has just started does not know all roles yet.
        Manager::launch(control_plane, control_plane.provider_kubeconfig(), &FLAGS).may_lack_permissions()
    };
    // Two at once, and no lease between them.
    let mut managers = vec![start(&control_plane), start(&control_plane)];
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(rand::random_range(1000..4000)));
        round += 1;
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_use_is_never_freed() {
    let control_plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&control_plane).await;
    // Hardly more addresses than claims: what is freed is taken again at once.
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.12"], "prefix": 24})).await;
    let told = Arc::new(Told::default());
    let _ends = Ends(Arc::clone(&told));
    let disturbed = tokio::task::spawn_blocking({
        let told = Arc::clone(&told);
        move || disturb(control_plane, &told.over)
    });
    let mut onlooker = Onlooker::default();
    let watched = async {
        let end = Instant::now() + DURATION;
        while Instant::now() < end {
            if onlooker.look(&consumer, &told).await.is_none() {
                onlooker.blind += 1;
                onlooker.missing.clear();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        told.over.store(true, Ordering::Relaxed);
    };
    let names: Vec<String> = (0..CLAIMS).map(|number| format!("c{number}")).collect();
    let claims = futures::future::join_all(names.iter().map(|name| live(&consumer, name, &told)));
    let (_, (), disturbed) = tokio::join!(claims, watched, disturbed);
    let (_control_plane, _manager) = disturbed.expect("managers can be killed");
    println!(
        "{} claims lived; looked at {} times and in vain {} times; a reservation was missing for {:?} at most",
        told.lives.load(Ordering::Relaxed),
        onlooker.looks,
        onlooker.blind,
        onlooker.longest
    );
    assert!(onlooker.looks > 20 && told.lives.load(Ordering::Relaxed) > 10);
    let held: Vec<(String, String)> = eventually("nothing is left over", || async {
        let given = consumer.given().await;
        let reserved = consumer.reservations().list().await.ok()?;
        (given.len() == CLAIMS && reserved.len() == CLAIMS).then(|| given.into_iter().collect())
    })
    .await;
    assert_eq!(held.len(), CLAIMS);
    consumer.counts("web", (12, 2, 10, 0)).await;
}
