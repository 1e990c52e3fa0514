//! Claims with each allocation policy of the pool, beside those with the default policy.
//!
//! One manager serves all rounds. Each round with a policy is between two rounds with the default, and is compared with
//! their mean, because the speed of a machine drifts.

use serde_json::{Value, json};

use crate::api_client::pools;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::{Meter, memory};
use crate::outcome::{Figure, Outcome, median};
use crate::support::consumer::unique;
use crate::support::manager::Manager;

/// The number of rounds with each policy.
const ROUNDS: usize = 3;
/// The number of values of the label by which slices are assigned.
const RACKS: usize = 8;

/// The policies: what is merged into the specification of the pool.
fn policies() -> Vec<(&'static str, Value)> {
    vec![
        ("RoundRobin", json!({"allocation": {"order": "RoundRobin"}})),
        ("Random", json!({"allocation": {"order": "Random"}})),
        ("sticky", json!({"allocation": {"sticky": true}})),
        ("requests", json!({"allocation": {"requests": true}})),
        ("ranges", json!({"ranges": [{"addresses": ["11.0.0.0/16"], "prefix": 16, "gateway": "11.0.0.1"}]})),
        ("draining", json!({"draining": ["10.0.0.0/30"]})),
        ("slices", json!({"slices": {"size": 64, "per": "Label", "label": "rack"}})),
    ]
}

/// One round: seconds to bind and to release, and the processor time of the manager per claim in milliseconds.
struct Round {
    bind: f64,
    release: f64,
    processor: f64,
}

pub(crate) async fn run(
    cluster: &Cluster<'_>,
    series: String,
    present: Option<(&Consumer, usize)>,
    count: usize,
) -> Outcome {
    let fresh = cluster.consumer(&unique("policies"), 1).await;
    let (consumer, before) = present.unwrap_or((&fresh, 0));
    let mut manager = cluster.start().await;
    round(cluster, consumer, &manager, before, count).await;
    let mut figures = Vec::new();
    let mut raw = Vec::new();
    for (name, policy) in policies() {
        let mut default = vec![round(cluster, consumer, &manager, before, count).await];
        let mut with_policy = Vec::new();
        for _ in 0..ROUNDS {
            set(consumer, &policy).await;
            with_policy.push(round(cluster, consumer, &manager, before, count).await);
            set(consumer, &reset(&policy)).await;
            default.push(round(cluster, consumer, &manager, before, count).await);
        }
        let ratio = |of: &dyn Fn(&Round) -> f64| {
            let neighbours: f64 = default.windows(2).map(|around| around.iter().map(of).sum::<f64>() / 2.0).sum();
            neighbours / with_policy.iter().map(of).sum::<f64>()
        };
        let rate = count as f64 / median(with_policy.iter().map(|round| round.bind));
        let processor = median(with_policy.iter().map(|round| round.processor));
        figures.push(Figure::new(format!("{name}: bound"), rate, "per s"));
        figures.push(Figure::new(format!("{name}: bind, ratio to the default"), ratio(&|round| round.bind), ""));
        figures.push(Figure::new(format!("{name}: release, ratio to the default"), ratio(&|round| round.release), ""));
        figures.push(Figure::new(format!("{name}: processor of the manager per claim"), processor, "ms"));
        raw.push(json!({
            "policy": name,
            "default": default.iter().map(|round| [round.bind, round.release]).collect::<Vec<_>>(),
            "withPolicy": with_policy.iter().map(|round| [round.bind, round.release]).collect::<Vec<_>>(),
        }));
    }
    figures.push(Figure::new("peak memory", memory(manager.pid()).peak, "MiB"));
    manager.stop();
    Outcome { series, present: before, claims: count, lines: Vec::new(), figures, raw: json!(raw) }
}

/// Merges a change into the specification of the pool.
async fn set(consumer: &Consumer, change: &Value) {
    let path = format!("{}/{}", pools(&consumer.namespace), consumer.pools[0].name);
    consumer.api.merge(&path, &json!({"spec": change})).await;
}

/// The change that removes the fields of another one.
fn reset(policy: &Value) -> Value {
    policy.as_object().map(|fields| fields.keys().map(|name| (name.clone(), Value::Null)).collect()).unwrap_or_default()
}

/// Binds and releases claims, and checks their addresses.
async fn round(cluster: &Cluster<'_>, consumer: &Consumer, manager: &Manager, before: usize, count: usize) -> Round {
    cluster.settle(Some(manager)).await;
    let prefix = unique("claim");
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let (bound, made) = consumer.bind_labelled(&names, RACKS).await;
    consumer.check_addresses(before + count).await;
    let released = consumer.release(&made, None).await;
    let cost = meter.read_later().await;
    Round {
        bind: bound.whole.as_secs_f64(),
        release: released.whole.as_secs_f64(),
        processor: cost.processor.manager * 1_000.0 / count as f64,
    }
}
