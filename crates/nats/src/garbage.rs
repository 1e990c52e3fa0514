//! The secondaries of deleted keys are deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use tokio::time::timeout;

use crate::bucket::Bucket;
use crate::decision::{Last, Listing, Verdict, verdict};
use crate::error::{Failure, KvError};
use crate::object::{Owner, Record, Value};
use crate::secondary::{Secondary, SecondaryError, SecondaryStore};
use crate::watch::{Event, Watch};

/// How long the list of a bucket may take.
const LIST_TIMEOUT: Duration = Duration::from_mins(1);

/// What a pass of [`Garbage`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The number of deleted secondaries.
    pub deleted: usize,
    /// The number of secondaries whose key is missing, and which are kept because nothing shows
    /// that the key was deleted: the bucket may have lost it.
    pub kept: usize,
}

/// Deletes the secondaries of deleted keys: those that a reconcile of the deletion has missed,
/// because no process ran while the marker of the deletion existed, or because a late write created
/// the secondary again.
///
/// A missing key is no deleted key: only the marker of a deletion is. Nothing is deleted because of
/// a bucket that is empty, was deleted and created again, or was restored from a backup. A
/// secondary records the revision of its key for which it was last written, and when the bucket was
/// created ([`owner::set`](crate::owner::set)). It is deleted if the bucket was created at this
/// time, and has a marker of a deletion after this revision. So
///
/// - in two passes, with a complete list of the bucket each, and
/// - for a read of the key from the leader before the deletion;
///
/// then it is deleted if it still is in the state that was listed. Secondaries are listed from the
/// memory of [`Secondaries`](crate::Secondaries) that are watched.
///
/// Secondaries of missing keys are kept, and a warning counts them: an administrator restores the
/// keys or deletes the objects, unless [`Self::missing_after`] deletes them. Markers of
/// [`Bucket::delete`] expire ([`BucketOptions::marker_ttl`](crate::BucketOptions)), so this has to
/// be longer than the controller can be away. Those of other programs, such as `nats kv del`, stay.
///
/// ```no_run
/// use std::time::Duration;
///
/// use std::sync::Arc;
///
/// use capi_ipam_controller::manager::Manager;
/// use capi_ipam_nats::{Bucket, Garbage, Secondaries};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// fn add_garbage(
///     manager: &mut Manager,
///     bucket: &Bucket<String>,
///     maps: &Arc<Secondaries<String, ConfigMap>>,
/// ) {
///     let garbage = Garbage::new(bucket, maps.clone(), Duration::from_secs(600));
///     manager.add_background_task("garbage", Vec::new(), garbage);
/// }
/// ```
pub struct Garbage<T, S> {
    bucket: Bucket<T>,
    secondaries: Arc<S>,
    interval: Duration,
    missing_after: Option<Duration>,
    /// What the last pass has found, by uid.
    suspects: HashMap<String, Suspect>,
    log_limit: RepetitionLimit,
}

/// A secondary whose key does not exist.
#[derive(Clone, Copy)]
struct Suspect {
    verdict: Verdict,
    /// When the first of consecutive passes found it.
    since: Instant,
}

impl<T: Value, S: SecondaryStore> Garbage<T, S> {
    /// Deletes secondaries of the keys of a bucket. `interval` is the time between two passes.
    pub fn new(bucket: &Bucket<T>, secondaries: Arc<S>, interval: Duration) -> Self {
        Self {
            bucket: bucket.clone(),
            secondaries,
            interval,
            missing_after: None,
            suspects: HashMap::new(),
            log_limit: RepetitionLimit::default(),
        }
    }

    /// Also deletes a secondary whose key is missing without a marker, if the key was missing in
    /// all passes of this duration, at least two, and for a read from the leader before the
    /// deletion. A pass that fails and a restart of the process begin the duration again.
    ///
    /// **This deletes the secondaries of a bucket that was lost**, unless its keys are restored
    /// within the duration.
    #[must_use]
    pub fn missing_after(mut self, duration: Duration) -> Self {
        self.missing_after = Some(duration);
        self
    }

