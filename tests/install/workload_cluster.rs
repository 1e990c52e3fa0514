//! The load balancers of workload clusters: the core manager of Cluster API applies the manifests
//! with addresses to another API server, which stands for a workload cluster with MetalLB and
//! Cilium.

use std::fs;
use std::path::PathBuf;

use support::clusterctl::{Releases, start_core};
use support::control_plane::ensure;
use support::prelude::*;

use crate::cluster_class::{install_kind, recipe};
use crate::installed;

/// Starts an API server with the kinds of MetalLB and Cilium for addresses of load balancers.
fn start_workload_cluster() -> ControlPlane {
    let plane = ControlPlane::start(Options {
        bare: true,
        ..Options::default()
    });
    let metallb = PathBuf::from(ensure(&["metallb"]));
    let cilium = PathBuf::from(ensure(&["cilium"]));
    for (file, definition) in [
        (
            metallb.join("metallb.io_ipaddresspools.yaml"),
            "ipaddresspools.metallb.io",
        ),
        (
            metallb.join("metallb.io_l2advertisements.yaml"),
            "l2advertisements.metallb.io",
        ),
        (
            cilium.join("v2/ciliumloadbalancerippools.yaml"),
            "ciliumloadbalancerippools.cilium.io",
        ),
        (
            cilium.join("v2alpha1/ciliuml2announcementpolicies.yaml"),
            "ciliuml2announcementpolicies.cilium.io",
        ),
    ] {
        let text = fs::read_to_string(&file).expect("the definition can be read");
        plane.kubectl_apply(&text);
        plane.wait_until_served(definition);
    }
    plane.kubectl(&["create", "namespace", "metallb-system"]);
    plane
}

/// Applies a recipe, and gives Cluster API access to the workload cluster of its Cluster.
fn create_cluster(plane: &ControlPlane, consumer: &Consumer, workload: &ControlPlane, name: &str) {
    let (mut objects, cluster) = recipe(name, &consumer.namespace);
    let cluster_name = format!("{name}-1");
    let kubeconfig = fs::read_to_string(workload.kubeconfig()).expect("it can be read");
    let metadata = json!({"name": cluster_name, "namespace": consumer.namespace});
    let mut secret = metadata.clone();
    secret["name"] = json!(format!("{cluster_name}-kubeconfig"));
    secret["labels"] = json!({"cluster.x-k8s.io/cluster-name": cluster_name});
    objects.extend([
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": secret,
            "type": "cluster.x-k8s.io/secret", "stringData": {"value": kubeconfig}}),
        json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereCluster",
            "metadata": metadata, "status": {"initialization": {"provisioned": true}}}),
        cluster,
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    plane.kubectl_apply(&list.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_have_the_addresses_of_their_cluster() {
    let releases = Releases::write();
    let workload = start_workload_cluster();
    let plane = ControlPlane::start(Options {
        bare: true,
        controller_manager: true,
        ..Options::default()
    });
    releases.init(&plane);
    let (_core, _webhooks) = start_core(&plane);
    installed::apply_cluster_addressing(&plane);
    let (_provider, _provider_webhooks) = installed::start(&plane, &["--cluster-addressing"]);
    let consumer = Consumer::new(&plane).await;
    install_kind(
        &plane,
        "infrastructure.cluster.x-k8s.io",
        "v1beta1",
        "VSphereCluster",
    );
    for name in ["metallb", "cilium"] {
        create_cluster(&plane, &consumer, &workload, name);
    }
    let allocated = |name: &str| {
        let claim = format!("{name}-1-lb");
        let consumer = &consumer;
        async move { format!("{}/29", consumer.wait_for_address(&claim).await) }
    };
    let metallb = allocated("metallb").await;
    let cilium = allocated("cilium").await;
    for (kind, name, field, expected) in [
        (
            "ipaddresspools.metallb.io",
            "lb",
            "{.spec.addresses[0]}",
            &*metallb,
        ),
        (
            "l2advertisements.metallb.io",
            "all",
            "{.metadata.name}",
            "all",
        ),
        (
            "ciliumloadbalancerippools.cilium.io",
            "lb",
            "{.spec.blocks[0].cidr}",
            &*cilium,
        ),
        (
            "ciliuml2announcementpolicies.cilium.io",
            "all",
            "{.spec.loadBalancerIPs}",
            "true",
        ),
    ] {
        let output = format!("--output=jsonpath={field}");
        let what = format!("{kind} {name} has {expected}");
        // Cluster API connects to a Cluster at an interval.
        until_within(Duration::from_mins(3), &what, async || {
            let namespace = "--namespace=metallb-system";
            let found = workload.try_kubectl(&["get", kind, name, namespace, &output]);
            Some(found.ok()? == expected)
        })
        .await;
    }
}
