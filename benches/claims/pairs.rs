//! Rounds with a change beside rounds without it: allocation policies, the component
//! finalizer-at-creation, and a second manager.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::manager::Manager;
use support::wait::eventually_within;
use tokio::sync::Mutex;

use crate::api::folder;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::load::{Load, peak};
use crate::measure::{Figure, Outcome};

/// The number of values of a label of the claims.
const RACKS: usize = 8;
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
const COMPONENT: &str = "capi-ipam-in-cluster-claim-finalizer";

/// Each allocation policy of a pool beside the default.
pub(crate) async fn policies(cluster: &Cluster<'_>, consumer: &Consumer, count: usize) -> Outcome {
    let policies = [
        ("RoundRobin", "allocation", json!({"order": "RoundRobin"})),
        ("Random", "allocation", json!({"order": "Random"})),
        ("sticky", "allocation", json!({"sticky": true})),
        ("requests", "allocation", json!({"requests": true})),
        (
            "ranges",
            "ranges",
            json!([{"addresses": ["11.0.0.0/16"], "prefix": 16, "gateway": "11.0.0.1"}]),
        ),
        ("draining", "draining", json!(["10.0.0.0/30"])),
        (
            "slices",
            "slices",
            json!({"size": 64, "per": "Label", "label": "rack"}),
        ),
    ];
    let mut manager = cluster.start().await;
    let load = Load {
        racks: RACKS,
        ..Load::of(cluster, consumer, &manager, count)
    };
    load.round(false).await;
    let (mut figures, mut rounds) = (Vec::new(), Vec::new());
    for (name, field, policy) in policies {
        let set = async |is_set: bool| {
            let value = if is_set { policy.clone() } else { Value::Null };
            consumer.change_pool(json!({ field: value })).await;
        };
        let pairs = load.pairs(4, set).await;
        figures.extend(pairs.figures(name));
        rounds.push(json!({"policy": name, "rounds": pairs}));
    }
    figures.push(peak(&manager));
    manager.stop();
    Outcome::new(figures, json!(rounds))
}

/// A second active manager, which serves another namespace, beside one.
pub(crate) async fn two_managers(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let consumer = cluster.consumer("managers", 1).await;
    let mut manager = cluster.start().await;
    let load = Load::of(cluster, &consumer, &manager, count);
    load.round(false).await;
    let second: Mutex<Option<Manager>> = Mutex::new(None);
    let set = async |is_set: bool| {
        let mut second = second.lock().await;
        if is_set {
            Cluster::ready(second.insert(cluster.launch(&["--namespace=default"]))).await;
        } else if let Some(mut running) = second.take() {
            running.stop();
        }
    };
    let pairs = load.pairs(6, set).await;
    let mut figures = pairs.figures("two managers");
    figures.extend([pairs.server_ratio(), peak(&manager)]);
    manager.stop();
    Outcome::new(figures, json!(pairs))
}

/// The component finalizer-at-creation, beside claims without it.
pub(crate) async fn finalizer_at_creation(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let consumer = &cluster.consumer("finalizer", 1).await;
    let component =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("config/finalizer-at-creation/policy.yaml");
    cluster.plane.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &component.display().to_string(),
    ]);
    wait_until(consumer, true).await;
    let set = async |is_set: bool| {
        if is_set {
            let binding = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": COMPONENT}, "spec": {"policyName": COMPONENT},
            });
            consumer.api.create(BINDINGS, &binding).await;
        } else {
            let path = format!("{BINDINGS}/{COMPONENT}");
            let deleted: kube::Result<Value> =
                consumer.api.send("DELETE", &path, &Value::Null).await;
            deleted.expect("the binding can be deleted");
        }
        wait_until(consumer, is_set).await;
    };
    set(false).await;
    let mut manager = cluster.start().await;
    let load = Load::of(cluster, consumer, &manager, count);
    load.round(false).await;
    let pairs = load.pairs(6, set).await;
    let mut figures = pairs.figures("with the component");
    let bind = Figure::ratio(
        "bind, with the component to without",
        pairs.ratio(|round| round.bind.seconds),
    );
    let writes = 1.0 / pairs.ratio(|round| round.bind.writes());
    figures.extend([
        bind.at_least(1.15),
        pairs.server_ratio(),
        Figure::ratio("writes, ratio to the default", writes),
    ]);
    figures.push(peak(&manager));
    manager.stop();
    Outcome::new(figures, json!(pairs))
}

/// The API server learns of a changed binding by a watch, and compiles policies every few seconds.
async fn wait_until(consumer: &Consumer, is_set: bool) {
    let path = &format!(
        "{}?dryRun=All",
        folder(&consumer.namespace, "ipaddressclaims")
    );
    let what = "the API server applies the change of the policy's binding";
    eventually_within(Duration::from_mins(3), what, || async move {
        let probe = consumer.claim(0, "probe", 0);
        let created: Value = consumer.api.send("POST", path, &probe).await.ok()?;
        (created["metadata"]["finalizers"].is_array() == is_set).then_some(())
    })
    .await;
}
