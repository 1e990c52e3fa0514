//! The causes of the alerts of the manager.

use std::{convert::Infallible, sync::Arc};

use capi_ipam_controller::{
    controller::{Action, reconcile_fn},
    manager::{Identity, Manager as Framework, run_with_options},
    options::Options as Flags,
};
use clap::Parser as _;
use k8s_openapi::api::core::v1::ConfigMap;
use support::{ports::free_port, prelude::*};
use tokio_util::sync::CancellationToken;

use crate::server::{Prometheus, scraped};

/// How long etcd hangs: a write takes longer than the alert tolerates, and the lease is not lost.
const HANG: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn no_replica_and_no_leader() {
    let plane = ControlPlane::new();
    let metrics = free_port();
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    prometheus.wait_for_alert("CapiIpamDown").await;

    // Another process holds the lease, and renews it never.
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": capi_ipam_api::names::IN_CLUSTER_LEASE, "namespace": NAMESPACE},
        "spec": {
            "holderIdentity": "hung", "leaseDurationSeconds": 3600,
            "renewTime": "2100-01-01T00:00:00.000000Z",
        },
    });
    plane.kubectl_apply(&lease.to_string());
    let [address, plain] = scraped(metrics);
    let namespace = format!("--leader-election-namespace={NAMESPACE}");
    let flags = ["--leader-elect", &namespace, &address, &plain];
    let _standby = Manager::start(&plane, &flags);
    prometheus.wait_until_silent("CapiIpamDown").await;
    prometheus.wait_for_alert("CapiIpamNoLeader").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_without_permissions() {
    let plane = ControlPlane::new();
    plane.kubectl(&["create", "serviceaccount", "nobody", "--namespace=default"]);
    let kubeconfig = plane.kubeconfig_of_account("default", "nobody");
    let metrics = free_port();
    let [address, plain] = scraped(metrics);
    let _manager =
        Manager::launch(&plane, &kubeconfig, &[&*address, &*plain]).may_lack_permissions();
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    prometheus.wait_for_alert("CapiIpamCacheNotSynced").await;
    let fails = prometheus.wait_for_alert("CapiIpamWatchFails").await;
    assert_eq!(fails["reason"], "forbidden", "{fails}");
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_that_was_deleted_before_the_start() {
    let plane = ControlPlane::new();
    let definition = "ipreservations.ipam.cluster.x-k8s.io";
    plane.kubectl(&["delete", "customresourcedefinition", definition]);
    let metrics = free_port();
    let [address, plain] = scraped(metrics);
    let kubeconfig = plane.provider_kubeconfig();
    let _manager = Manager::launch(&plane, kubeconfig, &[&*address, &*plain]);
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    let named = "ALERTS{alertname=\"CapiIpamCacheNotSynced\",cache=\"IPReservation\"}";
    prometheus.wait_for(named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_etcd() {
    let mut plane = ControlPlane::new();
    let metrics = free_port();
    let [address, plain] = scraped(metrics);
    let namespace = format!("--leader-election-namespace={NAMESPACE}");
    let flags = ["--leader-elect", &namespace, &address, &plain];
    let _manager = Manager::start(&plane, &flags);
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    let renewals = "apiserver_request_seconds_count{resource=\"leases\",verb!=\"get\"} > 1";
    prometheus.wait_for(renewals).await;

    // The leader renews its lease every 2 seconds.
    plane.signal_etcd("STOP");
    tokio::time::sleep(HANG).await;
    plane.signal_etcd("CONT");
    prometheus.wait_for_alert("CapiIpamRequestsSlow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_api_server() {
    let mut plane = ControlPlane::new();
    let metrics = free_port();
    let [address, plain] = scraped(metrics);
    // Without a lease it keeps running.
    let _manager = Manager::start(&plane, &[&address, &plain]);
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    prometheus.wait_for("apiserver_request_seconds_count").await;
    plane.stop_api_server();
    prometheus.wait_for_alert("CapiIpamRequestsFail").await;
}

/// A manager of the SDK, in a thread of this process, with a controller of ConfigMaps that panics.
struct Panicking {
    stop: CancellationToken,
}

impl Panicking {
    fn start(plane: &ControlPlane, metrics: u16) -> Self {
        let [address, plain] = scraped(metrics);
        let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig().display());
        let flags = [
            "panicking",
            &kubeconfig,
            "--health-probe-bind-address=0",
            &address,
            &plain,
        ];
        let options = Program::parse_from(flags).options;
        let (sender, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let identity = Identity::new("panicking", "0.0.1");
            run_with_options(
                identity,
                options,
                async |_| Ok(()),
                async |manager| {
                    add_controller(manager);
                    let _ = sender.send(manager.stop.clone());
                    Ok(())
                },
            )
        });
        let stop = started.recv().expect("the manager starts");
        Self { stop }
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    options: Flags,
}

fn add_controller(manager: &mut Framework) {
    let reconciler = reconcile_fn(|object: Arc<ConfigMap>| {
        let name = object.metadata.name.as_deref();
        assert_ne!(name, Some("bad"), "a bug");
        std::future::ready(Ok::<_, Infallible>(Action::AwaitChange))
    });
    let maps = manager.watch(manager.watch_api(&()));
    manager.run("configmaps", maps, reconciler);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconciler_that_panics() {
    let plane = ControlPlane::new();
    let metrics = free_port();
    let _manager = Panicking::start(&plane, metrics);
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    let panics = "controller_reconcile_seconds_count{controller=\"configmaps\",outcome=\"panic\"}";
    prometheus.wait_for(panics).await;
    plane.kubectl(&["create", "configmap", "bad", "--namespace=default"]);
    let alert = prometheus.wait_for_alert("CapiIpamReconcilePanics").await;
    assert_eq!(alert["controller"], "configmaps", "{alert}");
}
