//! What a registry does.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use capi_ipam_controller::watch::{Change, EventHandler};
use futures::stream::BoxStream;

use crate::entry::Entry;
use crate::error::RegistryError;
use crate::record::Record;

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
    /// written. [`RegistryError::Conflict`] when another writer creates and deletes it at the same time.
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
