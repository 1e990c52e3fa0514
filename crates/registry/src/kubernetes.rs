//! A registry at another API server: objects of the kind `IPBlock`.

mod outcome;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::IPBlock;
use capi_ipam_controller::client::{CallError, ResourceClient, connect_to};
use capi_ipam_controller::health::{Health, ReadinessGate};
use capi_ipam_controller::resource_version::ResourceVersion;
use capi_ipam_controller::watch::{Change, EventHandler, Invalid, Source, WatchApi, WatchSpec};
use futures::{Stream, StreamExt};
use kube::Api;
use kube::core::ObjectMeta;
use tokio::time::sleep;

use self::outcome::{Outcome, Seen, Write, outcome};
use crate::backend::{Backend, Created, RegistryError};
use crate::entry::{Entry, Version};
use crate::record::{Problem, Record, matches_name, validate};
use crate::source::{RecordSource, entries};

/// The annotation with the random id of a write, by which its author recognizes it.
const WRITE_ID: &str = "ipam.cluster.x-k8s.io/write-id";

/// How often the outcome of a write without an answer is read, and the time between two reads.
const MAX_READS: u32 = 5;
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// How often a record is created whose name others create and delete meanwhile.
const MAX_ATTEMPTS: u32 = 5;

/// The delay before a watch that has ended is opened again.
const REOPEN_DELAY: Duration = Duration::from_secs(5);

/// A part of the message of an API server whose etcd has no space left.
const NO_SPACE: &str = "database space exceeded";

/// What [`KubernetesRegistry::open`] needs. The text form of this type contains no secrets.
#[derive(Clone, Default)]
pub struct KubernetesSettings {
    /// The content of a kubeconfig. It contains certificates and token, and names no files and no
    /// programs.
    pub kubeconfig: String,
    /// The user agent, in the form `name/version`.
    pub user_agent: String,
}

impl fmt::Debug for KubernetesSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KubernetesSettings")
            .field("user_agent", &self.user_agent)
            .finish_non_exhaustive()
    }
}

/// A registry at another API server. Its clones share the connections.
#[derive(Clone, Debug)]
pub struct KubernetesRegistry {
    /// How messages name the registry.
    name: Arc<str>,
    objects: Arc<ResourceClient<IPBlock>>,
    watched: Arc<WatchApi<IPBlock>>,
}

