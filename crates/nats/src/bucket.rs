//! A bucket: keys with values that are written by compare-and-swap and read from the leader.

mod outcome;
mod shape;

use std::marker::PhantomData;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream;
use tokio::time::{Instant, sleep};

use self::outcome::{Outcome, Seen, outcome};
use crate::connection::Connection;
use crate::error::{Failure, Invalid, KvError, Meaning};
use crate::key::Names;
use crate::object::{
    KvObject, OPERATION, OWNER, Operation, Record, Value, WRITE_ID, with_changed_fields,
};

/// The time before a write is sent again that another one was in the way of. A random part is added
/// so that writers do not meet again.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// How often the outcome of a write without an answer is read, and the time between two reads.
const MAX_READS: u32 = 5;
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// What a bucket has to be like, and how it is watched.
#[derive(Clone, Copy, Debug)]
pub struct BucketOptions {
    /// Accepts fewer than three replicas: the loss of one disk can lose everything.
    pub single: bool,
    /// Creates the bucket if it does not exist.
    pub create: bool,
    /// The size of a bucket that is created, in bytes; no limit if absent.
    pub max_bytes: Option<u32>,
    /// How long the marker of [`Bucket::delete`] is kept, in whole seconds, at least one. A watch
    /// that starts later does not report the deletion. Markers of other programs stay.
    pub marker_ttl: Duration,
    /// How often the server sends a watch a sign of life. The watch lists again when it receives
    /// none for three times as long.
    pub heartbeat: Duration,
    /// How often a watch compares what it received with the leader of the bucket.
    pub check_interval: Duration,
    /// How often a watch lists again without a reason.
    pub resync_interval: Duration,
}

impl Default for BucketOptions {
    fn default() -> Self {
        Self {
            single: false,
            create: false,
            max_bytes: None,
            marker_ttl: Duration::from_hours(24),
            heartbeat: Duration::from_secs(2),
            check_interval: Duration::from_secs(10),
            resync_interval: Duration::from_mins(10),
        }
    }
}

impl BucketOptions {
    /// The default options for a bucket that is created if it does not exist.
    pub fn creating() -> Self {
        Self {
            create: true,
            ..Self::default()
        }
    }
}

/// The result of [`Bucket::create`].
#[derive(Clone, Debug, PartialEq)]
pub enum Created<T> {
    /// The key did not exist, and now has the value.
    Now(KvObject<T>),
    /// The key exists already. The value may be one that cannot be decoded.
    Taken(KvObject<T>),
}

/// A bucket whose values have the type `T`. Its clones share the connection.
///
/// Every write names the revision that it replaces, so of several writers one wins. A read ends
/// within [`Deadlines::request`](crate::Deadlines::request). A write that is not answered within it
/// is followed by up to five reads of the key; the first one that is not answered either ends it.
#[derive(Clone, Debug)]
pub struct Bucket<T> {
    pub(crate) connection: Connection,
    pub(crate) names: Names,
    pub(crate) options: BucketOptions,
    values: PhantomData<fn() -> T>,
}

impl<T: Value> Bucket<T> {
    /// Opens a bucket.
    ///
    /// # Errors
    /// [`KvError::Invalid`] when the server is too old or has no JetStream, or when the bucket does
    /// not exist, has too few replicas or another shape. [`KvError::Unavailable`] when the server
    /// does not answer.
    pub async fn open(
        connection: &Connection,
        name: &str,
        options: &BucketOptions,
    ) -> Result<Self, KvError> {
        let bucket = Self {
            connection: connection.clone(),
            names: Names::new(name)?,
            options: *options,
            values: PhantomData,
        };
        connection.check_version()?;
        let info = bucket.open_stream().await?;
        shape::check(&bucket.names, &info.config, options)?;
        Ok(bucket)
    }

    /// Checks that the bucket still has the configuration that [`Self::open`] requires.
    ///
    /// Ends within the deadline of a request.
    ///
    /// # Errors
    /// [`KvError::Invalid`] when it has not, or does not exist; [`KvError::Unavailable`] when there
    /// is no answer.
    pub async fn check(&self) -> Result<(), KvError> {
        let info = self.connection.stream_info(&self.names).await;
        let info = info.map_err(|error| self.opening_failed(error))?;
        Ok(shape::check(&self.names, &info.config, &self.options)?)
    }

