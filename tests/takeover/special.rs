//! Objects in unusual states. The tests share a control plane whose API server calls the webhooks
//! of a manager that has taken over; each test covers other objects.

use std::fs;

use capi_ipam_api::names::{
    CONVERSION_DATA_ANNOTATION, PAUSED_ANNOTATION, PROTECT_ADDRESS, RELEASE_ADDRESS,
};
use support::prelude::*;
use tokio::sync::{OnceCell, RwLockReadGuard};

use crate::{
    MACHINE,
    fixture::{self, HELD, stored},
    go_provider::claim,
    many::wait_until_settled,
    snapshot::Snapshot,
    store::{CONSUMER, GROUP, OPERATOR, Store, key, remove_finalizer, text},
};

/// The environment that all tests of this module share. Never dropped: its processes end with the
/// test process.
struct World {
    plane: ControlPlane,
    _manager: Manager,
    /// The state that the Go provider left.
    before: Snapshot,
    /// The state after the takeover, when no write happened.
    after: Snapshot,
}

/// The final counts of pools: total, free, in use, out of range.
const COUNTS: [(&str, &str, &str, [u64; 4]); 8] = [
    (
        "InClusterIPPool",
        "tenant-a",
        "old-start-end",
        [11, 10, 1, 0],
    ),
    (
        "InClusterIPPool",
        "tenant-a",
        "old-subnet",
        [253, 252, 1, 0],
    ),
    // One less in use than the Go provider reported: `m-2` is released.
    ("InClusterIPPool", "tenant-a", "v4", [329, 328, 1, 0]),
    // The number of free addresses exceeds the maximum of the field. The Go provider subtracts the
    // used ones from it.
    (
        "InClusterIPPool",
        "tenant-b",
        "v6",
        [i64::MAX as u64, i64::MAX as u64, 4, 0],
    ),
    // The Go provider reported wrong counts for these three.
    ("GlobalInClusterIPPool", "", "old-global", [21, 20, 1, 0]),
    ("GlobalInClusterIPPool", "", "shared", [190, 189, 1, 1]),
    ("GlobalInClusterPrefixPool", "", "gpfx", [256, 255, 1, 0]),
    (
        "InClusterPrefixPool",
        "tenant-b",
        "pfx",
        [65535, 65533, 2, 0],
    ),
];

async fn world() -> (&'static World, Store, RwLockReadGuard<'static, ()>) {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let machine = MACHINE.read().await;
    let world = WORLD.get_or_init(start).await;
    (world, Store::new(&world.plane).await, machine)
}

async fn start() -> World {
    let plane = ControlPlane::new();
    let store = Store::new(&plane).await;
    fixture::load(&store).await;
    let before = Snapshot::of(&store).await;
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let manager = Manager::start(
        &plane,
        &[
            own[0].as_str(),
            own[1].as_str(),
            "--sweep-interval=1s",
            "--sweep-grace=1s",
        ],
    );
    webhooks.register(&plane);
    let patience = Patience::new(Duration::from_mins(3));
    let after = loop {
        wait_until_settled(&plane).await;
        let now = Snapshot::of(&store).await;
        let wrong = differences(&now);
        if wrong.is_empty() {
            break now;
        }
        assert!(!patience.is_over(), "{wrong:#?}");
    };
    World {
        plane,
        _manager: manager,
        before,
        after,
    }
}

/// The differences from the expected state.
fn differences(now: &Snapshot) -> Vec<String> {
    let mut wrong = now.problems();
    for (kind, namespace, name, counts) in COUNTS {
        let found = counts_of(now.get(kind, namespace, name).expect("no pool is deleted"));
        if found != json!(counts) {
            wrong.push(format!(
                "{kind} {name} counts {found} instead of {counts:?}"
            ));
        }
    }
    let claim = |namespace, name| now.get("IPAddressClaim", namespace, name);
    if owner_versions(now)[0] != "ipam.cluster.x-k8s.io/v1beta2" {
        wrong.push("the owner of old-1 is in an old version".to_owned());
    }
    if claim("tenant-a", "m-2").is_some() {
        wrong.push("m-2 is not released".to_owned());
    }
    for (namespace, name, reason) in [
        ("tenant-a", "waiting", "PoolNotReady"),
        ("tenant-b", "b-1", "Paused"),
        ("tenant-b", "b-2", "Paused"),
    ] {
        let conditions =
            claim(namespace, name).map_or(&Value::Null, |claim| &claim["status"]["conditions"]);
        if !conditions
            .as_array()
            .is_some_and(|all| all.iter().any(|condition| condition["reason"] == reason))
        {
            wrong.push(format!("{name} does not say {reason}, but {conditions}"));
        }
    }
    wrong
}

