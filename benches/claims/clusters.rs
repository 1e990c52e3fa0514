//! Clusters that are created together: their endpoints are written by the webhook, or by a client
//! that issues the same API writes itself.

use std::time::Instant;

use futures::future::join_all;
use serde_json::{Value, json};
use support::webhooks::Webhooks;

use crate::api::{GROUP, Identity, folder};
use crate::cluster::Cluster;
use crate::consumer::{Consumer, Timed};
use crate::load::peak;
use crate::measure::{Figure, Meter, Outcome, Phase, mean};

/// Rounds of the provider. Each is between two rounds of the baseline.
const ROUNDS: usize = 3;
const SITE: &str = "bonn";

/// Creates `count` Clusters at the same time.
pub(crate) async fn run(cluster: &Cluster<'_>, count: usize) -> Outcome {
    cluster.plane.permit("cluster-addressing");
    // The first one warms up the API server.
    baseline(cluster, count).await;
    let mut baselines = vec![baseline(cluster, count).await];
    let mut rounds = Vec::new();
    let mut figures = Vec::new();
    for _ in 0..cluster.options.rounds(ROUNDS) {
        let consumer = cluster.consumer("clusters", 1).await;
        addressing(&consumer).await;
        let webhooks = Webhooks::new(&cluster.plane);
        let [port, certificates] = webhooks.flags();
        let mut manager = cluster.launch(&["--cluster-addressing", &port, &certificates]);
        Cluster::ready(&mut manager).await;
        webhooks.register_of_clusters(&cluster.plane, &consumer.namespace, &json!({"site": SITE}));
        cluster.settle(Some(&manager)).await;
        let meter = Meter::start(&cluster.plane, Some(manager.pid()));
        let timed = create(&consumer, count, async |_, cluster| {
            let created: Value = post(&consumer, cluster).await;
            let host = &created["spec"]["controlPlaneEndpoint"]["host"];
            assert!(host.is_string(), "a Cluster without an endpoint: {created}");
        });
        let timed = timed.await;
        rounds.push(Phase::new(&timed, meter.read_later().await));
        figures = vec![peak(&manager)];
        consumer.check_addresses(count).await;
        Webhooks::unregister_of_clusters(&cluster.plane);
        manager.stop();
        baselines.push(baseline(cluster, count).await);
    }
    figures.extend(compare(&rounds, &baselines));
    Outcome::new(figures, json!({"provider": rounds, "baselines": baselines}))
}

/// The same writes without a provider: the claim, its address and reservation, the Cluster, and its
/// ownership of the claim.
async fn baseline(cluster: &Cluster<'_>, count: usize) -> Phase {
    let consumer = cluster.consumer("baseline", 1).await;
    let baseline = cluster.baseline(&consumer, true).await;
    cluster.settle(None).await;
    let meter = Meter::start(&cluster.plane, None);
    let timed = create(&consumer, count, async |number, cluster| {
        let name = format!("c-{number}-endpoint");
        let claim: Identity = consumer.create(number, &name, 0).await;
        baseline.bind(number, claim).await;
        let mut cluster = cluster.clone();
        cluster["spec"]["controlPlaneEndpoint"] = json!({"host": "10.0.0.1", "port": 6443});
        post(&consumer, &cluster).await;
        let path = format!("{}/{name}", folder(&consumer.namespace, "ipaddressclaims"));
        let labels = json!({"metadata": {"labels": {"owned": "true"}}});
        consumer.api.merge(&path, &labels).await;
    });
    Phase::new(&timed.await, meter.read())
}

/// Creates Clusters at the same time, and takes the time of each.
async fn create(consumer: &Consumer, count: usize, create: impl AsyncFn(usize, &Value)) -> Timed {
    let started = Instant::now();
    let one = async |number: usize| {
        create(number, &object(consumer, number)).await;
        started.elapsed()
    };
    let mut each = join_all((0..count).map(one)).await;
    each.sort();
    Timed {
        whole: started.elapsed(),
        each,
    }
}

fn object(consumer: &Consumer, number: usize) -> Value {
    let infrastructure = json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": "any",
    });
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": format!("c-{number}"), "namespace": consumer.namespace, "labels": {"site": SITE},
        },
        "spec": {"infrastructureRef": infrastructure},
    })
}

async fn post(consumer: &Consumer, cluster: &Value) -> Value {
    let namespace = &consumer.namespace;
    let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters");
    let created: kube::Result<Value> = consumer.api.send("POST", &path, cluster).await;
    created.expect("the Cluster can be created")
}

/// A ClusterAddressing that writes the endpoint of each Cluster of the site.
async fn addressing(consumer: &Consumer) {
    let pool =
        json!({"apiGroup": GROUP, "kind": "InClusterIPPool", "name": consumer.pools[0].name});
    let item = json!({
        "name": "endpoint", "poolRef": pool, "to": [{"controlPlaneEndpoint": {"port": 6443}}],
    });
    let addressing = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "ClusterAddressing",
        "metadata": {"name": SITE, "namespace": consumer.namespace},
        "spec": {"clusterSelector": {"matchLabels": {"site": SITE}}, "items": [item]},
    });
    let path = folder(&consumer.namespace, "clusteraddressings");
    consumer.api.create(&path, &addressing).await;
}

fn compare(rounds: &[Phase], baselines: &[Phase]) -> Vec<Figure> {
    let provider = |of: fn(&Phase) -> f64| mean(rounds.iter().map(of));
    let bare = |of: fn(&Phase) -> f64| mean(baselines.iter().map(of));
    let figure = |name: &str, of: fn(&Phase) -> f64| {
        [
            Figure::new(name, provider(of), "ms"),
            Figure::new(format!("{name}, of the baseline"), bare(of), "ms"),
            Figure::ratio(format!("{name}, ratio"), provider(of) / bare(of)),
        ]
    };
    let mut figures = Vec::new();
    figures.extend(figure("creation of a Cluster, p50", |phase| phase.p50_ms));
    figures.extend(figure("creation of a Cluster, p99", |phase| phase.p99_ms));
    figures.extend(figure("CPU of API server and etcd", Phase::server_ms));
    let manager = provider(Phase::manager_ms);
    figures.push(Figure::new("CPU of the manager", manager, "ms"));
    let reads = provider(|phase| phase.cost.reads / phase.claims);
    figures.push(Figure::new("reads of claims and addresses", reads, ""));
    figures
}