    /// The name of the bucket.
    pub fn name(&self) -> &str {
        &self.names.bucket
    }

    /// The configuration of the bucket, which is created if the options say so.
    async fn open_stream(&self) -> Result<stream::Info, KvError> {
        let error = match self.connection.stream_info(&self.names).await {
            Ok(info) => return Ok(info),
            Err(error) => error,
        };
        let is_missing = error.code() == Some(ErrorCode::STREAM_NOT_FOUND);
        if !is_missing || !self.options.create {
            return Err(self.opening_failed(error));
        }
        let config = shape::new_bucket(&self.names, &self.options, first_revision());
        match self.connection.create_stream(&config).await {
            Ok(info) => Ok(info),
            // Another process has created it in the meantime.
            Err(error) if error.code() == Some(ErrorCode::STREAM_NAME_EXIST) => {
                let info = self.connection.stream_info(&self.names).await;
                info.map_err(|error| self.opening_failed(error))
            }
            Err(error) => Err(self.opening_failed(error)),
        }
    }

    /// What a failed request means for a bucket that is opened.
    fn opening_failed(&self, source: Failure) -> KvError {
        let bucket = self.names.bucket.clone();
        KvError::Invalid(match source.code() {
            None if !matches!(source, Failure::NoResponders) => return self.unavailable(source),
            None
            | Some(
                ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
            ) => {
                let server = self.connection.server();
                Invalid::NoJetStream { server, source }
            }
            Some(ErrorCode::STREAM_NOT_FOUND) => Invalid::Missing { bucket },
            Some(ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED) => Invalid::Replicas {
                bucket,
                found: 1,
                needed: 3,
            },
            Some(_) => return self.unavailable(source),
        })
    }

    /// The last state of a key, from the leader: a value, the marker of a deletion, or `None` if
    /// neither exists.
    ///
    /// A leader that was deposed may answer with an older state for some seconds. So a decision to
    /// free something rests on a write, never on this.
    ///
    /// # Errors
    /// [`KvError::Unavailable`] when the leader does not answer. [`KvError::Invalid`] for what is
    /// not a key.
    pub async fn read(&self, key: &str) -> Result<Option<KvObject<T>>, KvError> {
        let subject = self.names.subject_of(key)?;
        let record = self.last_record(&subject).await;
        match record {
            Ok(record) => Ok(record.map(Record::into_object)),
            Err(source) => Err(self.unavailable(source)),
        }
    }

    /// Creates a key that does not exist or was deleted.
    ///
    /// # Errors
    /// As [`Self::update`], but an existing key is [`Created::Taken`].
    pub async fn create(&self, key: &str, value: &T) -> Result<Created<T>, KvError> {
        let deadline = Instant::now() + self.connection.deadlines.request;
        let mut held = KvObject::new(key.to_owned(), 0, Operation::Delete);
        loop {
            let conflict = match self.update(&held, value).await {
                Ok(object) => return Ok(Created::Now(object)),
                Err(error @ KvError::Conflict { .. }) => error,
                Err(error) => return Err(error),
            };
            match self.read(key).await? {
                Some(object) if !object.is_deleted() => return Ok(Created::Taken(object)),
                _ if Instant::now() >= deadline => return Err(conflict),
                // The marker of an earlier deletion is replaced in the revision that it has.
                Some(marker) => held.revision = marker.revision,
                None => held.revision = 0,
            }
        }
    }

    /// Replaces the value of a key, or the marker of its deletion, if it has the revision of
    /// `held`.
    ///
    /// # Errors
    /// [`KvError::Conflict`] when it has another revision. [`KvError::Unknown`] when the outcome is
    /// unknown even after a read. [`KvError::Full`], [`KvError::Unavailable`] and
    /// [`KvError::Invalid`] when nothing was written.
    pub async fn update(&self, held: &KvObject<T>, value: &T) -> Result<KvObject<T>, KvError> {
        let payload = encode(&held.key, value)?;
        self.put(held, payload, value.clone()).await
    }

