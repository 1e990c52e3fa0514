//! `--compare PATH`: two managers on the same API server, alternately, and one table.
//!
//! The order of the two alternates from round to round, so that a drift of the machine has the same
//! effect on both. The table shows the median of the rounds.

use serde::Serialize;
use serde_json::json;

use crate::cluster::{Cluster, Program};
use crate::consumer::Consumer;
use crate::idle::one_by_one;
use crate::meter::Meter;
use crate::options::{Options, Part};
use crate::outcome::median;
use crate::rounds::{Cycle, cycle};
use crate::seed::{self, Seeded};
use support::consumer::unique;
use support::process::Memory;

/// The number of rounds of each manager with 500 claims.
const ROUNDS: usize = 4;
/// The number of claims one at a time in a round.
const IDLE_CLAIMS: usize = 100;
/// The number of bound claims in the part with many, and of claims beside them.
const PRESENT: usize = 10_000;
const BESIDE: usize = 200;

/// One line of the table: the values of all rounds of this manager and of the other.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    unit: &'static str,
    values: [Vec<f64>; 2],
}

/// A finished or interrupted comparison.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Comparison {
    rows: Vec<Row>,
}

impl Comparison {
    fn add(&mut self, what: impl Into<String>, unit: &'static str, which: usize, value: f64) {
        let what = what.into();
        if let Some(row) = self.rows.iter_mut().find(|row| row.what == what) {
            row.values[which].push(value);
            return;
        }
        let mut values = [Vec::new(), Vec::new()];
        values[which].push(value);
        self.rows.push(Row { what, unit, values });
    }

    fn add_cycle(&mut self, what: &str, which: usize, Cycle { bind, release }: &Cycle) {
        self.add(format!("{what}: bound"), "per s", which, bind.per_second);
        self.add(
            format!("{what}: released"),
            "per s",
            which,
            release.per_second,
        );
        self.add(
            format!("{what}: creation to bound, p50"),
            "ms",
            which,
            bind.p50_ms,
        );
        self.add(
            format!("{what}: creation to bound, p99"),
            "ms",
            which,
            bind.p99_ms,
        );
        for (name, phase) in [("bound", bind), ("released", release)] {
            self.add(
                format!("{what}: CPU of the manager per claim {name}"),
                "ms",
                which,
                phase.processor_ms(),
            );
            self.add(
                format!("{what}: CPU of API server and etcd per claim {name}"),
                "ms",
                which,
                phase.server_ms(),
            );
        }
        let peak = release.cost.memory.unwrap_or_default().peak;
        self.add(format!("{what}: peak memory"), "MiB", which, peak);
    }

    /// Prints the table in Markdown.
    pub(crate) fn print(&self) {
        println!("\n| | this manager | other manager | ratio |\n|---|---|---|---|");
        for Row {
            what,
            unit,
            values: [ours, other],
        } in &self.rows
        {
            let (ours, other) = (median(ours.iter().copied()), median(other.iter().copied()));
            println!(
                "| {what} | {ours:.2} {unit} | {other:.2} {unit} | {:.2} |",
                ours / other
            );
        }
    }

    /// All values.
    pub(crate) fn json(&self) -> serde_json::Value {
        json!({ "comparison": self.rows })
    }
}

/// Runs all parts, and adds their results to `comparison`.
pub(crate) async fn run(options: &Options, comparison: &mut Comparison) {
    let other = Program {
        path: options.compare.clone(),
        flags: options.compare_flags.clone(),
    };
    let ours = Program {
        path: None,
        flags: options.manager_flags.clone(),
    };
    let programs = [ours, other];
    let mut cluster = Cluster::new(options).await;
    for (part, count, rounds) in [(Part::Claims500, 500, ROUNDS), (Part::Claims3000, 3_000, 2)] {
        if options.compares(part) {
            claims(
                &mut cluster,
                &programs,
                options.scaled(count),
                options.rounds(rounds),
                comparison,
            )
            .await;
        }
    }
    if options.compares(Part::Idle) {
        idle(
            &mut cluster,
            &programs,
            options.scaled(IDLE_CLAIMS),
            comparison,
        )
        .await;
    }
    drop(cluster);
    if options.compares(Part::Beside10000) {
        let mut cluster = Cluster::new(options).await;
        let present = options.scaled(PRESENT);
        let (consumer, _) = seed::seed(&mut cluster, present, Seeded::Complete).await;
        beside(&mut cluster, &programs, &consumer, present, comparison).await;
    }
}

