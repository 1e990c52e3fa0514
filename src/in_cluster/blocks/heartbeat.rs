//! The sign of life of this management cluster in a registry: others conclude from it that the cluster
//! exists and that its records are written, and this process that no other one has its identity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{ClusterRecord, MAX_EXCLUSIONS};
use capi_ipam_controller::clock;
use capi_ipam_registry::{Created, Entry, Key, Record, RegistryError, Version};
use tokio::time::sleep;
use tracing::warn;

use super::disturbance::Disturbance;
use super::open_registry::{OpenRegistry, PROBE_INTERVAL, Requester};

/// The time between two signs of life while others wait for them.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(5);

/// The sign of life of this management cluster.
pub(super) struct Heartbeat {
    registry: Arc<OpenRegistry>,
    /// Whether no other manager of this management cluster is needed. The managers of parts of the
    /// objects have one identity: they do not disturb each other.
    is_alone: bool,
    /// The name of the record.
    key: Key,
    /// A random number of this process.
    process: String,
    /// When the first write began whose outcome is not known.
    began: Option<Instant>,
    /// The version and count of the last write, and when it began, if the cache has not recorded the
    /// response.
    unrecorded: Option<(Version, Option<u64>, Instant)>,
    disturbance: Disturbance,
}

impl Heartbeat {
    pub(super) fn new(registry: Arc<OpenRegistry>, is_alone: bool) -> Self {
        let mut disturbance = Disturbance::default();
        if registry.is_suspended() {
            disturbance = Disturbance::lasting();
        }
        Self {
            is_alone,
            key: Key::Cluster {
                id: (*registry.cluster).into(),
            },
            registry,
            process: format!("{:016x}", rand::random::<u64>()),
            began: None,
            unrecorded: None,
            disturbance,
        }
    }

    /// Writes signs of life until it is dropped.
    pub(super) async fn run(mut self) {
        let registry = Arc::clone(&self.registry);
        let mut last: Option<Instant> = None;
        loop {
            let interval = self.interval();
            let is_due = last.is_none_or(|at| at.elapsed() >= interval);
            if is_due || self.is_wanted() {
                match self.beat().await {
                    Ok(is_done) => {
                        // What may not be written yet is due as soon as it may be.
                        if is_done {
                            last = Some(Instant::now());
                        }
                        registry.compare_exclusions();
                        registry.succeeded(Requester::Heartbeat);
                    }
                    // Without a sign of life, others may find that this cluster is gone: no
                    // block is taken or returned, whatever the reason.
                    Err(error) => registry.failed(Requester::Heartbeat, &error),
                }
            }
            sleep(PROBE_INTERVAL).await;
        }
    }

    /// Whether a sign of life has to be written before its time: to find out whether the registry can be
    /// reached, or what others have written until now.
    fn is_wanted(&self) -> bool {
        let registry = &self.registry;
        // During a recovery, signs of life are frequent anyway.
        let is_wanted = registry.signs_of_life.is_wanted(&registry.name);
        registry.needs_probe() || is_wanted && !registry.is_recovering()
    }

    /// The time between two signs of life.
    fn interval(&self) -> Duration {
        let interval = self.disturbance.interval();
        if self.registry.is_awaited() {
            return interval.min(RECOVERY_INTERVAL);
        }
        interval
    }

    /// Writes a sign of life, and finds out whether another process does so. Returns false if it may not be
    /// written yet.
    async fn beat(&mut self) -> Result<bool, RegistryError> {
        let registry = Arc::clone(&self.registry);
        if !registry.may_show_life() {
            // Finds out whether a registry can be reached to which nothing is written.
            if registry.needs_probe() {
                registry.read(&Key::Registry).await?;
            }
            return Ok(false);
        }
        registry.backend.check().await?;
        let held = registry.read(&self.key).await?;
        let record = held.as_ref().and_then(cluster_record);
        self.note_unrecorded_write();
        let is_own = record.is_some_and(|record| record.process == self.process);
        if registry.is_confirmed() {
            registry.compare_read(record);
        }
        registry.check_cluster();
        if let (Some(held), Some(record)) = (&held, record)
            && is_own
            && !registry.is_recovering()
            && !registry.records.has_watched(&held.version)
            && let Some(began) = self.began.take()
        {
            // The answer to its write was lost.
            registry.wrote_heartbeat(held.version.clone(), record.writes, began);
        }
        if registry.is_of_other_cluster() {
            // The record is left to it.
            return Ok(true);
        }
        if !registry.may_show_life() {
            return Ok(false);
        }
        // The record of an earlier process of this cluster is taken over. After a write of this one, that of
        // another process is no longer that of an earlier one.
        let is_of_another = record.is_some() && !is_own;
        let is_disturbed = self.is_alone && is_of_another && registry.has_shown_life();
        if !self.write(held.as_ref()).await? {
            return Ok(false);
        }
        if is_disturbed {
            self.disturbance.noticed(Instant::now());
        } else {
            self.disturbance.unnoticed(Instant::now());
        }
        self.suspend();
        Ok(true)
    }

    /// Records the last write whose response the cache has not recorded, after a read: that shows
    /// whether the registry still has it.
    fn note_unrecorded_write(&mut self) {
        if let Some((version, writes, began)) = self.unrecorded.take() {
            self.registry.wrote_heartbeat(version, writes, began);
            self.began = None;
        }
    }

