//! Fault plans: a fault at every kind of write for a block. The workload takes blocks, returns one,
//! and brings about a conflict that ends. No address is in use twice at any time.
//!
//! By default each kind of write has one fault, in one of the management clusters. With
//! `CAPI_IPAM_FAULTS=all`, it has each fault in each of them; with the name of a fault, such as
//! `Reopened`, it has this one in each of them.

#![allow(
    clippy::print_stdout,
    reason = "the output of a failed test shows the plan"
)]

use std::env;
use std::sync::Arc;

use capi_ipam_provider::api::IPAddress;
use capi_ipam_registry::{Entry, Record};
use capi_ipam_testing::nats;
use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use support::prelude::*;
use support::registry::{REGISTRY, secret_with};

use crate::interceptor::{Harm, How, Interceptor, NatsProxy, Plan};
use crate::site::{Hub, ManagementCluster, Site, key_of};

/// How long a manager is paused.
const PAUSE: Duration = Duration::from_secs(1);

/// The network of one plan.
struct Run {
    network: String,
    pool: String,
    /// The first three bytes of the addresses.
    base: String,
}

impl Run {
    /// `number` is not 0: pools do not allocate 10.0.0.0, the first address of the subnet.
    fn new(number: usize) -> Self {
        Self {
            network: format!("n{number}"),
            pool: format!("p{number}"),
            base: format!("10.0.{number}"),
        }
    }

