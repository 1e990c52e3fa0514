//! Leader election: while the Go provider holds the lease, this provider only serves webhooks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use capi_ipam_api::names::IN_CLUSTER_LEASE;
use k8s_openapi::jiff::Timestamp;
use support::prelude::*;

use crate::{
    MACHINE, fixture,
    many::{writes, written_since},
    snapshot::Snapshot,
    store::{GO_PROVIDER, GROUP, Store, text},
};

const HOLDER: &str =
    "capi-ipam-in-cluster-controller-manager-7c6f5b9d4-x2x7q_0b9f4f63-5c80-4f4e-9d43-8a6a3a3c6c51";
/// The duration of a lease that is not renewed. A loaded API server can take seconds for a renewal.
const LEASE_DURATION: Duration = Duration::from_secs(10);

fn now() -> Value {
    // The format of MicroTime in Go.
    json!(
        Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
            .to_string()
    )
}

fn hold(lease: &mut Value) {
    if text(lease, "/spec/holderIdentity") != HOLDER {
        lease["spec"]["acquireTime"] = now();
        lease["spec"]["leaseTransitions"] = json!(
            lease["spec"]["leaseTransitions"]
                .as_u64()
                .unwrap_or_default()
                + 1
        );
    }
    lease["spec"]["holderIdentity"] = json!(HOLDER);
    lease["spec"]["leaseDurationSeconds"] = json!(LEASE_DURATION.as_secs());
    lease["spec"]["renewTime"] = now();
}

const LEASE: (&str, &str, &str) = ("Lease", NAMESPACE, IN_CLUSTER_LEASE);

/// The Go provider, leading: renews the lease until it is dropped.
struct Leader {
    on: Arc<AtomicBool>,
    renewing: tokio::task::JoinHandle<()>,
}

impl Leader {
    async fn start(store: &Store) -> Self {
        if store.get(LEASE.0, LEASE.1, LEASE.2).await.is_none() {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"namespace": NAMESPACE, "name": IN_CLUSTER_LEASE}, "spec": {},
            });
            store.create(GO_PROVIDER, &lease).await;
        }
        assert_eq!(
            text(
                &store.get_existing(LEASE.0, LEASE.1, LEASE.2).await,
                "/spec/holderIdentity"
            ),
            "",
            "the lease is free"
        );
        store.change(GO_PROVIDER, LEASE, hold).await;
        let (on, store) = (Arc::new(AtomicBool::new(true)), store.clone());
        let renew = Arc::clone(&on);
        let renewing = tokio::spawn(async move {
            while renew.load(Ordering::Relaxed) {
                store.change(GO_PROVIDER, LEASE, hold).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        Self { on, renewing }
    }

    /// Stops without releasing the lease, as a crash.
    async fn crash(self) {
        self.on.store(false, Ordering::Relaxed);
        self.renewing.await.expect("it renews the lease until now");
    }

    /// Stops and releases the lease as client-go does.
    async fn step_down(self, store: &Store) {
        self.crash().await;
        store
            .change(GO_PROVIDER, LEASE, |lease| {
                lease["spec"]["holderIdentity"] = json!("");
                lease["spec"]["leaseDurationSeconds"] = json!(1);
                (lease["spec"]["renewTime"], lease["spec"]["acquireTime"]) = (now(), now());
            })
            .await;
    }
}

async fn holder(store: &Store) -> String {
    text(
        &store.get_existing(LEASE.0, LEASE.1, LEASE.2).await,
        "/spec/holderIdentity",
    )
    .to_owned()
}

/// Waits for longer than the lease duration, and asserts that nothing is written.
async fn assert_nothing_is_written(plane: &ControlPlane, manager: &Manager) {
    let before = writes(plane);
    tokio::time::sleep(LEASE_DURATION + Duration::from_secs(2)).await;
    assert_eq!(
        written_since(plane, &before),
        Vec::<String>::new(),
        "{}",
        manager.log()
    );
    assert!(manager.is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_while_the_go_provider_leads() {
    let _machine = MACHINE.read().await;
    let plane = ControlPlane::new();
    let store = Store::new(&plane).await;
    fixture::load(&store).await;
    let go = Leader::start(&store).await;
    for name in ["new-0", "new-1"] {
        store
            .create_claim("tenant-a", name, ("InClusterIPPool", "v4"))
            .await;
    }
    let before = Snapshot::of(&store).await;

    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let duration = format!(
        "--leader-elect-lease-duration={}s",
        LEASE_DURATION.as_secs()
    );
    let times = [
        duration.as_str(),
        "--leader-elect-renew-deadline=8s",
        "--leader-elect-retry-period=200ms",
    ];
    let flags: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(["--leader-elect"])
        .chain(times)
        .collect();
    let mut manager = Manager::start(&plane, &flags);
    webhooks.register(&plane);
    assert_nothing_is_written(&plane, &manager).await;
    // It serves webhooks meanwhile.
    let old = store
        .get_in(
            &format!("{GROUP}/v1alpha1"),
            "InClusterIPPool",
            "tenant-a",
            "old-subnet",
        )
        .await;
    assert_eq!(
        old.expect("it is converted")["spec"]["subnet"],
        "10.10.0.0/24"
    );
    let refused = plane.try_kubectl(&[
        "--namespace=tenant-a",
        "patch",
        "inclusterippool",
        "v4",
        "--type=merge",
        "--patch={\"spec\": {\"excludedAddresses\": [\"10.0.0.2\"]}}",
    ]);
    assert!(
        refused
            .as_ref()
            .is_err_and(|text| text.contains("10.0.0.2")),
        "it is in use: {refused:?}"
    );
    assert_eq!(holder(&store).await, HOLDER);
    for kind in ["IPAddressClaim", "IPAddress"] {
        assert_eq!(before.changed(kind, &Snapshot::of(&store).await), [].into());
    }

    let released = Instant::now();
    go.step_down(&store).await;
    store.wait_for_address("tenant-a", "new-0").await;
    println!(
        "bound {:?} after the lease was released",
        released.elapsed()
    );
    store.wait_for_address("tenant-a", "new-1").await;
    assert_ne!(holder(&store).await, HOLDER);
    before.assert_addresses_kept(&Snapshot::of(&store).await, &["tenant-a/m-2"]);

    // The Go provider leads again, and then crashes.
    manager.stop();
    let go = Leader::start(&store).await;
    store
        .create_claim("tenant-a", "new-2", ("InClusterIPPool", "v4"))
        .await;
    let manager = Manager::start(&plane, &flags);
    assert_nothing_is_written(&plane, &manager).await;
    go.crash().await;
    let time = async |field: &str| -> Timestamp {
        let lease = store.get_existing(LEASE.0, LEASE.1, LEASE.2).await;
        text(&lease, field).parse().expect("a lease has timestamps")
    };
    let renewed = time("/spec/renewTime").await;
    store.wait_for_address("tenant-a", "new-2").await;
    let waited = time("/spec/acquireTime")
        .await
        .duration_since(renewed)
        .unsigned_abs();
    println!("led {waited:?} after the last renewal of a lease of {LEASE_DURATION:?}");
    assert!(waited >= LEASE_DURATION, "{waited:?}");
    let names = ["new-0", "new-1", "new-2"];
    let given = join_all(names.map(|name| store.wait_for_address("tenant-a", name))).await;
    let given: BTreeSet<String> = given.into_iter().collect();
    assert_eq!(given.len(), 3);
}