    async fn put(
        &self,
        held: &KvObject<T>,
        payload: Vec<u8>,
        value: T,
    ) -> Result<KvObject<T>, KvError> {
        let revision = self.write(held, payload, Operation::Put).await?;
        let mut object = KvObject::new(held.key.clone(), revision, Operation::Put);
        object.value = Some(value);
        object.incarnation.clone_from(&held.incarnation);
        object.owner.clone_from(&held.owner);
        Ok(object)
    }

    /// Writes the result of a reconcile into the value of a key: `change` sets its field `status`.
    /// All other fields stay as they are in the bucket, also those that the type does not have.
    /// Nothing is written if `change` changes nothing, for a marker, and for a value that cannot be
    /// decoded. Returns the object that was written.
    ///
    /// Sends a read, and then a write as [`Self::update`] does.
    ///
    /// ```
    /// use capi_ipam_nats::{Bucket, KvError, KvObject};
    ///
    /// #[derive(Clone, Debug, serde::Deserialize, serde::Serialize)]
    /// struct Block {
    ///     size: u8,
    ///     status: Option<String>,
    /// }
    ///
    /// async fn report(bucket: &Bucket<Block>, object: &KvObject<Block>) -> Result<(), KvError> {
    ///     let set = |block: &mut Block| block.status = Some("ready".to_owned());
    ///     bucket.write_status(object, set).await?;
    ///     Ok(())
    /// }
    /// # let _ = report;
    /// ```
    ///
    /// # Errors
    /// As [`Self::update`].
    pub async fn write_status(
        &self,
        held: &KvObject<T>,
        change: impl FnOnce(&mut T),
    ) -> Result<Option<KvObject<T>>, KvError> {
        let Some(mut value) = held.value.clone() else {
            return Ok(None);
        };
        let before = held.encode(&value)?;
        change(&mut value);
        let after = held.encode(&value)?;
        if before == after {
            return Ok(None);
        }
        let subject = self.names.subject_of(&held.key)?;
        let found = self.last_record(&subject).await;
        let found = found.map_err(|source| self.unavailable(source))?;
        let Some(stored) = found.filter(|found| found.revision == held.revision) else {
            return Err(self.conflict(&held.key));
        };
        let stored = serde_json::from_slice(&stored.payload).unwrap_or_default();
        let payload = with_changed_fields(stored, &before, after).to_string();
        self.put(held, payload.into_bytes(), value).await.map(Some)
    }

