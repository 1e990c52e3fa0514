//! 2,000 addresses: what is kept, what is written, and that new claims are bound long before the
//! repair ends.

use support::{control_plane::RequestKey, prelude::*};

use crate::{
    MACHINE,
    bulk::{self, RESTORED},
    fixture,
    go_provider::claim,
    snapshot::{Snapshot, path},
    store::{CONSUMER, Store, text},
};

/// The number of pools.
const POOLS: usize = 12;
/// A long grace period: the sweeper does not interfere with releases in progress.
const PATIENT: &str = "--sweep-grace=10m";

/// The number of applied writes of all clients, by verb, resource and subresource. Others are sent
/// again.
pub(crate) fn writes(plane: &ControlPlane) -> BTreeMap<(String, String, String), u64> {
    let is_write = |key: &RequestKey| {
        key.group == "ipam.cluster.x-k8s.io"
            && !["GET", "LIST", "WATCH"].contains(&key.verb.as_str())
            && (200..300).contains(&key.code)
    };
    let mut counts = BTreeMap::new();
    for (key, count) in plane
        .request_count()
        .into_iter()
        .filter(|(key, _)| is_write(key))
    {
        *counts
            .entry((key.verb, key.resource, key.subresource))
            .or_default() += count;
    }
    counts
}

/// The writes since `before`, as lines of verb, resource and count.
pub(crate) fn written_since(
    plane: &ControlPlane,
    before: &BTreeMap<(String, String, String), u64>,
) -> Vec<String> {
    let since = |(key, count): (_, u64)| {
        let count = count - before.get(&key).copied().unwrap_or_default();
        let (verb, resource, subresource): (String, String, String) = key;
        let slash = if subresource.is_empty() { "" } else { "/" };
        (count > 0).then(|| format!("{verb} {resource}{slash}{subresource} {count}"))
    };
    writes(plane).into_iter().filter_map(since).collect()
}

/// New claims that were created while no provider was running: kind and name of the pool,
/// namespace, and the lowest free address. The pool `shared` is paused.
fn new_claims() -> Vec<(&'static str, &'static str, &'static str, String)> {
    let mut all = bulk::lowest_free();
    let others = [
        ("InClusterIPPool", "old-subnet", "tenant-a", "10.10.0.3"),
        ("InClusterIPPool", "old-start-end", "tenant-a", "10.11.0.11"),
        ("InClusterIPPool", "v4", "tenant-a", "10.0.0.3"),
        ("InClusterIPPool", "v6", "tenant-b", "fd00:1::5"),
        (
            "GlobalInClusterIPPool",
            "old-global",
            "tenant-a",
            "10.12.0.11",
        ),
        ("InClusterPrefixPool", "pfx", "tenant-b", "fd10:0:0:3::"),
        (
            "GlobalInClusterPrefixPool",
            "gpfx",
            "tenant-a",
            "fd20:0:0:1::",
        ),
        ("GlobalInClusterIPPool", "shared", "tenant-b", ""),
    ];
    all.extend(
        others.map(|(kind, pool, namespace, address)| (kind, pool, namespace, address.to_owned())),
    );
    all
}

/// Waits until the new claims are bound, each to the lowest free address, and the manager is ready.
async fn wait_until_all_bound(store: &Store, manager: &Manager) {
    for (_, pool, namespace, address) in new_claims()
        .into_iter()
        .filter(|(_, _, _, address)| !address.is_empty())
    {
        let name = &format!("new-{pool}");
        let given = store.wait_for_address(namespace, name).await;
        // An older claim of `v6`, which has no address, may be reconciled at the same time: the
        // lowest one is left to it.
        let expected = if pool == "v6" {
            vec![address.as_str(), "fd00:1::6"]
        } else {
            vec![address.as_str()]
        };
        assert!(
            expected.contains(&given.as_str()),
            "{given} of {pool}: the lowest free address is {address}"
        );
    }
    eventually("the manager is ready", || async {
        manager.is_ready().then_some(())
    })
    .await;
}

