//! A registry at another API server: objects of the kind `IPBlock`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capi_ipam_api::IPBlock;
use capi_ipam_controller::client::{CallError, ResourceClient, connect_to, error_chain};
use capi_ipam_controller::health::Health;
use capi_ipam_controller::resource_version::ResourceVersion;
use capi_ipam_controller::watch::{Change, EventHandler, Invalid, Source, WatchApi, WatchSpec};
use futures::{Stream, StreamExt};
use kube::Api;
use kube::core::ObjectMeta;
use tokio::time::sleep;

use crate::backend::{Backend, Created, RecordChanges};
use crate::entry::{Entry, Version};
use crate::error::RegistryError;
use crate::record::{Problem, Record, encode_for, matches_name};
use crate::source::entries;

/// The annotation with the random id of a write, by which its author recognizes it.
const WRITE_ID: &str = "ipam.cluster.x-k8s.io/write-id";

/// How often the outcome of a write without an answer is read, and the time between two reads.
const MAX_READS: u32 = 5;
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The delay before a watch that has ended is opened again.
const REOPEN_DELAY: Duration = Duration::from_secs(5);

/// A part of the message of an API server whose etcd has no space left.
const NO_SPACE: &str = "database space exceeded";

/// A registry at another API server.
#[derive(Debug)]
pub struct KubernetesRegistry {
    /// How messages name the registry.
    name: String,
    objects: ResourceClient<IPBlock>,
    watched: WatchApi<IPBlock>,
}

impl KubernetesRegistry {
    /// Creates the client, and checks with one request that the API server serves the kind and
    /// accepts the user. The kubeconfig contains certificates and token, and names no files and no
    /// programs; `user_agent` has the form `name/version`.
    ///
    /// # Errors
    /// When the kubeconfig or the API server cannot be used, or does not answer within 10 s.
    pub async fn open(kubeconfig: &str, user_agent: &str) -> Result<Self, RegistryError> {
        let connected = connect_to(kubeconfig, user_agent).await;
        let (client, server) = connected.map_err(|error| RegistryError::Invalid {
            registry: "the API server of the registry".to_owned(),
            source: error.into(),
        })?;
        let opened = Self {
            name: format!("registry at API server {server}"),
            objects: ResourceClient::new(Api::all(client.clone()), &()),
            watched: Api::all(client),
        };
        opened.read("cluster.any").await?;
        Ok(opened)
    }

    /// Reads what exists under a name.
    async fn find(&self, key: &str) -> Result<Option<Found>, CallError> {
        let found = self.objects.get_maybe_invalid(key).await?;
        Ok(found.map(|object| match object.0 {
            Ok(object) => Found {
                write_id: write_id_of(&object.metadata),
                entry: entry(object),
            },
            Err(invalid) => Found {
                write_id: write_id_of(&invalid.metadata),
                entry: invalid_entry(invalid),
            },
        }))
    }

    /// Finds out what a write has done that has failed, and may have been applied all the same; and what exists now.
    async fn settle(
        &self,
        write: &Write<'_>,
        error: CallError,
    ) -> Result<(Outcome, Option<Entry>), RegistryError> {
        if !error.outcome_is_unknown() || error.was_not_sent() {
            return Err(self.failed(error));
        }
        for attempt in 0..MAX_READS {
            if attempt > 0 {
                sleep(READ_INTERVAL).await;
            }
            let Ok(found) = self.find(write.key).await else {
                break;
            };
            let outcome = write.outcome(found.as_ref());
            if outcome != Outcome::Unknown {
                return Ok((outcome, found.map(|found| found.entry)));
            }
        }
        // etcd does not apply later what it has no space for.
        if error_chain(&error).contains(NO_SPACE) {
            return Err(RegistryError::Full {
                registry: self.name.clone(),
                source: error.into(),
            });
        }
        Err(RegistryError::Unknown {
            registry: self.name.clone(),
            key: write.key.to_owned(),
            source: error.into(),
        })
    }

    fn conflict(&self, key: &str) -> RegistryError {
        RegistryError::Conflict {
            registry: self.name.clone(),
            key: key.to_owned(),
        }
    }

    /// What a failed request means that has not changed anything.
    fn failed(&self, error: CallError) -> RegistryError {
        let is_denied = error.is_forbidden() || error.is_unauthorized();
        let is_unusable = error.is_unserved() || error.is_invalid() || error.is_unserializable();
        let (registry, source) = (self.name.clone(), error.into());
        if is_denied {
            return RegistryError::Forbidden { registry, source };
        }
        if is_unusable {
            return RegistryError::Invalid { registry, source };
        }
        RegistryError::Unreachable { registry, source }
    }

