//! Back to the Go provider, and to ours again: it knows nothing of reservations, and leaves them as they were.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam::api::names::{PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS, SKIP_VALIDATE_DELETE};
use capi_ipam::go_provider::{claim, GoProvider, ip_address};
use capi_ipam::snapshot::{reservation_name, Snapshot};
use capi_ipam::store::{CONSUMER, GO_PROVIDER, GROUP, OPERATOR, Store, text};
use capi_ipam::support::consumer::{eventually, PATIENCE};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::webhooks::Webhooks;
use capi_ipam::{fixture, MACHINE};
use serde_json::{json, Value};

const NAMESPACE: &str = "tenant-a";
/// Frees what is abandoned within seconds.
const SWEEPS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];

/// One who makes pools and claims, and deletes them.
struct People<'a> {
    store: &'a Store,
}

impl People<'_> {
    async fn pool(&self, name: &str, range: &str, grace: u32) {
        let pool = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "InClusterIPPool",
            "metadata": {"namespace": NAMESPACE, "name": name, "annotations": {SKIP_VALIDATE_DELETE: ""}},
            "spec": {"addresses": [range], "prefix": 24, "addressReuseGracePeriodSeconds": grace},
        });
        self.store.create(OPERATOR, &pool).await;
    }

    async fn claim(&self, name: &str, pool: &str) -> Value {
        self.store.create(CONSUMER, &claim("v1beta2", NAMESPACE, name, ("InClusterIPPool", pool))).await
    }

    async fn delete(&self, name: &str) {
        self.store.delete("IPAddressClaim", NAMESPACE, name).await;
    }

    /// Waits until these claims are bound, and returns their addresses.
    async fn bound<const N: usize>(&self, names: [&str; N]) -> [String; N] {
        let mut addresses = [const { String::new() }; N];
        for (name, address) in names.into_iter().zip(&mut addresses) {
            eventually(&format!("{name} is bound"), || async {
                let claim = self.store.there("IPAddressClaim", NAMESPACE, name).await;
                (text(&claim, "/status/addressRef/name") == name).then_some(())
            })
            .await;
            *address = self.address(name).await;
        }
        addresses
    }

    async fn address(&self, name: &str) -> String {
        text(&self.store.there("IPAddress", NAMESPACE, name).await, "/spec/address").to_owned()
    }

    async fn gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), || async {
            self.store.get("IPAddressClaim", NAMESPACE, name).await.is_none().then_some(())
        })
        .await;
    }
}

/// Makes sure that what ours made is what the Go provider would have made.
async fn is_as_the_go_provider_makes_it(store: &Store, name: &str) {
    let claim = store.there("IPAddressClaim", NAMESPACE, name).await;
    assert_eq!(claim["metadata"]["finalizers"], json!([RELEASE_ADDRESS]));
    let pool = store.there("InClusterIPPool", NAMESPACE, text(&claim, "/spec/poolRef/name")).await;
    assert_eq!(pool["metadata"]["finalizers"], json!([PROTECT_POOL]));
    let made = store.there("IPAddress", NAMESPACE, name).await;
    let expected = ip_address(&claim, &pool, text(&made, "/spec/address"));
    assert_eq!(made["spec"], expected["spec"]);
    assert_eq!(made["metadata"]["finalizers"], json!([PROTECT_ADDRESS]));
    for field in ["ownerReferences", "labels", "name"] {
        assert_eq!(made["metadata"][field], expected["metadata"][field]);
    }
}