    fn names(&self, prefix: &str, count: usize) -> Vec<String> {
        numbered(&format!("{prefix}-{}-", self.network), count)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_at_writes_of_blocks_at_an_api_server_are_tolerated() {
    let interceptor = Arc::new(Interceptor::default());
    let hub = Hub::kubernetes();
    let west = start_with_api_server(&interceptor, &hub, "west");
    let east = start_with_api_server(&interceptor, &hub, "east");
    let (west, east) = futures::join!(Box::pin(west), Box::pin(east));
    let site = Site { hub, west, east };
    let is_planned = |write: &str| !write.ends_with("cluster record");
    tolerate_faults(&site, &interceptor, &How::OF_API_SERVERS, is_planned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_at_writes_of_blocks_in_nats_are_tolerated() {
    let interceptor = Arc::new(Interceptor::default());
    // A server that is killed keeps what it has acknowledged.
    let hub = Hub::nats_with(nats::Options {
        sync_always: true,
        ..nats::Options::default()
    });
    hub.create_bucket().await;
    let west = start_with_nats(&interceptor, &hub, "west");
    let east = start_with_nats(&interceptor, &hub, "east");
    let (west, east) = futures::join!(Box::pin(west), Box::pin(east));
    let site = Site { hub, west, east };
    // The writes to the API servers of the management clusters are those of the other test.
    let is_planned = |write: &str| write.contains("record") && !write.ends_with("cluster record");
    tolerate_faults(&site, &interceptor, &How::OF_NATS, is_planned).await;
}

/// Runs all plans with these faults. `is_planned` says at which kinds of writes.
async fn tolerate_faults(
    site: &Site,
    interceptor: &Interceptor,
    faults: &[How],
    is_planned: impl Fn(&str) -> bool,
) {
    let plans = async {
        run(site, &Run::new(1)).await;
        // The records of management clusters are written before the first run.
        let mut seen = interceptor.seen();
        seen.retain(|(_, write)| is_planned(write));
        let plans = plans(&seen, faults);
        let count = plans.len();
        let mut missed = Vec::new();
        for (number, plan) in plans.into_iter().enumerate() {
            println!("{} of {count}: {plan:?}", number + 1);
            interceptor.inject(Some(plan.clone()));
            run(site, &Run::new(number + 2)).await;
            if !interceptor.has_happened() {
                missed.push(plan);
            }
            interceptor.inject(None);
        }
        // Which of the clusters finds a conflict first depends on the time.
        assert!(
            missed.len() <= count / 4,
            "faults did not happen: {missed:?}"
        );
    };
    tokio::select! {
        () = harm_managers(site, interceptor) => {}
        violation = two_holders(site) => panic!("{violation}"),
        () = plans => {}
    }
}

/// A management cluster whose manager sends all requests through proxies, with the registry at
/// another API server.
pub(crate) async fn start_with_api_server(
    interceptor: &Arc<Interceptor>,
    hub: &Hub,
    id: &'static str,
) -> ManagementCluster {
    let Hub::Kubernetes(hub_plane) = hub else {
        panic!("the registry is an API server");
    };
    let cluster = start_cluster(interceptor, id).await;
    let remote = interceptor.proxy(hub_plane, id, true).await;
    let hub_kubeconfig = std::fs::read_to_string(remote.kubeconfig());
    let secret = secret_with(&hub_kubeconfig.expect("the proxy has written it"));
    // The proxy runs as long as the test.
    std::mem::forget(remote);
    cluster
        .create_registry(hub.registry(id), Some(secret))
        .await;
    cluster
}

/// A management cluster whose manager sends all requests through proxies, with the registry in
/// NATS.
async fn start_with_nats(
    interceptor: &Arc<Interceptor>,
    hub: &Hub,
    id: &'static str,
) -> ManagementCluster {
    let Hub::Nats(node) = hub else {
        panic!("the registry is a server of NATS");
    };
    let cluster = start_cluster(interceptor, id).await;
    let proxy = NatsProxy::start(interceptor, node, id).await;
    let registry = hub.registry_at(id, Some(vec![proxy.url().to_owned()]));
    // The proxy runs as long as the test.
    std::mem::forget(proxy);
    cluster.create_registry(registry, None).await;
    cluster
}

/// A management cluster whose manager sends the requests to its API server through a proxy.
pub(crate) async fn start_cluster(
    interceptor: &Arc<Interceptor>,
    id: &'static str,
) -> ManagementCluster {
    let control_plane = ControlPlane::start(Options::default());
    let local = interceptor.proxy(&control_plane, id, false).await;
    let kubeconfig = local.kubeconfig().to_owned();
    // The proxy runs as long as the test.
    std::mem::forget(local);
    ManagementCluster::with_kubeconfig(id, control_plane, kubeconfig).await
}

/// Kills and pauses managers, and changes the settings of their registries, as the plan demands.
async fn harm_managers(site: &Site, interceptor: &Interceptor) {
    loop {
        let (id, harm) = interceptor.harmed().await;
        let cluster = site.cluster(id);
        match harm {
            Harm::Kill => {
                cluster.kill();
                interceptor.revive();
                cluster.restart();
            }
            Harm::Pause => {
                cluster.signal("STOP");
                tokio::time::sleep(PAUSE).await;
                cluster.signal("CONT");
            }
            Harm::Reopen => cluster.reopen_registry().await,
        }
    }
}

/// Which plans run.
fn plans(seen: &BTreeSet<(&'static str, String)>, faults: &[How]) -> Vec<Plan> {
    let mut plans = Vec::new();
    let wanted = env::var("CAPI_IPAM_FAULTS").unwrap_or_default();
    let is_wanted = |how: &&How| wanted == "all" || wanted == format!("{how:?}");
    let chosen: Vec<How> = faults.iter().filter(is_wanted).copied().collect();
    if !chosen.is_empty() {
        for (cluster, write) in seen {
            for how in &chosen {
                plans.push(Plan {
                    cluster,
                    write: write.clone(),
                    how: *how,
                });
            }
        }
        return plans;
    }
    let mut clusters_of: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    for (cluster, write) in seen {
        clusters_of.entry(write).or_default().push(cluster);
    }
    for (number, (write, clusters)) in clusters_of.into_iter().enumerate() {
        plans.push(Plan {
            cluster: clusters[number % clusters.len()],
            write: write.to_owned(),
            how: faults[number % faults.len()],
        });
    }
    plans
}

/// Takes and returns blocks, and brings about a conflict.
async fn run(site: &Site, run: &Run) {
    let (west, east) = (&site.west, &site.east);
    let blocks = json!({"registry": REGISTRY, "size": 4, "spare": 0, "keepSeconds": 0, "most": 4});
    let range = format!("{0}.0-{0}.15", run.base);
    for cluster in [west, east] {
        cluster.create_network(&run.network, blocks.clone()).await;
        cluster
            .create_pool_in(&run.network, &run.pool, &range)
            .await;
    }

    // Both take blocks. The last ones of east are free when west has returned one.
    let of_west = run.names("w", 6);
    west.bind(&run.pool, &of_west).await;
    let of_east = run.names("e", 3);
    east.bind(&run.pool, &of_east).await;
    for name in &of_west[1..] {
        west.consumer.release(name).await;
    }
    let more = run.names("f", 6);
    east.bind(&run.pool, &more).await;

    // The registry loses a record while the manager of east does not run, and west takes the block.
    let in_use = east.consumer.allocated_addresses().await;
    let used: BTreeSet<&String> = in_use.values().collect();
    let block = free_address(site, run, &used).await;
    east.kill();
    site.lose_record_of(&run.network, &block.cidr).await;
    let request = json!({"annotations": {"ipam.cluster.x-k8s.io/requested-address": block.free}});
    let name = format!("r-{}", run.network);
    west.consumer
        .create_claim_with_metadata(&name, &run.pool, request)
        .await;
    assert_eq!(west.consumer.wait_for_address(&name).await, block.free);
    east.restart();
    for cluster in [east, west] {
        cluster.wait_for_conflict_in(&run.network, "True").await;
    }
    west.consumer.release(&name).await;
    for cluster in [east, west] {
        cluster.wait_for_conflict_in(&run.network, "False").await;
    }
    wait_for_agreement(site, run).await;

    west.consumer.release(&of_west[0]).await;
    for name in of_east.iter().chain(&more) {
        east.consumer.release(name).await;
    }
    // All blocks are returned in the end.
    wait_for_agreement(site, run).await;
    let what = format!("all blocks of {} are returned", run.network);
    eventually(&what, || async {
        let held = records(site, &run.network).await?;
        held.is_empty().then_some(())
    })
    .await;
}

/// A block of east with a free address.
struct Chosen {
    cidr: String,
    free: String,
}

async fn free_address(site: &Site, run: &Run, used: &BTreeSet<&String>) -> Chosen {
    for cidr in site.east.blocks_of(&run.network).await {
        let first = cidr.split(['.', '/']).nth(3).expect("it is a block");
        let first: u8 = first.parse().expect("it is a number");
        for last in first..first + 4 {
            let free = format!("{}.{last}", run.base);
            if !used.contains(&free) {
                return Chosen { cidr, free };
            }
        }
    }
    panic!("east has no free address");
}

/// The holders of the blocks of a network that are not returned; `None` while the registry cannot be read.
async fn records(site: &Site, network: &str) -> Option<BTreeMap<String, String>> {
    let registry = site.hub.open().await;
    let mut held = BTreeMap::new();
    for number in 0..4_u8 {
        let third = network.trim_start_matches('n');
        let block = format!("10.0.{third}.{}/30", number * 4);
        let found = registry.read(&key_of(network, &block)).await.ok()?;
        if let Some(Record::Block(record)) = found.as_ref().and_then(Entry::record)
            && record.returned_at.is_none()
        {
            assert!(record.contenders.is_empty() || record.cluster != record.contenders[0]);
            held.insert(block, record.cluster.clone());
        }
    }
    Some(held)
}

/// Waits until the registry and the slices of both clusters say the same.
async fn wait_for_agreement(site: &Site, run: &Run) {
    let what = format!("registry and slices of {} agree", run.network);
    eventually(&what, || async {
        let held = records(site, &run.network).await?;
        let mut slices = BTreeMap::new();
        for cluster in [&site.west, &site.east] {
            for block in cluster.blocks_of(&run.network).await {
                let before = slices.insert(block, cluster.id.to_owned());
                if before.is_some() {
                    return None;
                }
            }
        }
        (held == slices).then_some(())
    })
    .await;
}

/// Ends when both management clusters have an IPAddress with the same address.
async fn two_holders(site: &Site) -> String {
    let watch = |cluster: &ManagementCluster| {
        let id = cluster.id;
        let api: Api<IPAddress> = Api::all(cluster.consumer.client.clone());
        watcher(api, watcher::Config::default()).map(move |event| (id, event))
    };
    let mut events = futures::stream::select(
        watch(&site.west).boxed_local(),
        watch(&site.east).boxed_local(),
    );
    let mut known: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    while let Some((cluster, event)) = events.next().await {
        let addresses = known.entry(cluster).or_default();
        match event {
            Ok(Event::Init) => addresses.clear(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                addresses.insert(uid, object.spec.address.clone());
            }
            Ok(Event::Delete(object)) => {
                addresses.remove(&object.metadata.uid.unwrap_or_default());
            }
            Ok(Event::InitDone) | Err(_) => {}
        }
        let mut all = BTreeSet::new();
        for address in known.values().flat_map(BTreeMap::values) {
            if !all.insert(address) {
                return format!("{address} is in use twice");
            }
        }
    }
    "the watch has ended".to_owned()
}