    /// Deletes a key if it has the revision of `held`. A marker is left for
    /// [`BucketOptions::marker_ttl`], from which watches learn of it.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub async fn delete(&self, held: &KvObject<T>) -> Result<(), KvError> {
        self.write(held, Vec::new(), Operation::Delete).await?;
        Ok(())
    }

    /// Writes a key if it has the revision of `held`, 0 for none, and returns the new revision.
    async fn write(
        &self,
        held: &KvObject<T>,
        payload: Vec<u8>,
        operation: Operation,
    ) -> Result<u64, KvError> {
        let (key, expected) = (held.key.as_str(), held.revision);
        let subject = self.names.subject_of(key)?;
        let write_id = format!("{:032x}", rand::random::<u128>());
        let headers = self.headers(held, &write_id, operation);
        let deadline = Instant::now() + self.connection.deadlines.request;
        loop {
            let sent = self
                .connection
                .publish(&subject, headers.clone(), payload.clone())
                .await;
            let failure = match sent {
                Ok(revision) => return Ok(revision),
                Err(failure) => failure,
            };
            let meaning = failure.meaning();
            let failure = self.uncertain(key, failure)?;
            // What the answer does not say is read back.
            match self.read_back(&subject, &write_id, meaning, expected).await {
                Outcome::Written { revision } => return Ok(revision),
                Outcome::Conflict => return Err(self.conflict(key)),
                Outcome::Unknown => {
                    return Err(KvError::Unknown {
                        bucket: self.names.bucket.clone(),
                        key: key.to_owned(),
                        source: failure,
                    });
                }
                Outcome::Again if Instant::now() >= deadline => {
                    return Err(self.unavailable(failure));
                }
                Outcome::Again => sleep(RETRY_DELAY.mul_f64(rand::random_range(1.0..4.0))).await,
            }
        }
    }

    /// The headers of a write.
    fn headers(&self, held: &KvObject<T>, write_id: &str, operation: Operation) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let expected = held.revision.to_string();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected);
        headers.insert(WRITE_ID, write_id);
        if operation == Operation::Delete {
            let ttl = self.options.marker_ttl.as_secs().max(1);
            headers.insert(OPERATION, "DEL");
            headers.insert(NATS_MESSAGE_TTL, format!("{ttl}s").as_str());
        } else if let Some(owner) = &held.owner {
            headers.insert(OWNER, owner.to_json().as_str());
        }
        headers
    }

    /// Returns a failure after which the state of the key has to be read.
    ///
    /// # Errors
    /// When the write was certainly not applied, for a reason other than its revision.
    fn uncertain(&self, key: &str, source: Failure) -> Result<Failure, KvError> {
        let bucket = self.names.bucket.clone();
        match source.meaning() {
            Meaning::Conflict | Meaning::InProgress | Meaning::Unknown => Ok(source),
            Meaning::Full => Err(KvError::Full { bucket, source }),
            Meaning::NotApplied => Err(KvError::Unavailable { bucket, source }),
            Meaning::TooLarge => Err(KvError::Invalid(Invalid::TooLarge {
                bucket,
                key: key.to_owned(),
            })),
        }
    }

    /// Reads what a write has done. A server that is slow to answer may process the write after the
    /// first read, so an unknown outcome is read several times.
    async fn read_back(
        &self,
        subject: &str,
        write_id: &str,
        meaning: Meaning,
        expected: u64,
    ) -> Outcome {
        for _ in 1..MAX_READS {
            let seen = self.seen(subject, write_id).await;
            let outcome = outcome(meaning, expected, seen);
            if outcome != Outcome::Unknown || seen == Seen::Nothing {
                return outcome;
            }
            sleep(READ_INTERVAL).await;
        }
        outcome(meaning, expected, self.seen(subject, write_id).await)
    }

    /// What the leader shows after a write.
    async fn seen(&self, subject: &str, write_id: &str) -> Seen {
        match self.last_record(subject).await {
            Ok(None) => Seen::Other { revision: 0 },
            Ok(Some(record)) if record.write_id() == Some(write_id) => Seen::Ours {
                revision: record.revision,
            },
            Ok(Some(record)) => Seen::Other {
                revision: record.revision,
            },
            Err(_) => Seen::Nothing,
        }
    }

    /// When the bucket was created, as its leader shows it.
    ///
    /// # Errors
    /// [`Invalid::Missing`] if it does not exist.
    pub(crate) async fn incarnation(&self) -> Result<String, KvError> {
        match self.connection.stream_info(&self.names).await {
            Ok(info) => Ok(incarnation(&info)),
            Err(error) if error.code() == Some(ErrorCode::STREAM_NOT_FOUND) => {
                Err(KvError::Invalid(Invalid::Missing {
                    bucket: self.names.bucket.clone(),
                }))
            }
            Err(error) => Err(self.unavailable(error)),
        }
    }

    /// The last message of the subjects, from the leader.
    pub(crate) async fn last_record(&self, subjects: &str) -> Result<Option<Record>, Failure> {
        self.connection.last_record(&self.names, subjects).await
    }

    fn conflict(&self, key: &str) -> KvError {
        KvError::Conflict {
            bucket: self.names.bucket.clone(),
            key: key.to_owned(),
        }
    }

    pub(crate) fn unavailable(&self, source: Failure) -> KvError {
        KvError::Unavailable {
            bucket: self.names.bucket.clone(),
            source,
        }
    }
}

/// When a bucket was created, in nanoseconds.
pub(crate) fn incarnation(info: &stream::Info) -> String {
    info.created.unix_timestamp_nanos().to_string()
}

/// A value as JSON.
fn encode<T: Value>(key: &str, value: &T) -> Result<Vec<u8>, Invalid> {
    serde_json::to_vec(value).map_err(|source| Invalid::Encode {
        key: key.to_owned(),
        source,
    })
}

/// The first revision of a new bucket: the time in milliseconds. A bucket takes fewer writes than
/// one a millisecond, so it is larger than all revisions of an earlier bucket of the name.
fn first_revision() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = now.map(|time| time.as_millis()).unwrap_or_default();
    u64::try_from(millis).unwrap_or(1).max(1)
}