/// The number of reservations that had been written when the last of the new claims was bound.
fn reservations_before_the_new_claims(after: &Snapshot) -> usize {
    let version = |object: &Value| {
        text(object, "/metadata/resourceVersion")
            .parse::<u64>()
            .expect("a number")
    };
    let bound = |claim: &&Value| !text(claim, "/status/addressRef/name").is_empty();
    let is_new = |claim: &&Value| text(claim, "/metadata/name").starts_with("new-");
    let last = after
        .of_kind("IPAddressClaim")
        .filter(is_new)
        .filter(bound)
        .map(version)
        .max()
        .expect("some are bound");
    after
        .of_kind("IPReservation")
        .filter(|reservation| version(reservation) < last)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn takeover_of_2000_addresses_does_not_delay_new_claims() {
    let _alone = MACHINE.write().await;
    let plane = ControlPlane::new();
    let store = Store::new(&plane).await;
    fixture::load(&store).await;
    bulk::load(&store).await;
    for (kind, pool, namespace, _) in new_claims() {
        store
            .create(
                CONSUMER,
                &claim("v1beta1", namespace, &format!("new-{pool}"), (kind, pool)),
            )
            .await;
    }
    let before = Snapshot::of(&store).await;
    assert_eq!(
        before.of_kind("IPAddress").count(),
        bulk::COUNT + bulk::BESIDE
    );
    let writes_before = writes(&plane);

    let mut manager = Manager::launch(&plane, plane.provider_kubeconfig(), &[PATIENT]);
    wait_until_all_bound(&store, &manager).await;
    until_within(
        Duration::from_mins(5),
        "the addresses in use are reserved",
        || async {
            Some(
                manager
                    .log()
                    .contains("created reservations for addresses in use"),
            )
        },
    )
    .await;
    // `m-2` is released. `b-1` will be released when its Cluster is unpaused; its address is not
    // reserved until then.
    let expected = 2000 - 2 + new_claims().len() - 1;
    written(&plane, &writes_before, &expected_writes(expected)).await;
    wait_until_settled(&plane).await;
    let after = Snapshot::of(&store).await;
    let made = after.of_kind("IPReservation").count();
    assert_eq!(made, expected, "{:#?}\n{}", after.problems(), manager.log());
    let before_them = reservations_before_the_new_claims(&after);
    println!(
        "{before_them} of {expected} reservations were made before the last new claim was bound"
    );
    assert!(
        before_them < expected / 2,
        "new claims wait for {before_them} reservations"
    );
    let problems = after.problems();
    assert!(
        problems.len() == 1 && problems[0].starts_with("p.tenant-b.v6.fd00-0001-"),
        "{problems:?}"
    );
    before.assert_addresses_kept(&after, &["tenant-a/m-2"]);
    assert_correct_objects_unchanged(&before, &after);
    let (pools, rest) = written_since(&plane, &writes_before)
        .into_iter()
        .partition::<Vec<_>, _>(|line| of_pools(line));
    assert_eq!(rest, expected_writes(expected), "{}", manager.log());
    // Each pool gets its conditions, and one or two more status writes if it has a new claim.
    let of_pools = pools.iter().map(|line| {
        line.rsplit(' ')
            .next()
            .and_then(|count| count.parse::<usize>().ok())
    });
    assert!(of_pools.flatten().sum::<usize>() <= 4 * POOLS, "{pools:?}");

    // Nothing else is written.
    let quiet = writes(&plane);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        written_since(&plane, &quiet),
        Vec::<String>::new(),
        "{}",
        manager.log()
    );
    manager.stop();
    let manager = Manager::start(&plane, &[PATIENT, "--sweep-interval=500ms"]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        written_since(&plane, &quiet),
        Vec::<String>::new(),
        "{}",
        manager.log()
    );

    // The repairs that waited for the paused Cluster.
    store.unpause_cluster("site-b", "resting").await;
    until(
        "the restored address in the paused Cluster is repaired",
        async || {
            let address = store.get_existing("IPAddress", "site-b", "racks-b-1").await;
            Some(!address["metadata"]["ownerReferences"].is_null())
        },
    )
    .await;
    until("its claim reports it", async || {
        let claim = store
            .get_existing("IPAddressClaim", "site-b", "racks-b-1")
            .await;
        Some(text(&claim, "/status/conditions/0/reason") == "AddressAllocated")
    })
    .await;
    wait_until_settled(&plane).await;
    let repaired = ["PATCH ipaddressclaims/status 1", "PATCH ipaddresses 1"];
    assert_eq!(written_since(&plane, &quiet), repaired, "{}", manager.log());
}

