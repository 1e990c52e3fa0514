//! Creates and deletes claims at random for minutes: the memory of the manager must not grow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use rand::RngExt;
use serde_json::json;

use crate::api_client::Identity;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::{Memory, Meter, memory};
use crate::outcome::{Figure, Outcome};

/// The number of memory samples.
const SAMPLES: u32 = 10;
/// The duration.
const DURATION: Duration = Duration::from_mins(5);

/// The state of a slot for a claim.
enum Slot {
    Empty,
    Taken(Identity),
    /// A worker is creating or deleting its claim.
    Busy,
}

struct Workload<'a> {
    consumer: &'a Consumer,
    slots: Vec<Mutex<Slot>>,
    made: AtomicUsize,
    deleted: AtomicUsize,
    until: Instant,
}

pub(crate) async fn run(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let consumer = cluster.consumer("churn", cluster.options.pools).await;
    let mut manager = cluster.start().await;
    let duration = DURATION.mul_f64(cluster.options.scale().min(1.0));
    let workload = Workload {
        consumer: &consumer,
        slots: (0..count).map(|_| Mutex::new(Slot::Empty)).collect(),
        made: AtomicUsize::default(),
        deleted: AtomicUsize::default(),
        until: Instant::now() + duration,
    };
    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let workers = join_all((0..consumer.at_once).map(|_| workload.work()));
    let watch = async {
        let started = Instant::now();
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            tokio::time::sleep(duration / SAMPLES).await;
            samples.push((
                started.elapsed().as_secs_f64(),
                memory(manager.pid()),
                workload.present(),
            ));
        }
        samples
    };
    let (_, samples) = tokio::join!(workers, watch);
    let cost = meter.read();
    let made = workload.made.load(Ordering::Relaxed);
    let there = made - workload.deleted.load(Ordering::Relaxed);
    consumer.check_addresses(there).await;
    manager.stop();

    // In the first half the number of claims grows.
    let late: Vec<(f64, f64)> = samples
        .iter()
        .skip(samples.len() / 2)
        .map(|(second, memory, _)| (second / 60.0, memory.now))
        .collect();
    let changes = made + workload.deleted.load(Ordering::Relaxed);
    let figures = vec![
        Figure::new(
            "created and deleted",
            changes as f64 / cost.seconds,
            "a second",
        ),
        Figure::new("claims at the end", there as f64, ""),
        Figure::new(
            "growth of memory in the second half",
            slope(&late),
            "MiB a minute",
        )
        .at_most(1.0),
        Figure::new(
            "memory at the end",
            samples.last().map_or(0.0, |(_, memory, _)| memory.now),
            "MiB",
        ),
        Figure::new("peak memory", cost.memory.unwrap_or_default().peak, "MiB"),
    ];
    let sample = |(second, memory, claims): &(f64, Memory, usize)| json!({"second": second, "memory": memory, "claims": claims});
    let samples: Vec<_> = samples.iter().map(sample).collect();
    let raw = json!({"samples": samples, "cost": cost, "made": made});
    Outcome {
        series: "churn".to_owned(),
        present: 0,
        claims: count,
        lines: Vec::new(),
        figures,
        raw,
    }
}

impl Workload<'_> {
    fn set(&self, number: usize, slot: Slot) -> Slot {
        std::mem::replace(
            &mut self.slots[number]
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            slot,
        )
    }

    fn present(&self) -> usize {
        self.made
            .load(Ordering::Relaxed)
            .saturating_sub(self.deleted.load(Ordering::Relaxed))
    }

    /// Creates a claim in an empty slot or deletes the one in a taken slot, and waits for the
    /// result.
    async fn work(&self) {
        while Instant::now() < self.until {
            let number = rand::rng().random_range(0..self.slots.len());
            match self.set(number, Slot::Busy) {
                Slot::Busy => tokio::time::sleep(Duration::from_millis(1)).await,
                Slot::Empty => {
                    let name = format!("churn-{}", self.made.fetch_add(1, Ordering::Relaxed));
                    let claim = self.consumer.create(number, &name).await;
                    self.consumer.watch.wait_for_bound(&name).await;
                    self.set(number, Slot::Taken(claim));
                }
                Slot::Taken(claim) => {
                    self.consumer.delete(&claim.name, &claim.uid).await;
                    self.consumer.watch.wait_for_deletion(&claim.name).await;
                    self.consumer.watch.forget(&claim.name);
                    self.deleted.fetch_add(1, Ordering::Relaxed);
                    self.set(number, Slot::Empty);
                }
            }
        }
    }
}

/// The slope of the regression line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (mut both, mut square) = (0.0, 0.0);
    for point in points {
        both += (point.0 - x) * (point.1 - y);
        square += (point.0 - x) * (point.0 - x);
    }
    if square > 0.0 { both / square } else { 0.0 }
}
