//! The lease: while the Go provider holds it, ours does nothing but answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capi_ipam::api::names::IN_CLUSTER_LEASE;
use capi_ipam::go_provider::claim;
use capi_ipam::many::{writes, written_since};
use capi_ipam::snapshot::Snapshot;
use capi_ipam::store::{CONSUMER, GO_PROVIDER, GROUP, Store, text};
use capi_ipam::support::consumer::eventually;
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::webhooks::Webhooks;
use capi_ipam::{fixture, MACHINE};
use k8s_openapi::jiff::Timestamp;
use serde_json::{json, Value};

const HOLDER: &str = "capi-ipam-in-cluster-controller-manager-7c6f5b9d4-x2x7q_0b9f4f63-5c80-4f4e-9d43-8a6a3a3c6c51";
/// How long a lease lasts that is not renewed.
const LASTS: Duration = Duration::from_secs(6);

fn now() -> Value {
    // The form that Go gives to times of microseconds.
    json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
}

fn hold(lease: &mut Value) {
    if text(lease, "/spec/holderIdentity") != HOLDER {
        lease["spec"]["acquireTime"] = now();
        lease["spec"]["leaseTransitions"] = json!(lease["spec"]["leaseTransitions"].as_u64().unwrap_or_default() + 1);
    }
    lease["spec"]["holderIdentity"] = json!(HOLDER);
    lease["spec"]["leaseDurationSeconds"] = json!(LASTS.as_secs());
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
        assert_eq!(text(&store.there(LEASE.0, LEASE.1, LEASE.2).await, "/spec/holderIdentity"), "", "it is free");
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

    /// Ends as if it was killed.
    async fn die(self) {
        self.on.store(false, Ordering::Relaxed);
        self.renewing.await.expect("it renews the lease until now");
    }

    /// Ends, and gives the lease back as client-go does it.
    async fn step_down(self, store: &Store) {
        self.die().await;
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
    text(&store.there(LEASE.0, LEASE.1, LEASE.2).await, "/spec/holderIdentity").to_owned()
}

async fn bound(store: &Store, name: &str) -> Instant {
    eventually(&format!("{name} is bound"), || async {
        let claim = store.there("IPAddressClaim", "tenant-a", name).await;
        (text(&claim, "/status/addressRef/name") == name).then(Instant::now)
    })
    .await
}

/// Waits for longer than a lease lasts, and makes sure that nothing is written.
async fn nothing_is_written(plane: &ControlPlane, manager: &Manager) {
    let before = writes(plane);
    tokio::time::sleep(LASTS + Duration::from_secs(2)).await;
    assert_eq!(written_since(plane, &before), Vec::<String>::new(), "{}", manager.log());
    assert!(manager.is_ready());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_before_the_go_provider_gives_the_lease_up() {
    let _machine = MACHINE.read().await;
    let plane = ControlPlane::start(Options::default());
    let store = Store::new(&plane).await;
    fixture::load(&store).await;
    let go = Leader::start(&store).await;
    for name in ["new-0", "new-1"] {
        store.create(CONSUMER, &claim("v1beta2", "tenant-a", name, ("InClusterIPPool", "v4"))).await;
    }
    let before = Snapshot::of(&store).await;

    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let duration = format!("--leader-elect-lease-duration={}s", LASTS.as_secs());
    let times = [duration.as_str(), "--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=200ms"];
    let flags: Vec<&str> = own.iter().map(String::as_str).chain(["--leader-elect"]).chain(times).collect();
    let mut manager = Manager::start(&plane, &flags);
    webhooks.wire(&plane);
    nothing_is_written(&plane, &manager).await;
    // It answers the API server meanwhile.
    let old = store.get_in(&format!("{GROUP}/v1alpha1"), "InClusterIPPool", "tenant-a", "old-subnet").await;
    assert_eq!(old.expect("it is converted")["spec"]["subnet"], "10.10.0.0/24");
    let refused = plane.try_kubectl(&[
        "--namespace=tenant-a",
        "patch",
        "inclusterippool",
        "v4",
        "--type=merge",
        "--patch={\"spec\": {\"excludedAddresses\": [\"10.0.0.2\"]}}",
    ]);
    assert!(refused.as_ref().is_err_and(|text| text.contains("10.0.0.2")), "it is in use: {refused:?}");
    assert_eq!(holder(&store).await, HOLDER);
    for kind in ["IPAddressClaim", "IPAddress"] {
        assert_eq!(before.changed(kind, &Snapshot::of(&store).await), [].into());
    }

    let given_up = Instant::now();
    go.step_down(&store).await;
    println!("bound {:?} after the lease was given up", bound(&store, "new-0").await - given_up);
    bound(&store, "new-1").await;
    assert_ne!(holder(&store).await, HOLDER);
    before.all_addresses_are_kept(&Snapshot::of(&store).await, &["tenant-a/m-2"]);

    // Back, and then the Go provider dies.
    manager.stop();
    let go = Leader::start(&store).await;
    store.create(CONSUMER, &claim("v1beta2", "tenant-a", "new-2", ("InClusterIPPool", "v4"))).await;
    let manager = Manager::start(&plane, &flags);
    nothing_is_written(&plane, &manager).await;
    go.die().await;
    let time = async |field: &str| -> Timestamp {
        let lease = store.there(LEASE.0, LEASE.1, LEASE.2).await;
        text(&lease, field).parse().expect("a lease tells times")
    };
    let renewed = time("/spec/renewTime").await;
    bound(&store, "new-2").await;
    let waited = time("/spec/acquireTime").await.duration_since(renewed).unsigned_abs();
    println!("led {waited:?} after the last renewal of a lease of {LASTS:?}");
    assert!(waited >= LASTS, "{waited:?}");
    let names = ["new-0", "new-1", "new-2"].map(|name| store.there("IPAddress", "tenant-a", name));
    let given = futures::future::join_all(names).await;
    let mut given: Vec<&str> = given.iter().map(|address| text(address, "/spec/address")).collect();
    given.sort_unstable();
    given.dedup();
    assert_eq!(given.len(), 3);
}
