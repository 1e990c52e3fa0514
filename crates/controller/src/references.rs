//! References: an object keeps others that it uses from deletion, by a finalizer on each of them. A
//! reference is the name of that finalizer.
//!
//! A user adds a reference before it uses an object, and needs a finalizer itself
//! ([`Finalized`](crate::controller::Finalized)), so that it can remove its references before it is
//! gone. Every function can be repeated, and every write has the uid and the resourceVersion of the
//! object as preconditions. The client is that of one namespace, or of a kind without namespaces.

use capi_ipam_objects::references::plan;
use kube::ResourceExt;

use crate::client::{ApiObject, CallError, ResourceClient};
use crate::finalizer;

/// How often one object is written, if others change it at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Why references were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The object does not exist.
    #[error("{kind} {name} does not exist")]
    Absent {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
    },
    /// The object is being deleted, and gets no new reference.
    #[error("{kind} {name} is being deleted")]
    Deleting {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
    },
    /// A request failed.
    #[error(transparent)]
    Request(#[from] CallError),
}

/// Adds a reference to each of these objects.
///
/// # Errors
/// If one of them does not exist, which is found before anything is written, or if it is being
/// deleted; if a request fails.
pub async fn add<K: ApiObject>(
    objects: &ResourceClient<K>,
    names: &[&str],
    reference: &str,
) -> Result<(), ReferenceError> {
    let mut existing = Vec::new();
    for name in names {
        existing.extend(objects.get(name).await?);
    }
    write(objects, &existing, names, reference).await
}

/// Adds a reference to each of these objects, and removes it from all others. Lists the objects. A
/// user that refers to objects of a kind in several fields needs one call with all names: a second
/// call removes the references of the first one.
///
/// # Errors
/// As for [`add`].
pub async fn set<K: ApiObject>(
    objects: &ResourceClient<K>,
    names: &[&str],
    reference: &str,
) -> Result<(), ReferenceError> {
    let existing = objects.list().await?;
    write(objects, &existing, names, reference).await
}

/// Removes a reference from an object. Succeeds if the object does not exist.
///
/// # Errors
/// If a request fails.
pub async fn remove<K: ApiObject>(
    objects: &ResourceClient<K>,
    name: &str,
    reference: &str,
) -> Result<(), ReferenceError> {
    let existing = Vec::from_iter(objects.get(name).await?);
    write(objects, &existing, &[], reference).await
}

/// Removes a reference from all objects. Lists the objects.
///
/// # Errors
/// If a request fails.
pub async fn clear<K: ApiObject>(
    objects: &ResourceClient<K>,
    reference: &str,
) -> Result<(), ReferenceError> {
    set(objects, &[], reference).await
}

async fn write<K: ApiObject>(
    objects: &ResourceClient<K>,
    existing: &[K],
    names: &[&str],
    reference: &str,
) -> Result<(), ReferenceError> {
    let plan = plan(existing, names, reference).map_err(|name| absent(objects, name))?;
    for (object, is_wanted) in plan {
        change(objects, object, reference, is_wanted).await?;
    }
    Ok(())
}

/// Adds the reference to an object, or removes it. Reads it again after a conflict.
async fn change<K: ApiObject>(
    objects: &ResourceClient<K>,
    found: &K,
    reference: &str,
    is_wanted: bool,
) -> Result<(), ReferenceError> {
    let name = found.name_any();
    let mut object = found.clone();
    let mut attempts = 0;
    loop {
        if finalizer::is_set(&object, reference) == is_wanted {
            return Ok(());
        }
        if is_wanted && object.meta().deletion_timestamp.is_some() {
            let kind = objects.kind().to_owned();
            return Err(ReferenceError::Deleting { kind, name });
        }
        let written = if is_wanted {
            finalizer::add(objects, &object, reference).await
        } else {
            finalizer::remove(objects, &object, reference).await
        };
        attempts += 1;
        match written {
            Ok(_) => return Ok(()),
            Err(error) if error.has_changed() && attempts < MAX_ATTEMPTS => {}
            Err(error) => return Err(error.into()),
        }
        object = match objects.get(&name).await? {
            Some(object) => object,
            None if is_wanted => return Err(absent(objects, name)),
            None => return Ok(()),
        };
    }
}

fn absent<K: ApiObject>(objects: &ResourceClient<K>, name: String) -> ReferenceError {
    let kind = objects.kind().to_owned();
    ReferenceError::Absent { kind, name }
}
