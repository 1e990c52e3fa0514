//! Claims with and without a second active manager, which serves another namespace and watches
//! everything.

use serde_json::json;
use tokio::sync::Mutex;

use crate::alternation::{Alternation, Round};
use crate::cluster::Cluster;
use crate::outcome::{Figure, Outcome};
use support::consumer::unique;
use support::manager::Manager;
use support::process::Memory;

/// The number of pairs of rounds. It is even, so that the order of the pairs has no effect.
const ROUNDS: usize = 6;

pub(crate) async fn run(cluster: &Cluster<'_>, series: String, count: usize) -> Outcome {
    let consumer = cluster.consumer(&unique("managers"), 1).await;
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
    let second: Mutex<Option<Manager>> = Mutex::new(None);
    let set = async |on: bool| {
        let mut second = second.lock().await;
        if on {
            let launched = second.insert(cluster.launch_with(&["--namespace=default".to_owned()]));
            Cluster::ready(launched).await;
        } else if let Some(mut running) = second.take() {
            running.stop();
        }
    };
    let rounds = alternation.run(cluster.options.rounds(ROUNDS), set).await;
    let mut figures = rounds.figures("two managers");
    let server = 1.0 / rounds.ratio(Round::bind_server_ms);
    figures.push(Figure::new(
        "CPU of the API server and etcd, bind: of that with one manager",
        server,
        "",
    ));
    figures.push(Figure::new(
        "peak memory",
        Memory::of(manager.pid()).peak,
        "MiB",
    ));
    let raw = json!(rounds.raw());
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
