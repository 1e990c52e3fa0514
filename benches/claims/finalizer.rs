//! Claims with and without the component `finalizer-at-creation`, whose policy adds the finalizer
//! to new claims.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::alternation::{Alternation, Round};
use crate::api_client::claims;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::outcome::{Figure, Outcome};
use support::consumer::unique;
use support::process::Memory;

/// The number of pairs of rounds. It is even, so that the order of the pairs has no effect.
const ROUNDS: usize = 6;
/// How often and at what interval the benchmark asks whether the policy is applied. The API server
/// reads the schemas of kinds for such policies once a minute.
const ATTEMPTS: u32 = 1_800;
const INTERVAL: Duration = Duration::from_millis(100);

const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";
const NAME: &str = "capi-ipam-in-cluster-claim-finalizer";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Created {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    finalizers: Vec<String>,
}

pub(crate) async fn run(cluster: &Cluster<'_>, series: String, count: usize) -> Outcome {
    let consumer = cluster.consumer(&unique("finalizer"), 1).await;
    let component =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("config/finalizer-at-creation/policy.yaml");
    cluster.plane.kubectl(&[
        "apply",
        "--server-side",
        "-f",
        &component.display().to_string(),
    ]);
    wait_until(&consumer, true).await;
    set(&consumer, false).await;
    let mut manager = cluster.start().await;
    let alternation = Alternation {
        cluster,
        consumer: &consumer,
        manager: &manager,
        before: 0,
        count,
        racks: 0,
    };
    alternation.round().await;
    let rounds = alternation
        .run(cluster.options.rounds(ROUNDS), async |on| {
            set(&consumer, on).await
        })
        .await;
    let mut figures = rounds.figures("finalizer at creation");
    let bind = Figure::new(
        "bind, with the component to without",
        rounds.ratio(Round::bind_seconds),
        "",
    )
    .at_least(1.15);
    figures.push(bind);
    let server = 1.0 / rounds.ratio(Round::bind_server_ms);
    figures.push(Figure::new(
        "CPU of the API server and etcd, bind: of that without the component",
        server,
        "",
    ));
    for (what, rounds) in [("with", &rounds.with), ("without", &rounds.without)] {
        let writes = crate::outcome::mean(rounds.iter().map(Round::bind_writes));
        figures.push(Figure::new(
            format!("writes per bind {what} the component"),
            writes,
            "",
        ));
    }
    figures.push(Figure::new(
        "peak memory",
        Memory::of(manager.pid()).peak,
        "MiB",
    ));
    let raw = rounds.raw();
    manager.stop();
    Outcome {
        series,
        present: 0,
        claims: count,
        lines: Vec::new(),
        figures,
        raw,
    }
}

/// Binds the policy to all namespaces, or to none, and waits until the API server does so.
async fn set(consumer: &Consumer, on: bool) {
    if on {
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": NAME}, "spec": {"policyName": NAME},
        });
        consumer.api.create(BINDINGS, &binding).await;
    } else {
        let path = format!("{BINDINGS}/{NAME}");
        let answer: kube::Result<Value> = consumer
            .api
            .send("DELETE", &path, "application/json", &Value::Null)
            .await;
        answer.expect("the binding can be deleted");
    }
    wait_until(consumer, on).await;
}

/// Waits until a new claim has the finalizer, or has it not.
async fn wait_until(consumer: &Consumer, on: bool) {
    let path = format!("{}?dryRun=All", claims(&consumer.namespace));
    for _ in 0..ATTEMPTS {
        let probe = consumer.claim("probe", "pool-0", &json!({}));
        // Before the API server has read the schemas, it can answer 503.
        let created: kube::Result<Created> = consumer
            .api
            .send("POST", &path, "application/json", &probe)
            .await;
        if created.is_ok_and(|created| created.metadata.finalizers.is_empty() != on) {
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    panic!("the API server does not apply the change of the policy's binding")
}
