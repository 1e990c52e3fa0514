//! The order of the writes, and what a changed record means, against records in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use capi_ipam_controller::watch::EventHandler;
use capi_ipam_registry::{Created, Record, RecordCache, RecordChanges, Version, decode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::model::registry::plan;

/// Records in memory.
#[derive(Debug, Default)]
struct Memory {
    records: Mutex<BTreeMap<String, Entry>>,
    /// The name of a record that another writer changes after the first write.
    changed_meanwhile: Mutex<Option<String>>,
}

fn conflict(key: &str) -> RegistryError {
    RegistryError::Conflict {
        registry: "memory".to_owned(),
        key: key.to_owned(),
    }
}

fn revision(entry: &Entry) -> u64 {
    match entry.version {
        Version::Bucket { revision, .. } => revision,
        Version::Object { number, .. } => number,
    }
}

impl Memory {
    fn insert(&self, key: &str, value: &Value) {
        let entry = Entry {
            key: key.to_owned(),
            version: Version::Bucket {
                incarnation: None,
                revision: 1,
            },
            value: decode(key, &value.to_string()),
        };
        self.records.lock().insert(key.to_owned(), entry);
    }

    /// What a list shows.
    fn list(&self) -> RecordCache {
        let cache = RecordCache::default();
        for entry in self.records.lock().values() {
            cache.apply(entry);
        }
        cache
    }

    fn keys(&self) -> Vec<String> {
        self.records.lock().keys().cloned().collect()
    }

    /// Replaces a record in a version by the next one; `None` deletes it.
    fn replace(&self, held: &Entry, wanted: Option<&Record>) -> Result<Entry, RegistryError> {
        let mut records = self.records.lock();
        let Some(known) = records.get(&held.key) else {
            return Err(conflict(&held.key));
        };
        if known.version != held.version {
            return Err(conflict(&held.key));
        }
        let next = Entry {
            key: held.key.clone(),
            version: Version::Bucket {
                incarnation: None,
                revision: revision(known) + 1,
            },
            value: wanted.cloned().ok_or(capi_ipam_registry::Problem::Deleted),
        };
        match wanted {
            Some(_) => records.insert(held.key.clone(), next.clone()),
            None => records.remove(&held.key),
        };
        if let Some(key) = self.changed_meanwhile.lock().take()
            && let Some(entry) = records.get_mut(&key)
        {
            entry.version = Version::Bucket {
                incarnation: None,
                revision: revision(entry) + 1,
            };
        }
        Ok(next)
    }
}

#[async_trait]
impl Backend for Memory {
    fn watch(&self, _: Arc<dyn EventHandler<Entry>>) -> Result<RecordChanges, RegistryError> {
        Err(conflict("watch"))
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        Ok(self.records.lock().get(key).cloned())
    }

    async fn create(&self, key: &str, _: &Record) -> Result<Created, RegistryError> {
        Err(conflict(key))
    }

    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError> {
        self.replace(held, Some(record))
    }

    async fn delete(&self, held: &Entry) -> Result<(), RegistryError> {
        self.replace(held, None).map(drop)
    }

    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// A registry in which the cluster `east` has two blocks.
fn memory() -> Memory {
    let memory = Memory::default();
    let cluster = json!({"cluster": "east", "process": "1", "seen": "2026-01-01T12:00:00Z"});
    memory.insert("cluster.east", &cluster);
    for address in ["10.0.0.0", "10.0.0.64"] {
        let block = json!({"network": "lab", "block": format!("{address}/26"), "cluster": "east"});
        memory.insert(&format!("block.lab.{address}-26"), &block);
    }
    memory
}

fn planned(memory: &Memory) -> Plan {
    let now = "2026-01-05T03:04:05Z".parse().unwrap();
    plan(&memory.list(), "east", "west", now).unwrap()
}

/// Applies a plan. Returns the names of the records that were changed, and whether all were.
async fn applied(memory: &Memory, plan: &Plan) -> (Vec<String>, bool) {
    let mut made = Vec::new();
    let result = apply(memory, plan, &mut made).await;
    let names = made.into_iter().map(|change| change.record).collect();
    (names, result.is_ok())
}

#[tokio::test]
async fn record_of_the_cluster_is_deleted_last() {
    let memory = memory();
    let expected = [
        "block.lab.10.0.0.0-26",
        "block.lab.10.0.0.64-26",
        "cluster.east",
    ];
    let (made, is_complete) = applied(&memory, &planned(&memory)).await;
    assert_eq!(made, expected);
    assert!(is_complete && memory.keys().is_empty());
}

#[tokio::test]
async fn cluster_that_returns_before_the_first_write_keeps_all() {
    let memory = memory();
    let plan = planned(&memory);
    let entry = memory.records.lock()["cluster.east"].clone();
    memory
        .update(&entry, entry.record().unwrap())
        .await
        .unwrap();
    let (made, is_complete) = applied(&memory, &plan).await;
    assert!(made.is_empty() && !is_complete, "{made:?}");
    assert_eq!(memory.keys().len(), 3);
}

#[tokio::test]
async fn record_that_was_written_meanwhile_is_kept() {
    let memory = memory();
    let plan = planned(&memory);
    let changed = "block.lab.10.0.0.64-26";
    *memory.changed_meanwhile.lock() = Some(changed.to_owned());
    let (made, is_complete) = applied(&memory, &plan).await;
    assert_eq!(made, ["block.lab.10.0.0.0-26"]);
    assert!(!is_complete);
    assert_eq!(memory.keys(), [changed, "cluster.east"]);
}
