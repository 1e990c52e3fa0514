//! What the program shows of the metadata of an object.

use capi_ipam_api::names;
use jiff::Timestamp;
use kube::api::ObjectMeta;

/// The deletion of an object that still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) since: Timestamp,
    /// The uid of the object, for commands that have to name it.
    pub(crate) uid: String,
    /// The finalizers of other controllers.
    pub(crate) blockers: Vec<String>,
}

/// The deletion of a claim or of an IPAddress.
pub(super) fn deletion(metadata: &ObjectMeta) -> Option<Box<Deletion>> {
    let since = metadata.deletion_timestamp.as_ref()?.0;
    let is_foreign = |finalizer: &&String| {
        names::is_foreign_finalizer(finalizer) && *finalizer != names::PROTECT_ADDRESS
    };
    let finalizers = metadata.finalizers.iter().flatten();
    let blockers = finalizers.filter(is_foreign).cloned().collect();
    let uid = metadata.uid.clone().unwrap_or_default();
    Some(Box::new(Deletion {
        since,
        uid,
        blockers,
    }))
}

/// The place of the finalizer of a claim that the provider adds.
pub(super) fn own_finalizer(metadata: &ObjectMeta) -> Option<usize> {
    let mut finalizers = metadata.finalizers.iter().flatten();
    finalizers.position(|finalizer| finalizer == names::RELEASE_ADDRESS)
}

/// The owner that is not the Cluster: the machine of the infrastructure provider, or what created
/// the claim for it.
pub(super) fn machine(metadata: &ObjectMeta) -> Option<Box<str>> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let mut others = owners.iter().filter(|owner| owner.kind != "Cluster");
    let controller = others.clone().find(|owner| owner.controller == Some(true));
    let owner = controller.or_else(|| others.next())?;
    Some(format!("{}/{}", owner.kind, owner.name).into())
}

pub(super) fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    metadata.creation_timestamp.as_ref().map(|time| time.0)
}

pub(super) fn label(metadata: &ObjectMeta, name: &str) -> Option<Box<str>> {
    metadata
        .labels
        .as_ref()?
        .get(name)
        .filter(|value| !value.is_empty())
        .map(|value| value.as_str().into())
}