/// The versions of the owners of an IPAddress that was created when older versions were served.
fn owner_versions(now: &Snapshot) -> [&str; 2] {
    let address = now
        .get("IPAddress", "tenant-a", "old-1")
        .expect("it is kept");
    [
        "/metadata/ownerReferences/0/apiVersion",
        "/metadata/ownerReferences/1/apiVersion",
    ]
    .map(|path| text(address, path))
}

fn counts_of(pool: &Value) -> Value {
    let counts = &pool["status"]["ipAddresses"];
    json!([
        counts["total"],
        counts["free"],
        counts["used"],
        counts["outOfRange"]
    ])
}

#[tokio::test]
async fn nothing_else_changes() {
    let (world, ..) = world().await;
    world
        .before
        .assert_addresses_kept(&world.after, &["tenant-a/m-2"]);
    let changed = [
        "tenant-a/m-2",
        "tenant-a/waiting",
        "tenant-b/b-1",
        "tenant-b/b-2",
    ]
    .map(str::to_owned);
    assert_eq!(
        world.before.changed("IPAddressClaim", &world.after),
        changed.into()
    );
    // The owner of one of them is in an old version.
    let changed = ["tenant-a/m-2", "tenant-a/old-1"].map(str::to_owned);
    assert_eq!(
        world.before.changed("IPAddress", &world.after),
        changed.into()
    );
}

#[tokio::test]
async fn claim_held_only_by_its_consumer_is_not_released() {
    let (world, store, _machine) = world().await;
    let held = world
        .after
        .get("IPAddressClaim", "tenant-a", "m-1")
        .expect("a finalizer of its consumer blocks it");
    assert_eq!(held["metadata"]["finalizers"], json!([HELD]));
    // Its address is the lowest free one.
    store
        .create(
            CONSUMER,
            &claim(
                "v1beta1",
                "tenant-a",
                "after-m-1",
                ("InClusterIPPool", "v4"),
            ),
        )
        .await;
    assert_eq!(
        store.wait_for_address("tenant-a", "after-m-1").await,
        "10.0.0.3"
    );
    store
        .change(CONSUMER, ("IPAddressClaim", "tenant-a", "m-1"), |claim| {
            remove_finalizer(claim, HELD)
        })
        .await;
    store.wait_until_deleted("tenant-a", "m-1").await;
    assert_eq!(
        store.wait_for_address("tenant-a", "after-m-1").await,
        "10.0.0.3"
    );
    // A client that uses the older version of the contract reads the same.
    let old = store
        .get_in(
            "ipam.cluster.x-k8s.io/v1beta1",
            "IPAddressClaim",
            "tenant-a",
            "after-m-1",
        )
        .await;
    assert_eq!(
        old.expect("the old version is served")["status"]["addressRef"]["name"],
        "after-m-1"
    );
}

#[tokio::test]
async fn half_released_claim_is_released() {
    let (world, ..) = world().await;
    for kind in ["IPAddressClaim", "IPAddress"] {
        assert!(world.before.get(kind, "tenant-a", "m-2").is_some());
        assert!(world.after.get(kind, "tenant-a", "m-2").is_none(), "{kind}");
    }
    assert!(
        world
            .after
            .get("IPReservation", "", "p.tenant-a.v4.10.0.0.4")
            .is_none()
    );
}