/// Waits until nothing is wrong; no address may be given twice meanwhile.
async fn all_is_right(store: &Store, manager: &Manager) -> Snapshot {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let now = Snapshot::of(store).await;
        let problems = now.problems();
        if problems.is_empty() {
            return now;
        }
        assert!(!problems.iter().any(|problem| problem.contains("twice")), "{problems:#?}\n{}", manager.log());
        assert!(std::time::Instant::now() < deadline, "{problems:#?}\n{}", manager.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The reservation of a claim that ours had begun to serve when it ended.
async fn reserved_and_no_more(store: &Store, claim: &Value, address: &str) {
    let pool = text(claim, "/spec/poolRef/name");
    let (scope, metadata) = (format!("p.{NAMESPACE}.{pool}"), &claim["metadata"]);
    let reservation = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPReservation",
        "metadata": {"name": format!("{scope}.{address}")},
        "spec": {
            "scope": scope, "address": address,
            "poolRef": {"kind": "InClusterIPPool", "namespace": NAMESPACE, "name": pool},
            "claimRef": {"namespace": NAMESPACE, "name": metadata["name"], "uid": metadata["uid"]},
        },
    });
    store.create(GO_PROVIDER, &reservation).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_go_provider_can_have_it_back_and_ours_again() {
    let _machine = MACHINE.read().await;
    let plane = ControlPlane::start(Options::default());
    let store = Store::new(&plane).await;
    let (go, people) = (GoProvider::new(&store), People { store: &store });
    fixture::load(&store).await;
    for (pool, range, grace) in
        [("racks", "10.9.0.10-10.9.0.60", 0), ("calm", "10.8.0.10-10.8.0.20", 600), ("small", "10.7.0.10-10.7.0.12", 0)]
    {
        people.pool(pool, range, grace).await;
    }
    // The first of each is the Go provider's, which gives the pool its finalizer then.
    for (name, pool) in [("c-0", "racks"), ("c-1", "racks"), ("c-2", "racks"), ("k-0", "calm"), ("s-0", "small")] {
        people.claim(name, pool).await;
        go.serve(NAMESPACE, name).await;
    }

    // Ours. Its webhooks stay configured when it is gone.
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let flags = [own[0].as_str(), own[1].as_str(), SWEEPS[0], SWEEPS[1]];
    let mut ours = Manager::start(&plane, &flags);
    webhooks.wire(&plane);
    for (name, pool) in [("d-0", "racks"), ("d-1", "racks"), ("d-2", "racks"), ("k-1", "calm"), ("s-1", "small")] {
        people.claim(name, pool).await;
    }
    let given = people.bound(["d-0", "d-1", "d-2", "k-1", "s-1"]).await;
    let of_racks: BTreeSet<&str> = given[..3].iter().map(String::as_str).collect();
    assert_eq!(of_racks, ["10.9.0.13", "10.9.0.14", "10.9.0.15"].into());
    for name in ["d-0", "d-1", "d-2", "k-1", "s-1"] {
        is_as_the_go_provider_makes_it(&store, name).await;
    }
    people.delete("k-0").await;
    people.gone("k-0").await;
    all_is_right(&store, &ours).await;
    ours.stop();

    changed_by_the_go_provider(&store, &go, &people).await;
    let before = Snapshot::of(&store).await;
    assert_eq!(
        text(&store.there("IPReservation", "", "p.tenant-a.racks.10.9.0.10").await, "/spec/claimRef/name"),
        "c-0"
    );

    // Ours again.
    let ours = Manager::start(&plane, &flags);
    for (name, pool) in [("f-0", "racks"), ("f-1", "racks"), ("f-2", "calm"), ("f-3", "small")] {
        people.claim(name, pool).await;
    }
    people.bound(["f-0", "f-1", "f-2", "h-0"]).await;
    let cluster = ("Cluster", NAMESPACE, "stopped");
    store.change(OPERATOR, cluster, |cluster| cluster["spec"]["paused"] = json!(false)).await;
    people.bound(["x-0"]).await;
    people.pool("small", "10.7.0.10-10.7.0.12", 0).await;
    people.bound(["f-3"]).await;
    let after = all_is_right(&store, &ours).await;
    before.all_addresses_are_kept(&after, &[]);
    each_address_is_given_once(&after);
    let bound =
        ["c-2", "d-2", "e-0", "e-1", "e-2", "d-1", "y-0", "k-1", "k-2"].map(|name| format!("{NAMESPACE}/{name}"));
    let changed = before.changed("IPAddressClaim", &after);
    assert_eq!(changed.intersection(&bound.into()).collect::<Vec<_>>(), Vec::<&String>::new());

    // What the Go provider made is released as well.
    for name in ["e-0", "y-0", "x-0", "h-0", "k-2"] {
        people.delete(name).await;
        people.gone(name).await;
    }
    all_is_right(&store, &ours).await;
}

/// Releases some of ours, gives their addresses to other claims, lets a pool go.
async fn changed_by_the_go_provider(store: &Store, go: &GoProvider<'_>, people: &People<'_>) {
    for name in ["c-0", "c-1", "d-0", "d-1"] {
        people.delete(name).await;
        go.release(NAMESPACE, name).await;
    }
    // In the order of addresses, others get what these had; one of them has a name that was there before.
    let free = ["10.9.0.10", "10.9.0.11"];
    for (name, address) in ["e-0", "d-1"].into_iter().zip(free) {
        people.claim(name, "racks").await;
        assert_eq!(go.serve(NAMESPACE, name).await, address);
    }
    for name in ["e-1", "e-2"] {
        people.claim(name, "racks").await;
        go.serve(NAMESPACE, name).await;
    }
    // Ours had begun to serve `x-0`, whose Cluster was paused then; its address goes to another.
    let mut waiting = claim("v1beta2", NAMESPACE, "x-0", ("InClusterIPPool", "racks"));
    waiting["spec"]["clusterName"] = json!("stopped");
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"namespace": NAMESPACE, "name": "stopped"},
        "spec": {
            "paused": true,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "stopped"},
        },
    });
    store.create(OPERATOR, &cluster).await;
    let waiting = store.create(CONSUMER, &waiting).await;
    reserved_and_no_more(store, &waiting, "10.9.0.16").await;
    people.claim("y-0", "racks").await;
    assert_eq!(go.serve(NAMESPACE, "y-0").await, "10.9.0.16");
    // It ends between the IPAddress and the status of `h-0`. The address was `d-2`'s, which was reserved by ours.
    people.delete("d-2").await;
    let released = people.address("d-2").await;
    go.release(NAMESPACE, "d-2").await;
    let half = go.protect(&people.claim("h-0", "racks").await).await;
    let racks = store.there("InClusterIPPool", NAMESPACE, "racks").await;
    store.create(GO_PROVIDER, &ip_address(&half, &racks, &released)).await;
    // An address that ours lets rest is free to it.
    people.claim("k-2", "calm").await;
    assert_eq!(go.serve(NAMESPACE, "k-2").await, "10.8.0.10");
    // A pool goes with its last claim.
    for name in ["s-0", "s-1"] {
        people.delete(name).await;
        go.release(NAMESPACE, name).await;
    }
    store.delete("InClusterIPPool", NAMESPACE, "small").await;
    go.let_pool_go("InClusterIPPool", NAMESPACE, "small").await;
}

fn each_address_is_given_once(now: &Snapshot) {
    let mut given: BTreeMap<String, &Value> = BTreeMap::new();
    for address in now.of_kind("IPAddress") {
        let other = given.insert(reservation_name(address), address);
        assert_eq!(other, None, "given to {address} too");
    }
}
