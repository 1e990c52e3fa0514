//! `make bench`: how fast a provider binds and releases claims, compared with a baseline: the same
//! API writes, issued directly on the same API server in the same run.
//!
//! The ratios are significant; absolute figures depend on the machine. The benchmark needs only the
//! CRDs and the contract, so it can measure any provider of these kinds: `cargo bench --bench
//! claims -- --manager PATH`. A figure that misses its target is marked; the program fails only
//! when claims are not bound, or an address is allocated twice.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "it prints its results, and panics when something fails"
)]
#![allow(clippy::cast_precision_loss, reason = "counts are small")]

mod alternation;
mod api_client;
mod background;
mod baseline;
mod blocks;
mod claim_watch;
mod cluster;
mod compare;
mod consumer;
mod finalizer;
mod idle;
mod managers;
mod meter;
mod options;
mod outcome;
mod policies;
mod pool;
mod restart;
mod rounds;
mod seed;
mod slices;
mod table;

use std::fs;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use serde_json::{Value, json};

use cluster::Cluster;
use compare::Comparison;
use options::{Options, Series};
use outcome::Outcome;
use rounds::Rounds;
use seed::Seeded;
use support::registry::Hub;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let options = Options::parse();
    let mut outcomes = Vec::new();
    if options.compare.is_some() {
        let mut comparison = Comparison::default();
        until_interrupted(compare::run(&options, &mut comparison)).await;
        comparison.print();
        write_json(&options, &comparison.json());
        return;
    }
    let started = Instant::now();
    let measurements = Box::pin(run(&options, &mut outcomes, started));
    until_interrupted(measurements).await;
    println!(
        "\nAll series, after {:.0} s:",
        started.elapsed().as_secs_f64()
    );
    table::print(&outcomes);
    write(&options, &outcomes);
}

/// Runs measurements until they end, or until Ctrl-C. What was measured until then is kept.
async fn until_interrupted(measurements: impl Future<Output = ()>) {
    tokio::select! {
        () = measurements => {}
        _ = tokio::signal::ctrl_c() => eprintln!("interrupted: the results so far follow"),
    }
}

async fn run(options: &Options, outcomes: &mut Vec<Outcome>, started: Instant) {
    let all = options.series();
    let (fresh, seeded): (Vec<Series>, Vec<Series>) =
        all.iter().partition(|series| series.present() == 0);
    let mut cluster = None;
    for series in fresh {
        announce(started, series);
        // A new control plane for each series, since the watch caches of an older one are larger.
        if !options.quick {
            cluster = None;
        }
        let cluster = match &mut cluster {
            Some(cluster) => cluster,
            none => none.insert(Cluster::new(options).await),
        };
        add(options, outcomes, run_on_empty_pools(cluster, series).await);
    }
    drop(cluster);
    for present in [10_000, 100_000] {
        let mut together = seeded
            .iter()
            .copied()
            .filter(|series| series.present() == present)
            .peekable();
        let Some(first) = together.peek().copied() else {
            continue;
        };
        let count = options.present(first);
        eprintln!(
            "{:>5.0} s: writing {count} bound claims",
            started.elapsed().as_secs_f64()
        );
        let mut cluster = Cluster::new(options).await;
        let (consumer, took) = seed::seed(&mut cluster, count, Seeded::Complete).await;
        eprintln!(
            "{:>5.0} s: written after {:.0} s",
            started.elapsed().as_secs_f64(),
            took.as_secs_f64()
        );
        for series in together {
            announce(started, series);
            add(
                options,
                outcomes,
                run_with_bound_claims(options, series, &cluster, &consumer, count).await,
            );
        }
    }
}

/// Adds the outcome of a series, and prints it.
fn add(options: &Options, outcomes: &mut Vec<Outcome>, mut outcome: Outcome) {
    if options.quick {
        // The targets are for the usual number of claims.
        outcome
            .figures
            .iter_mut()
            .for_each(|figure| figure.target = None);
    }
    table::print(std::slice::from_ref(&outcome));
    outcomes.push(outcome);
}

/// Prints which series begins.
fn announce(started: Instant, series: Series) {
    let elapsed = started.elapsed().as_secs_f64();
    eprintln!("{elapsed:>5.0} s: {}", series.name());
}

/// Runs a series on empty pools.
async fn run_on_empty_pools(cluster: &mut Cluster<'_>, series: Series) -> Outcome {
    let options = cluster.options;
    let count = options.count(series);
    if let Some(background) = series.background() {
        return background::run(cluster, series.name(), background, count).await;
    }
    match series {
        Series::Policies => policies::run(cluster, series.name(), None, count).await,
        Series::FinalizerAtCreation => finalizer::run(cluster, series.name(), count).await,
        Series::TwoManagers => managers::run(cluster, series.name(), count).await,
        Series::Slices10000 => {
            slices::run(cluster, series.name(), options.scaled(10_000), count).await
        }
        Series::BlocksNats => blocks::run(cluster, series.name(), count, Hub::nats()).await,
        Series::BlocksKubernetes => {
            blocks::run(cluster, series.name(), count, Hub::kubernetes()).await
        }
        Series::Idle => idle::run(cluster, count).await,
        _ => {
            let pools = if series == Series::Pools50 { 50 } else { 1 };
            Rounds {
                series: series.name(),
                count,
                pools,
                present: None,
            }
            .run(cluster)
            .await
        }
    }
}

/// Runs a series with many bound claims.
async fn run_with_bound_claims(
    options: &Options,
    series: Series,
    cluster: &Cluster<'_>,
    consumer: &consumer::Consumer,
    present: usize,
) -> Outcome {
    if matches!(series, Series::Restart10000 | Series::Restart100000) {
        return restart::run(cluster, series.name(), consumer, present).await;
    }
    let count = options.count(series);
    if series == Series::Policies100000 {
        return policies::run(cluster, series.name(), Some((consumer, present)), count).await;
    }
    Rounds {
        series: series.name(),
        count,
        pools: 1,
        present: Some((consumer, present)),
    }
    .run(cluster)
    .await
}

/// Writes all figures.
fn write(options: &Options, outcomes: &[Outcome]) {
    let all = json!({
        "machine": machine(),
        "manager": options.manager.as_ref().map(|path| path.display().to_string()),
        "managerFlags": options.manager_flags,
        "atOnce": options.at_once,
        "scale": options.scale(),
        "finished": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        "series": outcomes,
    });
    write_json(options, &all);
    println!("\nwritten: {}", options.json.display());
}

fn write_json(options: &Options, all: &Value) {
    options
        .json
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .expect("the folder can be created");
    fs::write(&options.json, format!("{all:#}\n")).expect("the figures can be written");
}

/// The machine.
fn machine() -> Value {
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text
            .lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned);
        found.and_then(|line| {
            line.split_once(':')
                .map(|(_, value)| value.trim().to_owned())
        })
    };
    json!({
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "processor": line("/proc/cpuinfo", "model name"),
        "memory": line("/proc/meminfo", "MemTotal"),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
    })
}
