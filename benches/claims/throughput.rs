//! Claims come and go at random for minutes: the memory of the manager must not grow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capi_ipam::calls::Identity;
use capi_ipam::consumer::Consumer;
use capi_ipam::meter::{memory, Memory, Meter};
use capi_ipam::outcome::{Figure, Outcome};
use capi_ipam::cluster::Cluster;
use futures::future::join_all;
use rand::RngExt;
use serde_json::json;

/// How often the memory is read while claims come and go.
const SAMPLES: u32 = 10;
/// How long claims come and go.
const DURATION: Duration = Duration::from_mins(5);

/// A place that a claim has, or none.
enum Place {
    Empty,
    Taken(Identity),
    /// Somebody is at it.
    Busy,
}

struct Churn<'a> {
    consumer: &'a Consumer,
    places: Vec<Mutex<Place>>,
    made: AtomicUsize,
    deleted: AtomicUsize,
    until: Instant,
}

pub(crate) async fn run(stage: &Cluster<'_>, count: usize) -> Outcome {
    let consumer = stage.consumer("churn", stage.options.pools).await;
    let mut manager = stage.start().await;
    let duration = DURATION.mul_f64(stage.options.scale().min(1.0));
    let churn = Churn {
        consumer: &consumer,
        places: (0..count).map(|_| Mutex::new(Place::Empty)).collect(),
        made: AtomicUsize::default(),
        deleted: AtomicUsize::default(),
        until: Instant::now() + duration,
    };
    let meter = Meter::start(&stage.plane, Some(manager.pid()));
    let workers = join_all((0..consumer.at_once).map(|_| churn.work()));
    let watch = async {
        let started = Instant::now();
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            tokio::time::sleep(duration / SAMPLES).await;
            samples.push((started.elapsed().as_secs_f64(), memory(manager.pid()), churn.there()));
        }
        samples
    };
    let (_, samples) = tokio::join!(workers, watch);
    let cost = meter.read();
    let made = churn.made.load(Ordering::Relaxed);
    let there = made - churn.deleted.load(Ordering::Relaxed);
    consumer.check_addresses(there).await;
    manager.stop();

    // At first there are more claims with each sample.
    let late: Vec<(f64, f64)> =
        samples.iter().skip(samples.len() / 2).map(|(second, memory, _)| (second / 60.0, memory.now)).collect();
    let changes = made + churn.deleted.load(Ordering::Relaxed);
    let figures = vec![
        Figure::new("made and deleted", changes as f64 / cost.seconds, "a second"),
        Figure::new("claims at the end", there as f64, ""),
        Figure::new("growth of memory in the second half", slope(&late), "MiB a minute").at_most(1.0),
        Figure::new("memory at the end", samples.last().map_or(0.0, |(_, memory, _)| memory.now), "MiB"),
        Figure::new("memory at most", cost.memory.unwrap_or_default().peak, "MiB"),
    ];
    let sample =
        |(second, memory, claims): &(f64, Memory, usize)| json!({"second": second, "memory": memory, "claims": claims});
    let samples: Vec<_> = samples.iter().map(sample).collect();
    let raw = json!({"samples": samples, "cost": cost, "made": made});
    Outcome { series: "churn".to_owned(), present: 0, claims: count, lines: Vec::new(), figures, raw }
}

impl Churn<'_> {
    fn set(&self, number: usize, place: Place) -> Place {
        std::mem::replace(&mut self.places[number].lock().unwrap_or_else(PoisonError::into_inner), place)
    }

    fn there(&self) -> usize {
        self.made.load(Ordering::Relaxed).saturating_sub(self.deleted.load(Ordering::Relaxed))
    }

    /// Makes a claim in an empty place, deletes the one in a taken place, and waits for what becomes of it.
    async fn work(&self) {
        while Instant::now() < self.until {
            let number = rand::rng().random_range(0..self.places.len());
            match self.set(number, Place::Busy) {
                Place::Busy => tokio::time::sleep(Duration::from_millis(1)).await,
                Place::Empty => {
                    let name = format!("churn-{}", self.made.fetch_add(1, Ordering::Relaxed));
                    let claim = self.consumer.create(number, &name).await;
                    self.consumer.watch.bound(&name).await;
                    self.set(number, Place::Taken(claim));
                }
                Place::Taken(claim) => {
                    self.consumer.delete(&claim.name, &claim.uid).await;
                    self.consumer.watch.gone(&claim.name).await;
                    self.consumer.watch.forget(&claim.name);
                    self.deleted.fetch_add(1, Ordering::Relaxed);
                    self.set(number, Place::Empty);
                }
            }
        }
    }
}

/// How steep the line is that comes closest to these points.
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
