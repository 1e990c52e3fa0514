//! A pool joins a network beside many bound claims, while others are bound and released and the
//! manager is killed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_client::{GROUP, addresses, claims, pools, reservations};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome};

/// The number of claims that are bound, and of those that are released, meanwhile.
const CHANGED: usize = 500;
/// How often the manager is killed.
const KILLS: usize = 20;
/// The time between two kills.
const KILL_INTERVAL: Duration = Duration::from_secs(3);
/// Addresses that another pool of the network has in use as well.
const CONFLICTS: usize = 10;
/// How long the pools may take to join.
const TIMEOUT: Duration = Duration::from_mins(15);

pub(crate) async fn run(
    cluster: &Cluster<'_>,
    series: String,
    consumer: &Consumer,
    present: usize,
) -> Outcome {
    let mut other = cluster.consumer("other", 0).await;
    other.add_pool("other", "10.0.0.0/28", 12).await;
    let mut manager = cluster.start().await;
    let (_, in_conflict) = other.bind(&names("other", CONFLICTS), None).await;
    let (_, released) = consumer.bind(&names("released", CHANGED), None).await;
    let alone = consumer.bind(&names("before", CHANGED), None).await;
    cluster.settle(Some(&manager)).await;

    let before = writes(cluster);
    let meter = Meter::start(&cluster.plane, None);
    let started = Instant::now();
    let network = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPNetwork", "metadata": {"name": "all"},
        "spec": {"namespaces": {"from": "All"}, "pools": {}},
    });
    cluster
        .consumer
        .create(&format!("/apis/{GROUP}/v1alpha2/ipnetworks"), &network)
        .await;
    let kills = async {
        for _ in 0..KILLS {
            tokio::time::sleep(KILL_INTERVAL).await;
            manager.kill();
            manager = cluster.launch();
        }
    };
    let new = names("meanwhile", CHANGED);
    let (bound, gone, ()) = tokio::join!(
        consumer.bind(&new, None),
        consumer.release(&released, None),
        kills
    );
    // Each address in use by both pools stays reserved for one claim of the other pool, until the
    // duplicate is gone.
    while remaining(cluster, &consumer.namespace, "pool-0").await
        + remaining(cluster, "other", "other").await
        != i64::try_from(CONFLICTS).expect("a small number")
    {
        assert!(
            started.elapsed() < TIMEOUT,
            "the pools have not joined; the log:\n{}",
            manager.log()
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let joined = started.elapsed().as_secs_f64();
    let cost = meter.read();
    let written = writes(cluster) - before;
    cluster.quiet(Some(&manager)).await;
    let conflicts = check(cluster, &consumer.namespace).await;
    consumer.check_addresses(present + 2 * CHANGED).await;
    manager.stop();

    // The claims that are bound and released meanwhile need one write of a reservation each.
    let moved = present + CHANGED + in_conflict.len();
    let per_address = (written as f64 - 2.0 * CHANGED as f64) / moved as f64;
    let rate =
        |(timed, _): &(crate::consumer::Timed, _)| CHANGED as f64 / timed.whole.as_secs_f64();
    let figures = vec![
        Figure::new("all reservations moved", joined, "s"),
        Figure::new("writes of reservations for each address", per_address, ""),
        Figure::new("bound meanwhile", rate(&bound), "per s"),
        Figure::new("bound before", rate(&alone), "per s"),
        Figure::new(
            "released meanwhile",
            CHANGED as f64 / gone.whole.as_secs_f64(),
            "per s",
        ),
        Figure::new("reported conflicts", conflicts as f64, "").at_least(CONFLICTS as f64),
    ];
    Outcome {
        series,
        present,
        claims: CHANGED,
        lines: Vec::new(),
        figures,
        raw: json!({"cost": cost}),
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}-{number}"))
        .collect()
}

/// The number of writes of reservations.
fn writes(cluster: &Cluster<'_>) -> u64 {
    let all = cluster.plane.request_count().into_iter();
    let reads = ["GET", "LIST", "WATCH"];
    let writes = all
        .filter(|(key, _)| key.resource == "ipreservations" && !reads.contains(&key.verb.as_str()));
    writes.map(|(_, count)| count).sum()
}

/// The number of addresses of a pool that are not reserved in the network; the maximum before the
/// pool reports it.
async fn remaining(cluster: &Cluster<'_>, namespace: &str, pool: &str) -> i64 {
    let path = format!("{}/{pool}", pools(namespace));
    let pool: Value = cluster
        .consumer
        .send("GET", &path, "application/json", &Value::Null)
        .await
        .expect("the pool can be read");
    let network = &pool["status"]["network"];
    if network.is_object() {
        network["remaining"].as_i64().unwrap_or_default()
    } else {
        i64::MAX / 4
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// Asserts that each address in use is reserved in the network, and that the others are conflicts.
/// Returns the number of claims that report an address that two claims have.
async fn check(cluster: &Cluster<'_>, namespace: &str) -> usize {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let reserved: Vec<Object> = cluster.consumer.list(&reservations()).await;
    let mut holders = HashMap::new();
    let mut elsewhere = 0;
    for reservation in reserved {
        let claim = &reservation.spec["claimRef"];
        if reservation.spec["scope"] == "n.all" {
            holders.insert(
                text(&reservation.spec["address"]),
                (text(&claim["namespace"]), text(&claim["name"])),
            );
        } else {
            elsewhere += 1;
        }
    }
    assert_eq!(elsewhere, CONFLICTS, "reservations outside of the network");
    let (mut count, mut conflicts, mut reported) = (0, 0, 0);
    for namespace in [namespace, "other"] {
        let all: Vec<Object> = cluster.consumer.list(&addresses(namespace)).await;
        for address in all {
            count += 1;
            let holder = holders
                .get(&text(&address.spec["address"]))
                .expect("each address is reserved in the network");
            let is_holder = *holder == (namespace.to_owned(), address.metadata.name);
            conflicts += usize::from(!is_holder);
        }
        let all: Vec<Object> = cluster.consumer.list(&claims(namespace)).await;
        let conditions = all
            .iter()
            .flat_map(|claim| claim.status["conditions"].as_array().into_iter().flatten());
        reported += conditions
            .filter(|condition| condition["reason"] == "DuplicateAddress")
            .count();
    }
    assert_eq!((holders.len(), conflicts), (count - CONFLICTS, CONFLICTS));
    reported
}
