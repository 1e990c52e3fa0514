//! A registry at another API server: objects of the kind `IPBlock`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capi_ipam_api::IPBlock;
use capi_ipam_controller::client::{CallError, Creation, ResourceClient, connect_to, error_chain};
use capi_ipam_controller::health::Health;
use capi_ipam_controller::resource_version::ResourceVersion;
use capi_ipam_controller::watch::{
    Change, EventHandler, Invalid, MaybeInvalid, Source, WatchApi, WatchSpec,
};
use futures::{Stream, StreamExt};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use tokio::time::sleep;

use crate::backend::{Backend, Created, RecordChanges};
use crate::entry::{Entry, Version};
use crate::error::RegistryError;
use crate::record::{Problem, Record, encode_for, matches_name};
use crate::source::entries;

/// The annotation with the random id of a write, by which its author recognizes it.
const WRITE_ID: &str = "ipam.cluster.x-k8s.io/write-id";

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

    /// What a failed write means whose outcome reads do not show.
    fn write_failed(&self, key: &str, error: CallError) -> RegistryError {
        let (registry, key) = (self.name.clone(), key.to_owned());
        if !error.outcome_is_unknown() {
            return self.failed(error);
        }
        // etcd does not apply later what it has no space for.
        let is_full = error_chain(&error).contains(NO_SPACE);
        let source = error.into();
        if is_full {
            return RegistryError::Full { registry, source };
        }
        RegistryError::Unknown {
            registry,
            key,
            source,
        }
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

/// Whether a write of a known record was applied, as a read shows it; `None` if it may still be.
/// `write_id` is the random id of the write, `None` for a deletion.
fn is_applied(
    found: Option<&MaybeInvalid<IPBlock>>,
    held: &Version,
    write_id: Option<&str>,
) -> Option<bool> {
    let Some(metadata) = found.map(Resource::meta) else {
        return Some(write_id.is_none());
    };
    if write_id.is_some() && write_id_of(metadata) == write_id {
        return Some(true);
    }
    // If the version is gone, the write will be refused.
    (version_of(metadata) != *held).then_some(false)
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
        let found = self.objects.get_maybe_invalid(key).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(found.map(found_entry))
    }

    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
        encode_for(&self.name, key, record)?;
        let id = new_write_id();
        match self.objects.create_or_find(&object(key, record, &id)).await {
            Ok(Creation::Created(created)) => Ok(Created::Ours(entry(created))),
            Ok(Creation::Found(found)) if write_id_of(found.meta()) == Some(&*id) => {
                Ok(Created::Ours(found_entry(found)))
            }
            Ok(Creation::Found(found)) => Ok(Created::Theirs(found_entry(found))),
            // It has been deleted since.
            Err(error) if error.is_already_exists() => Err(self.conflict(key)),
            Err(error) => Err(self.write_failed(key, error)),
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
        if error.has_changed() {
            return Err(self.conflict(key));
        }
        let outcome = |found: Option<MaybeInvalid<IPBlock>>| {
            let is_applied = is_applied(found.as_ref(), &held.version, Some(&id))?;
            Some(found.filter(|_| is_applied))
        };
        let settled = self.objects.settle(key, error, outcome).await;
        let ours = settled.map_err(|error| self.write_failed(key, error))?;
        ours.map(found_entry).ok_or_else(|| self.conflict(key))
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
        let outcome =
            |found: Option<MaybeInvalid<IPBlock>>| is_applied(found.as_ref(), &held.version, None);
        let settled = self.objects.settle(key, error, outcome).await;
        let is_deleted = settled.map_err(|error| self.write_failed(key, error))?;
        if is_deleted {
            return Ok(());
        }
        Err(self.conflict(key))
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

fn write_id_of(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(WRITE_ID).map(String::as_str)
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

/// The entry of an object that was read.
fn found_entry(found: MaybeInvalid<IPBlock>) -> Entry {
    match found.0 {
        Ok(object) => entry(object),
        Err(invalid) => invalid_entry(invalid),
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

    fn version(number: u64) -> Version {
        Version::Object {
            uid: "a".into(),
            number,
        }
    }

    /// What the name shows in a version that another write or this one has written.
    fn found(number: u64, write_id: &str) -> MaybeInvalid<IPBlock> {
        let metadata = ObjectMeta {
            uid: Some("a".to_owned()),
            resource_version: Some(number.to_string()),
            annotations: Some([(WRITE_ID.to_owned(), write_id.to_owned())].into()),
            ..ObjectMeta::default()
        };
        MaybeInvalid(Err(Invalid {
            error: String::new(),
            metadata: Box::new(metadata),
            spec: serde_json::Value::Null,
        }))
    }

    #[test]
    fn outcome_is_decided_from_what_exists() {
        let cases = [
            (None, Some(false), Some(true)),
            (Some(found(7, "before")), None, None),
            (Some(found(8, "ours")), Some(true), Some(false)),
            (Some(found(8, "other")), Some(false), Some(false)),
        ];
        for (found, after_update, after_deletion) in cases {
            let outcome = |write_id| is_applied(found.as_ref(), &version(7), write_id);
            assert_eq!(outcome(Some("ours")), after_update);
            assert_eq!(outcome(None), after_deletion);
        }
    }
}
