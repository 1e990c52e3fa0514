//! Secondaries: Kubernetes objects that a reconcile writes and deletes for a key.

use std::collections::HashMap;
use std::sync::Arc;

use capi_ipam_controller::client::{ApiObject, CallError, Creation, ResourceClient};
use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{ListNumber, Lists};
use capi_ipam_controller::patch;
use capi_ipam_controller::watch::{EventHandler, Invalid, WatchApi, WatchSpec};
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
/// created, changed or deleted, and keeps all secondaries in memory. So a secondary that is as
/// wanted costs no request. Every write names the uid and the resourceVersion of the state that it
/// replaces: if the watch is late, the write fails with a conflict, and the next attempt reads the
/// secondary from the API server. So does every attempt before the first list is complete, and one
/// after a write that the watch has not shown yet.
pub struct Secondaries<T, K: Resource> {
    bucket: String,
    namespace: String,
    version: K::DynamicType,
    client: ResourceClient<K>,
    trigger: Trigger<KvObject<T>>,
    cache: Mutex<Cache<K>>,
}

/// What the watch has shown.
struct Cache<K> {
    /// Whether a list is complete, and etcd was not restored since.
    is_listed: bool,
    lists: Lists,
    /// By name.
    objects: HashMap<String, Shown<K>>,
}

/// What the watch has shown of one object.
struct Shown<K> {
    /// The newest list at that time.
    list: ListNumber,
    object: Option<Arc<K>>,
    /// Whether the object has to be read: it cannot be decoded, or the watch does not show the last
    /// write yet, which has replaced this state.
    is_outdated: bool,
}

impl<K> Shown<K> {
    fn current(&self) -> Option<&Arc<K>> {
        self.object.as_ref().filter(|_| !self.is_outdated)
    }
}

impl<T: Value, K: ApiObject> Secondaries<T, K> {
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
            lists: Lists::default(),
            objects: HashMap::new(),
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
        WatchSpec::new(api, self.version.clone(), self.clone(), synced)
            .labels(&owner::selector(&self.bucket))
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
                // The watch shows it later, unless it belongs to somebody else.
                let is_awaited = match &created {
                    Ok(Creation::Created(_)) => true,
                    Ok(Creation::Found(found)) => owner::of(found.meta(), &self.bucket).is_some(),
                    Err(error) => error.outcome_is_unknown(),
                };
                if is_awaited {
                    self.cache.lock().outdate(name, None);
                }
                match created? {
                    Creation::Created(_) => return Ok(()),
                    // Of somebody else, or of this process, and the watch does not show it yet.
                    Creation::Found(found) => Arc::new(self.client.decoded(found)?),
                }
            }
        };
        let owner = owner::of(found.meta(), &self.bucket);
        check_owner(owner.as_ref(), name, &self.bucket, primary)?;
        let mut wanted = found.as_ref().clone();
        fill(&mut wanted);
        let written = patch::write(&self.client, &found, &wanted).await;
        let version = |object: &K| object.meta().resource_version.clone();
        let is_changed = match &written {
            Ok(written) => written
                .as_ref()
                .is_some_and(|new| version(new) != version(&found)),
            // The cache shows an earlier state if the write is refused because of its version.
            Err(error) => error.has_changed() || error.outcome_is_unknown(),
        };
        if is_changed {
            self.cache.lock().outdate(name, Some(&found));
        }
        written?;
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
        let of = |found: &Arc<K>| Secondary::of(found.meta(), &self.bucket);
        let secondary = found.as_ref().and_then(of);
        let Some(secondary) = secondary.filter(|found| is_deleted_by(&found.owner, marker)) else {
            return Ok(());
        };
        let removed = self.remove(&secondary).await;
        self.cache.lock().outdate(name, found.as_ref());
        removed
    }

    /// The secondary of this name: from the cache, or from the API server if the cache does not
    /// know it.
    async fn find(&self, name: &str) -> Result<Option<Arc<K>>, CallError> {
        {
            let cache = self.cache.lock();
            let known = cache.objects.get(name);
            let current = known.and_then(Shown::current);
            if cache.is_listed && (known.is_none() || current.is_some()) {
                return Ok(current.cloned());
            }
        }
        let found = self.client.get(name).await?.map(Arc::new);
        let has_owner = |found: &Arc<K>| owner::of(found.meta(), &self.bucket).is_some();
        if !found.as_ref().is_some_and(has_owner) {
            // No event of the watch shows that.
            self.cache.lock().forget_outdated(name);
        }
        Ok(found)
    }

    /// Records what the watch shows of an object, and enqueues its key.
    fn see(&self, metadata: &ObjectMeta, exists: bool, object: Option<&K>) {
        let is_known = metadata.namespace.as_deref().unwrap_or_default() == self.namespace;
        if let Some(name) = metadata.name.as_ref().filter(|_| is_known) {
            let mut cache = self.cache.lock();
            if exists {
                let shown = Shown {
                    list: cache.lists.current(),
                    object: object.map(|object| Arc::new(object.clone())),
                    is_outdated: object.is_none(),
                };
                cache.objects.insert(name.clone(), shown);
            } else {
                cache.remove(name, metadata.uid.as_deref());
            }
        }
        self.enqueue(metadata);
    }

    fn enqueue(&self, metadata: &ObjectMeta) {
        if let Some(owner) = owner::of(metadata, &self.bucket) {
            self.trigger.enqueue(NamespacedName::new("", &owner.key));
        }
    }
}

