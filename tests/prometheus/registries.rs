//! The causes of the alerts of registries: a management cluster with a registry at another API server.

use capi_ipam_testing::control_plane::{self as generic, Installation, embedded_kubeconfig};
use support::{ports::free_port, prelude::*, repository::in_repository, wait::EVENT_TIMEOUT};

use crate::{
    OF_REGISTRIES, queries,
    server::{Prometheus, scraped},
};

/// The network that shares blocks.
const NETWORK: &str = "backbone";
/// How long after each write of another process the next one follows. The manager writes once a
/// minute.
const OTHER_WRITES: Duration = Duration::from_secs(5);

/// A management cluster, and the API server with its registry.
struct Site {
    hub: generic::ControlPlane,
    plane: ControlPlane,
    _manager: Manager,
    prometheus: Prometheus,
    consumer: Consumer,
}

impl Site {
    async fn start() -> Self {
        let manifest = std::fs::read_to_string(in_repository("manifests/registry.yaml"))
            .expect("the manifest can be read");
        // The test process ends soon.
        let installation: &'static Installation = Box::leak(Box::new(Installation::of(&manifest)));
        let hub = generic::ControlPlane::start(Options::default(), installation);
        let plane = ControlPlane::new();
        let metrics = free_port();
        let [address, plain] = scraped(metrics);
        let manager = Manager::start(&plane, &[&address, &plain]);
        let site = Self {
            prometheus: Prometheus::start(plane.folder(), &[metrics]),
            consumer: Consumer::new(&plane).await,
            _manager: manager,
            hub,
            plane,
        };
        site.create_registry();
        let blocks = json!({"registry": "site", "size": 4, "spare": 0});
        let spec = json!({"namespaces": {"from": "All"}, "blocks": blocks});
        site.consumer.create_network(NETWORK, spec).await;
        site
    }

    fn create_registry(&self) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hub", "namespace": NAMESPACE},
            "stringData": {"kubeconfig": embedded_kubeconfig(self.hub.kubeconfig())},
        });
        self.plane.kubectl_apply(&secret.to_string());
        let registry = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPRegistry",
            "metadata": {"name": "site"},
            "spec": {"clusterID": "west", "kubernetes": {"secretName": "hub"}},
        });
        self.plane.kubectl_apply(&registry.to_string());
    }

    async fn create_pool(&self, name: &str, addresses: &str) {
        let spec = json!({"addresses": [addresses], "prefix": 16, "network": NETWORK});
        self.consumer.create_pool(name, spec).await;
    }

    /// Changes a record as another management cluster would, once it exists.
    async fn change_record(&self, name: &str, spec: &Value) {
        let patch = json!({ "spec": spec }).to_string();
        eventually(&format!("record {name} is changed"), || async {
            let arguments = ["patch", "ipblocks", name, "--type=merge", "--patch", &patch];
            self.hub.try_kubectl(&arguments).ok()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_that_is_away_and_taken_blocks() {
    let mut site = Site::start().await;
    site.create_pool("web", "10.0.1.0-10.0.1.15").await;
    site.consumer.bind("a", "web").await;

    // The only block of another pool is taken.
    let taken = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPBlock",
        "metadata": {"name": "block.backbone.10.0.2.0-30"},
        "spec": {"block": {"network": NETWORK, "block": "10.0.2.0/30", "cluster": "east"}},
    });
    site.hub.kubectl_apply(&taken.to_string());
    site.create_pool("small", "10.0.2.0-10.0.2.3").await;
    site.consumer.create_claim("b", "small").await;
    site.consumer
        .wait_for_message("b", "WaitingForBlock", "other management clusters")
        .await;
    let full = site.prometheus.wait_for_alert("CapiIpamNoFreeBlock").await;
    assert_eq!(full["network"], NETWORK, "{full}");
    for (title, query) in queries() {
        if OF_REGISTRIES.contains(&title.as_str()) {
            site.prometheus.wait_for(&query).await;
        }
    }

    // The registry says that another management cluster has the block of the bound claim.
    let east = json!({"block": {"cluster": "east"}});
    site.change_record("block.backbone.10.0.1.0-30", &east)
        .await;
    let conflict = site
        .prometheus
        .wait_for_alert("CapiIpamBlockConflict")
        .await;
    assert_eq!(conflict["network"], NETWORK, "{conflict}");

    site.hub.stop_api_server();
    let down = site.prometheus.wait_for_alert("CapiIpamRegistryDown").await;
    assert_eq!(down["registry"], "site", "{down}");
    site.prometheus
        .wait_for_alert("CapiIpamClaimsWithoutRegistry")
        .await;
    site.hub.start_api_server();
    site.prometheus
        .wait_until_silent("CapiIpamRegistryDown")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_id_of_two_processes() {
    let site = Site::start().await;
    let other = json!({"cluster": {"process": "other"}});
    let in_use = "capi_ipam_registry_cluster_id_in_use > 0";
    until_within(EVENT_TIMEOUT, "the second process is found", || async {
        site.change_record("cluster.west", &other).await;
        tokio::time::sleep(OTHER_WRITES).await;
        let found = site.prometheus.query(in_use)?.ok()?;
        Some(!found.is_empty())
    })
    .await;
    let in_use = site
        .prometheus
        .wait_for_alert("CapiIpamClusterIDInUse")
        .await;
    assert_eq!(in_use["registry"], "site", "{in_use}");
}
