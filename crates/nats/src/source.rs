//! The keys of a bucket as a source of a controller.

use std::sync::Arc;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::watch::{Change, EventHandler, Opened, Source, SourceFailures};
use futures::stream::unfold;

use crate::bucket::Bucket;
use crate::error::KvError;
use crate::object::{KvObject, Value};
use crate::watch::Watch;

/// The keys of a bucket below a prefix. Created by [`Bucket::source`].
///
/// - The stream lists the keys and then reports their changes. It never ends: after an interruption
///   it lists again.
/// - The marker of a deletion is a [`Change::Delete`], in a list too, and is delivered once as long
///   as it exists. Only markers show deletions: a key that a list does not contain is forgotten,
///   and not reconciled as deleted. So a bucket that was lost, created again or restored from a
///   backup deletes nothing.
/// - A value that cannot be decoded is a [`Change::ApplyInvalid`] and a warning. The key exists.
///   The metadata has the key as the name, the revision as the resourceVersion, and the incarnation
///   of the bucket as the uid.
pub struct KvSource<T: Value> {
    watch: Watch<T>,
    failures: SourceFailures,
    handler: Arc<dyn EventHandler<KvObject<T>>>,
    synced: ReadinessGate,
}

impl<T: Value> Bucket<T> {
    /// The keys below a prefix as the source of a controller. The prefix ends between two parts of
    /// the keys, such as `block.backbone`; an empty one selects all keys.
    ///
    /// `handler` sees every change before a reconciler does. `synced` becomes ready when the first
    /// list was read, and reports why there is none. If an administrator has to act, for example
    /// because the bucket does not exist, the process is not ready.
    ///
    /// # Errors
    /// When the prefix is not one of keys.
    pub fn source(
        &self,
        prefix: &str,
        handler: Arc<dyn EventHandler<KvObject<T>>>,
        synced: ReadinessGate,
    ) -> Result<KvSource<T>, KvError> {
        let watch = Watch::new(self, prefix)?;
        let kind = format!("keys of bucket {}", self.name());
        Ok(KvSource {
            watch,
            failures: SourceFailures::new(kind, synced.clone()),
            handler,
            synced,
        })
    }
}

impl<T: Value> Source for KvSource<T> {
    type Object = KvObject<T>;

    fn open(self) -> Opened<KvObject<T>> {
        let Self {
            watch,
            failures,
            handler,
            synced,
        } = self;
        let changes = unfold((watch, failures), async |(mut watch, mut failures)| {
            let change = next_change(&mut watch, &mut failures).await;
            Some((change, (watch, failures)))
        });
        Opened::new(changes, handler, synced)
    }
}

/// The next change of a watch, or a failure, which is reported.
async fn next_change<T: Value>(
    watch: &mut Watch<T>,
    failures: &mut SourceFailures,
) -> Change<KvObject<T>> {
    let error = match watch.next_change().await {
        Ok(change) => {
            // The start of a list is no success: it can fail as the last one did.
            if !matches!(change, Change::Init) {
                failures.ended();
            }
            return change;
        }
        Err(error) => error,
    };
    let text = error_chain(&error);
    match error {
        KvError::Invalid(_) => failures.unusable(&text),
        _ => failures.interrupted(&text),
    }
    Change::Failed(text)
}
