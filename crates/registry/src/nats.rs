//! A registry in a bucket of NATS JetStream.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capi_ipam_controller::health::Health;
use capi_ipam_controller::watch::{Change, EventHandler, Invalid, Source};
use capi_ipam_nats::{
    Bucket, BucketOptions, Connection, ConnectionError, Created as KvCreated, Failure, KvError,
    KvObject, Operation, Settings,
};
use futures::StreamExt;
use serde_json::value::RawValue;

use crate::backend::{Backend, Created, RecordChanges};
use crate::entry::{Entry, Version};
use crate::error::RegistryError;
use crate::record::{Problem, Record, decode, encode_for};
use crate::source::entries;

/// An object of the bucket.
type Object = KvObject<Box<RawValue>>;

/// How long after a write its confirmation is sent.
///
/// Safety does not rest on this time. The leader of a bucket with three replicas acknowledges a write
/// when two of the servers have stored it. A leader that was deposed, and does not know it yet, cannot
/// acknowledge anything: the others refuse what it sends them. What it answers for some seconds are
/// reads. They decide only whether a block that was confirmed before is used again after a start, and
/// no other cluster takes such a block before its quarantine is over. So each of the two acknowledgements is that of a majority, and the
/// second one shows that the first write was not lost since, for example with a server that was elected
/// without it. No time makes an acknowledged write safe against what happens later: the disks of two
/// servers can be lost at any time. That is what the regular re-assertion finds.
///
/// The time keeps the two writes apart: a leader writes and sends messages that arrive together as one
/// batch, and a fault of a moment would hit both.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// A registry in a bucket of NATS JetStream. The connection is opened again when it is lost.
#[derive(Debug)]
pub struct NatsRegistry {
    name: String,
    /// The key decides on the type of a value.
    bucket: Bucket<Box<RawValue>>,
}

impl NatsRegistry {
    /// Connects to the first server that answers, and opens the bucket. By default it is not created: an
    /// empty bucket in the place of one that was lost would hide the loss.
    ///
    /// # Errors
    /// When no server accepts the connection within [`capi_ipam_nats::Deadlines::connect`], or the bucket cannot be
    /// used.
    pub async fn open(
        settings: &Settings,
        bucket: &str,
        options: &BucketOptions,
    ) -> Result<Self, RegistryError> {
        let name = format!("NATS bucket {bucket}");
        let connection = Connection::open(settings).await;
        let connection = connection.map_err(|error| connection_failed(name.clone(), error))?;
        let bucket = Bucket::open(&connection, bucket, options).await;
        let bucket = bucket.map_err(|error| failed(name.clone(), error))?;
        Ok(Self { name, bucket })
    }

    fn failed(&self, error: KvError) -> RegistryError {
        failed(self.name.clone(), error)
    }

    /// The record as the bucket stores it, and as others read it.
    fn encode(&self, key: &str, record: &Record) -> Result<Box<RawValue>, RegistryError> {
        let json = encode_for(&self.name, key, record)?;
        RawValue::from_string(json).map_err(|error| RegistryError::Invalid {
            registry: self.name.clone(),
            source: error.into(),
        })
    }

    /// What a write names as the version that it replaces.
    fn held(&self, held: &Entry) -> Result<Object, RegistryError> {
        let Version::Bucket {
            incarnation,
            revision,
        } = &held.version
        else {
            return Err(RegistryError::Conflict {
                registry: self.name.clone(),
                key: held.key.clone(),
            });
        };
        Ok(KvObject {
            key: held.key.clone(),
            revision: *revision,
            operation: Operation::Put,
            value: None,
            problem: None,
            incarnation: incarnation.as_deref().map(str::to_owned),
            owner: None,
        })
    }
}

