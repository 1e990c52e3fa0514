//! What a registry does, and why it fails.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::watch::EventHandler;
use tokio::time::sleep;

use crate::entry::Entry;
use crate::record::Record;
use crate::source::RecordSource;

/// The reason of a [`RegistryError`].
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why an operation of a registry failed. With its sources, the text is one line
/// ([`error_chain`](capi_ipam_controller::client::error_chain)).
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The record does not have the expected version. After a request without an answer this also
    /// means that the write may have been applied and then overwritten.
    #[error("record {key} of {registry} was changed by another writer")]
    Conflict {
        /// The registry.
        registry: String,
        /// The name of the record.
        key: String,
    },
    /// The registry does not answer. Nothing was written or read. The operation can be repeated.
    #[error("{registry} cannot be reached")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The reason.
        source: Cause,
    },
    /// The write was not answered, and reading it back did not settle its outcome: it may still be
    /// applied. [`Backend::read`] tells later.
    #[error("the outcome of a write of record {key} of {registry} is unknown")]
    Unknown {
        /// The registry.
        registry: String,
        /// The name of the record.
        key: String,
        /// Why there is no answer.
        source: Cause,
    },
    /// A limit of the registry is reached. Nothing was written.
    #[error("{registry} is full")]
    Full {
        /// The registry.
        registry: String,
        /// The answer of the server.
        source: Cause,
    },
    /// The registry, its settings, or a record is not usable. A repetition does not help.
    #[error("{registry} cannot be used")]
    Invalid {
        /// The registry.
        registry: String,
        /// What is wrong.
        source: Cause,
    },
    /// The registry denies the credentials, or the request. Nothing was written or read.
    #[error("{registry} denies access")]
    Forbidden {
        /// The registry.
        registry: String,
        /// The answer of the server.
        source: Cause,
    },
}

impl RegistryError {
    /// Whether no request can succeed now. All other errors concern one record, or one user.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// The result of [`Backend::create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// The record did not exist, and now has the value.
    Ours(Entry),
    /// Something exists under the name already. It may be one that is not a record.
    Theirs(Entry),
}

/// A registry: records that several management clusters share.
///
/// A write names the version that it replaces, so of several writers one wins. A write without an
/// answer is read back, and never repeated blindly. Every operation ends within a deadline, that of a
/// request and a few reads.
pub trait Backend: Send + Sync + 'static {
    /// All records of the registry as the source of a controller, or for
    /// [`watch_into`](capi_ipam_controller::watch::watch_into) with a
    /// [`RecordCache`](crate::RecordCache) as its handler.
    ///
    /// The source never ends: after an interruption it lists again. What a list does not contain is
    /// gone. `synced` becomes ready when the reader has read the first list; until then it shows why
    /// there is none. The failure of a registry does not end the process, and does not make one that
    /// is ready not ready.
    ///
    /// # Errors
    /// [`RegistryError::Invalid`] when the settings do not allow a watch.
    fn source(
        &self,
        handler: Arc<dyn EventHandler<Entry>>,
        synced: ReadinessGate,
    ) -> Result<RecordSource, RegistryError>;

    /// The last state of a record, not from a cache; `None` if nothing exists under the name.
    ///
    /// In NATS a leader that was deposed may answer with an older state for some seconds. So a
    /// decision to free something rests on a write, never on this.
    fn read(&self, key: &str) -> impl Future<Output = Result<Option<Entry>, RegistryError>> + Send;

    /// Creates a record that does not exist.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] when the record may be created yet. All others: nothing was
    /// written.
    fn create(
        &self,
        key: &str,
        record: &Record,
    ) -> impl Future<Output = Result<Created, RegistryError>> + Send;

    /// Replaces a record if it has the version of `held`.
    ///
    /// # Errors
    /// [`RegistryError::Conflict`] when it has another version or does not exist.
    /// [`RegistryError::Unknown`] as for [`Self::create`].
    fn update(
        &self,
        held: &Entry,
        record: &Record,
    ) -> impl Future<Output = Result<Entry, RegistryError>> + Send;

    /// Deletes a record if it has the version of `held`. Succeeds if nothing exists under the name.
    ///
    /// # Errors
    /// As [`Self::update`].
    fn delete(&self, held: &Entry) -> impl Future<Output = Result<(), RegistryError>> + Send;

    /// Checks that the registry still has the settings that it needs, as when it was opened.
    ///
    /// # Errors
    /// [`RegistryError::Invalid`] with what is wrong.
    fn check(&self) -> impl Future<Output = Result<(), RegistryError>> + Send {
        std::future::ready(Ok(()))
    }

    /// How long to wait between a write and the second one that [confirms](confirm) it; zero if an
    /// acknowledged write needs no confirmation, as in etcd.
    fn settle_time(&self) -> Duration;
}

/// Confirms a record that was written: writes it once more, by compare-and-swap, after the
/// [settle time](Backend::settle_time) of the registry. Nothing may rest on a record before. Returns
/// the record with its new version; at once for a registry whose settle time is zero.
///
/// Takes the settle time and one write.
///
/// # Errors
/// [`RegistryError::Conflict`] when the registry has lost the first write, or somebody has replaced
/// it. All others: the record is not confirmed.
pub async fn confirm<B: Backend>(registry: &B, held: &Entry) -> Result<Entry, RegistryError> {
    let settle_time = registry.settle_time();
    let record = match held.record() {
        Some(record) if !settle_time.is_zero() => record,
        _ => return Ok(held.clone()),
    };
    sleep(settle_time).await;
    registry.update(held, record).await
}