/// The order of the two managers in a round.
fn order(round: usize) -> [usize; 2] {
    if round.is_multiple_of(2) {
        [0, 1]
    } else {
        [1, 0]
    }
}

async fn claims(
    cluster: &mut Cluster<'_>,
    programs: &[Program; 2],
    count: usize,
    rounds: usize,
    comparison: &mut Comparison,
) {
    let what = format!("{count} claims");
    // The first round warms up the API server.
    for round in 0..=rounds {
        for which in order(round) {
            if round == 0 && which == 1 {
                continue;
            }
            cluster.program = programs[which].clone();
            let consumer = cluster.consumer(&unique("compare"), 1).await;
            let mut manager = cluster.start().await;
            let measured = cycle(cluster, &consumer, count, 0, None, Some(&manager)).await;
            manager.stop();
            consumer.delete_pools().await;
            if round > 0 {
                comparison.add_cycle(&what, which, &measured);
                eprintln!(
                    "{what}, round {round} of {rounds}, manager {which}: {:.0} per s",
                    measured.bind.per_second
                );
            }
        }
    }
}

async fn idle(
    cluster: &mut Cluster<'_>,
    programs: &[Program; 2],
    count: usize,
    comparison: &mut Comparison,
) {
    for round in 0..2 {
        for which in order(round) {
            cluster.program = programs[which].clone();
            let consumer = cluster.consumer(&unique("idle"), 1).await;
            let mut manager = cluster.start().await;
            cluster.settle(Some(&manager)).await;
            let (bind, release) = one_by_one(cluster, &consumer, count, None, Some(&manager)).await;
            manager.stop();
            consumer.delete_pools().await;
            for (name, value) in [
                ("creation to bound, p50", bind.p50_ms),
                ("creation to bound, p99", bind.p99_ms),
                ("creation to bound, longest", bind.longest_ms),
                ("deletion to gone, p50", release.p50_ms),
                ("deletion to gone, p99", release.p99_ms),
            ] {
                comparison.add(format!("one claim at a time: {name}"), "ms", which, value);
            }
            eprintln!(
                "one claim at a time, manager {which}: p50 {:.1} ms, p99 {:.1} ms",
                bind.p50_ms, bind.p99_ms
            );
        }
    }
}

async fn beside(
    cluster: &mut Cluster<'_>,
    programs: &[Program; 2],
    consumer: &Consumer,
    present: usize,
    comparison: &mut Comparison,
) {
    for which in [0, 1, 0] {
        cluster.program = programs[which].clone();
        cluster.settle(None).await;
        let name = unique("first");
        let claim = consumer.create(0, &name).await;
        let (meter, started) = (
            Meter::start(&cluster.plane, None),
            std::time::Instant::now(),
        );
        let mut manager = cluster.launch();
        let bound = consumer
            .watch
            .wait_for_bound(&name)
            .await
            .saturating_duration_since(started);
        Cluster::ready(&mut manager).await;
        let what = format!("restart with {present} bound claims");
        comparison.add(
            format!("{what}: first new claim bound"),
            "s",
            which,
            bound.as_secs_f64(),
        );
        cluster.settle(Some(&manager)).await;
        comparison.add(
            format!("{what}: memory"),
            "MiB",
            which,
            Memory::of(manager.pid()).now,
        );
        let requests = meter.read().requests;
        comparison.add(
            format!("{what}: writes"),
            "",
            which,
            (requests.writes + requests.pool_writes) as f64,
        );
        consumer.release(&[claim], None).await;
        let measured = cycle(cluster, consumer, BESIDE, present, None, Some(&manager)).await;
        comparison.add_cycle(
            &format!("{BESIDE} claims beside {present}"),
            which,
            &measured,
        );
        manager.stop();
    }
}