#[async_trait]
impl Backend for NatsRegistry {
    fn watch(&self, handler: Arc<dyn EventHandler<Entry>>) -> Result<RecordChanges, RegistryError> {
        // Its failures are those of the registry, and not of this process.
        let own = Health::default().register_watch("registry");
        let source = self.bucket.source("", Arc::new(()), own);
        let source = source.map_err(|error| self.failed(error))?;
        // A bucket that was restored has other records with the same revisions. A later list shows
        // what the leader has, so what was known before it has no authority. The first one can be
        // that of a server that is behind, and records that were read before it stay.
        let forgetting = Arc::clone(&handler);
        let mut is_first = true;
        let changes = source.open().changes.inspect(move |change| match change {
            Change::Init if !is_first => forgetting.restored(),
            Change::InitDone => is_first = false,
            _ => {}
        });
        Ok(entries(changes, entry, invalid_entry, handler))
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let found = self.bucket.read(key).await;
        let found = found.map_err(|error| self.failed(error))?;
        Ok(found.filter(|object| !object.is_deleted()).map(entry))
    }

    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
        let value = self.encode(key, record)?;
        match self.bucket.create(key, &value).await {
            Ok(KvCreated::Now(object)) => Ok(Created::Ours(entry(object))),
            Ok(KvCreated::Taken(object)) => Ok(Created::Theirs(entry(object))),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError> {
        let value = self.encode(&held.key, record)?;
        let written = self.bucket.update(&self.held(held)?, &value).await;
        written.map(entry).map_err(|error| self.failed(error))
    }

    async fn delete(&self, held: &Entry) -> Result<(), RegistryError> {
        let error = match self.bucket.delete(&self.held(held)?).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // Another writer may have deleted it.
        let is_gone =
            matches!(error, KvError::Conflict { .. }) && self.read(&held.key).await?.is_none();
        if is_gone {
            return Ok(());
        }
        Err(self.failed(error))
    }

    async fn check(&self) -> Result<(), RegistryError> {
        let checked = self.bucket.check().await;
        checked.map_err(|error| self.failed(error))
    }

    fn settle_time(&self) -> Duration {
        SETTLE_TIME
    }
}

/// The entry of an object.
fn entry(object: Object) -> Entry {
    let KvObject {
        key,
        revision,
        value,
        problem,
        incarnation,
        ..
    } = object;
    let value = match (value, problem) {
        (Some(json), _) => decode(&key, json.get()),
        (None, Some(problem)) => Err(Problem::Undecodable(problem)),
        (None, None) => Err(Problem::Deleted),
    };
    Entry {
        key,
        version: Version::Bucket {
            incarnation: incarnation.map(Arc::from),
            revision,
        },
        value,
    }
}

/// The entry of a value that is not JSON.
fn invalid_entry(invalid: Invalid) -> Entry {
    let Invalid {
        error, metadata, ..
    } = invalid;
    let revision = metadata.resource_version.as_deref();
    Entry {
        key: metadata.name.unwrap_or_default(),
        version: Version::Bucket {
            incarnation: metadata.uid.map(Arc::from),
            revision: revision
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
        },
        value: Err(Problem::Undecodable(error)),
    }
}

/// What a failed operation of the bucket means.
fn failed(registry: String, error: KvError) -> RegistryError {
    match error {
        KvError::Conflict { key, .. } => RegistryError::Conflict { registry, key },
        KvError::Unknown { key, source, .. } => RegistryError::Unknown {
            registry,
            key,
            source: source.into(),
        },
        KvError::Unavailable { source, .. } => {
            let is_denied = matches!(source, Failure::Forbidden(_));
            let source = source.into();
            if is_denied {
                return RegistryError::Forbidden { registry, source };
            }
            RegistryError::Unreachable { registry, source }
        }
        KvError::Full { source, .. } => RegistryError::Full {
            registry,
            source: source.into(),
        },
        KvError::Invalid(invalid) => RegistryError::Invalid {
            registry,
            source: invalid.into(),
        },
    }
}

/// What a failed connection means.
fn connection_failed(registry: String, error: ConnectionError) -> RegistryError {
    use ConnectionError::{Credentials, Timeout, Unreachable};

    let is_denied = matches!(error, Credentials { .. });
    let is_away = matches!(error, Unreachable { .. } | Timeout { .. });
    let source = error.into();
    if is_denied {
        return RegistryError::Forbidden { registry, source };
    }
    if is_away {
        return RegistryError::Unreachable { registry, source };
    }
    RegistryError::Invalid { registry, source }
}
