//! A network that shares blocks with other management clusters: claims beside those of a network
//! without a registry, claims that need a new block, and a registry with many records and management
//! clusters.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{BlockRecord, ClusterRecord};
use capi_ipam_controller::clock;
use capi_ipam_ip::Block;
use capi_ipam_registry::{Created, Entry, Key, Record, RecordCache, Registry, cidr};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use support::control_plane::NAMESPACE;
use support::manager::Manager;
use support::process::Memory;
use support::registry::{Hub, REGISTRY};

use crate::api::{AT_ONCE, GROUP, folder};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::load::{By, Load, Pairs, peak};
use crate::measure::{Figure, Meter, Outcome, percentile};
use crate::restart::first_bound;

/// The number of pairs of rounds. It is even, so that the order of the pairs has no effect.
const ROUNDS: usize = 8;
/// The number of new blocks that are measured.
const NEW_BLOCKS: usize = 50;
/// The number of blocks that a manager has when it starts, and that it returns then.
const OWN_BLOCKS: usize = 500;
/// The number of addresses of a block where each is measured.
const SMALL: usize = 4;
/// The number of records in the network, and of the management clusters that have written them.
const RECORDS: u32 = 100_000;
const CLUSTERS: u32 = 1_000;
/// The time between two signs of life of a management cluster.
const SIGN_INTERVAL: Duration = Duration::from_mins(1);
/// How long a manager without claims is measured.
const IDLE: Duration = Duration::from_secs(30);

/// Measures with the registry in NATS or at another API server.
pub(crate) async fn run(cluster: &Cluster<'_>, count: usize, hub: Hub) -> Outcome {
    hub.create_bucket().await;
    if let Some(secret) = hub.secret() {
        cluster
            .api
            .create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &secret)
            .await;
    }
    cluster
        .api
        .create(&folder("", "ipregistries"), &hub.registry("bench"))
        .await;
    let blocks = |size: usize, spare: usize| json!({"registry": REGISTRY, "size": size, "spare": spare, "keepSeconds": 86_400});
    for (name, blocks) in [
        ("plain", Value::Null),
        ("equal", Value::Null),
        ("shared", blocks(64, 1)),
        ("small", blocks(SMALL, 0)),
        ("many", {
            let mut blocks = blocks(SMALL, 0);
            blocks["keepSeconds"] = json!(0);
            blocks
        }),
    ] {
        let network = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPNetwork", "metadata": {"name": name},
            "spec": {"namespaces": {"from": "All"}, "blocks": blocks},
        });
        cluster
            .api
            .create(&folder("", "ipnetworks"), &network)
            .await;
    }
    let manager = cluster.start().await;
    let consumer = cluster.consumer("blocks", 1).await;
    join(&consumer, "plain").await;
    let load = Load::of(cluster, &consumer, &manager, count);
    load.round(false).await;
    // Two equal networks: how much the ratios differ without a reason.
    let equal = compare(&load, "equal").await;
    // The first round with shared blocks takes them. They are kept afterwards.
    join(&consumer, "shared").await;
    load.round(false).await;
    join(&consumer, "plain").await;
    let shared = compare(&load, "shared").await;
    let mut figures = [
        shared.figures("shared blocks"),
        equal.figures("no shared blocks"),
    ]
    .concat();
    let mut small = SmallBlocks::start(cluster).await;
    figures.extend(new_blocks(cluster, &hub, &mut small).await);
    figures.push(peak(&manager));
    figures.extend(many_records(&load, &hub.open().await).await);
    figures.extend(many_blocks(cluster, manager, &mut small).await);
    Outcome::new(figures, json!({"shared": shared, "equal": equal}))
}

/// Compares rounds in a network with rounds in the one without shared blocks.
async fn compare(load: &Load<'_>, network: &str) -> Pairs {
    let set =
        async |is_set: bool| join(load.consumer, if is_set { network } else { "plain" }).await;
    load.pairs(ROUNDS, set).await
}

/// Changes the network of the pool.
async fn join(consumer: &Consumer, network: &str) {
    consumer.change_pool(json!({ "network": network })).await;
}

/// Claims that are created one after the other in the network with small blocks. Some need a new block.
struct SmallBlocks {
    consumer: Consumer,
    /// The number of claims so far.
    count: usize,
    /// The times to bind those that needed a new block, and those of the others.
    new: Vec<Duration>,
    held: Vec<Duration>,
}

impl SmallBlocks {
    async fn start(cluster: &Cluster<'_>) -> Self {
        let consumer = cluster.consumer("small", 1).await;
        join(&consumer, "small").await;
        Self {
            consumer,
            count: 0,
            new: Vec::new(),
            held: Vec::new(),
        }
    }

    async fn bind_next(&mut self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.count += 1;
        let name = format!("small-{}", self.count);
        let (bound, _) = self.consumer.bind(&name, 1, 0, None).await;
        // The network address is not allocated, so the first block has one address less. What
        // happens at the first claims is not typical.
        match self.count {
            count if count < 2 * SMALL => {}
            count if count % SMALL == 0 => self.new.extend(bound.each),
            _ => self.held.extend(bound.each),
        }
    }
}

