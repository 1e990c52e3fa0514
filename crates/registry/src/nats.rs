//! A registry in a bucket of NATS JetStream.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::health::{Health, ReadinessGate};
use capi_ipam_controller::watch::{Change, EventHandler, Invalid, Source};
use capi_ipam_nats::{
    Bucket, BucketOptions, Connection, ConnectionError, Created as KvCreated, Credentials,
    Deadlines, Failure, KvError, KvObject, Settings, Tls,
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::backend::{Backend, Created, RegistryError};
use crate::entry::{Entry, Version};
use crate::record::{Problem, Record, decode, encode, validate};
use crate::source::{RecordSource, entries};

/// How long after a write its confirmation is sent.
///
/// Safety does not rest on this time. The leader of a bucket with three replicas acknowledges a write
/// when two of the servers have stored it. A leader that was deposed, and does not know it yet, cannot
/// acknowledge anything: the others refuse what it sends them. What it answers for some seconds are
/// reads, and those decide nothing. So each of the two acknowledgements is that of a majority, and the
/// second one shows that the first write was not lost since, for example with a server that was elected
/// without it. No time makes an acknowledged write safe against what happens later: the disks of two
/// servers can be lost at any time. That is what the regular re-assertion finds.
///
/// The time keeps the two writes apart: a leader writes and sends messages that arrive together as one
/// batch, and a fault of a moment would hit both.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// What [`NatsRegistry::open`] needs. The text form of this type contains no secrets.
#[derive(Clone, Debug, Default)]
pub struct NatsSettings {
    /// The URLs of the servers, such as `nats://nats-0.nats:4222`.
    pub servers: Vec<String>,
    /// The name of the bucket.
    pub bucket: String,
    /// The name of the client, which the servers show.
    pub client_name: String,
    /// How the client proves who it is.
    pub credentials: Credentials,
    /// The certificates. With these the connection is encrypted in any case.
    pub tls: Option<Tls>,
    /// How long operations may take.
    pub deadlines: Deadlines,
    /// What the bucket has to be like. By default it is not created: an empty bucket in the place of
    /// one that was lost would hide the loss.
    pub options: BucketOptions,
}

/// A registry in a bucket of NATS JetStream. Its clones share the connection, which is opened again
/// when it is lost.
#[derive(Clone, Debug)]
pub struct NatsRegistry {
    name: String,
    bucket: Arc<Bucket<Json>>,
}

/// A value whose type its key decides.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
struct Json(Box<RawValue>);

impl NatsRegistry {
    /// Connects to the first server that answers, and opens the bucket.
    ///
    /// # Errors
    /// When no server accepts the connection within [`Deadlines::connect`], or the bucket cannot be
    /// used.
    pub async fn open(settings: &NatsSettings) -> Result<Self, RegistryError> {
        let name = format!("NATS bucket {}", settings.bucket);
        let to_servers = Settings {
            servers: settings.servers.clone(),
            name: settings.client_name.clone(),
            credentials: settings.credentials.clone(),
            tls: settings.tls.clone(),
            deadlines: settings.deadlines,
        };
        let connection = Connection::open(&to_servers).await;
        let connection = connection.map_err(|error| connection_failed(name.clone(), error))?;
        let bucket = Bucket::open(&connection, &settings.bucket, &settings.options).await;
        let bucket = bucket.map_err(|error| failed(name.clone(), error))?;
        let bucket = Arc::new(bucket);
        Ok(Self { name, bucket })
    }

    fn failed(&self, error: KvError) -> RegistryError {
        failed(self.name.clone(), error)
    }

    /// The record as the bucket stores it, and as others read it.
    fn encode(&self, key: &str, record: &Record) -> Result<Json, RegistryError> {
        let invalid = |source| RegistryError::Invalid {
            registry: self.name.clone(),
            source,
        };
        validate(key, record).map_err(|problem| invalid(describe(key, &problem)))?;
        let json = encode(record).map_err(|error| invalid(error.into()))?;
        let json = RawValue::from_string(json).map_err(|error| invalid(error.into()))?;
        Ok(Json(json))
    }

    /// What a write names as the version that it replaces.
    fn held(&self, held: &Entry) -> Result<KvObject<Json>, RegistryError> {
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
            operation: capi_ipam_nats::Operation::Put,
            value: None,
            problem: None,
            incarnation: incarnation.as_deref().map(str::to_owned),
        })
    }
}

impl Backend for NatsRegistry {
    fn source(
        &self,
        handler: Arc<dyn EventHandler<Entry>>,
        synced: ReadinessGate,
    ) -> Result<RecordSource, RegistryError> {
        // Its failures are those of the registry, and not of this process.
        let own = Health::default().register_watch("registry");
        let source = self.bucket.source("", Arc::new(()), own);
        let source = source.map_err(|error| self.failed(error))?;
        let changes = entries(source.open().changes, entry, invalid_entry);
        // A bucket that was restored has other records with the same revisions. A list shows what
        // the leader has, so what was known before it has no authority.
        let forgetting = Arc::clone(&handler);
        let changes = changes.inspect(move |change| {
            if matches!(change, Change::Init) {
                forgetting.restored();
            }
        });
        Ok(RecordSource::new(changes, handler, synced))
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

/// What is wrong with a record that this program was about to write.
fn describe(key: &str, problem: &Problem) -> Box<dyn std::error::Error + Send + Sync> {
    format!("record {key} cannot be written: {problem}").into()
}

/// The entry of an object.
fn entry(object: KvObject<Json>) -> Entry {
    let KvObject {
        key,
        revision,
        value,
        problem,
        incarnation,
        ..
    } = object;
    let value = match (value, problem) {
        (Some(json), _) => decode(&key, json.0.get()),
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
        KvError::Unavailable {
            source: source @ Failure::Forbidden(_),
            ..
        } => RegistryError::Forbidden {
            registry,
            source: source.into(),
        },
        KvError::Unavailable { source, .. } => RegistryError::Unreachable {
            registry,
            source: source.into(),
        },
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
    match &error {
        ConnectionError::Credentials { .. } => RegistryError::Forbidden {
            registry,
            source: error.into(),
        },
        ConnectionError::Unreachable { .. } | ConnectionError::Timeout { .. } => {
            RegistryError::Unreachable {
                registry,
                source: error.into(),
            }
        }
        _ => RegistryError::Invalid {
            registry,
            source: error.into(),
        },
    }
}
