//! What becomes of each thing that is not as it should be, or not as others are. The tests share a control plane, whose
//! API server asks the webhooks of a manager that has taken over; each looks at other objects.

use std::fs;
use std::time::Instant;

use capi_ipam::MACHINE;
use capi_ipam::api::names::{CONVERSION_DATA_ANNOTATION, PAUSED_ANNOTATION, PROTECT_ADDRESS, RELEASE_ADDRESS};
use capi_ipam::fixture::{self, HELD, stored};
use capi_ipam::go_provider::claim;
use capi_ipam::many::settled;
use capi_ipam::snapshot::Snapshot;
use capi_ipam::store::{CONSUMER, GROUP, key, OPERATOR, remove_finalizer, Store, text};
use capi_ipam::support::consumer::{eventually, PATIENCE, stays};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::webhooks::Webhooks;
use serde_json::{json, Value};
use tokio::sync::{OnceCell, RwLockReadGuard};

/// What all tests here share. Never dropped: its processes end with this one.
struct World {
    plane: ControlPlane,
    _manager: Manager,
    /// What the Go provider left.
    before: Snapshot,
    /// What had become of it when everything had come to rest.
    after: Snapshot,
}

/// The counts that pools come to: total, free, in use, out of range.
const COUNTS: [(&str, &str, &str, [u64; 4]); 8] = [
    ("InClusterIPPool", "tenant-a", "old-start-end", [11, 10, 1, 0]),
    ("InClusterIPPool", "tenant-a", "old-subnet", [253, 252, 1, 0]),
    // One less in use than the Go provider said: `m-2` is released.
    ("InClusterIPPool", "tenant-a", "v4", [329, 328, 1, 0]),
    // Free are more than can be said. The Go provider takes those in use off what can be said.
    ("InClusterIPPool", "tenant-b", "v6", [i64::MAX as u64, i64::MAX as u64, 4, 0]),
    // These three were wrong.
    ("GlobalInClusterIPPool", "", "old-global", [21, 20, 1, 0]),
    ("GlobalInClusterIPPool", "", "shared", [190, 189, 1, 1]),
    ("GlobalInClusterPrefixPool", "", "gpfx", [256, 255, 1, 0]),
    ("InClusterPrefixPool", "tenant-b", "pfx", [65535, 65533, 2, 0]),
];

async fn world() -> (&'static World, Store, RwLockReadGuard<'static, ()>) {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    let machine = MACHINE.read().await;
    let world = WORLD.get_or_init(start).await;
    (world, Store::new(&world.plane).await, machine)
}

async fn start() -> World {
    let plane = ControlPlane::start(Options::default());
    let store = Store::new(&plane).await;
    fixture::load(&store).await;
    let before = Snapshot::of(&store).await;
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let manager =
        Manager::start(&plane, &[own[0].as_str(), own[1].as_str(), "--sweep-interval=1s", "--sweep-grace=1s"]);
    webhooks.wire(&plane);
    let deadline = Instant::now() + PATIENCE;
    let after = loop {
        settled(&plane).await;
        let now = Snapshot::of(&store).await;
        let wrong = wrong(&now);
        if wrong.is_empty() {
            break now;
        }
        assert!(Instant::now() < deadline, "{wrong:#?}");
    };
    World { plane, _manager: manager, before, after }
}

/// What is not yet as it is to be.
fn wrong(now: &Snapshot) -> Vec<String> {
    let mut wrong = now.problems();
    for (kind, namespace, name, counts) in COUNTS {
        let found = counts_of(now.get(kind, namespace, name).expect("no pool goes"));
        if found != json!(counts) {
            wrong.push(format!("{kind} {name} counts {found} instead of {counts:?}"));
        }
    }
    let claim = |namespace, name| now.get("IPAddressClaim", namespace, name);
    if claim("tenant-a", "m-2").is_some() {
        wrong.push("m-2 is not released".to_owned());
    }
    for (namespace, name, reason) in
        [("tenant-a", "waiting", "PoolNotReady"), ("tenant-b", "b-1", "Paused"), ("tenant-b", "b-2", "Paused")]
    {
        let conditions = claim(namespace, name).map_or(&Value::Null, |claim| &claim["status"]["conditions"]);
        if !conditions.as_array().is_some_and(|all| all.iter().any(|condition| condition["reason"] == reason)) {
            wrong.push(format!("{name} does not say {reason}, but {conditions}"));
        }
    }
    wrong
}

fn counts_of(pool: &Value) -> Value {
    let counts = &pool["status"]["ipAddresses"];
    json!([counts["total"], counts["free"], counts["used"], counts["outOfRange"]])
}

/// Waits until a claim is bound, and returns its address.
async fn bound(store: &Store, namespace: &str, name: &str) -> String {
    eventually(&format!("{namespace}/{name} is bound"), || async {
        let claim = store.get("IPAddressClaim", namespace, name).await?;
        (text(&claim, "/status/addressRef/name") == name).then_some(())
    })
    .await;
    text(&store.there("IPAddress", namespace, name).await, "/spec/address").to_owned()
}

