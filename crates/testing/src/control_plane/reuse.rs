//! Control planes that a later test of the same process uses again. A start costs seconds of
//! processor time; the removal of the objects of a test costs milliseconds.
//!
//! A dropped control plane is kept when its test passed, its options are the defaults, and neither
//! its API server nor its etcd was disturbed. Before its next use everything that was created in it
//! is deleted from etcd. It is stopped instead when anything else has changed, for example a CRD, a
//! role, or the configuration of a webhook: the API server notices such changes with a delay, and a
//! new one has none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::definitions::ServedKind;
use super::etcd::call_etcd;
use super::https::Endpoint;
use crate::patience::Patience;

/// How long the API server may take to notice deletions.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The range of keys that the API server uses.
const KEYS: [&str; 2] = ["/registry/", "/registry0"];

/// The keys of objects that a test may leave behind in addition to those of the installed kinds: no
/// component of the API server depends on them.
const DELETABLE: [&str; 4] = [
    "/registry/events/",
    "/registry/leases/",
    NAMESPACES,
    SECRETS,
];

const NAMESPACES: &str = "/registry/namespaces/";
const SECRETS: &str = "/registry/secrets/";

/// The keys of objects that the API server itself writes at any time.
const OF_API_SERVER: [&str; 4] = [
    "/registry/leases/kube-system/",
    "/registry/masterleases/",
    "/registry/peerserverleases/",
    "/registry/ranges/",
];

/// The number of deletions in one transaction; the default maximum of etcd is 128.
const MAX_DELETIONS: usize = 100;

/// The keys of etcd with the revision of their last change.
type Revisions = BTreeMap<String, i64>;

/// The content of etcd after the start of a control plane.
#[derive(Debug)]
pub(super) struct FirstState {
    etcd_port: u16,
    revisions: Revisions,
    kinds: Vec<ServedKind>,
}

impl FirstState {
    /// Records the current content. `kinds` are those of the installed CRDs.
    pub(super) fn record(etcd_port: u16, kinds: Vec<ServedKind>) -> io::Result<Self> {
        Ok(Self {
            etcd_port,
            revisions: revisions(etcd_port)?,
            kinds,
        })
    }

    /// Deletes what was created since [`Self::record`], and waits until the API server has noticed
    /// it.
    ///
    /// # Errors
    /// When something else has changed, or a program does not respond.
    pub(super) fn restore(&self, endpoint: &Endpoint<'_>) -> Result<(), String> {
        // A request that was sent before the drop may still be in progress.
        while self.delete_created()? {}
        self.wait_until_caches_are_empty(endpoint)
    }

    /// Deletes the keys that were created since [`Self::record`], and returns whether there were
    /// any.
    fn delete_created(&self) -> Result<bool, String> {
        let initial = &self.revisions;
        let now = revisions(self.etcd_port).map_err(|error| error.to_string())?;
        let is_in =
            |folders: &[&str], key: &str| folders.iter().any(|folder| key.starts_with(folder));
        let is_of_installed_kind = |key: &str| self.kinds.iter().any(|kind| is_key_of(kind, key));
        if let Some(missing) = initial
            .keys()
            .find(|key| !now.contains_key(*key) && !is_in(&OF_API_SERVER, key))
        {
            return Err(format!("{missing} was deleted"));
        }
        let mut created = Vec::new();
        for (key, revision) in &now {
            match initial.get(key) {
                _ if is_in(&OF_API_SERVER, key) => {}
                Some(initial) if initial == revision => {}
                None if is_in(&DELETABLE, key) || is_of_installed_kind(key) => created.push(key),
                Some(_) => return Err(format!("{key} was changed")),
                None => return Err(format!("{key} was created")),
            }
        }
        for keys in created.chunks(MAX_DELETIONS) {
            let deletions = keys
                .iter()
                .map(|key| json!({ "requestDeleteRange": { "key": bytes(key) } }));
            let transaction = json!({ "success": deletions.collect::<Vec<_>>() });
            call_etcd(self.etcd_port, "/v3/kv/txn", &transaction)
                .map_err(|error| error.to_string())?;
        }
        Ok(!created.is_empty())
    }

    /// Waits until no list from the watch cache of the API server contains a deleted object.
    fn wait_until_caches_are_empty(&self, endpoint: &Endpoint<'_>) -> Result<(), String> {
        let patience = Patience::new(TIMEOUT);
        let count = |folder: &str| {
            let keys = self.revisions.keys();
            keys.filter(|key| key.starts_with(folder)).count()
        };
        let kinds = self.kinds.iter().map(|kind| (kind.path.as_str(), 0));
        let core = [
            ("/api/v1/namespaces", count(NAMESPACES)),
            ("/api/v1/secrets", count(SECRETS)),
        ];
        for (path, expected) in kinds.chain(core) {
            let url = format!("{path}?resourceVersion=0");
            // Status code 429 means that the cache is not initialized.
            while !endpoint
                .get(&url, "application/json")
                .is_ok_and(|listed| has_items(&listed, expected))
            {
                if patience.is_over() {
                    return Err(format!("{path} still lists deleted objects"));
                }
                sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

/// Removes the files of a test from the folder of its control plane.
pub(super) fn remove_files(folder: &Path, kept: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if kept.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if path.is_dir() {
            fs::remove_dir_all(path)?
        } else {
            fs::remove_file(path)?
        }
    }
    Ok(())
}

/// All keys of etcd.
fn revisions(etcd_port: u16) -> io::Result<Revisions> {
    let [key, range_end] = KEYS.map(bytes);
    let listed = call_etcd(
        etcd_port,
        "/v3/kv/range",
        &json!({ "key": key, "range_end": range_end, "keys_only": true }),
    )?;
    let entry = |entry: &Value| {
        let key: ByteString = serde_json::from_value(entry["key"].clone())?;
        // JSON has 64-bit numbers in strings.
        let revision = entry["mod_revision"]
            .as_str()
            .and_then(|revision| revision.parse().ok());
        Ok((
            String::from_utf8_lossy(&key.0).into_owned(),
            revision.ok_or(io::ErrorKind::InvalidData)?,
        ))
    };
    listed["kvs"]
        .as_array()
        .into_iter()
        .flatten()
        .map(entry)
        .collect()
}

/// Whether a key of etcd belongs to an object of this kind.
fn is_key_of(kind: &ServedKind, key: &str) -> bool {
    let group = kind.path.split('/').nth(2).unwrap_or_default();
    let rest = key
        .strip_prefix(KEYS[0])
        .and_then(|key| key.strip_prefix(group))
        .and_then(|key| key.strip_prefix('/'));
    rest.and_then(|rest| rest.strip_prefix(kind.plural.as_str()))
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a list has this number of items.
fn has_items(list: &str, expected: usize) -> bool {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    list["items"]
        .as_array()
        .is_some_and(|items| items.len() == expected)
}

/// A key of etcd in JSON.
fn bytes(key: &str) -> ByteString {
    ByteString(key.as_bytes().to_vec())
}
