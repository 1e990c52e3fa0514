//! Reads the records of registries while a page shows a network that takes blocks from them.
//!
//! A request of the browser never waits for a registry: it gets the last known records, and the
//! result of a read is sent as every other change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::state::State;
use crate::cli::RegistryAccess;
use crate::cluster::Cluster;
use crate::load::Loader;
use crate::model::RegistryFacts;
use crate::objects::RegistryRow;
use crate::registry;

/// Minimum time between two reads of a registry.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time after which an IPRegistry that is not known is looked up again.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);
/// How long a read may take, with the Secret and the namespace of the manager.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long after the last request of a page its registry is read. A page asks after every read.
const SHOWN_FOR: Duration = Duration::from_secs(15);

/// The registries whose records a page shows.
#[derive(Debug, Default)]
pub(super) struct Demand {
    asked: Mutex<BTreeMap<String, Asked>>,
    changed: Notify,
}

/// The demand for the records of a registry.
#[derive(Debug)]
struct Asked {
    /// The last request of a page.
    at: Instant,
    /// Whether a task reads them.
    is_read: bool,
}

impl Demand {
    /// A page shows the records of a registry.
    pub(super) fn ask(&self, registry: &str, now: Instant) {
        let mut all = self.asked.lock();
        if let Some(known) = all.get_mut(registry) {
            known.at = now;
            return;
        }
        let asked = Asked {
            at: now,
            is_read: false,
        };
        all.insert(registry.to_owned(), asked);
        drop(all);
        self.changed.notify_one();
    }

    /// The registries that no task reads yet. The caller starts one for each.
    fn start(&self) -> Vec<String> {
        let mut started = Vec::new();
        for (registry, asked) in &mut *self.asked.lock() {
            if !asked.is_read {
                asked.is_read = true;
                started.push(registry.clone());
            }
        }
        started
    }

    /// Whether no page shows the records any more. Then the task that reads them has to end.
    fn is_over(&self, registry: &str, now: Instant) -> bool {
        let mut all = self.asked.lock();
        let is_shown = all
            .get(registry)
            .is_some_and(|asked| now.duration_since(asked.at) < SHOWN_FOR);
        if !is_shown {
            all.remove(registry);
        }
        !is_shown
    }
}

/// Reads registries until the task is ended.
pub(super) async fn run(cluster: Arc<Cluster>, state: Arc<State>) {
    let mut readers = JoinSet::new();
    loop {
        state.demand.changed.notified().await;
        while readers.try_join_next().is_some() {}
        for registry in state.demand.start() {
            let (cluster, state) = (Arc::clone(&cluster), Arc::clone(&state));
            readers.spawn(read_while_shown(cluster, state, registry));
        }
    }
}

/// Reads a registry again and again while a page shows it.
async fn read_while_shown(cluster: Arc<Cluster>, state: Arc<State>, name: String) {
    loop {
        let started = Instant::now();
        let mut pause = LOOKUP_INTERVAL;
        if let Some(row) = state.registry(&name) {
            let read = read(&cluster, &row).await;
            state.receive_records(&name, read);
            pause = INTERVAL;
        }
        sleep_until(started + pause).await;
        if state.demand.is_over(&name, Instant::now()) {
            return;
        }
    }
}

/// Reads the records of a registry. An error is the reason why nothing of it is known.
async fn read(cluster: &Cluster, row: &RegistryRow) -> Result<RegistryFacts, String> {
    let mut loader = Loader::new(cluster);
    let access = RegistryAccess::default();
    match timeout(TIMEOUT, registry::facts(&mut loader, row, &access)).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn registry_is_read_by_one_task_while_a_page_shows_it() {
        let demand = Demand::default();
        let start = Instant::now();
        demand.ask("site", start);
        demand.changed.notified().await;
        demand.ask("site", start);
        assert_eq!(demand.start(), ["site"]);
        assert!(demand.start().is_empty(), "a task reads it");
        assert!(!demand.is_over("site", start + INTERVAL));
        demand.ask("site", start + INTERVAL);
        assert!(
            !demand.is_over("site", start + 2 * INTERVAL),
            "it was asked for again"
        );
        let later = start + 3 * INTERVAL;
        assert!(demand.is_over("site", later));
        demand.ask("site", later);
        demand.changed.notified().await;
        assert_eq!(demand.start(), ["site"]);
    }
}
