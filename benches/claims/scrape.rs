//! The cost of a scrape of the metrics with many pools and bound claims.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::json;

use crate::api_client::{GROUP, pools};
use crate::cluster::Cluster;
use crate::meter::seconds_of;
use crate::outcome::{Figure, Outcome, median};
use crate::support::ports::free_port;

/// The number of pools.
const POOLS: usize = 5_000;
/// The number of scrapes.
const SCRAPES: usize = 10;
/// The time between two scrapes. The values of pools are at most 5 s old, so each scrape computes
/// them.
const INTERVAL: Duration = Duration::from_secs(6);

pub(crate) async fn run(cluster: &Cluster<'_>, series: String, present: usize) -> Outcome {
    let consumer = cluster.consumer("scraped", 0).await;
    let folder = pools(&consumer.namespace);
    futures::stream::iter(0..POOLS)
        .for_each_concurrent(8, |number| {
            let (folder, api) = (&folder, &consumer.api);
            async move {
                let addresses = format!("10.{}.{}.0/24", 100 + number / 256, number % 256);
                let pool = json!({
                    "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "InClusterIPPool",
                    "metadata": {"name": format!("pool-{number}")},
                    "spec": {"addresses": [addresses], "prefix": 24},
                });
                api.create(folder, &pool).await;
            }
        })
        .await;
    let port = free_port();
    let flags = [
        format!("--diagnostics-address=127.0.0.1:{port}"),
        "--insecure-diagnostics".to_owned(),
    ];
    let mut manager = cluster.launch_with(&flags);
    Cluster::ready(&mut manager).await;
    cluster.settle(Some(&manager)).await;
    let process = manager.pid().to_string();
    // The cost of the rest of the manager in the same time, which is idle.
    let idle = seconds_of(&process);
    tokio::time::sleep(INTERVAL * u32::try_from(SCRAPES).unwrap_or(1)).await;
    let (before, mut times, mut size) = (seconds_of(&process), Vec::new(), 0);
    for _ in 0..SCRAPES {
        tokio::time::sleep(INTERVAL).await;
        let started = Instant::now();
        size = tokio::task::block_in_place(|| scrape(port));
        times.push(started.elapsed().as_secs_f64() * 1000.0);
    }
    let used = (seconds_of(&process) - before - (before - idle)) * 1000.0 / SCRAPES as f64;
    manager.stop();
    let figures = vec![
        Figure::new("processor time of a scrape", used, "ms").at_most(100.0),
        Figure::new("duration of a scrape", median(times), "ms"),
        Figure::new("size", size as f64 / 1024.0, "KiB"),
    ];
    Outcome {
        series,
        present,
        claims: 0,
        lines: Vec::new(),
        figures,
        raw: json!({ "pools": POOLS }),
    }
}

/// The number of bytes of all metrics.
fn scrape(port: u16) -> usize {
    let mut stream =
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the manager serves metrics");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream
        .write_all(request)
        .expect("the manager reads the request");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the manager sends metrics");
    assert!(answer.contains("capi_ipam_pool_addresses"), "{answer}");
    answer.len()
}
