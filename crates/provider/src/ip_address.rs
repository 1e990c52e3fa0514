//! The IPAddress object of a claim: building a new one, and repairing an existing one.

use capi_ipam_controller::finalizer;
use capi_ipam_protocol::{FoundAddress, Owner};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::adapter::{Allocation, PoolView};
use crate::api::{
    ContractVersion, IPAddress, IPAddressClaim, IPAddressSpec, LocalReference, is_label_value,
    names,
};
use crate::contract::api_version;

/// Builds the IPAddress of a claim, as the reconciler creates it: with finalizer, owner references
/// and labels. For a program that imports allocations: the reconciler binds a claim to an IPAddress
/// that it finds, after [`ClaimHandler::ensure_address`](crate::advanced::ClaimHandler) has
/// confirmed its address.
pub fn new_ip_address(
    version: ContractVersion,
    claim: &IPAddressClaim,
    pool: &PoolView,
    allocation: &Allocation,
) -> IPAddress {
    let contract_labels = [
        (
            names::CLUSTER_NAME_LABEL,
            claim.cluster_name().filter(|name| is_label_value(name)),
        ),
        (
            names::WATCH_FILTER_LABEL,
            claim
                .labels()
                .get(names::WATCH_FILTER_LABEL)
                .map(String::as_str),
        ),
    ];
    let mut labels = allocation.labels.clone();
    labels.extend(
        contract_labels
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))),
    );
    let annotations = (!allocation.annotations.is_empty()).then(|| allocation.annotations.clone());
    let of_claim = OwnerReference {
        api_version: api_version(version),
        kind: "IPAddressClaim".to_owned(),
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let of_pool = OwnerReference {
        api_version: pool.api_version.clone(),
        kind: claim.spec.pool_ref.kind.clone(),
        name: claim.spec.pool_ref.name.clone(),
        uid: pool.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(true),
    };
    IPAddress {
        api_version: Some(api_version(version)),
        kind: Some("IPAddress".to_owned()),
        metadata: ObjectMeta {
            name: claim.metadata.name.clone(),
            namespace: claim.metadata.namespace.clone(),
            finalizers: Some(vec![names::PROTECT_ADDRESS.to_owned()]),
            labels: Some(labels),
            annotations,
            owner_references: Some(vec![of_claim, of_pool]),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            claim_ref: LocalReference {
                name: claim.name_any(),
            },
            pool_ref: claim.spec.pool_ref.clone(),
            address: allocation.address.to_string(),
            prefix: allocation.prefix.into(),
            gateway: allocation.gateway.map(|gateway| gateway.to_string()),
        },
    }
}

/// Returns whether an IPAddress is for a claim with this name and for the pool that the claim
/// refers to.
pub(super) fn is_for(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    address.spec.pool_ref == claim.spec.pool_ref
        && Some(&address.spec.claim_ref.name) == claim.metadata.name.as_ref()
}

/// What the protocol depends on, of an IPAddress with the name of a claim.
pub(super) fn found_address(address: &IPAddress, claim: &IPAddressClaim) -> FoundAddress {
    let owner = match address.claim_uid() {
        Some(owner) if Some(owner) == claim.metadata.uid.as_deref() => Owner::ThisClaim,
        Some(_) => Owner::OtherClaim,
        None => Owner::NoClaim,
    };
    FoundAddress {
        is_deleting: address.metadata.deletion_timestamp.is_some(),
        is_for_claim: is_for(address, claim),
        owner,
    }
}

/// Returns the IPAddress with our finalizer, the owner references of claim and pool, and the labels
/// and annotations of claim and allocation. Other owners, finalizers, labels and annotations are
/// kept. Owner references to the right objects in an older API version are not changed here:
/// `owner_versions` rewrites them in the background.
pub(super) fn repaired(
    version: ContractVersion,
    address: &IPAddress,
    claim: &IPAddressClaim,
    pool: &PoolView,
    allocation: &Allocation,
) -> IPAddress {
    let desired = new_ip_address(version, claim, pool, allocation).metadata;
    let mut repaired = address.clone();
    if !finalizer::is_set(address, names::PROTECT_ADDRESS) {
        let ours = names::PROTECT_ADDRESS.to_owned();
        repaired.finalizers_mut().push(ours);
    }
    if let Some(labels) = desired.labels.filter(|labels| !labels.is_empty()) {
        repaired.labels_mut().extend(labels);
    }
    if let Some(annotations) = desired.annotations {
        repaired.annotations_mut().extend(annotations);
    }
    let owners = repaired.owner_references_mut();
    for owner in desired.owner_references.unwrap_or_default() {
        let names_same =
            |present: &OwnerReference| present.kind == owner.kind && present.name == owner.name;
        match owners.iter_mut().find(|present| names_same(present)) {
            Some(present)
                if present.uid == owner.uid
                    && present.controller.unwrap_or_default()
                        == owner.controller.unwrap_or_default() => {}
            Some(present) => *present = owner,
            None => owners.push(owner),
        }
    }
    repaired
}

/// The parts of the metadata of an IPAddress that a [repair](repaired) has changed, for messages.
pub(super) fn repaired_parts(before: &IPAddress, after: &IPAddress) -> String {
    let (before, after) = (&before.metadata, &after.metadata);
    let parts = [
        ("finalizer", before.finalizers != after.finalizers),
        (
            "owner references",
            before.owner_references != after.owner_references,
        ),
        ("labels", before.labels != after.labels),
        ("annotations", before.annotations != after.annotations),
    ];
    let changed = parts.into_iter().filter(|(_, is_changed)| *is_changed);
    let names: Vec<&str> = changed.map(|(name, _)| name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
