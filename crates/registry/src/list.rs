//! Reads all records once, for programs that do not watch a registry.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::watch::{Change, EventHandler};
use futures::{Stream, StreamExt};
use tokio::time::timeout;

use crate::backend::Registry;
use crate::cache::RecordCache;
use crate::entry::Entry;

/// Why the records of a registry cannot be listed. The text is one line.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The registry refuses the list, or does not answer.
    #[error("cannot list the records: {0}")]
    Failed(String),
    /// The list takes too long.
    #[error("cannot list the records within {0:?}")]
    TimedOut(Duration),
}

/// Lists all records of a registry. Returns a complete cache, which nothing changes afterwards.
///
/// Takes at most `limit`. Unlike [`Backend::watch`](crate::Backend::watch), it does not wait for a registry
/// that fails.
///
/// # Errors
/// When the registry does not answer with a complete list.
pub async fn list(registry: &Registry, limit: Duration) -> Result<Arc<RecordCache>, ListError> {
    let records = Arc::new(RecordCache::default());
    let handler = Arc::clone(&records) as Arc<dyn EventHandler<Entry>>;
    let changes = registry.watch(handler);
    let changes = changes.map_err(|error| ListError::Failed(error_chain(&error)))?;
    match timeout(limit, until_listed(changes)).await {
        Ok(listed) => listed?,
        Err(_) => return Err(ListError::TimedOut(limit)),
    }
    Ok(records)
}

/// Reads changes until the first list is complete.
async fn until_listed(
    mut changes: impl Stream<Item = Change<Entry>> + Unpin,
) -> Result<(), ListError> {
    while let Some(change) = changes.next().await {
        match change {
            Change::InitDone => return Ok(()),
            Change::Failed(reason) => return Err(ListError::Failed(reason)),
            _ => {}
        }
    }
    let reason = "the connection has ended".to_owned();
    Err(ListError::Failed(reason))
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::stream;

    use super::*;

    #[test]
    fn incomplete_list_is_an_error() {
        let complete = vec![Change::Init, Change::InitDone];
        assert!(block_on(until_listed(stream::iter(complete))).is_ok());
        let failed = vec![Change::Init, Change::Failed("refused".to_owned())];
        let error = block_on(until_listed(stream::iter(failed))).unwrap_err();
        assert_eq!(error.to_string(), "cannot list the records: refused");
        let ended = vec![Change::Init];
        assert!(block_on(until_listed(stream::iter(ended))).is_err());
    }
}
