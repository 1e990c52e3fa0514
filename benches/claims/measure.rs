//! What a phase costs: requests from the metrics of the API server, processor time from `/proc`;
//! and the figures that are computed from it.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use support::control_plane::ControlPlane;

use crate::api::GROUP;
use crate::consumer::Timed;

/// Clock ticks per second in `/proc` (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Requests of all clients for the kinds of the API group, and seconds of processor time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    /// Writes of claims, IPAddresses and reservations.
    pub(crate) writes: f64,
    /// Writes of pools and their status.
    pub(crate) pool_writes: f64,
    /// Reads of one object.
    pub(crate) reads: f64,
    pub(crate) manager: f64,
    /// The API server and etcd.
    pub(crate) server: f64,
}

impl Cost {
    /// Everything since the start of the processes.
    fn until_now(plane: &ControlPlane, manager: Option<u32>) -> Self {
        let mut cost = Self {
            manager: manager.map_or(0.0, seconds_of),
            server: plane.pids().into_iter().map(seconds_of).sum(),
            ..Self::default()
        };
        for (key, count) in plane.request_count() {
            let counter = match key.verb.as_str() {
                _ if key.group != GROUP => continue,
                "GET" => &mut cost.reads,
                "LIST" | "WATCH" => continue,
                _ if key.resource.ends_with("pools") => &mut cost.pool_writes,
                _ => &mut cost.writes,
            };
            *counter += count as f64;
        }
        cost
    }
}

/// Measures from its creation.
pub(crate) struct Meter<'a> {
    plane: &'a ControlPlane,
    manager: Option<u32>,
    before: Cost,
    started: Instant,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(plane: &'a ControlPlane, manager: Option<u32>) -> Self {
        Self {
            plane,
            manager,
            before: Cost::until_now(plane, manager),
            started: Instant::now(),
        }
    }

    /// The cost since the start after a delay, since a provider writes events and the status of
    /// pools later.
    pub(crate) async fn read_later(&self) -> Cost {
        if self.manager.is_some() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.read()
    }

    /// The cost since the start.
    pub(crate) fn read(&self) -> Cost {
        let (before, now) = (self.before, Cost::until_now(self.plane, self.manager));
        Cost {
            seconds: self.started.elapsed().as_secs_f64(),
            writes: now.writes - before.writes,
            pool_writes: now.pool_writes - before.pool_writes,
            reads: now.reads - before.reads,
            manager: now.manager - before.manager,
            server: now.server - before.server,
        }
    }
}

/// The processor time of a process, in user and kernel mode.
pub(crate) fn seconds_of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program is in parentheses and may contain spaces.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let ticks = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// Claims that were bound, or released.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phase {
    pub(crate) claims: f64,
    pub(crate) seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
    pub(crate) cost: Cost,
}

impl Phase {
    pub(crate) fn new(timed: &Timed, cost: Cost) -> Self {
        Self {
            claims: timed.each.len() as f64,
            seconds: timed.whole.as_secs_f64(),
            p50_ms: percentile(&timed.each, 50),
            p99_ms: percentile(&timed.each, 99),
            longest_ms: percentile(&timed.each, 100),
            cost,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.claims / self.seconds
    }

    /// Writes per claim, without that of the consumer.
    pub(crate) fn writes(&self) -> f64 {
        self.cost.writes / self.claims - 1.0
    }

    /// Processor time of API server and etcd per claim, in milliseconds.
    pub(crate) fn server_ms(&self) -> f64 {
        self.cost.server * 1000.0 / self.claims
    }

    /// Processor time of the manager per claim, in milliseconds.
    pub(crate) fn manager_ms(&self) -> f64 {
        self.cost.manager * 1000.0 / self.claims
    }
}

/// The limit that a figure should not miss.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) target: Option<Target>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            target: None,
        }
    }

    /// A quotient.
    pub(crate) fn ratio(name: impl Into<String>, value: f64) -> Self {
        Self::new(name, value, "")
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        Self {
            target: Some(Target::AtLeast(limit)),
            ..self
        }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self {
            target: Some(Target::AtMost(limit)),
            ..self
        }
    }
}

impl Display for Figure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            unit,
            target,
        } = self;
        write!(formatter, "{name:<64} {value:>10.2} {unit:<8}")?;
        let (wanted, limit, is_met) = match *target {
            None => return Ok(()),
            Some(Target::AtLeast(limit)) => ("at least", limit, *value >= limit),
            Some(Target::AtMost(limit)) => ("at most", limit, *value <= limit),
        };
        write!(
            formatter,
            " {wanted} {limit:.2} {}",
            if is_met { "ok" } else { "MISSED" }
        )
    }
}

/// The result of a series.
#[derive(Serialize)]
pub(crate) struct Outcome {
    pub(crate) figures: Vec<Figure>,
    /// The phases of each round.
    rounds: Value,
}

impl Outcome {
    pub(crate) fn new(figures: Vec<Figure>, rounds: Value) -> Self {
        Self { figures, rounds }
    }
}

impl From<Vec<Figure>> for Outcome {
    fn from(figures: Vec<Figure>) -> Self {
        Self::new(figures, Value::Null)
    }
}

/// A percentile of sorted times, in milliseconds.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> f64 {
    let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times
        .get(place)
        .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

pub(crate) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    if count == 0 {
        0.0
    } else {
        f64::midpoint(values[(count - 1) / 2], values[count / 2])
    }
}
