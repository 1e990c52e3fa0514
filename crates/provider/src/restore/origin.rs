//! Where a claim with our finalizer was originally created, as far as the object shows.
//!
//! A provider adds its finalizer only to an existing claim. The managed fields show who set it:
//! - If the managed fields were restored too, the finalizer was set well before the claim was
//!   created. `clusterctl move` and Velero restore them with a second write.
//! - If they were not, the creator of the claim set the finalizer. Most controllers have the field
//!   manager `manager`, which makes an infrastructure provider and the Go provider
//!   indistinguishable; this name is therefore not considered.
//!
//! A status is written only after the creation. So an entry of the status subresource that is older
//! than the claim shows a restore, whatever wrote the finalizer, and so does a status that is older
//! itself, or that is part of what `kubectl apply` records of a backup.
//!
//! A finalizer that an admission policy added when the claim was created is in no managed fields.
//! Such a claim was moved only if there is other evidence.

use capi_ipam_controller::absence::{
    MAX_CLOCK_SKEW, RESTORE_TOOLS, TYPICAL_CLOCK_SKEW, applied_backup, is_older,
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::ObjectMeta;
use serde_json::Value;

use crate::api::{IPAddressClaimStatus, names};

/// The field manager of most controllers.
const GENERIC_MANAGER: &str = "manager";

/// Where a claim with our finalizer was originally created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// In this cluster, and the finalizer was added later.
    Here,
    /// Unknown: the claim was created with the finalizer.
    Unknown,
    /// In another cluster, or in this one before a restore.
    Elsewhere,
}

/// Determines where a claim with our finalizer was originally created.
pub(super) fn origin(claim: &ObjectMeta, status: Option<&IPAddressClaimStatus>) -> Origin {
    let creator = creator(claim);
    // The clocks of two API servers differ: a local status can seem a little older than its claim.
    let is_local = creator != Origin::Unknown;
    let skew = if is_local {
        MAX_CLOCK_SKEW
    } else {
        TYPICAL_CLOCK_SKEW
    };
    let entries = claim.managed_fields.as_deref().unwrap_or_default();
    let mut status_entries = entries
        .iter()
        .filter(|entry| entry.subresource.as_deref() == Some("status"));
    let was_written_before = status_entries.any(|entry| is_older(claim, entry.time.as_ref(), skew));
    // This provider binds no claim without conditions.
    let was_bound_before =
        status.is_some_and(|status| is_status_older(claim, status, skew, !is_local));
    if was_written_before || was_bound_before || is_applied_backup(claim) {
        Origin::Elsewhere
    } else {
        creator
    }
}

/// What the writers of finalizer and specification show.
fn creator(claim: &ObjectMeta) -> Origin {
    let entries = claim.managed_fields.as_deref().unwrap_or_default();
    // The first write of the creator has the creation time of the claim. If the clocks of two API
    // servers differ, a later write may seem older.
    let is_entry_older =
        |entry: &ManagedFieldsEntry, skew| is_older(claim, entry.time.as_ref(), skew);
    let mut creators = entries.iter().filter(|entry| owns_spec(entry)).peekable();
    let spec_is_older = creators.peek().is_some()
        && creators.all(|entry| is_entry_older(entry, TYPICAL_CLOCK_SKEW));
    let Some(finalizer_entry) = entries.iter().find(|entry| owns_finalizer(entry)) else {
        return if spec_is_older {
            Origin::Elsewhere
        } else {
            Origin::Here
        };
    };
    if is_entry_older(finalizer_entry, MAX_CLOCK_SKEW)
        || (is_entry_older(finalizer_entry, TYPICAL_CLOCK_SKEW) && spec_is_older)
    {
        return Origin::Elsewhere;
    }
    match finalizer_entry.manager.as_deref() {
        Some(GENERIC_MANAGER) => Origin::Here,
        _ if !owns_spec(finalizer_entry) => Origin::Here,
        Some(name) if RESTORE_TOOLS.contains(&name) => Origin::Elsewhere,
        _ => Origin::Unknown,
    }
}

fn owns_finalizer(entry: &ManagedFieldsEntry) -> bool {
    let finalizer = format!("v:\"{}\"", names::RELEASE_ADDRESS);
    let fields = entry
        .fields_v1
        .as_ref()
        .and_then(|fields| fields.0.pointer("/f:metadata/f:finalizers"));
    fields.is_some_and(|all| all.get(&finalizer).is_some())
}

fn owns_spec(entry: &ManagedFieldsEntry) -> bool {
    entry
        .fields_v1
        .as_ref()
        .is_some_and(|fields| fields.0.pointer("/f:spec/f:poolRef").is_some())
}

/// Whether the status is that of a bound claim, and all its conditions are older than the claim.
/// `undated` is the result for a status without a time.
fn is_status_older(
    claim: &ObjectMeta,
    status: &IPAddressClaimStatus,
    skew: SignedDuration,
    undated: bool,
) -> bool {
    let is_bound = status
        .address_ref
        .as_ref()
        .is_some_and(|address| !address.name.is_empty());
    let mut times = status
        .conditions
        .iter()
        .filter_map(|condition| condition.last_transition_time.as_ref())
        .peekable();
    let is_dated = times.peek().is_some();
    is_bound && (is_dated || undated) && times.all(|time| is_older(claim, Some(time), skew))
}

/// Whether the claim was created by `kubectl apply` from what `kubectl get` wrote of an earlier
/// claim, which was bound.
fn is_applied_backup(claim: &ObjectMeta) -> bool {
    let Some(applied) = applied_backup(claim) else {
        return false;
    };
    // The copy of a claim under another name has the name of the original in its status.
    let address = applied.pointer("/status/addressRef/name");
    let address = address.and_then(Value::as_str);
    address.is_some() && address == claim.name.as_deref()
}

#[cfg(test)]
mod tests;
