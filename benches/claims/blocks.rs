//! A network that shares blocks with other management clusters: claims beside those of a network
//! without a registry, claims that need a new block, and a registry with many records and management
//! clusters.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{BlockRecord, ClusterRecord};
use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_registry::{Created, Entry, Key, Record, RecordCache, Registry};
use futures::StreamExt;
use serde_json::json;

use crate::alternation::{Alternation, Rounds};
use crate::api_client::{GROUP, pools};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome, percentile};
use support::consumer::unique;
use support::control_plane::NAMESPACE;
use support::process::Memory;
use support::registry::{Hub, REGISTRY};

/// The number of pairs of rounds. It is even, so that the order of the pairs has no effect.
const ROUNDS: usize = 8;
/// The number of new blocks that are measured.
const NEW_BLOCKS: usize = 50;
/// The number of addresses of a block where each is measured.
const SMALL: usize = 4;
/// The number of records in the network, and of the management clusters that have written them.
const RECORDS: u32 = 100_000;
const CLUSTERS: u32 = 1_000;
/// The time between two signs of life of a management cluster.
const SIGN_INTERVAL: Duration = Duration::from_mins(1);
/// How long a manager without claims is measured.
const IDLE: Duration = Duration::from_secs(30);
/// The pause before each claim.
const PAUSE: Duration = Duration::from_millis(100);

/// Measures with the registry in NATS or at another API server.
pub(crate) async fn run(cluster: &Cluster<'_>, series: String, count: usize, hub: Hub) -> Outcome {
    // The aim for a claim that needs a new block.
    let most = match hub {
        Hub::Nats(_) | Hub::NatsCluster(_) => 50.0,
        Hub::Kubernetes(_) => 100.0,
    };
    hub.create_bucket().await;
    create_registry(cluster, &hub).await;
    create_network(cluster, "plain", json!({})).await;
    create_network(cluster, "equal", json!({})).await;
    let shared = json!({"registry": REGISTRY, "size": 64, "keepSeconds": 86_400});
    create_network(cluster, "shared", json!({ "blocks": shared })).await;
    let single = json!({"registry": REGISTRY, "size": SMALL, "spare": 0, "keepSeconds": 86_400});
    create_network(cluster, "small", json!({ "blocks": single })).await;
    let mut manager = cluster.start().await;

    let consumer = cluster.consumer(&unique("blocks"), 1).await;
    join(&consumer, "plain").await;
    let alternation = Alternation {
        cluster,
        consumer: &consumer,
        manager: &manager,
        before: 0,
        count,
        racks: 0,
    };
    alternation.round().await;
    // Two equal networks: how much the ratios differ without a reason.
    let equal = compare(&alternation, "equal").await;
    // The first round with shared blocks takes them. They are kept afterwards.
    join(&consumer, "shared").await;
    alternation.round().await;
    join(&consumer, "plain").await;
    let rounds = compare(&alternation, "shared").await;
    let mut figures = rounds.figures("shared blocks");
    figures.extend(equal.figures("no shared blocks"));

    let (new, held) = new_blocks(cluster).await;
    let added = percentile(&new, 50) - percentile(&held, 50);
    figures.push(Figure::new(
        "claim that needs a new block, p50",
        percentile(&new, 50),
        "ms",
    ));
    figures.push(Figure::new(
        "claim that needs none, p50",
        percentile(&held, 50),
        "ms",
    ));
    figures.push(Figure::new("a new block, p50", added, "ms").at_most(most));
    figures.push(Figure::new(
        "peak memory",
        Memory::of(manager.pid()).peak,
        "MiB",
    ));

    cluster.settle(Some(&manager)).await;
    let before = Memory::of(manager.pid()).now;
    let registry = hub.open().await;
    write_records(&registry).await;
    let seconds = list_records(&registry).await;
    cluster.settle(Some(&manager)).await;
    let grown = Memory::of(manager.pid()).now - before;
    join(&consumer, "shared").await;
    let measured = async {
        let idle = Meter::start(&cluster.plane, Some(manager.pid()));
        tokio::time::sleep(IDLE).await;
        let cost = idle.read();
        let round = alternation.round().await;
        (
            100.0 * cost.processor.manager / cost.seconds,
            round.bind_processor_ms(),
        )
    };
    let (idle, bind) = tokio::select! {
        measured = measured => measured,
        () = show_life(&registry) => panic!("signs of life do not end"),
    };
    join(&consumer, "plain").await;
    manager.stop();
    let many = "100,000 records of 1,000 clusters";
    for (what, value, unit, most) in [
        ("listed", seconds, "s", 10.0),
        ("memory of the manager", grown, "MiB", 80.0),
        ("processor of the manager at rest", idle, "%", 5.0),
        ("processor of the manager per bound claim", bind, "ms", 2.5),
    ] {
        figures.push(Figure::new(format!("{many}: {what}"), value, unit).at_most(most));
    }
    Outcome {
        series,
        present: 0,
        claims: count,
        lines: Vec::new(),
        figures,
        raw: json!({"shared": rounds.raw(), "equal": equal.raw()}),
    }
}

