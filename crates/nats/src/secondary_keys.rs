//! Secondaries in another bucket: keys that a reconcile writes and deletes for a key.

use std::collections::HashMap;
use std::sync::Arc;

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{EventHandler, Invalid};
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::decision::is_deleted_by;
use crate::error::KvError;
use crate::garbage::list;
use crate::object::{KvObject, Operation, Owner, Record, Value};
use crate::secondary::{Secondary, SecondaryError, SecondaryStore, check_owner};
use crate::source::KvSource;

/// The secondaries of the keys of a bucket that are keys of another bucket.
///
/// A secondary records the key to which it belongs, and its revision, in the header
/// `Capi-Ipam-Owner` of its message. Another program that writes the key removes the header: then
/// it belongs to that program, and is not changed any more.
///
/// It is the handler of their [watch](Self::watch): it enqueues the key of a secondary that is
/// created, changed or deleted. Secondaries are read from the leader of their bucket. If that is
/// lost, they are written again when the watch of their keys lists again
/// ([`BucketOptions::resync_interval`](crate::BucketOptions)).
pub struct SecondaryKeys<T, U> {
    primaries: String,
    bucket: Bucket<U>,
    trigger: Trigger<KvObject<T>>,
    /// The keys to which secondaries belong, since the marker of a deletion does not record it.
    owners: Mutex<HashMap<String, String>>,
}

impl<T: Value, U: Value> SecondaryKeys<T, U> {
    /// Secondaries in `bucket` of the keys of `primaries`, which `trigger` enqueues. Sends no
    /// request.
    pub fn new(
        primaries: &Bucket<T>,
        bucket: &Bucket<U>,
        trigger: Trigger<KvObject<T>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            primaries: primaries.name().to_owned(),
            bucket: bucket.clone(),
            trigger,
            owners: Mutex::default(),
        })
    }

    /// The watch of their bucket, for
    /// [`ControllerBuilder::watch`](capi_ipam_controller::controller::ControllerBuilder::watch).
    ///
    /// # Errors
    /// As [`Bucket::source`].
    pub fn watch(self: &Arc<Self>, synced: ReadinessGate) -> Result<KvSource<U>, KvError> {
        self.bucket.source("", self.clone(), synced)
    }

    /// Writes the secondary `key` of a key, unless it has this value. Its field `status` stays as it
    /// is: the reconciler of that bucket can write it. Call it with the object that is reconciled.
    ///
    /// Sends a read, and then a write as [`Bucket::update`] does.
    ///
    /// # Errors
    /// [`SecondaryError::Taken`] if the secondary exists and does not belong to the key.
    /// [`SecondaryError::Bucket`] if it cannot be read or written, also because it was changed in
    /// the meantime.
    pub async fn apply(
        &self,
        key: &str,
        primary: &KvObject<T>,
        value: &U,
    ) -> Result<(), SecondaryError> {
        let found = self.bucket.read(key).await?;
        let missing = || KvObject::new(key.to_owned(), 0, Operation::Delete);
        let mut held = found.unwrap_or_else(missing);
        let owner = Some(Owner::new(&self.primaries, primary));
        if !held.is_deleted() {
            check_owner(held.owner.as_ref(), key, &self.primaries, primary)?;
        }
        let value = held.with_own_status(value)?;
        if held.owner == owner && held.has_value(&value)? {
            return Ok(());
        }
        held.owner = owner;
        self.bucket.update(&held, &value).await?;
        Ok(())
    }

    /// Deletes the secondary `key` in the reconcile of the deletion of its key, of which `marker`
    /// is the marker. A secondary that does not exist is no error. One of another key stays, and so
    /// does one that was last written for a later write of the key than the deletion.
    ///
    /// Sends a read, and then a write as [`Bucket::delete`] does.
    ///
    /// # Errors
    /// When it cannot be read or deleted, or when it has changed in the meantime.
    pub async fn delete(&self, key: &str, marker: &KvObject<T>) -> Result<(), SecondaryError> {
        let Some(found) = self.bucket.read(key).await? else {
            return Ok(());
        };
        let owner = self.own(found.owner.as_ref());
        if owner.is_some_and(|owner| is_deleted_by(owner, marker)) {
            self.bucket.delete(&found).await?;
        }
        Ok(())
    }

    fn own<'a>(&self, owner: Option<&'a Owner>) -> Option<&'a Owner> {
        owner.filter(|owner| owner.bucket == self.primaries)
    }

    /// Records the owner of a secondary, and enqueues it; without one, enqueues the last one.
    fn see(&self, secondary: &str, owner: Option<&Owner>) {
        let mut owners = self.owners.lock();
        let key = match self.own(owner) {
            Some(owner) => {
                owners.insert(secondary.to_owned(), owner.key.clone());
                Some(owner.key.clone())
            }
            None => owners.remove(secondary),
        };
        if let Some(key) = key {
            self.trigger.enqueue(NamespacedName::new("", &key));
        }
    }
}

impl<T: Value, U: Value> SecondaryStore for SecondaryKeys<T, U> {
    async fn list(&self) -> Result<Vec<Secondary>, SecondaryError> {
        let listing = list(&self.bucket, |record: &Record| {
            let owner = record.owner();
            Some(Secondary {
                name: record.key.clone(),
                uid: record.key.clone(),
                version: record.revision.to_string(),
                owner: owner.filter(|owner| owner.bucket == self.primaries)?,
            })
        });
        let all = listing.await?.keys.into_values();
        Ok(all.flatten().collect())
    }

    async fn remove(&self, secondary: &Secondary) -> Result<(), SecondaryError> {
        let revision = secondary.version.parse().unwrap_or_default();
        let held = KvObject::new(secondary.name.clone(), revision, Operation::Put);
        self.bucket.delete(&held).await?;
        Ok(())
    }
}

impl<T: Value, U: Value> EventHandler<KvObject<U>> for SecondaryKeys<T, U> {
    fn apply(&self, secondary: &KvObject<U>) {
        self.see(&secondary.key, secondary.owner.as_ref());
    }

    fn delete(&self, secondary: &KvObject<U>) {
        self.see(&secondary.key, None);
    }

    fn apply_invalid(&self, secondary: &Invalid) {
        self.see(secondary.metadata.name.as_deref().unwrap_or_default(), None);
    }

    fn delete_invalid(&self, secondary: &Invalid) {
        self.apply_invalid(secondary);
    }
}