/// Waits until these writes have happened beside the status of pools, or for two minutes: the
/// caller reports other writes by name.
async fn written(
    plane: &ControlPlane,
    before: &BTreeMap<(String, String, String), u64>,
    expected: &[String],
) {
    let patience = Patience::new(Duration::from_mins(2));
    while !patience.is_over() {
        let since = written_since(plane, before);
        if since.iter().filter(|line| !of_pools(line)).eq(expected) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until nothing has been written for a second.
pub(crate) async fn wait_until_settled(plane: &ControlPlane) {
    until("no write happens", async || {
        let before = writes(plane);
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some(before == writes(plane))
    })
    .await;
}

fn assert_correct_objects_unchanged(before: &Snapshot, after: &Snapshot) {
    let restored = RESTORED.map(|number| format!("site-a/racks-a-{number}"));
    let mut claims: BTreeSet<String> = new_claims()
        .iter()
        .map(|(_, pool, at, _)| format!("{at}/new-{pool}"))
        .collect();
    claims.extend(restored.iter().cloned());
    // Released; reports what it waits for; report that their Cluster is paused.
    claims.extend(
        [
            "tenant-a/m-2",
            "tenant-a/waiting",
            "tenant-b/b-1",
            "tenant-b/b-2",
        ]
        .map(str::to_owned),
    );
    assert_eq!(before.changed("IPAddressClaim", after), claims);
    let mut addresses = BTreeSet::from(restored);
    // Released; its owner is in a version that Cluster API will remove.
    addresses.extend(["tenant-a/m-2", "tenant-a/old-1"].map(str::to_owned));
    assert_eq!(before.changed("IPAddress", after), addresses);
    let pools = [
        "InClusterIPPool",
        "GlobalInClusterIPPool",
        "InClusterPrefixPool",
        "GlobalInClusterPrefixPool",
    ];
    for pool in pools.iter().flat_map(|kind| before.of_kind(kind)) {
        let (namespace, name) = crate::store::key(pool);
        let later = after
            .get(text(pool, "/kind"), &namespace, &name)
            .expect("the pool exists");
        assert_eq!(later["spec"], pool["spec"], "{}", path(pool));
        for field in ["annotations", "labels", "finalizers", "generation", "uid"] {
            assert_eq!(
                later["metadata"][field],
                pool["metadata"][field],
                "{}",
                path(pool)
            );
        }
    }
}

/// Whether a line is about the status of a pool.
fn of_pools(line: &str) -> bool {
    line.starts_with("PATCH ") && line.contains("pools/status ")
}

/// All other writes, once each.
fn expected_writes(reservations: usize) -> Vec<String> {
    let new = new_claims().len() - 1;
    vec![
        // The half-released claim.
        "DELETE ipaddresses 1".to_owned(),
        // The finalizer is added to each new claim, and removed last from the released one.
        format!("PATCH ipaddressclaims {new}"),
        // New claims are bound; four report that they wait; three get their first conditions with
        // the repair.
        format!("PATCH ipaddressclaims/status {}", new + 4 + RESTORED.len()),
        // Owners and finalizers of the restored addresses, and the version of an owner.
        format!("PATCH ipaddresses {}", RESTORED.len() + 1),
        format!("POST ipaddresses {new}"),
        format!("POST ipreservations {reservations}"),
        "PUT ipaddressclaims 1".to_owned(),
    ]
}