    /// Runs one pass.
    ///
    /// A secondary that cannot be deleted does not keep the pass from the others: it is tried again
    /// in the next pass.
    ///
    /// # Errors
    /// When the bucket or the secondaries cannot be listed, or the bucket cannot be read: the next
    /// pass is a first one. When secondaries cannot be deleted: the first error, after the pass.
    pub async fn pass(&mut self) -> Result<Pass, SecondaryError> {
        let suspects = std::mem::take(&mut self.suspects);
        // The secondaries are listed first: a key that is created later cannot be missing.
        let secondaries = self.secondaries.list().await?;
        let listing = list(&self.bucket, Last::of_record).await?;
        let mut pass = Pass::default();
        let mut remaining = HashMap::new();
        let mut missing = None;
        let mut first_error = None;
        for secondary in &secondaries {
            let owner = &secondary.owner;
            let verdict = verdict(owner, &listing.incarnation, listing.keys.get(&owner.key));
            if verdict == Verdict::Exists {
                continue;
            }
            let known = suspects.get(&secondary.uid);
            let known = known.filter(|known| known.verdict == verdict);
            if known.is_some_and(|known| self.is_due(known)) {
                // If it fails, each further read of the bucket would last until its deadline.
                let is_confirmed = self.confirms(owner, &listing.incarnation, verdict).await?;
                if is_confirmed {
                    match self.delete(secondary).await {
                        Ok(true) => {
                            pass.deleted += 1;
                            continue;
                        }
                        Ok(false) => {}
                        Err(error) => drop(first_error.get_or_insert(error)),
                    }
                }
            }
            if verdict == Verdict::Missing {
                pass.kept += 1;
                missing = Some(secondary);
            }
            let since = known.map_or_else(Instant::now, |known| known.since);
            remaining.insert(secondary.uid.clone(), Suspect { verdict, since });
        }
        self.suspects = remaining;
        self.report_kept(pass.kept, missing);
        first_error.map_or(Ok(pass), Err)
    }

    /// Whether a secondary that an earlier pass has found can be deleted.
    fn is_due(&self, known: &Suspect) -> bool {
        match known.verdict {
            Verdict::Exists => false,
            Verdict::Deleted => true,
            Verdict::Missing => self
                .missing_after
                .is_some_and(|duration| known.since.elapsed() >= duration),
        }
    }

    /// Whether the leader of the bucket, which was created at this time, confirms a verdict.
    async fn confirms(&self, owner: &Owner, listed: &str, found: Verdict) -> Result<bool, KvError> {
        let last = self.bucket.read(&owner.key).await?;
        let last = last.as_ref().map(Last::of);
        // The read was one of the listed bucket if that exists afterwards.
        let incarnation = self.bucket.incarnation().await?;
        Ok(incarnation == listed && verdict(owner, &incarnation, last.as_ref()) == found)
    }

    /// Deletes a secondary in the state that was listed. Returns whether it is deleted.
    async fn delete(&self, secondary: &Secondary) -> Result<bool, SecondaryError> {
        match self.secondaries.remove(secondary).await {
            Ok(()) => {
                let (bucket, name) = (self.bucket.name(), &secondary.name);
                let key = &secondary.owner.key;
                tracing::info!(bucket, key, name, "deleted what belonged to a key");
                Ok(true)
            }
            // It was written in the meantime: it is garbage no longer, or again in the next pass.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Logs the number of secondaries whose keys are missing, and an example.
    fn report_kept(&self, count: usize, example: Option<&Secondary>) {
        let Some(Secondary { name, owner, .. }) = example else {
            self.log_limit.end();
            return;
        };
        if self.log_limit.allow("kept", Instant::now()).is_some() {
            tracing::warn!(
                bucket = self.bucket.name(),
                count,
                name,
                key = owner.key,
                "the keys of objects are missing, and nothing shows that they were deleted: restore \
                 the keys, or delete the objects"
            );
        }
    }
}

impl<T: Value, S: SecondaryStore> BackgroundTask for Garbage<T, S> {
    async fn run_once(&mut self) -> NextRun {
        if let Err(error) = self.pass().await {
            let bucket = self.bucket.name();
            let error = error_chain(&error);
            if self.log_limit.allow(&error, Instant::now()).is_some() {
                tracing::warn!(bucket, error, "cannot look for garbage, will retry");
            }
        }
        NextRun::After(self.interval)
    }
}

/// A complete list of a bucket, with what `of` returns for the last write of each key.
pub(crate) async fn list<T: Value, V>(
    bucket: &Bucket<T>,
    of: impl Fn(&Record) -> V,
) -> Result<Listing<V>, KvError> {
    let mut watch = Watch::new(bucket, "")?;
    let collect = async {
        let mut keys = HashMap::new();
        loop {
            match watch.next().await? {
                Event::Init => keys.clear(),
                Event::Listed(record) | Event::Changed(record) => {
                    let last = of(&record);
                    keys.insert(record.key, last);
                }
                Event::InitDone => {
                    let incarnation = watch.incarnation().unwrap_or_default().to_owned();
                    return Ok(Listing { incarnation, keys });
                }
            }
        }
    };
    let listed = timeout(LIST_TIMEOUT, collect).await;
    listed.unwrap_or_else(|_| Err(bucket.unavailable(Failure::Timeout(LIST_TIMEOUT))))
}