    /// The uid and the resourceVersion that a write names as what it replaces.
    fn preconditions<'a>(&self, held: &'a Entry) -> Result<(&'a str, String), RegistryError> {
        match &held.version {
            Version::Object { uid, number } => Ok((uid, number.to_string())),
            Version::Bucket { .. } => Err(self.conflict(&held.key)),
        }
    }
}

/// What exists under a name.
struct Found {
    entry: Entry,
    write_id: Option<String>,
}

/// A write without an answer.
struct Write<'a> {
    key: &'a str,
    /// The version that it replaces or deletes; `None` for a creation.
    held: Option<&'a Version>,
    /// Its random id; `None` for a deletion.
    id: Option<&'a str>,
}

/// What a write has done, as a read shows it.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It was applied.
    Applied,
    /// It was not applied, or was overwritten, and will not be applied.
    NotApplied,
    /// It may still be applied.
    Unknown,
}

impl Write<'_> {
    /// Decides what the write has done from what exists afterwards.
    fn outcome(&self, found: Option<&Found>) -> Outcome {
        let Some(found) = found else {
            return match (self.held, self.id) {
                // The name is still free.
                (None, _) => Outcome::Unknown,
                (Some(_), Some(_)) => Outcome::NotApplied,
                (Some(_), None) => Outcome::Applied,
            };
        };
        if self.id.is_some() && found.write_id.as_deref() == self.id {
            return Outcome::Applied;
        }
        if self.held == Some(&found.entry.version) {
            return Outcome::Unknown;
        }
        // A name that is in use, or a version that is gone: the write will be refused.
        Outcome::NotApplied
    }
}

#[async_trait]
impl Backend for KubernetesRegistry {
    fn watch(&self, handler: Arc<dyn EventHandler<Entry>>) -> Result<RecordChanges, RegistryError> {
        let (api, of_restores) = (self.watched.clone(), Arc::clone(&handler));
        let open = move || watch(api.clone(), Arc::clone(&of_restores));
        let changes = reopened(open, Arc::clone(&handler), REOPEN_DELAY);
        Ok(entries(changes, entry, invalid_entry, handler))
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let found = self.find(key).await.map_err(|error| self.failed(error))?;
        Ok(found.map(|found| found.entry))
    }

    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
        encode_for(&self.name, key, record)?;
        let id = new_write_id();
        let error = match self.objects.create(&object(key, record, &id)).await {
            Ok(created) => return Ok(Created::Ours(entry(created))),
            Err(error) => error,
        };
        if error.is_already_exists() {
            // It can have been deleted since.
            let theirs = self.read(key).await?;
            return theirs
                .map(Created::Theirs)
                .ok_or_else(|| self.conflict(key));
        }
        let write = Write {
            key,
            held: None,
            id: Some(&id),
        };
        match self.settle(&write, error).await? {
            (Outcome::Applied, Some(ours)) => Ok(Created::Ours(ours)),
            (_, Some(theirs)) => Ok(Created::Theirs(theirs)),
            (_, None) => Err(self.conflict(key)),
        }
    }

    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError> {
        let key = &held.key;
        encode_for(&self.name, key, record)?;
        let id = new_write_id();
        let mut object = object(key, record, &id);
        let (uid, version) = self.preconditions(held)?;
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version);
        let error = match self.objects.replace(&object).await {
            Ok(written) => return Ok(entry(written)),
            Err(error) => error,
        };
        if error.is_not_found() || error.is_conflict() {
            return Err(self.conflict(key));
        }
        let write = Write {
            key,
            held: Some(&held.version),
            id: Some(&id),
        };
        match self.settle(&write, error).await? {
            (Outcome::Applied, Some(ours)) => Ok(ours),
            _ => Err(self.conflict(key)),
        }
    }

    async fn delete(&self, held: &Entry) -> Result<(), RegistryError> {
        let key = &held.key;
        let (uid, version) = self.preconditions(held)?;
        let Err(error) = self.objects.delete_unchanged(key, uid, &version).await else {
            return Ok(());
        };
        if error.is_conflict() {
            return Err(self.conflict(key));
        }
        let write = Write {
            key,
            held: Some(&held.version),
            id: None,
        };
        match self.settle(&write, error).await? {
            (Outcome::Applied, _) => Ok(()),
            _ => Err(self.conflict(key)),
        }
    }

    /// etcd acknowledges what a majority has on its disks.
    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// Watches all objects. Failures are those of the registry, and not of this process. The stream ends
/// when the API server has not served the kind for a minute.
fn watch(
    api: WatchApi<IPBlock>,
    handler: Arc<dyn EventHandler<Entry>>,
) -> impl Stream<Item = Change<IPBlock>> + Send {
    let health = Health::default();
    health.restores().subscribe(move || {
        handler.restored();
        true
    });
    let own = health.register_watch("IPBlock");
    WatchSpec::new(api, (), Arc::new(()), own).open().changes
}

