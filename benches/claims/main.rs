//! Measures how fast claims are bound and released: `make bench`, see docs/performance.md.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "it prints its results, and panics when something fails"
)]
#![allow(clippy::cast_precision_loss, reason = "counts are small")]

mod api;
mod background;
mod baseline;
mod blocks;
mod claim_watch;
mod cluster;
mod clusters;
mod compare;
mod consumer;
mod load;
mod measure;
mod options;
mod pairs;
mod rates;
mod restart;
mod seed;
mod slices;

use std::fs;
use std::time::Instant;

use clap::Parser;
use serde_json::{Value, json};

use cluster::Cluster;
use consumer::Consumer;
use measure::{Figure, Outcome};
use options::{Kind, Options, Series};
use seed::Seeded;

const OUTPUT: &str = "target/bench/claims.json";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let options = Options::parse();
    if options.compare.is_some() {
        let mut rows = Vec::new();
        until_interrupted(compare::run(&options, &mut rows)).await;
        compare::print(&rows);
        return write(&options, &json!({ "comparison": rows }));
    }
    let mut all = Vec::new();
    until_interrupted(Box::pin(run(&options, &mut all))).await;
    println!("\nAll series:");
    all.iter()
        .for_each(|(name, outcome)| print(name, &outcome.figures));
    let series = all
        .iter()
        .map(|(name, outcome)| json!({"series": name, "outcome": outcome}));
    write(&options, &json!({ "series": series.collect::<Vec<_>>() }));
}

/// An interrupted measurement reports what it has.
async fn until_interrupted(measurements: impl Future<Output = ()>) {
    tokio::select! {
        () = measurements => {}
        _ = tokio::signal::ctrl_c() => eprintln!("interrupted: the results so far follow"),
    }
}

/// Runs the series. Those with bound claims share a cluster, since it takes long to write them.
async fn run(options: &Options, outcomes: &mut Vec<(&'static str, Outcome)>) {
    let started = Instant::now();
    let mut report = |series: &Series, mut outcome: Outcome| {
        if options.quick {
            outcome
                .figures
                .iter_mut()
                .for_each(|figure| figure.target = None);
        }
        eprintln!(
            "{:>5.0} s: {}",
            started.elapsed().as_secs_f64(),
            series.name
        );
        print(series.name, &outcome.figures);
        outcomes.push((series.name, outcome));
    };
    for present in [0, 10_000, 100_000] {
        let series = options.series();
        let mut together = series.iter().filter(|series| series.present == present);
        if present == 0 {
            for series in together {
                let mut cluster = Cluster::new(options).await;
                report(series, run_on_empty_pools(&mut cluster, series).await);
            }
        } else if let Some(first) = together.next() {
            let mut cluster = Cluster::new(options).await;
            let consumer =
                seed::seed(&mut cluster, options.scaled(present), Seeded::Complete).await;
            for series in [first].into_iter().chain(together) {
                report(
                    series,
                    run_with_bound_claims(&cluster, series, &consumer).await,
                );
            }
        }
    }
}

async fn run_on_empty_pools(cluster: &mut Cluster<'_>, series: &Series) -> Outcome {
    let count = cluster.options.scaled(series.count);
    match series.kind {
        Kind::Background(work) => background::run(cluster, work, count).await,
        Kind::Blocks(hub) => blocks::run(cluster, count, hub()).await,
        Kind::Clusters => clusters::run(cluster, count).await,
        Kind::Finalizer => pairs::finalizer_at_creation(cluster, count).await,
        Kind::Idle => rates::idle(cluster, count).await,
        Kind::Policies => {
            let consumer = cluster.consumer("policies", 1).await;
            pairs::policies(cluster, &consumer, count).await
        }
        Kind::Rates(pools) => rates::run(cluster, pools, count, None).await,
        Kind::Slices => slices::run(cluster, count).await,
        Kind::TwoManagers => pairs::two_managers(cluster, count).await,
        Kind::Restart => panic!("a restart is measured with bound claims"),
    }
}

async fn run_with_bound_claims(
    cluster: &Cluster<'_>,
    series: &Series,
    present: &Consumer,
) -> Outcome {
    let count = cluster.options.scaled(series.count);
    match series.kind {
        Kind::Restart => restart::run(cluster, present).await,
        Kind::Policies => pairs::policies(cluster, present, count).await,
        _ => rates::run(cluster, 1, count, Some(present)).await,
    }
}

fn print(series: &str, figures: &[Figure]) {
    figures
        .iter()
        .for_each(|figure| println!("{series:<21} {figure}"));
}

fn write(options: &Options, results: &Value) {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find(|line| line.starts_with(name))?;
        Some(found.split_once(':')?.1.trim().to_owned())
    };
    let all = json!({
        "processor": line("/proc/cpuinfo", "model name"), "memory": line("/proc/meminfo", "MemTotal"),
        "manager": options.manager, "managerFlags": options.manager_flags, "quick": options.quick,
        "finished": jiff::Timestamp::now().to_string(), "results": results,
    });
    fs::create_dir_all("target/bench").expect("the folder can be created");
    fs::write(OUTPUT, format!("{all:#}\n")).expect("the figures can be written");
    println!("\nwritten: {OUTPUT}");
}