#[tokio::test]
async fn owner_references_in_old_versions_are_valid() {
    let (world, store, _machine) = world().await;
    let (claims, pools) = (
        "ipam.cluster.x-k8s.io/v1beta",
        "ipam.cluster.x-k8s.io/v1alpha1",
    );
    assert_eq!(
        owner_versions(&world.before),
        [format!("{claims}1").as_str(), pools]
    );
    assert_eq!(
        owner_versions(&world.after),
        [format!("{claims}2").as_str(), pools]
    );
    assert!(
        world
            .after
            .get("IPReservation", "", "p.tenant-a.old-subnet.10.10.0.2")
            .is_some()
    );
    store.delete("IPAddressClaim", "tenant-a", "old-1").await;
    store.wait_until_deleted("tenant-a", "old-1").await;
    until("its reservation is deleted", || async {
        Some(
            store
                .get("IPReservation", "", "p.tenant-a.old-subnet.10.10.0.2")
                .await
                .is_none(),
        )
    })
    .await;
}

#[tokio::test]
async fn addresses_of_a_paused_pool_are_repaired_after_unpause() {
    let (world, store, _machine) = world().await;
    let of = ("GlobalInClusterIPPool", "", "shared");
    let left = world
        .after
        .get("IPAddress", "tenant-a", "g-1")
        .expect("it is kept");
    assert_eq!(
        (
            &left["metadata"]["ownerReferences"],
            &left["metadata"]["finalizers"]
        ),
        (&Value::Null, &Value::Null)
    );
    assert!(
        world
            .after
            .get("IPReservation", "", "g.shared.192.168.50.10")
            .is_some(),
        "out of range and reserved"
    );
    for (namespace, name) in [("tenant-a", "shared-0"), ("tenant-b", "shared-1")] {
        store.create_claim(namespace, name, (of.0, of.2)).await;
    }

    store
        .change(OPERATOR, of, |pool| {
            pool["metadata"]["annotations"]
                .as_object_mut()
                .expect("annotations")
                .remove(PAUSED_ANNOTATION);
            // 192.168.50.10 is in range again.
            pool["spec"]["addresses"] = json!(["192.168.50.10-192.168.50.200"]);
        })
        .await;
    let given = [
        store.wait_for_address("tenant-a", "shared-0").await,
        store.wait_for_address("tenant-b", "shared-1").await,
    ];
    assert!(
        given.contains(&"192.168.50.12".to_owned()) && given.contains(&"192.168.50.13".to_owned()),
        "{given:?}"
    );
    let claim_uid = store
        .get_existing("IPAddressClaim", "tenant-a", "g-1")
        .await["metadata"]["uid"]
        .clone();
    let repaired = eventually("it has owners and finalizer", || async {
        let address = store.get_existing("IPAddress", "tenant-a", "g-1").await;
        (!address["metadata"]["ownerReferences"].is_null()).then_some(address)
    })
    .await;
    assert_eq!(
        (&repaired["metadata"]["uid"], &repaired["spec"]),
        (&left["metadata"]["uid"], &left["spec"])
    );
    let owners = &repaired["metadata"]["ownerReferences"];
    assert_eq!(
        (&owners[0]["uid"], &owners[1]["name"]),
        (&claim_uid, &json!("shared"))
    );
    assert_eq!(repaired["metadata"]["finalizers"], json!([PROTECT_ADDRESS]));
    until("the counts are correct", async || {
        let pool = store.get_existing(of.0, of.1, of.2).await;
        Some(counts_of(&pool) == json!([191, 187, 4, 0]))
    })
    .await;
}

#[tokio::test]
async fn claim_is_bound_when_its_pool_is_created() {
    let (world, store, _machine) = world().await;
    let waiting = world
        .after
        .get("IPAddressClaim", "tenant-a", "waiting")
        .expect("it waits");
    assert_eq!(waiting["status"]["conditions"][0]["reason"], "PoolNotReady");
    assert_eq!(waiting["metadata"]["finalizers"], json!([RELEASE_ADDRESS]));
    let spec = json!({"addresses": ["10.20.0.10-10.20.0.20"], "prefix": 24});
    store.create_pool("tenant-a", "missing", spec).await;
    assert_eq!(
        store.wait_for_address("tenant-a", "waiting").await,
        "10.20.0.10"
    );
}