/// Opens a watch again that has ended, after a delay.
fn reopened<K: Send + 'static, S: Stream<Item = Change<K>> + Send + 'static>(
    mut open: impl FnMut() -> S + Send + 'static,
    handler: Arc<dyn EventHandler<Entry>>,
    delay: Duration,
) -> impl Stream<Item = Change<K>> + Send + 'static {
    let opened = futures::stream::repeat_with(move || {
        let handler = Arc::clone(&handler);
        let ended = async move {
            sleep(delay).await;
            // No watch has looked for a restore of etcd meanwhile.
            handler.restored();
            Change::Failed("the API server does not serve IPBlock any longer".to_owned())
        };
        open().chain(futures::stream::once(ended))
    });
    opened.flatten()
}

fn new_write_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn write_id_of(metadata: &ObjectMeta) -> Option<String> {
    metadata.annotations.as_ref()?.get(WRITE_ID).cloned()
}

/// The object of a record.
fn object(key: &str, record: &Record, write_id: &str) -> IPBlock {
    let mut object = IPBlock::new(key, record.clone());
    let id = (WRITE_ID.to_owned(), write_id.to_owned());
    object.metadata.annotations = Some([id].into());
    object
}

/// The entry of an object.
fn entry(object: IPBlock) -> Entry {
    let IPBlock { metadata, spec, .. } = object;
    let version = version_of(&metadata);
    let key = metadata.name.unwrap_or_default();
    let value = matches_name(&key, &spec).map(|()| spec);
    Entry {
        key,
        version,
        value,
    }
}

/// The entry of an object that cannot be decoded.
fn invalid_entry(invalid: Invalid) -> Entry {
    let Invalid {
        error, metadata, ..
    } = invalid;
    Entry {
        version: version_of(&metadata),
        key: metadata.name.unwrap_or_default(),
        value: Err(Problem::Undecodable(error)),
    }
}

fn version_of(metadata: &ObjectMeta) -> Version {
    let number = ResourceVersion::of(metadata).map_or(0, ResourceVersion::get);
    Version::Object {
        uid: metadata.uid.as_deref().unwrap_or_default().into(),
        number,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts the restores that it is notified of.
    #[derive(Default)]
    struct Restored(AtomicUsize);

    impl EventHandler<Entry> for Restored {
        fn apply(&self, _: &Entry) {}

        fn delete(&self, _: &Entry) {}

        fn restored(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn apply_invalid(&self, _: &Invalid) {}

        fn delete_invalid(&self, _: &Invalid) {}
    }

    #[tokio::test]
    async fn watch_that_has_ended_is_opened_again() {
        let handler = Arc::new(Restored::default());
        let list = || futures::stream::iter([Change::<()>::Init, Change::InitDone]);
        let changes = reopened(list, Arc::clone(&handler) as _, Duration::ZERO);
        let changes: Vec<_> = changes.take(7).collect().await;
        let kinds = changes.iter().map(|change| match change {
            Change::Init => 'i',
            Change::InitDone => 'd',
            Change::Failed(_) => 'f',
            _ => '?',
        });
        assert_eq!(kinds.collect::<String>(), "idfidfi");
        assert_eq!(handler.0.load(Ordering::Relaxed), 2);
    }

    /// What the name shows in a version that another write or this one has written.
    fn found(number: u64, write_id: &str) -> Found {
        Found {
            entry: Entry {
                key: "cluster.west".to_owned(),
                version: version(number),
                value: Err(Problem::Name),
            },
            write_id: Some(write_id.to_owned()),
        }
    }

    fn version(number: u64) -> Version {
        Version::Object {
            uid: "a".into(),
            number,
        }
    }

    #[test]
    fn outcome_is_decided_from_what_exists() {
        use Outcome::{Applied, NotApplied, Unknown};

        let held = version(7);
        let write = |held, id| Write {
            key: "cluster.west",
            held,
            id,
        };
        let create = write(None, Some("ours"));
        let update = write(Some(&held), Some("ours"));
        let delete = write(Some(&held), None);
        let writes = [create, update, delete];
        let cases = [
            (None, [Unknown, NotApplied, Applied]),
            (Some(found(7, "before")), [NotApplied, Unknown, Unknown]),
            (Some(found(8, "ours")), [Applied, Applied, NotApplied]),
            (
                Some(found(8, "other")),
                [NotApplied, NotApplied, NotApplied],
            ),
        ];
        for (found, expected) in cases {
            let decided = writes.each_ref().map(|it| it.outcome(found.as_ref()));
            assert_eq!(decided, expected);
        }
    }
}
