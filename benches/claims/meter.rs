//! The cost of a phase: requests from the metrics of the API server, processor time and memory from
//! `/proc`.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::api_client::GROUP;
use support::control_plane::{ControlPlane, RequestKey};
use support::process::Memory;

/// Clock ticks per second in `/proc` (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Requests of all clients for the kinds of the API group.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Requests {
    /// Writes of claims, IPAddresses and reservations.
    pub(crate) writes: u64,
    /// Writes of pools and their status.
    pub(crate) pool_writes: u64,
    /// Reads of one object.
    pub(crate) reads: u64,
    pub(crate) lists: u64,
    /// Watches that ended.
    pub(crate) watches: u64,
    /// Writes of events.
    pub(crate) events: u64,
}

/// Seconds of processor time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Processor {
    pub(crate) manager: f64,
    pub(crate) api_server: f64,
    pub(crate) etcd: f64,
    /// This program.
    pub(crate) tool: f64,
}

/// The cost of a phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) requests: Requests,
    pub(crate) processor: Processor,
    /// At the end of the phase; none without a manager.
    pub(crate) memory: Option<Memory>,
}

/// Measures from its creation.
pub(crate) struct Meter<'a> {
    plane: &'a ControlPlane,
    manager: Option<u32>,
    requests: Requests,
    processor: Processor,
    started: Instant,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(plane: &'a ControlPlane, manager: Option<u32>) -> Self {
        let requests = requests(plane);
        Self {
            plane,
            manager,
            requests,
            processor: processor(plane, manager),
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
        let seconds = self.started.elapsed().as_secs_f64();
        let (before, now) = (self.processor, processor(self.plane, self.manager));
        let processor = Processor {
            manager: now.manager - before.manager,
            api_server: now.api_server - before.api_server,
            etcd: now.etcd - before.etcd,
            tool: now.tool - before.tool,
        };
        let (before, now) = (self.requests, requests(self.plane));
        let requests = Requests {
            writes: now.writes - before.writes,
            pool_writes: now.pool_writes - before.pool_writes,
            reads: now.reads - before.reads,
            lists: now.lists - before.lists,
            watches: now.watches - before.watches,
            events: now.events - before.events,
        };
        Cost {
            seconds,
            requests,
            processor,
            memory: self.manager.map(Memory::of),
        }
    }
}

fn requests(plane: &ControlPlane) -> Requests {
    let mut requests = Requests::default();
    for (
        RequestKey {
            verb,
            group,
            resource,
            ..
        },
        count,
    ) in plane.request_count()
    {
        let is_write = !["GET", "LIST", "WATCH"].contains(&verb.as_str());
        if resource == "events" && is_write {
            requests.events += count;
        }
        if group != GROUP {
            continue;
        }
        let counter = match verb.as_str() {
            "GET" => &mut requests.reads,
            "LIST" => &mut requests.lists,
            "WATCH" => &mut requests.watches,
            _ if resource.ends_with("pools") => &mut requests.pool_writes,
            _ => &mut requests.writes,
        };
        *counter += count;
    }
    requests
}

fn processor(plane: &ControlPlane, manager: Option<u32>) -> Processor {
    let mut processor = Processor {
        manager: manager.map_or(0.0, |pid| seconds_of(&pid.to_string())),
        tool: seconds_of("self"),
        ..Processor::default()
    };
    for pid in plane.pids() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match name.trim() {
            "etcd" => processor.etcd += seconds_of(&pid.to_string()),
            _ => processor.api_server += seconds_of(&pid.to_string()),
        }
    }
    processor
}

/// The processor time of a process, in user and kernel mode.
pub(crate) fn seconds_of(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program is in parentheses and may contain spaces.
    let fields = stat
        .rsplit_once(") ")
        .map(|(_, fields)| fields)
        .unwrap_or_default();
    let ticks = fields
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}
