//! What a registry does, and why it fails.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capi_ipam_controller::watch::{Change, EventHandler};
use futures::stream::BoxStream;

use crate::entry::Entry;
use crate::record::Record;

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

/// What [`Backend::watch`] shows.
pub type RecordChanges = BoxStream<'static, Change<Entry>>;

/// A registry of either backend. Its clones share the connections.
pub type Registry = Arc<dyn Backend>;

/// A registry: records that several management clusters share.
///
/// A write names the version that it replaces, so of several writers one wins. A write without an
/// answer is read back, and never repeated blindly. Every operation ends within a deadline, that of a
/// request and a few reads.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// Lists all records, and then follows their changes. `handler` sees each change before the stream
    /// returns it; it is a [`RecordCache`](crate::RecordCache) or one around it.
    ///
    /// The stream never ends: after a failure, which is a [`Change::Failed`], it goes on or lists again.
    /// What a list does not contain is gone. Nothing is requested before the first poll.
    ///
    /// # Errors
    /// [`RegistryError::Invalid`] when the settings do not allow a watch.
    fn watch(&self, handler: Arc<dyn EventHandler<Entry>>) -> Result<RecordChanges, RegistryError>;

    /// The last state of a record, not from a cache; `None` if nothing exists under the name.
    ///
    /// In NATS a leader that was deposed may answer with an older state for some seconds. So a
    /// decision to free something rests on a write, never on this.
    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError>;

    /// Creates a record that does not exist.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] when the record may be created yet. All others: nothing was
    /// written.
    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError>;

    /// Replaces a record if it has the version of `held`.
    ///
    /// # Errors
    /// [`RegistryError::Conflict`] when it has another version or does not exist.
    /// [`RegistryError::Unknown`] as for [`Self::create`].
    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError>;

    /// Deletes a record if it has the version of `held`. Succeeds if nothing exists under the name.
    ///
    /// # Errors
    /// As [`Self::update`].
    async fn delete(&self, held: &Entry) -> Result<(), RegistryError>;

    /// Checks that the registry still has the settings that it needs, as when it was opened.
    ///
    /// # Errors
    /// [`RegistryError::Invalid`] with what is wrong.
    async fn check(&self) -> Result<(), RegistryError> {
        Ok(())
    }

    /// How long to wait between a write and the second one that confirms it: the same record once more,
    /// by compare-and-swap. Nothing may rest on a record before. Zero if an acknowledged write needs no
    /// confirmation, as in etcd.
    fn settle_time(&self) -> Duration;
}
