//! Secondaries: Kubernetes objects that a reconcile writes and deletes for a key.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::client::{ApiObject, CallError, Creation, Deleted, ResourceClient};
use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::patch;
use capi_ipam_controller::watch::{ObservedCache, WatchApi, WatchSpec, Watchable};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::decision::is_deleted_by;
use crate::error::KvError;
use crate::object::{KvObject, Owner, Value};
use crate::owner;

/// Why a secondary was not written or deleted.
#[derive(Debug, thiserror::Error)]
pub enum SecondaryError {
    /// The bucket cannot be read or written.
    #[error(transparent)]
    Bucket(#[from] KvError),
    /// The API server did not do what it was asked.
    #[error(transparent)]
    Kubernetes(#[from] CallError),
    /// An object of the name exists and does not belong to the key. It was not changed.
    #[error(
        "{name} exists and does not belong to key {key} of bucket {bucket}: rename or delete it"
    )]
    Taken {
        /// The name of the object, or the key of the other bucket.
        name: String,
        /// The key.
        key: String,
        /// The name of the bucket.
        bucket: String,
    },
}

impl SecondaryError {
    /// Whether the secondary was changed in the meantime.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Bucket(error) => matches!(error, KvError::Conflict { .. }),
            Self::Kubernetes(error) => error.is_conflict(),
            Self::Taken { .. } => false,
        }
    }
}

/// Checks that a secondary that exists belongs to a key.
pub(crate) fn check_owner<T>(
    found: Option<&Owner>,
    name: &str,
    bucket: &str,
    primary: &KvObject<T>,
) -> Result<(), SecondaryError> {
    if found.is_some_and(|owner| owner.bucket == bucket && owner.key == primary.key) {
        return Ok(());
    }
    Err(SecondaryError::Taken {
        name: name.to_owned(),
        key: primary.key.clone(),
        bucket: bucket.to_owned(),
    })
}

/// A state of a secondary, and the key to which it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secondary {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) owner: Owner,
}

impl Secondary {
    /// `None` if the object belongs to no key of the bucket, or does not record its owner.
    fn of(metadata: &ObjectMeta, bucket: &str) -> Option<Self> {
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            version: metadata.resource_version.clone()?,
            owner: owner::of(metadata, bucket)?,
        })
    }
}

/// What [`Garbage`](crate::Garbage) deletes: [`Secondaries`], or
/// [`SecondaryKeys`](crate::SecondaryKeys) in another bucket.
pub trait SecondaryStore: Send + Sync + 'static {
    /// All secondaries that record their owner.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn list(&self) -> impl Future<Output = Result<Vec<Secondary>, SecondaryError>> + Send;

    /// Deletes a secondary in the state that was listed. One that is gone is no error.
    ///
    /// # Errors
    /// When it was changed since, or when the server does not delete it.
    fn remove(
        &self,
        secondary: &Secondary,
    ) -> impl Future<Output = Result<(), SecondaryError>> + Send;
}

/// The secondaries of the keys of a bucket that are Kubernetes objects of one kind, in one
/// namespace if they have one.
///
/// It is the handler of their [watch](Self::watch): it enqueues the key of a secondary that is
/// created, changed or deleted, and keeps all secondaries in memory, as the watch or the response to
/// a write has shown them last. So a secondary that is as wanted costs no request. Every write names
/// the uid and the resourceVersion of the state that it replaces: if that is outdated, the write
/// fails with a conflict, and the next attempt reads the secondary from the API server. So does every
/// attempt before the first list is complete, and one after a write without an answer.
pub struct Secondaries<T, K: Resource> {
    bucket: String,
    namespace: String,
    version: K::DynamicType,
    client: ResourceClient<K>,
    trigger: Trigger<KvObject<T>>,
    cache: Mutex<Cache<K>>,
}

/// What is known of the secondaries.
struct Cache<K> {
    /// Whether a list is complete.
    is_listed: bool,
    objects: Observed<Arc<K>>,
    /// The names of those that have to be read: they cannot be decoded, or a write has shown that
    /// what is known may be outdated.
    unread: HashSet<String>,
}

