//! Claims with each allocation policy of the pool, beside those with the default policy.

use serde_json::{Value, json};

use crate::alternation::Alternation;
use crate::api_client::pools;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::outcome::{Figure, Outcome};
use support::consumer::unique;
use support::process::Memory;

/// The number of pairs of rounds. It is even, so that the order of the pairs has no effect.
const ROUNDS: usize = 4;
/// The number of values of the label by which slices are assigned.
const RACKS: usize = 8;

/// The policies: what is merged into the specification of the pool.
fn policies() -> Vec<(&'static str, Value)> {
    vec![
        ("RoundRobin", json!({"allocation": {"order": "RoundRobin"}})),
        ("Random", json!({"allocation": {"order": "Random"}})),
        ("sticky", json!({"allocation": {"sticky": true}})),
        ("requests", json!({"allocation": {"requests": true}})),
        (
            "ranges",
            json!({"ranges": [{"addresses": ["11.0.0.0/16"], "prefix": 16, "gateway": "11.0.0.1"}]}),
        ),
        ("draining", json!({"draining": ["10.0.0.0/30"]})),
        (
            "slices",
            json!({"slices": {"size": 64, "per": "Label", "label": "rack"}}),
        ),
    ]
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
    let alternation = Alternation {
        cluster,
        consumer,
        manager: &manager,
        before,
        count,
        racks: RACKS,
    };
    alternation.round().await;
    let mut figures = Vec::new();
    let mut raw = Vec::new();
    for (name, policy) in policies() {
        let set = async |on: bool| {
            let change = if on { policy.clone() } else { reset(&policy) };
            let path = format!("{}/{}", pools(&consumer.namespace), consumer.pools[0].name);
            consumer.api.merge(&path, &json!({"spec": change})).await;
        };
        let rounds = alternation.run(ROUNDS, set).await;
        figures.extend(rounds.figures(name));
        raw.push(json!({"policy": name, "rounds": rounds.raw()}));
    }
    figures.push(Figure::new(
        "peak memory",
        Memory::of(manager.pid()).peak,
        "MiB",
    ));
    manager.stop();
    Outcome {
        series,
        present: before,
        claims: count,
        lines: Vec::new(),
        figures,
        raw: json!(raw),
    }
}

/// The change that removes the fields of another one.
fn reset(policy: &Value) -> Value {
    policy
        .as_object()
        .map(|fields| {
            fields
                .keys()
                .map(|name| (name.clone(), Value::Null))
                .collect()
        })
        .unwrap_or_default()
}