    /// The record as it is written now.
    fn record(&self) -> ClusterRecord {
        let registry = &self.registry;
        let name = &registry.name;
        let mut exclusions = BTreeMap::new();
        // A manager of a part of the objects does not know all of them.
        if self.is_alone {
            exclusions = registry.ledger.read(|ledger| ledger.exclusion_hashes(name));
        }
        ClusterRecord {
            cluster: registry.cluster.to_string(),
            uid: registry.uid.clone(),
            process: self.process.clone(),
            seen: Some(clock::now()),
            blocks: u32::try_from(registry.held()).unwrap_or(u32::MAX),
            writes: Some(registry.next_writes()),
            exclusions: exclusions.into_iter().take(MAX_EXCLUSIONS).collect(),
        }
    }

    /// Writes the record in the version that was read. Returns false if another process has changed
    /// it since.
    async fn write(&mut self, held: Option<&Entry>) -> Result<bool, RegistryError> {
        let registry = &self.registry;
        let record = self.record();
        let writes = record.writes;
        let record = Record::Cluster(record);
        let began = *self.began.get_or_insert_with(Instant::now);
        let written = match held {
            Some(held) => registry.update(held, &record).await,
            None => match registry.create(&self.key, &record).await? {
                Created::Ours(entry) => Ok(entry),
                Created::Theirs(_) => return Ok(false),
            },
        };
        match written {
            Ok(entry) => {
                let known = registry.records.get(&self.key);
                if known.is_none_or(|known| known.version.is_older_than(&entry.version)) {
                    // A list has begun since the request, and may not show it.
                    self.unrecorded = Some((entry.version, writes, began));
                    return Ok(false);
                }
                registry.wrote_heartbeat(entry.version, writes, began);
                self.began = None;
                // The watch may have shown it before the answer.
                registry.note_sign_of_life();
                Ok(true)
            }
            Err(RegistryError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stops taking, returning and using blocks while another process writes with the same identity.
    fn suspend(&self) {
        let registry = &self.registry;
        let is_lasting = self.disturbance.is_lasting();
        if is_lasting && !registry.is_suspended() {
            warn!(
                registry = registry.name,
                cluster = &*registry.cluster,
                "another process writes with the identity of this management cluster; no block is taken, returned or used"
            );
        }
        registry.set_disturbed(is_lasting);
    }
}

/// The sign of life that a registry shows.
fn cluster_record(entry: &Entry) -> Option<&ClusterRecord> {
    match entry.record() {
        Some(Record::Cluster(record)) => Some(record),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use capi_ipam_controller::metrics::Metrics;
    use capi_ipam_controller::watch::EventHandler;
    use capi_ipam_registry::{Backend, RecordChanges, Version};
    use futures::StreamExt;
    use parking_lot::Mutex;

    use super::super::measured::{MeasuredRegistry, RequestMetrics};
    use super::super::open_registry::{Before, Identity};
    use super::*;
    use crate::in_cluster::shared_ledger::SharedLedger;
    use crate::in_cluster::signs_of_life::SignsOfLife;

    /// A registry that applies the first write without an answer.
    #[derive(Debug, Default)]
    struct LostAnswer(Mutex<Option<Entry>>);

    #[async_trait]
    impl Backend for LostAnswer {
        fn watch(&self, _: Arc<dyn EventHandler<Entry>>) -> Result<RecordChanges, RegistryError> {
            Ok(futures::stream::pending().boxed())
        }

        async fn read(&self, _: &str) -> Result<Option<Entry>, RegistryError> {
            Ok(self.0.lock().clone())
        }

        async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
            *self.0.lock() = Some(entry(key, 7, record.clone()));
            Err(RegistryError::Unknown {
                registry: "site".to_owned(),
                key: key.to_owned(),
                source: "no answer".into(),
            })
        }

        async fn update(&self, held: &Entry, _: &Record) -> Result<Entry, RegistryError> {
            Ok(held.clone())
        }

        async fn delete(&self, _: &Entry) -> Result<(), RegistryError> {
            Ok(())
        }

        fn settle_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn entry(key: &str, revision: u64, record: Record) -> Entry {
        Entry {
            key: key.to_owned(),
            version: Version::Bucket {
                incarnation: None,
                revision,
            },
            value: Ok(record),
        }
    }

    /// What was found between the write and the read is not older than the write.
    #[tokio::test]
    async fn sign_of_life_without_an_answer_began_with_its_write() {
        let requests = RequestMetrics::register(&Metrics::default());
        let backend = MeasuredRegistry::new(Arc::new(LostAnswer::default()), "site", requests);
        let signs = Arc::new(SignsOfLife::default());
        let identity = Identity {
            id: "west".to_owned(),
            uid: None,
        };
        let ledger = Arc::new(SharedLedger::read_only());
        let registry = OpenRegistry::new(
            "site".to_owned(),
            identity,
            backend,
            ledger,
            Arc::clone(&signs),
            Before::default(),
        );
        let registry = Arc::new(registry);
        let id = Record::Registry(capi_ipam_registry::RegistryRecord { id: "a".to_owned() });
        registry.init();
        EventHandler::apply(&*registry, &entry("registry", 1, id));
        registry.init_done();
        registry.set_confirmed(Some("a"));
        registry.checked_records(true, Instant::now());
        let mut heartbeat = Heartbeat::new(Arc::clone(&registry), true);
        assert!(heartbeat.beat().await.is_err());
        let found = Instant::now();
        heartbeat.beat().await.unwrap();
        let written = registry.backend.read(&heartbeat.key).await;
        EventHandler::apply(&*registry, &written.unwrap().unwrap());
        assert!(!signs.is_seen_since("site", found));
        assert!(registry.shows_life());
    }
}