impl<T: Value, K: Watchable + ApiObject> Secondaries<T, K> {
    /// Secondaries of the keys of a bucket, which `trigger` enqueues. `version` is the dynamic type
    /// of the kind, `()` for static types. Sends no request.
    pub fn new(
        bucket: &Bucket<T>,
        api: Api<K>,
        version: K::DynamicType,
        trigger: Trigger<KvObject<T>>,
    ) -> Arc<Self> {
        let namespace = api.namespace().unwrap_or_default().to_owned();
        let client = ResourceClient::new(api, &version);
        let cache = Cache {
            is_listed: false,
            objects: Observed::default(),
            unread: HashSet::new(),
        };
        Arc::new(Self {
            bucket: bucket.name().to_owned(),
            namespace,
            version,
            client: client.with_labels(&owner::selector(bucket.name())),
            trigger,
            cache: Mutex::new(cache),
        })
    }

    /// The watch of the secondaries, for
    /// [`ControllerBuilder::watch`](capi_ipam_controller::controller::ControllerBuilder::watch).
    /// `api` has the namespace of the secondaries.
    pub fn watch(self: &Arc<Self>, api: WatchApi<K>, synced: ReadinessGate) -> WatchSpec<K> {
        let mut watch = WatchSpec::new(api, self.version.clone(), self.clone(), synced);
        watch.config = watch.config.labels(&owner::selector(&self.bucket));
        watch
    }

    /// Creates the secondary `name` of a key, or changes it to what `change` makes of it. Nothing
    /// is written if it has no difference. Call it with the object that is reconciled.
    ///
    /// Sends up to three requests, each of which ends within its deadline; more if a creation is
    /// not answered, to read its outcome.
    ///
    /// # Errors
    /// [`SecondaryError::Taken`] if an object of this name does not belong to the key.
    /// [`SecondaryError::Kubernetes`] if the API server refuses the write, also because the object
    /// was changed in the meantime.
    pub async fn apply(
        &self,
        name: &str,
        primary: &KvObject<T>,
        change: impl Fn(&mut K),
    ) -> Result<(), SecondaryError>
    where
        K: Default,
    {
        let fill = |secondary: &mut K| {
            change(secondary);
            secondary.meta_mut().name = Some(name.to_owned());
            owner::set(secondary, &self.bucket, primary);
        };
        let found = match self.find(name).await? {
            Some(found) => found,
            None => {
                let mut wanted = K::default();
                fill(&mut wanted);
                let created = self.client.create_or_find(&wanted).await;
                match self.noted(name, created)? {
                    Creation::Created(created) => {
                        self.record(created);
                        return Ok(());
                    }
                    // Of somebody else, or of this process, and nothing has shown it yet.
                    Creation::Found(found) => Arc::new(self.client.decoded(found)?),
                }
            }
        };
        let owner = owner::of(found.meta(), &self.bucket);
        check_owner(owner.as_ref(), name, &self.bucket, primary)?;
        let mut wanted = found.as_ref().clone();
        fill(&mut wanted);
        let written = patch::write(&self.client, &found, &wanted).await;
        if let Some(written) = self.noted(name, written)? {
            self.record(written);
        }
        Ok(())
    }

    /// Deletes the secondary `name` in the reconcile of the deletion of its key, of which `marker`
    /// is the marker. A secondary that does not exist is no error. One of another key stays, and so
    /// does one that was last written for a later write of the key than the deletion: the bucket
    /// was restored from a backup.
    ///
    /// Sends up to two requests, each of which ends within its deadline.
    ///
    /// # Errors
    /// When the API server does not delete it, or when it has changed in the meantime.
    pub async fn delete(&self, name: &str, marker: &KvObject<T>) -> Result<(), SecondaryError> {
        let found = self.find(name).await?;
        let secondary = found.and_then(|found| Secondary::of(found.meta(), &self.bucket));
        match secondary.filter(|found| is_deleted_by(&found.owner, marker)) {
            Some(secondary) => self.remove(&secondary).await,
            None => Ok(()),
        }
    }

