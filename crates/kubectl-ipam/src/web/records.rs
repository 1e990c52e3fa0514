//! Reads the records of registries while a page shows a network that takes blocks from them.
//!
//! A request of the browser never waits for a registry: it gets the last known records, and the
//! result of a read is sent as every other change.

use std::sync::Arc;
use std::time::Duration;

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

/// Reads registries until the task is ended.
pub(super) async fn run(cluster: Arc<Cluster>, state: Arc<State>) {
    let mut readers = JoinSet::new();
    loop {
        state.demand.changed().await;
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
