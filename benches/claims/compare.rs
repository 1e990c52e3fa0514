//! `--compare PATH`: two managers on the same API server, alternately, and one table.
//!
//! The order of the two alternates from round to round, so that a drift of the machine has the same
//! effect on both. The table shows the median of the rounds.

use serde::Serialize;
use support::process::Memory;

use crate::cluster::{Cluster, Program};
use crate::consumer::Consumer;
use crate::load::{By, Cycle, Load, peak};
use crate::measure::{Figure, Meter, median};
use crate::options::Options;
use crate::rates::{PAUSE, one_by_one_figures};
use crate::restart::first_bound;
use crate::seed::{self, Seeded};

/// The number of bound claims in the part with many, and of claims beside them.
const PRESENT: usize = 10_000;
const BESIDE: usize = 200;

/// One line of the table: the values of all rounds of this manager and of the other.
#[derive(Serialize)]
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    values: [Vec<f64>; 2],
}

/// Prints the table in Markdown.
pub(crate) fn print(rows: &[Row]) {
    println!("\n| | this manager | other manager | ratio |\n|---|---|---|---|");
    for Row { name, unit, values } in rows {
        let [ours, other] = values
            .each_ref()
            .map(|values| median(values.iter().copied()));
        println!(
            "| {name} | {ours:.2} {unit} | {other:.2} {unit} | {:.2} |",
            ours / other
        );
    }
}

/// Runs the parts, and adds their figures to the rows.
pub(crate) async fn run(options: &Options, rows: &mut Vec<Row>) {
    let compares = |part: &str| options.compare_parts.iter().any(|wanted| wanted == part);
    let mut comparison = Comparison {
        programs: [
            Program {
                path: None,
                flags: options.manager_flags.clone(),
            },
            Program {
                path: options.compare.clone(),
                flags: options.compare_flags.clone(),
            },
        ],
        rows,
    };
    let mut cluster = Cluster::new(options).await;
    for (part, count, rounds) in [("500", 500, 4), ("3000", 3_000, 2)] {
        if compares(part) {
            comparison
                .claims(&mut cluster, options.scaled(count), options.rounds(rounds))
                .await;
        }
    }
    if compares("idle") {
        comparison.idle(&mut cluster, options.scaled(100)).await;
    }
    drop(cluster);
    if compares("10000") {
        let mut cluster = Cluster::new(options).await;
        let consumer = seed::seed(&mut cluster, options.scaled(PRESENT), Seeded::Complete).await;
        comparison.beside(&mut cluster, &consumer).await;
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

struct Comparison<'a> {
    programs: [Program; 2],
    rows: &'a mut Vec<Row>,
}

impl Comparison<'_> {
    fn add(&mut self, what: &str, which: usize, figures: Vec<Figure>) {
        for Figure {
            name, value, unit, ..
        } in figures
        {
            let name = format!("{what}: {name}");
            eprintln!("manager {which}, {name}: {value:.2} {unit}");
            if let Some(row) = self.rows.iter_mut().find(|row| row.name == name) {
                row.values[which].push(value);
                continue;
            }
            let mut values = [Vec::new(), Vec::new()];
            values[which].push(value);
            self.rows.push(Row { name, unit, values });
        }
    }

    /// Many claims in one pool.
    async fn claims(&mut self, cluster: &mut Cluster<'_>, count: usize, rounds: usize) {
        for round in 0..=rounds {
            for which in order(round) {
                // The first round warms up the API server.
                if round == 0 && which == 1 {
                    continue;
                }
                cluster.program = self.programs[which].clone();
                let consumer = cluster.consumer("compare", 1).await;
                let mut manager = cluster.start().await;
                let load = Load::of(cluster, &consumer, &manager, count);
                let mut figures = figures(&load.cycle().await);
                figures.push(peak(&manager));
                manager.stop();
                consumer.delete_pools().await;
                if round > 0 {
                    self.add(&format!("{count} claims"), which, figures);
                }
            }
        }
    }

    async fn idle(&mut self, cluster: &mut Cluster<'_>, count: usize) {
        for round in 0..2 {
            for which in order(round) {
                cluster.program = self.programs[which].clone();
                let consumer = cluster.consumer("idle", 1).await;
                let mut manager = cluster.start().await;
                cluster.settle(Some(&manager)).await;
                let load = Load::of(cluster, &consumer, &manager, count);
                let cycle = load.one_by_one(PAUSE, |made| made >= count).await;
                manager.stop();
                consumer.delete_pools().await;
                self.add("one claim at a time", which, one_by_one_figures(&cycle));
            }
        }
    }

    /// A restart with many bound claims, and claims beside them.
    async fn beside(&mut self, cluster: &mut Cluster<'_>, consumer: &Consumer) {
        for which in [0, 1, 0] {
            cluster.program = self.programs[which].clone();
            let meter = Meter::start(&cluster.plane, None);
            let (mut manager, bound) = first_bound(cluster, consumer).await;
            cluster.settle(Some(&manager)).await;
            let cost = meter.read();
            let restart = vec![
                Figure::new("first new claim bound", bound, "s"),
                Figure::new("memory", Memory::of(manager.pid()).now, "MiB"),
                Figure::ratio("writes", cost.writes + cost.pool_writes),
            ];
            self.add(
                &format!("restart with {} bound claims", consumer.present),
                which,
                restart,
            );
            let by = By::Manager(&manager);
            let cycle = Load {
                cluster,
                consumer,
                by,
                count: BESIDE,
                racks: 0,
            }
            .cycle()
            .await;
            self.add(
                &format!("{BESIDE} claims beside {}", consumer.present),
                which,
                figures(&cycle),
            );
            manager.stop();
        }
    }
}

fn figures(cycle: &Cycle) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, phase) in [("bound", &cycle.bind), ("released", &cycle.release)] {
        figures.extend([
            Figure::new(name, phase.per_second(), "per s"),
            Figure::new(
                format!("{name}, CPU of the manager per claim"),
                phase.manager_ms(),
                "ms",
            ),
            Figure::new(
                format!("{name}, CPU of API server and etcd per claim"),
                phase.server_ms(),
                "ms",
            ),
            Figure::new(format!("{name}, p50"), phase.p50_ms, "ms"),
            Figure::new(format!("{name}, p99"), phase.p99_ms, "ms"),
        ]);
    }
    figures
}
