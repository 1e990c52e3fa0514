//! 2,000 addresses: what is kept, what is written, and that new claims are bound long before all is repaired.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use capi_ipam::bulk::{self, RESTORED};
use capi_ipam::go_provider::claim;
use capi_ipam::snapshot::{path, Snapshot};
use capi_ipam::store::{CONSUMER, OPERATOR, Store, text};
use capi_ipam::support::consumer::eventually;
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::{fixture, MACHINE};
use serde_json::{json, Value};

/// How many pools there are.
const POOLS: usize = 12;
/// What is being deleted is about to be released: no sweep gets in between.
const PATIENT: &str = "--sweep-grace=10m";

/// What has been written, by verb, resource and subresource, by everybody.
pub(crate) fn writes(plane: &ControlPlane) -> BTreeMap<(String, String, String), u64> {
    let is_read = |verb: &str| ["GET", "LIST", "WATCH"].contains(&verb);
    let ours = plane.request_count().into_iter();
    let ours = ours.filter(|(key, _)| key.group == "ipam.cluster.x-k8s.io" && !is_read(&key.verb));
    ours.map(|(key, count)| ((key.verb, key.resource, key.subresource), count)).collect()
}

/// What has been written since, as lines of verb, resource and count.
pub(crate) fn written_since(plane: &ControlPlane, before: &BTreeMap<(String, String, String), u64>) -> Vec<String> {
    let since = |(key, count): (_, u64)| {
        let count = count - before.get(&key).copied().unwrap_or_default();
        let (verb, resource, subresource): (String, String, String) = key;
        let slash = if subresource.is_empty() { "" } else { "/" };
        (count > 0).then(|| format!("{verb} {resource}{slash}{subresource} {count}"))
    };
    writes(plane).into_iter().filter_map(since).collect()
}

/// New claims that came while no provider was at work: kind and name of the pool, namespace, and the address that is
/// the lowest free one. The pool `shared` is paused.
fn new_claims() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let mut all = bulk::lowest_free();
    let others = [
        ("InClusterIPPool", "old-subnet", "tenant-a", "10.10.0.3"),
        ("InClusterIPPool", "old-start-end", "tenant-a", "10.11.0.11"),
        ("InClusterIPPool", "v4", "tenant-a", "10.0.0.3"),
        ("InClusterIPPool", "v6", "tenant-b", "fd00:1::5"),
        ("GlobalInClusterIPPool", "old-global", "tenant-a", "10.12.0.11"),
        ("InClusterPrefixPool", "pfx", "tenant-b", "fd10:0:0:3::"),
        ("GlobalInClusterPrefixPool", "gpfx", "tenant-a", "fd20:0:0:1::"),
        ("GlobalInClusterIPPool", "shared", "tenant-b", ""),
    ];
    all.extend(others.map(|(kind, pool, namespace, address)| (kind, pool, namespace, address.to_owned())));
    all
}

/// Waits until the new claims are bound, each to the lowest free address, and the manager is ready.
async fn all_bound(store: &Store, manager: &Manager) {
    for (_, pool, namespace, address) in new_claims().into_iter().filter(|(_, _, _, address)| !address.is_empty()) {
        let name = &format!("new-{pool}");
        let given = eventually(&format!("{namespace}/{name} is bound"), || async {
            let claim = store.there("IPAddressClaim", namespace, name).await;
            let is_bound = text(&claim, "/status/addressRef/name") == name;
            if is_bound { Some(store.there("IPAddress", namespace, name).await) } else { None }
        })
        .await;
        assert_eq!(text(&given, "/spec/address"), address, "the lowest free address of {pool}");
    }
    eventually("the manager is ready", || async { manager.is_ready().then_some(()) }).await;
}

