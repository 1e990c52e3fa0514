//! The causes of the alerts of pools and claims.

use std::path::PathBuf;

use support::{
    control_plane::ensure,
    policy::{DENIED, Policy, wait_until_rejected},
    ports::free_port,
    prelude::*,
};

use crate::server::{Prometheus, scraped};

/// A control plane with a manager that sweeps often, and a Prometheus that scrapes it.
struct System {
    plane: ControlPlane,
    _manager: Manager,
    prometheus: Prometheus,
}

impl System {
    fn start() -> Self {
        Self::on(
            ControlPlane::new(),
            &["--sweep-interval=1s", "--sweep-grace=2s"],
        )
    }

    fn on(plane: ControlPlane, flags: &[&str]) -> Self {
        let metrics = free_port();
        let [address, plain] = scraped(metrics);
        let flags = [flags, &[&address, &plain]].concat();
        let manager = Manager::start(&plane, &flags);
        let prometheus = Prometheus::start(plane.folder(), &[metrics]);
        Self {
            plane,
            _manager: manager,
            prometheus,
        }
    }

    /// Waits until Prometheus has scraped a metric: it sees only a later change as an increase.
    async fn wait_until_scraped(&self, metric: &str) {
        self.prometheus.wait_for(metric).await;
    }
}

async fn create_pool(consumer: &Consumer, name: &str, range: &str) {
    let spec = json!({"addresses": [range], "prefix": 24});
    consumer.create_pool(name, spec).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_pools_and_waiting_claims() {
    let system = System::start();
    let prometheus = &system.prometheus;
    let consumer = Consumer::new(&system.plane).await;
    create_pool(&consumer, "small", "10.0.0.1").await;
    consumer.bind("a", "small").await;
    let nearly_full = prometheus.wait_for_alert("CapiIpamPoolNearlyFull").await;
    assert_eq!(nearly_full["pool"], "small", "{nearly_full}");

    consumer.claim_waits("b", "small", "PoolExhausted").await;
    let exhausted = prometheus.wait_for_alert("CapiIpamPoolExhausted").await;
    assert_eq!(
        [&exhausted["pool"], &exhausted["namespace"]],
        ["small", consumer.namespace.as_str()],
        "{exhausted}"
    );
    prometheus.wait_for_alert("CapiIpamClaimsWait").await;

    // More than half of the pool within the time of the trend.
    create_pool(&consumer, "large", "10.0.1.1-10.0.1.20").await;
    consumer.wait_for_counts("large", (20, 20, 0, 0)).await;
    let free = "capi_ipam_pool_addresses{pool=\"large\",state=\"free\"} == 20";
    system.wait_until_scraped(free).await;
    let names: Vec<String> = (0..15).map(|number| format!("many-{number}")).collect();
    consumer.create_claims(&names, "large").await;
    let fills = prometheus.wait_for_alert("CapiIpamPoolFillsUp").await;
    assert_eq!(fills["pool"], "large", "{fills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_and_network_that_are_not_valid() {
    let system = System::start();
    let prometheus = &system.prometheus;
    let consumer = Consumer::new(&system.plane).await;
    // Only the webhook, which is not registered, denies ranges that overlap.
    let range = json!({"addresses": ["10.0.0.5"], "prefix": 24});
    let spec = json!({"ranges": [range, range]});
    consumer.create_pool("web", spec).await;
    let invalid = prometheus.wait_for_alert("CapiIpamPoolInvalid").await;
    assert_eq!(invalid["pool"], "web", "{invalid}");
    let excluded = json!({"excluded": ["10.0.0.9-10.0.0.1"]});
    consumer.create_network("reversed", excluded).await;
    let not_ready = prometheus.wait_for_alert("CapiIpamNotReady").await;
    assert_eq!(not_ready["name"], "reversed", "{not_ready}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kind_of_pool_that_does_not_exist() {
    let system = System::start();
    let consumer = Consumer::new(&system.plane).await;
    consumer
        .create_claim_with("a", "InClusterIPPol", "web", json!({}))
        .await;
    let prometheus = &system.prometheus;
    prometheus.wait_for_alert("CapiIpamUnservedPoolKind").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_that_another_finalizer_blocks() {
    let system = System::start();
    let consumer = Consumer::new(&system.plane).await;
    create_pool(&consumer, "web", "10.0.0.1-10.0.0.9").await;
    let metadata = json!({"finalizers": ["example.com/keep"]});
    consumer.bind_with_metadata("a", "web", metadata).await;
    let prometheus = &system.prometheus;
    prometheus.wait_until_silent("CapiIpamReleasesWait").await;
    consumer.delete("a").await;
    prometheus.wait_for_alert("CapiIpamReleasesWait").await;

    // The alert ends with its cause.
    consumer
        .modify(&consumer.claims(), "a", |claim| {
            let finalizers = claim["metadata"]["finalizers"].as_array_mut();
            let finalizers = finalizers.expect("it has finalizers");
            finalizers.retain(|finalizer| finalizer != "example.com/keep");
        })
        .await;
    prometheus.wait_until_silent("CapiIpamReleasesWait").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_two_bound_claims() {
    let system = System::start();
    let consumer = Consumer::new(&system.plane).await;
    create_pool(&consumer, "web", "10.0.0.1-10.0.0.9").await;
    for name in ["a", "b"] {
        consumer.bind(name, "web").await;
    }
    let first = consumer.wait_for_address("a").await;
    let addresses = consumer.addresses();
    let mut copy = read(&addresses, "b").await;
    copy.spec.address = first;
    copy.metadata.uid = None;
    copy.metadata.resource_version = None;
    // Otherwise the manager recreates the right one at once. When a later claim reports its pause,
    // the manager has observed this one.
    consumer.set_paused(&consumer.claims(), "b", true).await;
    let paused = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    consumer
        .create_claim_with_metadata("later", "web", paused)
        .await;
    consumer.wait_for_reason("later", "Paused").await;
    consumer.force_delete(&addresses, "b").await;
    addresses
        .create(&copy)
        .await
        .expect("the copy can be created");
    let prometheus = &system.prometheus;
    prometheus
        .wait_for_alert("CapiIpamDuplicateAddresses")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_two_overlapping_pools() {
    let system = System::start();
    let consumer = Consumer::new(&system.plane).await;
    for (claim, pool) in [("a", "one"), ("b", "two")] {
        create_pool(&consumer, pool, "10.0.0.1-10.0.0.9").await;
        consumer.bind_to(claim, pool, "10.0.0.1").await;
    }
    let prometheus = &system.prometheus;
    prometheus.wait_for_alert("CapiIpamSharedAddresses").await;

    // The alert ends with its cause.
    consumer.delete("b").await;
    prometheus
        .wait_until_silent("CapiIpamSharedAddresses")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_at_which_another_host_answers() {
    let system = System::start();
    let consumer = Consumer::new(&system.plane).await;
    create_pool(&consumer, "web", "10.0.0.1-10.0.0.9").await;
    consumer.reserve("web", "10.0.0.5", Value::Null).await;
    let name = format!("p.{}.web.10.0.0.5", consumer.namespace);
    let until = |second: &str| json!({"until": second, "reason": "ARP reply"});
    let set = async |quarantine: Value| {
        consumer
            .modify(&consumer.reservations(), &name, |found| {
                found["spec"]["quarantine"] = quarantine.clone();
            })
            .await
    };
    set(until("2100-01-01T00:00:00Z")).await;
    let prometheus = &system.prometheus;
    prometheus
        .wait_for_alert("CapiIpamAddressesQuarantined")
        .await;

    // The alert ends with its cause.
    set(until("2026-01-01T00:00:00Z")).await;
    prometheus
        .wait_until_silent("CapiIpamAddressesQuarantined")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_without_room() {
    let plane = ControlPlane::new();
    plane.permit("rollout-metrics");
    let bases = PathBuf::from(ensure(&["crds"]));
    let root = bases.ancestors().nth(4).expect("the folder of Cluster API");
    let file = root.join("core/config/crd/bases/cluster.x-k8s.io_machinesets.yaml");
    plane.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()]);
    plane.wait_until_served("machinesets.cluster.x-k8s.io");
    let consumer = Consumer::new(&plane).await;
    create_pool(&consumer, "web", "10.0.0.1-10.0.0.2").await;
    let infrastructure =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "M", "name": "m"});
    let machine = json!({
        "clusterName": "c", "bootstrap": {"dataSecretName": "b"}, "infrastructureRef": infrastructure,
    });
    let set = json!({
        "clusterName": "c", "replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": machine},
    });
    let object = |kind: &str, owners: Value, spec: &Value| {
        let metadata =
            json!({"namespace": consumer.namespace, "name": "m", "ownerReferences": owners});
        let version = "cluster.x-k8s.io/v1beta2";
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    };
    let owner = |kind: &str| {
        let uid = "00000000-0000-4000-8000-000000000000";
        let version = "cluster.x-k8s.io/v1beta2";
        json!([{"apiVersion": version, "kind": kind, "name": "m", "uid": uid, "controller": true}])
    };
    plane.kubectl_apply(&object("MachineSet", json!([]), &set).to_string());
    plane.kubectl_apply(&object("Machine", owner("MachineSet"), &machine).to_string());
    let metadata = json!({"ownerReferences": owner("Machine")});
    consumer
        .create_claim_with_metadata("m", "web", metadata)
        .await;

    let system = System::on(plane, &["--rollout-metrics"]);
    let prometheus = &system.prometheus;
    let found = prometheus
        .wait_for_alert("CapiIpamRolloutWillExhaustPool")
        .await;
    assert_eq!(found["pool"], "web", "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn address_without_a_claim() {
    let system = System::start();
    let consumer = Consumer::new(&system.plane).await;
    create_pool(&consumer, "web", "10.0.0.1-10.0.0.9").await;
    system
        .wait_until_scraped("capi_ipam_orphans_freed_total")
        .await;
    let web =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    consumer
        .create_leftover_address("left", web, "10.0.0.5")
        .await;
    let prometheus = &system.prometheus;
    let freed = prometheus.wait_for_alert("CapiIpamOrphansFreed").await;
    assert_eq!(freed["what"], "ipaddresses", "{freed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_that_refuses_ip_addresses() {
    let system = System::start();
    let prometheus = &system.prometheus;
    let consumer = Consumer::new(&system.plane).await;
    create_pool(&consumer, "web", "10.0.0.1-10.0.0.9").await;
    system
        .wait_until_scraped("capi_ipam_claim_failures_total")
        .await;
    let policy = Policy::deny(
        &system.plane,
        &consumer.namespace,
        ["CREATE", "ipaddresses"],
        "false",
    );
    wait_until_rejected(&consumer, DENIED).await;
    consumer.create_claim("a", "web").await;
    let fail = prometheus.wait_for_alert("CapiIpamClaimsFail").await;
    assert_eq!(fail["reason"], "AllocationFailed", "{fail}");
    prometheus.wait_for_alert("CapiIpamReconcilesFail").await;
    policy.remove();
    consumer.wait_for_address("a").await;
}
