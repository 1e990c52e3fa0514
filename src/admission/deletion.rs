//! What admission checks of deletions of pools, networks and registries alike.

use capi_ipam_api::names;
use capi_ipam_ledger::Ledger;
use capi_ipam_webhook::denial;
use kube::api::ObjectMeta;
use kube::core::Status;
use serde::Deserialize as _;
use serde_json::Value;

use super::view::View;

/// The metadata of an object that is deleted: its specification may be of another version and
/// cannot prevent that.
pub(super) fn metadata(object: Option<&Value>) -> ObjectMeta {
    let metadata = object.and_then(|object| object.get("metadata"));
    metadata
        .and_then(|metadata| ObjectMeta::deserialize(metadata).ok())
        .unwrap_or_default()
}

/// Whether an object can be deleted although it is in use: it has an annotation that allows this,
/// or it is being deleted already. Its finalizer keeps it until it is no longer in use.
pub(super) fn is_unchecked(metadata: &ObjectMeta) -> bool {
    names::allow_deletion_in_use(metadata) || metadata.deletion_timestamp.is_some()
}

/// Reads what is in use. Denies the request as long as this is still being listed.
pub(super) fn in_use<R>(
    view: &dyn View,
    read: impl FnOnce(&Ledger) -> R,
) -> Result<R, Box<Status>> {
    view.read(read).ok_or_else(|| {
        denial::unavailable("the addresses in use are still being listed; retry in a few seconds")
    })
}