async fn gone(store: &Store, namespace: &str, name: &str) {
    eventually(&format!("{namespace}/{name} is gone"), || async {
        let claim = store.get("IPAddressClaim", namespace, name).await;
        let address = store.get("IPAddress", namespace, name).await;
        (claim.is_none() && address.is_none()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_else_changes() {
    let (world, ..) = world().await;
    world.before.all_addresses_are_kept(&world.after, &["tenant-a/m-2"]);
    let changed = ["tenant-a/m-2", "tenant-a/waiting", "tenant-b/b-1", "tenant-b/b-2"].map(str::to_owned);
    assert_eq!(world.before.changed("IPAddressClaim", &world.after), changed.into());
    assert_eq!(world.before.changed("IPAddress", &world.after), ["tenant-a/m-2".to_owned()].into());
}

#[tokio::test]
async fn a_claim_whose_address_is_free_already_is_left_to_its_consumer() {
    let (world, store, _machine) = world().await;
    let held = world.after.get("IPAddressClaim", "tenant-a", "m-1").expect("its consumer holds it");
    assert_eq!(held["metadata"]["finalizers"], json!([HELD]));
    // Its address is the lowest free one.
    store.create(CONSUMER, &claim("v1beta1", "tenant-a", "after-m-1", ("InClusterIPPool", "v4"))).await;
    assert_eq!(bound(&store, "tenant-a", "after-m-1").await, "10.0.0.3");
    store.change(CONSUMER, ("IPAddressClaim", "tenant-a", "m-1"), |claim| remove_finalizer(claim, HELD)).await;
    gone(&store, "tenant-a", "m-1").await;
    assert_eq!(bound(&store, "tenant-a", "after-m-1").await, "10.0.0.3");
    // A client that speaks the older version of the contract reads the same.
    let old = store.get_in("ipam.cluster.x-k8s.io/v1beta1", "IPAddressClaim", "tenant-a", "after-m-1").await;
    assert_eq!(old.expect("it is served")["status"]["addressRef"]["name"], "after-m-1");
}

#[tokio::test]
async fn a_half_released_claim_is_released() {
    let (world, ..) = world().await;
    for kind in ["IPAddressClaim", "IPAddress"] {
        assert!(world.before.get(kind, "tenant-a", "m-2").is_some());
        assert!(world.after.get(kind, "tenant-a", "m-2").is_none(), "{kind}");
    }
    assert!(world.after.get("IPReservation", "", "p.tenant-a.v4.10.0.0.4").is_none());
}

#[tokio::test]
async fn owners_in_old_versions_are_right() {
    let (world, store, _machine) = world().await;
    let kept = world.after.get("IPAddress", "tenant-a", "old-1").expect("it is kept");
    let owners: Vec<&str> = [0, 1].map(|at| text(&kept["metadata"]["ownerReferences"][at], "/apiVersion")).into();
    assert_eq!(owners, ["ipam.cluster.x-k8s.io/v1beta1", "ipam.cluster.x-k8s.io/v1alpha1"]);
    assert!(world.after.get("IPReservation", "", "p.tenant-a.old-subnet.10.10.0.2").is_some());
    store.delete("IPAddressClaim", "tenant-a", "old-1").await;
    gone(&store, "tenant-a", "old-1").await;
    eventually("its reservation is gone", || async {
        store.get("IPReservation", "", "p.tenant-a.old-subnet.10.10.0.2").await.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn addresses_of_a_paused_pool_wait_for_repair_and_are_never_given_to_others() {
    let (world, store, _machine) = world().await;
    let of = ("GlobalInClusterIPPool", "", "shared");
    let left = world.after.get("IPAddress", "tenant-a", "g-1").expect("it is kept");
    assert_eq!((&left["metadata"]["ownerReferences"], &left["metadata"]["finalizers"]), (&Value::Null, &Value::Null));
    assert!(world.after.get("IPReservation", "", "g.shared.192.168.50.10").is_some(), "out of range and reserved");
    for (namespace, name) in [("tenant-a", "shared-0"), ("tenant-b", "shared-1")] {
        store.create(CONSUMER, &claim("v1beta2", namespace, name, (of.0, of.2))).await;
    }

    store
        .change(OPERATOR, of, |pool| {
            pool["metadata"]["annotations"].as_object_mut().expect("annotations").remove(PAUSED_ANNOTATION);
            // 192.168.50.10 is in range again.
            pool["spec"]["addresses"] = json!(["192.168.50.10-192.168.50.200"]);
        })
        .await;
    let given = [bound(&store, "tenant-a", "shared-0").await, bound(&store, "tenant-b", "shared-1").await];
    assert!(given.contains(&"192.168.50.12".to_owned()) && given.contains(&"192.168.50.13".to_owned()), "{given:?}");
    let claim_uid = store.there("IPAddressClaim", "tenant-a", "g-1").await["metadata"]["uid"].clone();
    let repaired = eventually("it has owners and finalizer", || async {
        let address = store.there("IPAddress", "tenant-a", "g-1").await;
        (!address["metadata"]["ownerReferences"].is_null()).then_some(address)
    })
    .await;
    assert_eq!((&repaired["metadata"]["uid"], &repaired["spec"]), (&left["metadata"]["uid"], &left["spec"]));
    let owners = &repaired["metadata"]["ownerReferences"];
    assert_eq!((&owners[0]["uid"], &owners[1]["name"]), (&claim_uid, &json!("shared")));
    assert_eq!(repaired["metadata"]["finalizers"], json!([PROTECT_ADDRESS]));
    eventually("the counts are right", || async {
        let pool = store.there(of.0, of.1, of.2).await;
        (counts_of(&pool) == json!([191, 187, 4, 0])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_claim_without_a_pool_is_bound_when_the_pool_comes() {
    let (world, store, _machine) = world().await;
    let waiting = world.after.get("IPAddressClaim", "tenant-a", "waiting").expect("it waits");
    assert_eq!(waiting["status"]["conditions"][0]["reason"], "PoolNotReady");
    assert_eq!(waiting["metadata"]["finalizers"], json!([RELEASE_ADDRESS]));
    let pool = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "InClusterIPPool",
        "metadata": {"namespace": "tenant-a", "name": "missing"},
        "spec": {"addresses": ["10.20.0.10-10.20.0.20"], "prefix": 24},
    });
    store.create(OPERATOR, &pool).await;
    assert_eq!(bound(&store, "tenant-a", "waiting").await, "10.20.0.10");
}

#[tokio::test]
async fn claims_of_a_paused_cluster_wait_until_it_goes_on() {
    let (world, store, _machine) = world().await;
    for name in ["b-1", "b-2"] {
        let claim = world.after.get("IPAddressClaim", "tenant-b", name).expect("it waits");
        let paused = claim["status"]["conditions"].as_array().expect("conditions");
        assert!(paused.iter().any(|all| all["type"] == "Paused" && all["status"] == "True"), "{claim}");
    }
    // The address of a claim that is deleted and not yet released is in use.
    assert!(world.after.get("IPAddress", "tenant-b", "b-1").is_some());
    assert!(world.after.get("IPAddress", "tenant-b", "b-2").is_none());
    assert_eq!(
        world.after.get("IPAddressClaim", "tenant-b", "b-2").map(|claim| &claim["metadata"]["finalizers"]),
        Some(&Value::Null)
    );

    store.change(OPERATOR, ("Cluster", "tenant-b", "beta"), |cluster| cluster["spec"]["paused"] = json!(false)).await;
    gone(&store, "tenant-b", "b-1").await;
    assert_eq!(bound(&store, "tenant-b", "b-2").await, "fd00:1::5");
    assert_eq!(bound(&store, "tenant-b", "b-0").await, "fd00:1::3");
    // The pool wants its addresses to rest.
    let name = "p.tenant-b.v6.fd00-0001-0000-0000-0000-0000-0000-0004";
    stays("the address rests", || async {
        store.get("IPReservation", "", name).await.is_some_and(|found| !found["spec"]["releasedAt"].is_null())
    })
    .await;
}

#[tokio::test]
async fn pools_are_read_in_the_old_version_as_before() {
    let (world, store, _machine) = world().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/takeover/");
    let text_of = fs::read_to_string(format!("{folder}pools-as-v1alpha1.json")).expect("the data can be read");
    let list: Value = serde_json::from_str(&text_of).expect("the data is JSON");
    let shown = list["items"].as_array().expect("it is a list");
    assert_eq!(shown.len(), 6);
    let mut with_data = 0;
    for shown in shown.iter().filter(|pool| pool["metadata"]["name"] != "shared") {
        let ((namespace, name), kind) = (key(shown), text(shown, "/kind"));
        let found = store.get_in(&format!("{GROUP}/v1alpha1"), kind, &namespace, &name).await;
        let found = found.expect("it can be read in the old version");
        assert_eq!(found["spec"], shown["spec"], "{name}");
        for field in ["finalizers", "labels"] {
            assert_eq!(found["metadata"][field], shown["metadata"][field], "{name}");
        }
        let annotations = |pool: &Value| {
            let mut all = pool["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            // What the old version cannot say is carried along in it.
            all.remove(CONVERSION_DATA_ANNOTATION);
            all
        };
        assert_eq!(annotations(&found), annotations(shown), "{name}");
        // What was made in the old version keeps the original.
        let after = world.after.get(kind, &namespace, &name).expect("it is there");
        let same = |pool: &&Value| (text(pool, "/kind"), key(pool)) == (kind, key(shown));
        let stored = stored().into_iter().find(|pool| same(&pool)).expect("it was stored");
        let data = |pool: &Value| pool["metadata"]["annotations"][CONVERSION_DATA_ANNOTATION].clone();
        assert_eq!(data(after), data(&stored), "{name}");
        with_data += usize::from(!data(after).is_null());
    }
    assert_eq!(with_data, 3);
    // The paused one is changed by another test, but for its annotations.
    let data = |pool: Option<&Value>| pool.expect("it is there")["metadata"]["annotations"].clone();
    let shared = ("GlobalInClusterIPPool", "", "shared");
    assert_eq!(
        data(world.after.get(shared.0, shared.1, shared.2)),
        data(world.before.get(shared.0, shared.1, shared.2))
    );
}
