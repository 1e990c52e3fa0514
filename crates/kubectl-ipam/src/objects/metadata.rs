//! What the program shows of the metadata of an object.

use jiff::Timestamp;
use kube::api::ObjectMeta;

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
