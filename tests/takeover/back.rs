//! Switching back to the Go provider, and to this provider again. The Go provider does not read or
//! change reservations.

use capi_ipam_api::names::{PROTECT_ADDRESS, PROTECT_POOL, RELEASE_ADDRESS};
use support::{prelude::*, wait::TIMEOUT};

use crate::{
    MACHINE, fixture,
    go_provider::{GoProvider, claim, ip_address},
    snapshot::{Snapshot, reservation_name},
    store::{CONSUMER, GO_PROVIDER, GROUP, Store, text},
};

const NAMESPACE: &str = "tenant-a";
/// Flags with which orphaned reservations are freed within seconds.
const SWEEPS: [&str; 2] = ["--sweep-interval=1s", "--sweep-grace=1s"];

/// A client that creates and deletes pools and claims.
struct Client<'a> {
    store: &'a Store,
}

impl Client<'_> {
    async fn create_pool(&self, name: &str, range: &str, grace: u32) {
        let spec =
            json!({"addresses": [range], "prefix": 24, "addressReuseGracePeriodSeconds": grace});
        self.store.create_pool(NAMESPACE, name, spec).await;
    }

    async fn create_claim(&self, name: &str, pool: &str) -> Value {
        self.store
            .create_claim(NAMESPACE, name, ("InClusterIPPool", pool))
            .await
    }

    async fn delete(&self, name: &str) {
        self.store.delete("IPAddressClaim", NAMESPACE, name).await;
    }

    /// Waits until these claims are bound, and returns their addresses.
    async fn wait_for_addresses(&self, names: &[&str]) -> Vec<String> {
        let waits = names
            .iter()
            .map(|name| self.store.wait_for_address(NAMESPACE, name));
        join_all(waits).await
    }

    async fn wait_until_deleted(&self, name: &str) {
        self.store.wait_until_deleted(NAMESPACE, name).await;
    }
}

/// Asserts that the objects of a claim are those that the Go provider would have created.
async fn assert_like_the_go_provider(store: &Store, name: &str) {
    let claim = store.get_existing("IPAddressClaim", NAMESPACE, name).await;
    assert_eq!(claim["metadata"]["finalizers"], json!([RELEASE_ADDRESS]));
    let pool = store
        .get_existing(
            "InClusterIPPool",
            NAMESPACE,
            text(&claim, "/spec/poolRef/name"),
        )
        .await;
    assert_eq!(pool["metadata"]["finalizers"], json!([PROTECT_POOL]));
    let made = store.get_existing("IPAddress", NAMESPACE, name).await;
    let expected = ip_address(&claim, &pool, text(&made, "/spec/address"));
    assert_eq!(made["spec"], expected["spec"]);
    assert_eq!(made["metadata"]["finalizers"], json!([PROTECT_ADDRESS]));
    for field in ["ownerReferences", "labels", "name"] {
        assert_eq!(made["metadata"][field], expected["metadata"][field]);
    }
}

