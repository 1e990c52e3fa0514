//! Changes and deletes objects.

use capi_ipam_provider::api::names;
use capi_ipam_provider::controller::client::{ApiObject, ResourceClient, error_chain};
use capi_ipam_provider::controller::patch;
use futures::StreamExt;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Consumer, answered, retry_unanswered};
use crate::wait::eventually;

impl Consumer {
    /// Deletes a claim and does not wait.
    pub async fn delete(&self, name: &str) {
        self.delete_object(&self.claims(), name).await;
    }

    /// Deletes any object and does not wait.
    pub async fn delete_object<K>(&self, client: &ResourceClient<K>, name: &str)
    where
        K: ApiObject,
    {
        let uid = read(client, name).await.uid().unwrap_or_default();
        retry_unanswered(|| client.delete(name, &uid))
            .await
            .expect("the object can be deleted");
    }

    /// Deletes a pool as soon as admission allows it, and waits until it does not exist. Admission
    /// denies the deletion until the manager has observed the deletion of the last address.
    pub async fn delete_unused_pool<K>(&self, pools: &ResourceClient<K>, name: &str)
    where
        K: ApiObject,
    {
        eventually(&format!("the pool {name} is deleted"), || async {
            let Some(pool) = answered(pools.get(name).await)? else {
                return Some(());
            };
            let _ = pools.delete(name, &pool.uid().unwrap_or_default()).await;
            None
        })
        .await;
    }

    /// Waits until no object of that name exists.
    pub async fn wait_until_gone<K>(&self, client: &ResourceClient<K>, name: &str)
    where
        K: ApiObject,
    {
        eventually(&format!("{name} is gone"), || async {
            answered(client.get(name).await)?.is_none().then_some(())
        })
        .await;
    }

    /// Sets the finalizers of an object.
    pub async fn set_finalizers<K>(
        &self,
        client: &ResourceClient<K>,
        name: &str,
        finalizers: &[&str],
    ) where
        K: ApiObject,
    {
        self.modify(client, name, |object| {
            object["metadata"]["finalizers"] = json!(finalizers)
        })
        .await;
    }

    /// Deletes an object and removes its finalizers.
    pub async fn force_delete<K>(&self, client: &ResourceClient<K>, name: &str)
    where
        K: ApiObject,
    {
        self.delete_object(client, name).await;
        self.set_finalizers(client, name, &[]).await;
    }

    /// Sets or removes the annotation that pauses an object.
    pub async fn set_paused<K>(&self, client: &ResourceClient<K>, name: &str, paused: bool)
    where
        K: ApiObject,
    {
        self.modify(client, name, |object| {
            let annotations = &mut object["metadata"]["annotations"];
            if paused {
                annotations[names::PAUSED_ANNOTATION] = json!("");
            } else if let Some(all) = annotations.as_object_mut() {
                all.remove(names::PAUSED_ANNOTATION);
            }
        })
        .await;
    }

    /// Deletes a claim and waits until claim and IPAddress do not exist.
    pub async fn release(&self, name: &str) {
        self.delete(name).await;
        self.wait_until_deleted(name).await;
    }

    /// Deletes claims, 16 at a time, and does not wait.
    pub async fn delete_all(&self, names: &[String]) {
        futures::stream::iter(names)
            .for_each_concurrent(16, |name| self.delete(name))
            .await;
    }

    /// Deletes claims, and waits until they and their IPAddresses do not exist.
    pub async fn release_all(&self, names: &[String]) {
        self.delete_all(names).await;
        for name in names {
            self.wait_until_deleted(name).await;
        }
    }

    /// Changes an object by merge patch through a closure over its JSON.
    pub async fn modify<K>(
        &self,
        client: &ResourceClient<K>,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> K
    where
        K: ApiObject,
    {
        let mut failure = String::new();
        for _ in 0..20 {
            let before = read(client, name).await;
            let mut after = serde_json::to_value(&before).expect("objects are JSON");
            change(&mut after);
            let after: K = serde_json::from_value(after).expect("the changed object is valid");
            match patch::write(client, &before, &after).await {
                Ok(written) => return written.unwrap_or(before),
                // After an unknown outcome the next attempt finds nothing to change if this one was
                // applied.
                Err(error) if error.is_conflict() || error.outcome_is_unknown() => {
                    failure = error_chain(&error)
                }
                // A part of the patch does not fit to an object that has changed since it was read.
                Err(error) if error.is_invalid() && has_changed(client, &before).await => {
                    failure = error_chain(&error)
                }
                Err(error) => panic!("{name} cannot be changed: {}", error_chain(&error)),
            }
        }
        panic!("{name} cannot be changed in 20 attempts: {failure}");
    }
}

/// Reads an object that exists.
///
/// # Panics
/// When it does not exist, or cannot be read.
pub async fn read<K: ApiObject>(client: &ResourceClient<K>, name: &str) -> K {
    let found = retry_unanswered(|| client.get(name))
        .await
        .expect("objects can be read");
    found.expect("the object exists")
}

/// Whether an object has changed since it was read.
async fn has_changed<K: ApiObject>(client: &ResourceClient<K>, before: &K) -> bool {
    let name = before.name_any();
    let found = retry_unanswered(|| client.get(&name))
        .await
        .expect("objects can be read");
    found.is_none_or(|found| found.resource_version() != before.resource_version())
}