/// How many reservations had been written when the last of the new claims was bound.
fn reservations_before_the_new_claims(after: &Snapshot) -> usize {
    let version = |object: &Value| text(object, "/metadata/resourceVersion").parse::<u64>().expect("a number");
    let bound = |claim: &&Value| !text(claim, "/status/addressRef/name").is_empty();
    let is_new = |claim: &&Value| text(claim, "/metadata/name").starts_with("new-");
    let last = after.of_kind("IPAddressClaim").filter(is_new).filter(bound).map(version).max().expect("some are bound");
    after.of_kind("IPReservation").filter(|reservation| version(reservation) < last).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_addresses_are_kept_and_new_claims_do_not_wait_for_them() {
    let _alone = MACHINE.write().await;
    let plane = ControlPlane::start(Options::default());
    let store = Store::new(&plane).await;
    fixture::load(&store).await;
    bulk::load(&store).await;
    for (kind, pool, namespace, _) in new_claims() {
        store.create(CONSUMER, &claim("v1beta1", namespace, &format!("new-{pool}"), (kind, pool))).await;
    }
    let before = Snapshot::of(&store).await;
    assert_eq!(before.of_kind("IPAddress").count(), bulk::COUNT + bulk::BESIDE);
    let writes_before = writes(&plane);

    let mut manager = Manager::launch(&plane, plane.provider_kubeconfig(), &[PATIENT]);
    all_bound(&store, &manager).await;
    manager.wait_for_log("addresses in use without a reservation are reserved now");
    // `m-2` is released. `b-1` is about to be, once its Cluster goes on; nobody reserves its address for so short a time.
    let expected = 2000 - 2 + new_claims().len() - 1;
    written(&plane, &writes_before, &expected_writes(expected)).await;
    settled(&plane).await;
    let after = Snapshot::of(&store).await;
    let made = after.of_kind("IPReservation").count();
    assert_eq!(made, expected, "{:#?}\n{}", after.problems(), manager.log());
    let before_them = reservations_before_the_new_claims(&after);
    println!("{before_them} of {expected} reservations were made before the last new claim was bound");
    assert!(before_them < expected / 2, "new claims wait for {before_them} reservations");
    let problems = after.problems();
    assert!(problems.len() == 1 && problems[0].starts_with("p.tenant-b.v6.fd00-0001-"), "{problems:?}");
    before.all_addresses_are_kept(&after, &["tenant-a/m-2"]);
    what_was_right_is_untouched(&before, &after);
    let (pools, rest) = written_since(&plane, &writes_before).into_iter().partition::<Vec<_>, _>(|line| of_pools(line));
    assert_eq!(rest, expected_writes(expected), "{}", manager.log());
    // Each pool gets its conditions, and another count or two where a new claim came.
    let of_pools = pools.iter().map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<usize>().ok()));
    assert!(of_pools.flatten().sum::<usize>() <= 4 * POOLS, "{pools:?}");

    // Nothing is left to do.
    let quiet = writes(&plane);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(written_since(&plane, &quiet), Vec::<String>::new(), "{}", manager.log());
    manager.stop();
    let manager = Manager::start(&plane, &[PATIENT, "--sweep-interval=500ms"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(written_since(&plane, &quiet), Vec::<String>::new(), "{}", manager.log());

    // What could not be repaired while the Cluster was paused.
    let of = ("Cluster", "site-b", "resting");
    store.change(OPERATOR, of, |cluster| cluster["spec"]["paused"] = json!(false)).await;
    eventually("the restored address in the paused Cluster is repaired", || async {
        let address = store.there("IPAddress", "site-b", "racks-b-1").await;
        (!address["metadata"]["ownerReferences"].is_null()).then_some(())
    })
    .await;
    eventually("its claim says so", || async {
        let claim = store.there("IPAddressClaim", "site-b", "racks-b-1").await;
        (text(&claim, "/status/conditions/0/reason") == "AddressAllocated").then_some(())
    })
    .await;
    settled(&plane).await;
    let repaired = ["PATCH ipaddressclaims/status 1", "PATCH ipaddresses 1"];
    assert_eq!(written_since(&plane, &quiet), repaired, "{}", manager.log());
}

/// Waits until that has been written beside the status of pools, or for half a minute: what else was written is told
/// later, by name.
async fn written(plane: &ControlPlane, before: &BTreeMap<(String, String, String), u64>, expected: &[String]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let since = written_since(plane, before);
        if since.iter().filter(|line| !of_pools(line)).eq(expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until nothing has been written for a second.
pub(crate) async fn settled(plane: &ControlPlane) {
    eventually("nothing is written any more", || async {
        let before = writes(plane);
        tokio::time::sleep(Duration::from_secs(1)).await;
        (before == writes(plane)).then_some(())
    })
    .await;
}

fn what_was_right_is_untouched(before: &Snapshot, after: &Snapshot) {
    let restored = RESTORED.map(|number| format!("site-a/racks-a-{number}"));
    let mut claims: BTreeSet<String> = new_claims().iter().map(|(_, pool, at, _)| format!("{at}/new-{pool}")).collect();
    claims.extend(restored.iter().cloned());
    // Released; says what it waits for; say that their Cluster is paused.
    claims.extend(["tenant-a/m-2", "tenant-a/waiting", "tenant-b/b-1", "tenant-b/b-2"].map(str::to_owned));
    assert_eq!(before.changed("IPAddressClaim", after), claims);
    let mut addresses = BTreeSet::from(restored);
    addresses.insert("tenant-a/m-2".to_owned());
    assert_eq!(before.changed("IPAddress", after), addresses);
    let pools = ["InClusterIPPool", "GlobalInClusterIPPool", "InClusterPrefixPool", "GlobalInClusterPrefixPool"];
    for pool in pools.iter().flat_map(|kind| before.of_kind(kind)) {
        let (namespace, name) = crate::store::key(pool);
        let later = after.get(text(pool, "/kind"), &namespace, &name).expect("the pool is there");
        assert_eq!(later["spec"], pool["spec"], "{}", path(pool));
        for field in ["annotations", "labels", "finalizers", "generation", "uid"] {
            assert_eq!(later["metadata"][field], pool["metadata"][field], "{}", path(pool));
        }
    }
}

/// Whether the status of a pool was written.
fn of_pools(line: &str) -> bool {
    line.starts_with("PATCH ") && line.contains("pools/status ")
}

/// All that is written beside that, once each.
fn expected_writes(reservations: usize) -> Vec<String> {
    let new = new_claims().len() - 1;
    vec![
        // The half released one.
        "DELETE ipaddresses 1".to_owned(),
        // The finalizer goes on each new claim; it is taken off the one that is released, last of all.
        format!("PATCH ipaddressclaims {new}"),
        // New claims are bound; four wait and say so; three get their first conditions with the repair.
        format!("PATCH ipaddressclaims/status {}", new + 4 + RESTORED.len()),
        // Owners and finalizers of those that were restored.
        format!("PATCH ipaddresses {}", RESTORED.len()),
        format!("POST ipaddresses {new}"),
        format!("POST ipreservations {reservations}"),
        "PUT ipaddressclaims 1".to_owned(),
    ]
}
