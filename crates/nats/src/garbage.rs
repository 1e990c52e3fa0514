//! The secondaries of deleted keys are deleted.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{ApiObject, CallError, ResourceClient, error_chain};
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use kube::Resource;
use kube::core::ObjectMeta;
use tokio::time::timeout;

use crate::bucket::Bucket;
use crate::decision::{Last, Listing, Secondary, Verdict, verdict};
use crate::error::{Failure, KvError};
use crate::object::Value;
use crate::owner::{self, Owner};
use crate::secondary::SecondaryError;
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
/// created ([`owner::set`]). It is deleted if the bucket was created at this time, and has a marker
/// of a deletion after this revision. So
///
/// - in two passes, with a complete list of the bucket each, and
/// - for a read of the key from the leader before the deletion;
///
/// then it is deleted with the uid and resourceVersion that it had in the list.
///
/// Secondaries of missing keys are kept, and a warning counts them: an administrator restores the
/// keys or deletes the objects. Markers of [`Bucket::delete`] expire
/// ([`BucketOptions::marker_ttl`](crate::BucketOptions)), so this has to be longer than the
/// controller can be away. Those of other programs, such as `nats kv del`, stay.
///
/// ```no_run
/// use std::time::Duration;
///
/// use capi_ipam_controller::client::ResourceClient;
/// use capi_ipam_controller::manager::Manager;
/// use capi_ipam_nats::{Bucket, Garbage};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
///
/// fn add_garbage(manager: &mut Manager, bucket: &Bucket<String>) {
///     let maps: Api<ConfigMap> = Api::namespaced(manager.client.clone(), "default");
///     let maps = ResourceClient::new(maps, &());
///     let garbage = Garbage::new(bucket, maps, Duration::from_secs(600));
///     manager.add_background_task("garbage", Vec::new(), garbage);
/// }
/// ```
pub struct Garbage<T, K> {
    bucket: Bucket<T>,
    secondaries: ResourceClient<K>,
    interval: Duration,
    /// The uids of the secondaries that the last pass has found.
    suspects: HashSet<String>,
    log_limit: RepetitionLimit,
}

impl<T, K> Garbage<T, K>
where
    T: Value,
    K: ApiObject + Send + Sync + 'static,
{
    /// Deletes secondaries of the keys of a bucket: of one kind, and in one namespace if they have
    /// one. `interval` is the time between two passes.
    pub fn new(bucket: &Bucket<T>, secondaries: ResourceClient<K>, interval: Duration) -> Self {
        let selector = owner::selector(bucket.name());
        Self {
            bucket: bucket.clone(),
            secondaries: secondaries.with_labels(&selector),
            interval,
            suspects: HashSet::new(),
            log_limit: RepetitionLimit::default(),
        }
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
        let secondaries = self.list_secondaries().await?;
        let listing = list(&self.bucket).await?;
        let mut pass = Pass::default();
        let mut remaining = HashSet::new();
        let mut missing = None;
        let mut first_error = None;
        for secondary in &secondaries {
            let owner = &secondary.owner;
            let last = listing.keys.get(&owner.key);
            match verdict(owner, &listing.incarnation, last) {
                Verdict::Exists => {}
                Verdict::Missing => {
                    pass.kept += 1;
                    missing = Some(secondary);
                }
                Verdict::Deleted => {
                    remaining.insert(secondary.uid.clone());
                    if !suspects.contains(&secondary.uid) {
                        continue;
                    }
                    match self.delete(secondary, &listing).await {
                        Ok(true) => {
                            remaining.remove(&secondary.uid);
                            pass.deleted += 1;
                        }
                        Ok(false) => {}
                        // Each further read of the bucket would last until its deadline.
                        Err(SecondaryError::Bucket(error)) => return Err(error.into()),
                        Err(error) => {
                            first_error.get_or_insert(error);
                        }
                    }
                }
            }
        }
        self.suspects = remaining;
        self.report_kept(pass.kept, missing);
        match first_error {
            Some(error) => Err(error),
            None => Ok(pass),
        }
    }

    /// All secondaries with a complete record of their owner.
    async fn list_secondaries(&self) -> Result<Vec<Secondary>, CallError> {
        let bucket = self.bucket.name();
        let mut all = Vec::new();
        let add = |page: Vec<_>| {
            let secondaries = page.iter().filter_map(|object| secondary(object, bucket));
            all.extend(secondaries);
        };
        self.secondaries.for_each_page(add).await?;
        Ok(all)
    }

    /// Deletes a secondary if the leader of the bucket confirms that its key was deleted. Returns
    /// whether it is deleted.
    async fn delete(
        &self,
        secondary: &Secondary,
        listing: &Listing,
    ) -> Result<bool, SecondaryError> {
        let owner = &secondary.owner;
        let last = read(&self.bucket, &owner.key).await?;
        // The read was one of the listed bucket if that exists afterwards.
        let incarnation = self.bucket.incarnation().await?;
        let is_same = incarnation == listing.incarnation;
        if !is_same || verdict(owner, &incarnation, last.as_ref()) != Verdict::Deleted {
            return Ok(false);
        }
        let Secondary {
            name, uid, version, ..
        } = secondary;
        match self.secondaries.delete_unchanged(name, uid, version).await {
            Ok(_) => {
                let bucket = self.bucket.name();
                tracing::info!(
                    bucket,
                    key = owner.key,
                    name,
                    "deleted what belonged to a deleted key"
                );
                Ok(true)
            }
            // It was written in the meantime: it is garbage no longer, or again in the next pass.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error.into()),
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

impl<T, K> BackgroundTask for Garbage<T, K>
where
    T: Value,
    K: ApiObject + Send + Sync + 'static,
{
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

/// A secondary of a bucket, `None` if the object is none or does not record its owner.
fn secondary<K: Resource>(object: &K, bucket: &str) -> Option<Secondary> {
    let metadata: &ObjectMeta = object.meta();
    Some(Secondary {
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
        version: metadata.resource_version.clone()?,
        owner: Owner::of(metadata, bucket)?,
    })
}

/// A complete list of a bucket.
async fn list<T: Value>(bucket: &Bucket<T>) -> Result<Listing, KvError> {
    let listed = timeout(LIST_TIMEOUT, collect(bucket)).await;
    listed.unwrap_or_else(|_| Err(bucket.unavailable(Failure::Timeout(LIST_TIMEOUT))))
}

async fn collect<T: Value>(bucket: &Bucket<T>) -> Result<Listing, KvError> {
    let mut watch = Watch::new(bucket, "")?;
    let mut keys = HashMap::new();
    loop {
        match watch.next().await? {
            Event::Init => keys.clear(),
            Event::Listed(record) | Event::Changed(record) => {
                let last = Last::of_record(&record);
                keys.insert(record.key, last);
            }
            Event::InitDone => {
                let incarnation = watch.incarnation().unwrap_or_default().to_owned();
                return Ok(Listing { incarnation, keys });
            }
        }
    }
}

/// The last write of a key, from the leader.
async fn read<T: Value>(bucket: &Bucket<T>, key: &str) -> Result<Option<Last>, KvError> {
    let subject = bucket.names().subject_of(key)?;
    let record = bucket.last_record(&subject).await;
    let record = record.map_err(|error| bucket.unavailable(error))?;
    Ok(record.as_ref().map(Last::of_record))
}