impl<K: Resource> Cache<K> {
    /// An object of this uid is deleted. Another one can have its name already.
    fn remove(&mut self, name: &str, uid: Option<&str>) {
        let known = self
            .objects
            .get(name)
            .and_then(|shown| shown.object.as_ref());
        if known.is_some_and(|known| known.meta().uid.as_deref() == uid) {
            self.objects.remove(name);
        }
    }

    /// A read shows that there is no secondary of this name.
    fn forget_outdated(&mut self, name: &str) {
        let known = self.objects.get(name);
        if known.is_some_and(|shown| shown.is_outdated) {
            self.objects.remove(name);
        }
    }

    /// A write was sent that replaces the state `before`: the object has to be read until the watch
    /// shows it, unless it has done so already.
    fn outdate(&mut self, name: &str, before: Option<&Arc<K>>) {
        let shown = self.objects.get(name).and_then(Shown::current);
        if shown.map(Arc::as_ptr) == before.map(Arc::as_ptr) {
            let outdated = Shown {
                list: self.lists.current(),
                object: before.cloned(),
                is_outdated: true,
            };
            self.objects.insert(name.to_owned(), outdated);
        }
    }
}

impl<T: Value, K: ApiObject> SecondaryStore for Secondaries<T, K> {
    async fn list(&self) -> Result<Vec<Secondary>, SecondaryError> {
        let of = |metadata: &ObjectMeta| Secondary::of(metadata, &self.bucket);
        {
            let cache = self.cache.lock();
            let shown = cache.objects.values().map(Shown::current);
            let objects: Option<Vec<_>> = shown.collect();
            if let Some(objects) = objects.filter(|_| cache.is_listed) {
                let secondaries = objects.into_iter().filter_map(|object| of(object.meta()));
                return Ok(secondaries.collect());
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
        self.client.delete_unchanged(name, uid, version).await?;
        Ok(())
    }
}

impl<T: Value, K: ApiObject> EventHandler<K> for Secondaries<T, K> {
    fn init(&self) {
        self.cache.lock().lists.begin();
    }

    fn init_done(&self) {
        let mut cache = self.cache.lock();
        let unlisted = cache.lists.end();
        let removed = cache
            .objects
            .extract_if(|_, shown| unlisted.contains(shown.list));
        for (_, shown) in removed {
            if let Some(object) = shown.current() {
                self.enqueue(object.meta());
            }
        }
        cache.is_listed = true;
    }

    fn restored(&self) {
        self.cache.lock().is_listed = false;
    }

    fn apply(&self, secondary: &K) {
        self.see(secondary.meta(), true, Some(secondary));
    }

    fn delete(&self, secondary: &K) {
        self.see(secondary.meta(), false, None);
    }

    fn apply_invalid(&self, secondary: &Invalid) {
        self.see(&secondary.metadata, true, None);
    }

    fn delete_invalid(&self, secondary: &Invalid) {
        self.see(&secondary.metadata, false, None);
    }
}
