//! Secondaries: Kubernetes objects that a reconcile writes and deletes for a key.

use capi_ipam_controller::client::{ApiObject, CallError, ResourceClient};
use capi_ipam_controller::patch;

use crate::bucket::Bucket;
use crate::decision::is_deleted_by;
use crate::error::KvError;
use crate::object::{KvObject, Value};
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
        /// The name of the object.
        name: String,
        /// The key.
        key: String,
        /// The name of the bucket.
        bucket: String,
    },
}

impl<T: Value> Bucket<T> {
    /// Creates the secondary `name` of a key, or changes it to what `change` makes of it. Nothing
    /// is written if it has no difference. Call it with the object that is reconciled.
    ///
    /// # Errors
    /// [`SecondaryError::Taken`] if an object of this name does not belong to the key.
    /// [`SecondaryError::Kubernetes`] if the API server refuses the write, also because the object
    /// was changed in the meantime.
    pub async fn apply_secondary<K>(
        &self,
        secondaries: &ResourceClient<K>,
        name: &str,
        primary: &KvObject<T>,
        change: impl FnOnce(&mut K),
    ) -> Result<(), SecondaryError>
    where
        K: ApiObject + Default,
    {
        let found = secondaries.get(name).await?;
        let mut wanted = found.clone().unwrap_or_default();
        wanted.meta_mut().name = Some(name.to_owned());
        change(&mut wanted);
        owner::set(&mut wanted, self.name(), primary);
        let Some(found) = found else {
            secondaries.create(&wanted).await?;
            return Ok(());
        };
        if owner::key_of(&found, self.name()).as_ref() != Some(&primary.key) {
            return Err(SecondaryError::Taken {
                name: name.to_owned(),
                key: primary.key.clone(),
                bucket: self.name().to_owned(),
            });
        }
        patch::write(secondaries, &found, &wanted).await?;
        Ok(())
    }

    /// Deletes the secondary `name` in the reconcile of the deletion of its key, of which `marker`
    /// is the marker. A secondary that does not exist is no error. One of another key stays, and so
    /// does one that was last written for a later write of the key than the deletion: the bucket
    /// was restored from a backup.
    ///
    /// # Errors
    /// When the API server does not delete it, or when it has changed in the meantime.
    pub async fn delete_secondary<K>(
        &self,
        secondaries: &ResourceClient<K>,
        name: &str,
        marker: &KvObject<T>,
    ) -> Result<(), SecondaryError>
    where
        K: ApiObject,
    {
        let Some(found) = secondaries.get(name).await? else {
            return Ok(());
        };
        if !is_deleted_by(found.meta(), self.name(), marker) {
            return Ok(());
        }
        if let (Some(uid), Some(version)) = (&found.meta().uid, &found.meta().resource_version) {
            secondaries.delete_unchanged(name, uid, version).await?;
        }
        Ok(())
    }
}