/// How long a claim waits for a new block, with nothing else to do.
async fn new_blocks(cluster: &Cluster<'_>, hub: &Hub, small: &mut SmallBlocks) -> [Figure; 3] {
    for _ in 0..cluster.options.scaled(NEW_BLOCKS * SMALL) {
        small.bind_next().await;
    }
    let (mut new, mut held) = (std::mem::take(&mut small.new), small.held.clone());
    new.sort_unstable();
    held.sort_unstable();
    let (new, held) = (percentile(&new, 50), percentile(&held, 50));
    let most = if matches!(hub, Hub::Kubernetes(_)) {
        100.0
    } else {
        50.0
    };
    [
        Figure::new("claim that needs a new block, p50", new, "ms"),
        Figure::new("claim that needs none, p50", held, "ms"),
        Figure::new("a new block, p50", new - held, "ms").at_most(most),
    ]
}

/// A manager with many blocks: its start, and the claims that need a new block while all the others are returned.
async fn many_blocks(
    cluster: &Cluster<'_>,
    mut manager: Manager,
    small: &mut SmallBlocks,
) -> [Figure; 2] {
    let count = cluster.options.scaled(OWN_BLOCKS);
    let consumer = cluster.consumer("many", 1).await;
    join(&consumer, "many").await;
    let (_, claims) = consumer.bind("many", count * SMALL, 0, None).await;
    // One of the blocks has a free address.
    consumer.release(&claims[..1], None).await;
    manager.kill();
    let (mut manager, first) = first_bound(cluster, &consumer).await;

    consumer.release(&claims[1..], None).await;
    let all = slices(cluster).await;
    while slices(cluster).await == all {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while slices(cluster).await > 0 {
        small.bind_next().await;
    }
    small.new.sort_unstable();
    let longest = percentile(&small.new, 100);
    manager.stop();
    [
        Figure::new(
            format!("start to the first claim bound, with {count} blocks"),
            first,
            "s",
        )
        .at_most(1.0),
        Figure::new(
            format!("claim that needs a new block while {count} are returned, longest"),
            longest,
            "ms",
        )
        .at_most(200.0),
    ]
}

/// The number of blocks of the network with many blocks.
async fn slices(cluster: &Cluster<'_>) -> usize {
    let all: Vec<Value> = cluster.api.list(&folder("", "ipslices")).await;
    let is_of_network = |slice: &&Value| slice["spec"]["scope"] == "n.many";
    all.iter().filter(is_of_network).count()
}

/// A registry with many records, of management clusters that show signs of life.
async fn many_records(load: &Load<'_>, registry: &Registry) -> Vec<Figure> {
    let Load {
        cluster,
        consumer,
        by: By::Manager(manager),
        ..
    } = load
    else {
        return Vec::new();
    };
    cluster.settle(Some(manager)).await;
    let before = Memory::of(manager.pid()).now;
    stream::iter(0..RECORDS)
        .for_each_concurrent(AT_ONCE, |number| write_record(registry, number))
        .await;
    let seconds = list_records(registry).await;
    cluster.settle(Some(manager)).await;
    let grown = Memory::of(manager.pid()).now - before;
    join(consumer, "shared").await;
    let measured = async {
        let idle = Meter::start(&cluster.plane, Some(manager.pid()));
        tokio::time::sleep(IDLE).await;
        let cost = idle.read();
        (
            100.0 * cost.manager / cost.seconds,
            load.round(false).await.bind.manager_ms(),
        )
    };
    let (idle, bind) = tokio::select! {
        measured = measured => measured,
        () = show_life(registry) => panic!("signs of life do not end"),
    };
    join(consumer, "plain").await;
    let figure = |what: &str, value: f64, unit| {
        Figure::new(
            format!("100,000 records of 1,000 clusters: {what}"),
            value,
            unit,
        )
    };
    vec![
        figure("listed", seconds, "s").at_most(10.0),
        figure("memory of the manager", grown, "MiB").at_most(80.0),
        figure("CPU of the manager at rest", idle, "%").at_most(5.0),
        figure("CPU of the manager per bound claim", bind, "ms").at_most(2.5),
    ]
}

/// Writes a record of a block of the network, outside of the ranges of its pools.
async fn write_record(registry: &Registry, number: u32) {
    let base = IpAddr::V4(Ipv4Addr::from(
        u32::from(Ipv4Addr::new(172, 0, 0, 0)) + number * 64,
    ));
    let block = Block::new(Block::address(base).base(), 26);
    let record = Record::Block(BlockRecord {
        network: "shared".to_owned(),
        block: cidr(block),
        cluster: format!("cluster-{}", number % CLUSTERS),
        ..BlockRecord::default()
    });
    let key = Key::Block {
        network: "shared".into(),
        block,
    };
    registry
        .create(&key.to_string(), &record)
        .await
        .expect("the record can be written");
}

/// Returns how many seconds a list of the records takes.
async fn list_records(registry: &Registry) -> f64 {
    let started = Instant::now();
    let records: Arc<RecordCache> = Arc::default();
    let mut changes = registry
        .watch(Arc::clone(&records) as _)
        .expect("the registry can be watched");
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
                None => registry
                    .create(&key.to_string(), &record)
                    .await
                    .map(|(Created::Ours(entry) | Created::Theirs(entry))| entry),
            };
            *known = Some(written.expect("the sign of life can be written"));
            tokio::time::sleep(SIGN_INTERVAL / CLUSTERS).await;
        }
    }
}