#[tokio::test]
async fn claims_of_a_paused_cluster_wait_until_unpause() {
    let (world, store, _machine) = world().await;
    for name in ["b-1", "b-2"] {
        let claim = world
            .after
            .get("IPAddressClaim", "tenant-b", name)
            .expect("it waits");
        let paused = claim["status"]["conditions"]
            .as_array()
            .expect("conditions");
        assert!(
            paused
                .iter()
                .any(|all| all["type"] == "Paused" && all["status"] == "True"),
            "{claim}"
        );
    }
    // The address of a deleted claim is in use until it is released.
    assert!(world.after.get("IPAddress", "tenant-b", "b-1").is_some());
    assert!(world.after.get("IPAddress", "tenant-b", "b-2").is_none());
    assert_eq!(
        world
            .after
            .get("IPAddressClaim", "tenant-b", "b-2")
            .map(|claim| &claim["metadata"]["finalizers"]),
        Some(&Value::Null)
    );

    store.unpause_cluster("tenant-b", "beta").await;
    store.wait_until_deleted("tenant-b", "b-1").await;
    assert_eq!(store.wait_for_address("tenant-b", "b-2").await, "fd00:1::5");
    assert_eq!(store.wait_for_address("tenant-b", "b-0").await, "fd00:1::3");
    // The pool has a cool-down.
    let name = "p.tenant-b.v6.fd00-0001-0000-0000-0000-0000-0000-0004";
    consistently("the address cools down", || async {
        store
            .get("IPReservation", "", name)
            .await
            .is_some_and(|found| !found["spec"]["releasedAt"].is_null())
    })
    .await;
}

#[tokio::test]
async fn pools_read_the_same_in_the_old_version() {
    let (world, store, _machine) = world().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/takeover/");
    let text_of = fs::read_to_string(format!("{folder}pools-as-v1alpha1.json"))
        .expect("the data can be read");
    let list: Value = serde_json::from_str(&text_of).expect("the data is JSON");
    let shown = list["items"].as_array().expect("it is a list");
    assert_eq!(shown.len(), 6);
    let mut with_data = 0;
    for shown in shown
        .iter()
        .filter(|pool| pool["metadata"]["name"] != "shared")
    {
        let ((namespace, name), kind) = (key(shown), text(shown, "/kind"));
        let found = store
            .get_in(&format!("{GROUP}/v1alpha1"), kind, &namespace, &name)
            .await;
        let found = found.expect("it can be read in the old version");
        assert_eq!(found["spec"], shown["spec"], "{name}");
        for field in ["finalizers", "labels"] {
            assert_eq!(found["metadata"][field], shown["metadata"][field], "{name}");
        }
        let annotations = |pool: &Value| {
            let mut all = pool["metadata"]["annotations"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            // The annotation carries the fields that the old version does not have.
            all.remove(CONVERSION_DATA_ANNOTATION);
            all
        };
        assert_eq!(annotations(&found), annotations(shown), "{name}");
        // A pool created in the old version keeps the original.
        let after = world
            .after
            .get(kind, &namespace, &name)
            .expect("the object exists");
        let same = |pool: &&Value| (text(pool, "/kind"), key(pool)) == (kind, key(shown));
        let stored = stored()
            .into_iter()
            .find(|pool| same(&pool))
            .expect("it was stored");
        let data =
            |pool: &Value| pool["metadata"]["annotations"][CONVERSION_DATA_ANNOTATION].clone();
        assert_eq!(data(after), data(&stored), "{name}");
        with_data += usize::from(!data(after).is_null());
    }
    assert_eq!(with_data, 3);
    // Another test changes the paused one, but not its annotations.
    let data =
        |pool: Option<&Value>| pool.expect("the object exists")["metadata"]["annotations"].clone();
    let shared = ("GlobalInClusterIPPool", "", "shared");
    assert_eq!(
        data(world.after.get(shared.0, shared.1, shared.2)),
        data(world.before.get(shared.0, shared.1, shared.2))
    );
}