impl KubernetesRegistry {
    /// Creates the client, and checks with one request that the API server serves the kind and
    /// accepts the user.
    ///
    /// # Errors
    /// When the kubeconfig or the API server cannot be used, or does not answer within 10 s.
    pub async fn open(settings: &KubernetesSettings) -> Result<Self, RegistryError> {
        let connected = connect_to(&settings.kubeconfig, &settings.user_agent).await;
        let (client, server) = connected.map_err(|error| RegistryError::Invalid {
            registry: "the API server of the registry".to_owned(),
            source: error.into(),
        })?;
        let opened = Self {
            name: format!("registry at API server {server}").into(),
            objects: Arc::new(ResourceClient::new(Api::all(client.clone()), &())),
            watched: Arc::new(Api::all(client)),
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

    /// Finds out what a write has done that was not answered.
    async fn read_back(
        &self,
        key: &str,
        write: &Write<'_>,
        error: CallError,
    ) -> Result<Done, RegistryError> {
        for attempt in 0..MAX_READS {
            if attempt > 0 {
                sleep(READ_INTERVAL).await;
            }
            let Ok(found) = self.find(key).await else {
                break;
            };
            let seen = match &found {
                None => Seen::Nothing,
                Some(found) => Seen::Object {
                    version: &found.entry.version,
                    write_id: found.write_id.as_deref(),
                },
            };
            match (outcome(write, seen), found) {
                (Outcome::Applied, found) => {
                    return Ok(Done::Applied(found.map(|found| found.entry)));
                }
                (Outcome::NotApplied, found) => {
                    return Ok(Done::NotApplied(found.map(|found| found.entry)));
                }
                (Outcome::Unknown, _) => {}
            }
        }
        // etcd does not apply later what it has no space for.
        if capi_ipam_controller::client::error_chain(&error).contains(NO_SPACE) {
            return Err(RegistryError::Full {
                registry: self.name(),
                source: error.into(),
            });
        }
        Err(RegistryError::Unknown {
            registry: self.name(),
            key: key.to_owned(),
            source: error.into(),
        })
    }

    /// The name of the registry in messages.
    fn name(&self) -> String {
        self.name.as_ref().to_owned()
    }

    fn conflict(&self, key: &str) -> RegistryError {
        RegistryError::Conflict {
            registry: self.name(),
            key: key.to_owned(),
        }
    }

    /// What a failed request means that has not changed anything.
    fn failed(&self, error: CallError) -> RegistryError {
        let (is_denied, is_unusable) = (
            error.is_forbidden() || error.is_unauthorized(),
            error.is_unserved() || error.is_invalid() || error.is_unserializable(),
        );
        let (registry, source) = (self.name(), error.into());
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

    /// Checks a record that is about to be written.
    fn check(&self, key: &str, record: &Record) -> Result<(), RegistryError> {
        validate(key, record).map_err(|problem| RegistryError::Invalid {
            registry: self.name(),
            source: format!("record {key} cannot be written: {problem}").into(),
        })
    }
}

/// What a write without an answer has done.
enum Done {
    /// It was applied. With what exists now.
    Applied(Option<Entry>),
    /// It was not applied, and will not be. With what exists now.
    NotApplied(Option<Entry>),
}

/// What exists under a name.
struct Found {
    entry: Entry,
    write_id: Option<String>,
}

impl Backend for KubernetesRegistry {
    fn source(
        &self,
        handler: Arc<dyn EventHandler<Entry>>,
        synced: ReadinessGate,
    ) -> Result<RecordSource, RegistryError> {
        let (api, outer) = (Arc::clone(&self.watched), Arc::clone(&handler));
        let open = move || watch(&api, Arc::clone(&outer));
        let opened = reopened(open, Arc::clone(&handler), REOPEN_DELAY);
        let changes = entries(opened, entry, invalid_entry);
        Ok(RecordSource::new(changes, handler, synced))
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let found = self.find(key).await.map_err(|error| self.failed(error))?;
        Ok(found.map(|found| found.entry))
    }

    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
        self.check(key, record)?;
        let write_id = new_write_id();
        let object = object(key, record, &write_id);
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let error = match self.objects.create(&object).await {
                Ok(created) => return Ok(Created::Ours(entry(created))),
                Err(error) => error,
            };
            if error.is_already_exists() {
                if let Some(theirs) = self.read(key).await? {
                    return Ok(Created::Theirs(theirs));
                }
                // It was deleted since.
                last = Some(error);
                continue;
            }
            if !is_unknown(&error) {
                return Err(self.failed(error));
            }
            let write = Write::Create {
                write_id: &write_id,
            };
            return match self.read_back(key, &write, error).await? {
                Done::Applied(Some(ours)) => Ok(Created::Ours(ours)),
                Done::NotApplied(Some(theirs)) => Ok(Created::Theirs(theirs)),
                Done::Applied(None) | Done::NotApplied(None) => Err(self.conflict(key)),
            };
        }
        Err(last.map_or_else(|| self.conflict(key), |error| self.failed(error)))
    }

    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError> {
        let key = &held.key;
        self.check(key, record)?;
        let write_id = new_write_id();
        let mut object = object(key, record, &write_id);
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
        if !is_unknown(&error) {
            return Err(self.failed(error));
        }
        let write = Write::Update {
            held: &held.version,
            write_id: &write_id,
        };
        match self.read_back(key, &write, error).await? {
            Done::Applied(Some(ours)) => Ok(ours),
            Done::Applied(None) | Done::NotApplied(_) => Err(self.conflict(key)),
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
        if !is_unknown(&error) {
            return Err(self.failed(error));
        }
        let write = Write::Delete {
            held: &held.version,
        };
        match self.read_back(key, &write, error).await? {
            Done::Applied(_) => Ok(()),
            Done::NotApplied(_) => Err(self.conflict(key)),
        }
    }

    /// etcd acknowledges what a majority has on its disks.
    fn settle_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// Passes on that etcd was restored. Everything else the source reports.
struct Restores(Arc<dyn EventHandler<Entry>>);

impl EventHandler<IPBlock> for Restores {
    fn apply(&self, _: &IPBlock) {}

    fn delete(&self, _: &IPBlock) {}

    fn restored(&self) {
        self.0.restored();
    }

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

/// Watches all objects. Failures are those of the registry, and not of this process. The stream ends
/// when the API server has not served the kind for a minute.
fn watch(
    api: &WatchApi<IPBlock>,
    handler: Arc<dyn EventHandler<Entry>>,
) -> impl Stream<Item = Change<IPBlock>> + Send + use<> {
    let own = Health::default().register_watch("IPBlock");
    let spec = WatchSpec::new(api.clone(), (), Arc::new(Restores(handler)), own);
    spec.open().changes
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

/// Whether a failed write may have been applied.
fn is_unknown(error: &CallError) -> bool {
    error.outcome_is_unknown() && !error.was_not_sent()
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

    #[test]
    fn settings_show_no_secret() {
        let settings = KubernetesSettings {
            kubeconfig: "hidden".to_owned(),
            user_agent: "test/1".to_owned(),
        };
        assert!(!format!("{settings:?}").contains("hidden"));
    }
}