/// Waits until the state is correct; no address may be allocated twice meanwhile.
async fn wait_until_correct(store: &Store, manager: &Manager) -> Snapshot {
    let patience = Patience::new(TIMEOUT);
    loop {
        let now = Snapshot::of(store).await;
        let problems = now.problems();
        if problems.is_empty() {
            return now;
        }
        assert!(
            !problems.iter().any(|problem| problem.contains("twice")),
            "{problems:#?}\n{}",
            manager.log()
        );
        assert!(!patience.is_over(), "{problems:#?}\n{}", manager.log());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Creates the reservation of a claim, as a manager that stopped after this step.
async fn create_reservation_only(store: &Store, claim: &Value, address: &str) {
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
async fn switching_back_and_forth_keeps_all_addresses() {
    let _machine = MACHINE.read().await;
    let plane = ControlPlane::new();
    let store = Store::new(&plane).await;
    let (go, client) = (GoProvider::new(&store), Client { store: &store });
    fixture::load(&store).await;
    for (pool, range, grace) in [
        ("racks", "10.9.0.10-10.9.0.60", 0),
        ("calm", "10.8.0.10-10.8.0.20", 600),
        ("small", "10.7.0.10-10.7.0.12", 0),
    ] {
        client.create_pool(pool, range, grace).await;
    }
    // The first claim of each pool is bound by the Go provider, which then adds the finalizer of
    // the pool.
    for (name, pool) in [
        ("c-0", "racks"),
        ("c-1", "racks"),
        ("c-2", "racks"),
        ("k-0", "calm"),
        ("s-0", "small"),
    ] {
        client.create_claim(name, pool).await;
        go.allocate_lowest(NAMESPACE, name).await;
    }

    // This provider. Its webhooks stay configured when it is stopped.
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let flags = [own[0].as_str(), own[1].as_str(), SWEEPS[0], SWEEPS[1]];
    let mut ours = Manager::start(&plane, &flags);
    webhooks.register(&plane);
    for (name, pool) in [
        ("d-0", "racks"),
        ("d-1", "racks"),
        ("d-2", "racks"),
        ("k-1", "calm"),
        ("s-1", "small"),
    ] {
        client.create_claim(name, pool).await;
    }
    let given = client
        .wait_for_addresses(&["d-0", "d-1", "d-2", "k-1", "s-1"])
        .await;
    let of_racks: BTreeSet<&str> = given[..3].iter().map(String::as_str).collect();
    assert_eq!(of_racks, ["10.9.0.13", "10.9.0.14", "10.9.0.15"].into());
    for name in ["d-0", "d-1", "d-2", "k-1", "s-1"] {
        assert_like_the_go_provider(&store, name).await;
    }
    client.delete("k-0").await;
    client.wait_until_deleted("k-0").await;
    wait_until_correct(&store, &ours).await;
    ours.stop();

    change_with_the_go_provider(&store, &go, &client).await;
    let before = Snapshot::of(&store).await;
    assert_eq!(
        text(
            &store
                .get_existing("IPReservation", "", "p.tenant-a.racks.10.9.0.10")
                .await,
            "/spec/claimRef/name"
        ),
        "c-0"
    );

    // This provider again.
    let ours = Manager::start(&plane, &flags);
    for (name, pool) in [
        ("f-0", "racks"),
        ("f-1", "racks"),
        ("f-2", "calm"),
        ("f-3", "small"),
    ] {
        client.create_claim(name, pool).await;
    }
    client
        .wait_for_addresses(&["f-0", "f-1", "f-2", "h-0"])
        .await;
    store.unpause_cluster(NAMESPACE, "stopped").await;
    client.wait_for_addresses(&["x-0"]).await;
    client.create_pool("small", "10.7.0.10-10.7.0.12", 0).await;
    client.wait_for_addresses(&["f-3"]).await;
    let after = wait_until_correct(&store, &ours).await;
    before.assert_addresses_kept(&after, &[]);
    assert_each_address_once(&after);
    let bound = [
        "c-2", "d-2", "e-0", "e-1", "e-2", "d-1", "y-0", "k-1", "k-2",
    ]
    .map(|name| format!("{NAMESPACE}/{name}"));
    let changed = before.changed("IPAddressClaim", &after);
    assert_eq!(
        changed.intersection(&bound.into()).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );

    // Claims bound by the Go provider are released as well.
    for name in ["e-0", "y-0", "x-0", "h-0", "k-2"] {
        client.delete(name).await;
        client.wait_until_deleted(name).await;
    }
    wait_until_correct(&store, &ours).await;
}

/// Releases some claims, allocates their addresses to other claims, and deletes a pool.
async fn change_with_the_go_provider(store: &Store, go: &GoProvider<'_>, client: &Client<'_>) {
    for name in ["c-0", "c-1", "d-0", "d-1"] {
        client.delete(name).await;
        go.release(NAMESPACE, name).await;
    }
    // Other claims get their addresses in ascending order; one of them has the name of a previous
    // claim.
    let free = ["10.9.0.10", "10.9.0.11"];
    for (name, address) in ["e-0", "d-1"].into_iter().zip(free) {
        client.create_claim(name, "racks").await;
        assert_eq!(go.allocate_lowest(NAMESPACE, name).await, address);
    }
    for name in ["e-1", "e-2"] {
        client.create_claim(name, "racks").await;
        go.allocate_lowest(NAMESPACE, name).await;
    }
    // This provider had reserved an address for `x-0` before its Cluster was paused; another claim
    // gets it.
    let mut waiting = claim("v1beta2", NAMESPACE, "x-0", ("InClusterIPPool", "racks"));
    waiting["spec"]["clusterName"] = json!("stopped");
    store.create_cluster(NAMESPACE, "stopped", true).await;
    let waiting = store.create(CONSUMER, &waiting).await;
    create_reservation_only(store, &waiting, "10.9.0.16").await;
    client.create_claim("y-0", "racks").await;
    assert_eq!(go.allocate_lowest(NAMESPACE, "y-0").await, "10.9.0.16");
    // It stops between the IPAddress and the status of `h-0`. The address belonged to `d-2` and is
    // still reserved.
    client.delete("d-2").await;
    let released = store.wait_for_address(NAMESPACE, "d-2").await;
    go.release(NAMESPACE, "d-2").await;
    let half = go.protect(&client.create_claim("h-0", "racks").await).await;
    let racks = store
        .get_existing("InClusterIPPool", NAMESPACE, "racks")
        .await;
    store
        .create(GO_PROVIDER, &ip_address(&half, &racks, &released))
        .await;
    // An address that cools down is free for the Go provider.
    client.create_claim("k-2", "calm").await;
    assert_eq!(go.allocate_lowest(NAMESPACE, "k-2").await, "10.8.0.10");
    // A pool is deleted with its last claim.
    for name in ["s-0", "s-1"] {
        client.delete(name).await;
        go.release(NAMESPACE, name).await;
    }
    store.delete("InClusterIPPool", NAMESPACE, "small").await;
    go.release_pool("InClusterIPPool", NAMESPACE, "small").await;
}

fn assert_each_address_once(now: &Snapshot) {
    let mut given: BTreeMap<String, &Value> = BTreeMap::new();
    for address in now.of_kind("IPAddress") {
        let other = given.insert(reservation_name(address), address);
        assert_eq!(other, None, "also allocated to {address}");
    }
}