async fn create_registry(cluster: &Cluster<'_>, hub: &Hub) {
    if let Some(secret) = hub.secret() {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
        cluster.consumer.create(&path, &secret).await;
    }
    let path = format!("/apis/{GROUP}/v1alpha2/ipregistries");
    let registry = hub.registry("bench");
    cluster.consumer.create(&path, &registry).await;
}

/// Creates a network for all namespaces, with these fields.
async fn create_network(cluster: &Cluster<'_>, name: &str, more: serde_json::Value) {
    let mut network = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPNetwork", "metadata": {"name": name},
        "spec": {"namespaces": {"from": "All"}},
    });
    if let Some(blocks) = more.get("blocks") {
        network["spec"]["blocks"] = blocks.clone();
    }
    let path = format!("/apis/{GROUP}/v1alpha2/ipnetworks");
    cluster.consumer.create(&path, &network).await;
}

/// Compares rounds in a network with rounds in the one without shared blocks.
async fn compare(alternation: &Alternation<'_>, network: &str) -> Rounds {
    let set = async |is_compared: bool| {
        let network = if is_compared { network } else { "plain" };
        join(alternation.consumer, network).await;
    };
    let rounds = alternation.cluster.options.rounds(ROUNDS);
    alternation.run(rounds, set).await
}

/// Changes the network of the pool.
async fn join(consumer: &Consumer, network: &str) {
    let path = format!("{}/{}", pools(&consumer.namespace), consumer.pools[0].name);
    let change = json!({"spec": {"network": network}});
    consumer.api.merge(&path, &change).await;
}

/// Creates one claim after the other in the network with small blocks. Returns the times until
/// those are bound that need a new block, and the times of the others, both in order.
async fn new_blocks(cluster: &Cluster<'_>) -> (Vec<Duration>, Vec<Duration>) {
    let consumer = cluster.consumer(&unique("small"), 1).await;
    join(&consumer, "small").await;
    let mut new = Vec::new();
    let mut held = Vec::new();
    for number in 0..NEW_BLOCKS * SMALL {
        tokio::time::sleep(PAUSE).await;
        let (bound, _) = consumer.bind(&[format!("small-{number}")], None).await;
        // The network address is not allocated, so the first block has one address less. What
        // happens at the first claims is not typical.
        let address = number + 1;
        if address < 2 * SMALL {
            continue;
        }
        if address % SMALL == 0 {
            new.extend(bound.each);
        } else {
            held.extend(bound.each);
        }
    }
    new.sort_unstable();
    held.sort_unstable();
    (new, held)
}

/// Writes many records of blocks of the network, outside of the ranges of its pools.
async fn write_records(registry: &Registry) {
    let write = |number: u32| async move {
        let base = u32::from(Ipv4Addr::new(172, 0, 0, 0)) + number * 64;
        let address = IpAddr::V4(Ipv4Addr::from(base));
        let block = Block::new(Block::address(address).base(), 26);
        let record = Record::Block(BlockRecord {
            network: "shared".to_owned(),
            block: capi_ipam_registry::cidr(block),
            cluster: format!("cluster-{}", number % CLUSTERS),
            ..BlockRecord::default()
        });
        let key = Key::Block {
            network: "shared".into(),
            block,
        };
        let created = registry.create(&key.to_string(), &record).await;
        created.expect("the record can be written");
    };
    futures::stream::iter(0..RECORDS)
        .for_each_concurrent(32, write)
        .await;
}

/// Returns how many seconds a list of the records takes.
async fn list_records(registry: &Registry) -> f64 {
    let started = Instant::now();
    let records: Arc<RecordCache> = Arc::default();
    let changes = registry.watch(Arc::clone(&records) as _);
    let mut changes = changes.expect("the registry can be watched");
    while !records.is_complete() {
        changes.next().await.expect("the watch does not end");
    }
    assert!(
        records.entries().len() >= RECORDS as usize,
        "all records are listed"
    );
    started.elapsed().as_secs_f64()
}

/// Writes the signs of life of all management clusters, again and again.
async fn show_life(registry: &Registry) {
    let mut signs: Vec<Option<Entry>> = vec![None; CLUSTERS as usize];
    loop {
        for (number, known) in signs.iter_mut().enumerate() {
            let cluster = format!("cluster-{number}");
            let key = Key::Cluster {
                id: cluster.as_str().into(),
            };
            let record = Record::Cluster(ClusterRecord {
                cluster,
                process: "bench".to_owned(),
                seen: Some(clock::now()),
                ..ClusterRecord::default()
            });
            let written = match known.take() {
                Some(entry) => registry.update(&entry, &record).await,
                None => match registry.create(&key.to_string(), &record).await {
                    Ok(Created::Ours(entry) | Created::Theirs(entry)) => Ok(entry),
                    Err(error) => Err(error),
                },
            };
            *known = Some(written.expect("the sign of life can be written"));
            tokio::time::sleep(SIGN_INTERVAL / CLUSTERS).await;
        }
    }
}