    /// The secondary of this name: from the cache, or from the API server if the cache does not
    /// know it.
    async fn find(&self, name: &str) -> Result<Option<Arc<K>>, CallError> {
        {
            let cache = self.cache.lock();
            if cache.is_listed && !cache.unread.contains(name) {
                return Ok(cache.objects.get(&self.namespace, name).cloned());
            }
        }
        let found = self.client.get(name).await?;
        self.cache.lock().unread.remove(name);
        match &found {
            Some(found) if owner::of(found.meta(), &self.bucket).is_some() => {
                self.record(found.clone());
            }
            // No event of the watch shows that.
            _ => drop(self.observed(|known| known.forget(&self.namespace, name))),
        }
        Ok(found.map(Arc::new))
    }

    /// Records a state that the API server has returned.
    fn record(&self, secondary: K) {
        let (metadata, now) = (secondary.meta().clone(), Instant::now());
        self.observed(|known| known.see(Origin::Response, &metadata, Arc::new(secondary), now));
    }

    /// The result of a write. If it shows that what is known may be outdated, the secondary is read
    /// next.
    fn noted<R>(&self, name: &str, written: Result<R, CallError>) -> Result<R, CallError> {
        written.inspect_err(|error| {
            if error.has_changed() || error.outcome_is_unknown() {
                self.cache.lock().unread.insert(name.to_owned());
            }
        })
    }

    fn enqueue(&self, metadata: &ObjectMeta) {
        if let Some(owner) = owner::of(metadata, &self.bucket) {
            self.trigger.enqueue(NamespacedName::new("", &owner.key));
        }
    }
}

impl<T: Value, K: Watchable + ApiObject> SecondaryStore for Secondaries<T, K> {
    async fn list(&self) -> Result<Vec<Secondary>, SecondaryError> {
        let of = |metadata: &ObjectMeta| Secondary::of(metadata, &self.bucket);
        {
            let cache = self.cache.lock();
            if cache.is_listed && cache.unread.is_empty() {
                let known = cache.objects.iter();
                let known = known.filter(|(namespace, ..)| *namespace == self.namespace);
                return Ok(known.filter_map(|(.., object)| of(object.meta())).collect());
            }
        }
        let mut all = Vec::new();
        let add = |page: Vec<_>| all.extend(page.iter().map(Resource::meta).filter_map(of));
        self.client.for_each_page(add).await?;
        Ok(all)
    }

    async fn remove(&self, secondary: &Secondary) -> Result<(), SecondaryError> {
        let Secondary {
            name, uid, version, ..
        } = secondary;
        let deleted = self.client.delete_unchanged(name, uid, version).await;
        match self.noted(name, deleted)? {
            Deleted::Gone => {
                let now = Instant::now();
                self.observed(|known| known.delete(&self.namespace, name, Some(uid), now));
            }
            Deleted::Terminating(left) => self.record(*left),
        }
        Ok(())
    }
}

impl<T: Value, K: Watchable + ApiObject> ObservedCache for Secondaries<T, K> {
    type Object = K;
    type Value = Arc<K>;

    fn observed<R>(&self, function: impl FnOnce(&mut Observed<Arc<K>>) -> R) -> R {
        function(&mut self.cache.lock().objects)
    }

    fn see(&self, secondary: &K) {
        let (metadata, shown) = (secondary.meta(), Arc::new(secondary.clone()));
        self.observed(|known| known.see(Origin::Watch, metadata, shown, Instant::now()));
        let name = metadata.name.as_deref().unwrap_or_default();
        self.cache.lock().unread.remove(name);
        self.enqueue(metadata);
    }

    fn removed(&self, _: &NamespacedName, secondary: Option<Arc<K>>) {
        if let Some(secondary) = secondary {
            self.enqueue(secondary.meta());
        }
    }

    fn listed(&self) {
        self.cache.lock().is_listed = true;
    }

    fn see_undecodable(&self, metadata: &ObjectMeta) {
        let name = metadata.name.clone().unwrap_or_default();
        self.cache.lock().unread.insert(name);
        let now = Instant::now();
        self.observed(|known| known.see_undecodable(Origin::Watch, metadata, now));
        self.enqueue(metadata);
    }
}
