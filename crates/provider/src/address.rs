//! The IPAddress object: building a new one, and repairing an existing one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::adapter::{Allocation, PoolView};
use crate::api::{ContractVersion, IPAddress, IPAddressClaim, IPAddressSpec, LocalReference, names};
use crate::contract::api_version;

/// Builds the complete IPAddress of a claim.
pub(super) fn build(
    version: ContractVersion,
    claim: &IPAddressClaim,
    pool: &PoolView,
    allocation: &Allocation,
) -> IPAddress {
    let labels = [names::CLUSTER_NAME_LABEL, names::WATCH_FILTER_LABEL].into_iter().filter_map(|label| {
        let value = match label {
            names::CLUSTER_NAME_LABEL => claim.cluster_name().filter(|name| is_label_value(name)),
            _ => claim.labels().get(label).map(String::as_str),
        };
        Some((label.to_owned(), value?.to_owned()))
    });
    IPAddress {
        api_version: Some(api_version(version)),
        kind: Some("IPAddress".to_owned()),
        metadata: ObjectMeta {
            name: claim.metadata.name.clone(),
            namespace: claim.metadata.namespace.clone(),
            finalizers: Some(vec![names::PROTECT_ADDRESS.to_owned()]),
            labels: Some(labels.collect()),
            owner_references: Some(vec![claim_owner(version, claim), pool_owner(claim, pool)]),
            ..ObjectMeta::default()
        },
        spec: IPAddressSpec {
            claim_ref: LocalReference { name: claim.name_any() },
            pool_ref: claim.spec.pool_ref.clone(),
            address: allocation.address.to_string(),
            prefix: allocation.prefix.into(),
            gateway: allocation.gateway.map(|gateway| gateway.to_string()),
        },
    }
}

/// Returns whether the API server accepts the text as the value of a label. The name of a Cluster may be longer.
fn is_label_value(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 63
        && ends.into_iter().flatten().all(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn claim_owner(version: ContractVersion, claim: &IPAddressClaim) -> OwnerReference {
    OwnerReference {
        api_version: api_version(version),
        kind: "IPAddressClaim".to_owned(),
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn pool_owner(claim: &IPAddressClaim, pool: &PoolView) -> OwnerReference {
    OwnerReference {
        api_version: pool.api_version.clone(),
        kind: claim.spec.pool_ref.kind.clone(),
        name: claim.spec.pool_ref.name.clone(),
        uid: pool.uid.clone(),
        controller: Some(false),
        block_owner_deletion: Some(true),
    }
}

/// Returns whether an IPAddress is for a claim with this name and for the pool that the claim refers to.
pub(super) fn is_for(address: &IPAddress, claim: &IPAddressClaim) -> bool {
    address.spec.pool_ref == claim.spec.pool_ref && Some(&address.spec.claim_ref.name) == claim.metadata.name.as_ref()
}

/// Returns the IPAddress with our finalizer, the owner references of claim and pool, and the labels of the claim. Other
/// owners, finalizers and labels are kept. Owner references to the right objects in an older API version are not
/// changed.
pub(super) fn repaired(
    version: ContractVersion,
    address: &IPAddress,
    claim: &IPAddressClaim,
    pool: &PoolView,
    allocation: &Allocation,
) -> IPAddress {
    let desired = build(version, claim, pool, allocation).metadata;
    let mut repaired = address.clone();
    let finalizers = repaired.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|present| present == names::PROTECT_ADDRESS) {
        finalizers.push(names::PROTECT_ADDRESS.to_owned());
    }
    let desired_labels = desired.labels.unwrap_or_default();
    if !desired_labels.is_empty() {
        repaired.metadata.labels.get_or_insert_default().extend(desired_labels);
    }
    let owners = repaired.metadata.owner_references.get_or_insert_default();
    for owner in desired.owner_references.unwrap_or_default() {
        let names_same = |present: &OwnerReference| present.kind == owner.kind && present.name == owner.name;
        match owners.iter_mut().find(|present| names_same(present)) {
            Some(present)
                if present.uid == owner.uid
                    && present.controller.unwrap_or_default() == owner.controller.unwrap_or_default() => {}
            Some(present) => *present = owner,
            None => owners.push(owner),
        }
    }
    repaired
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::index::owning_claim;

    fn claim() -> IPAddressClaim {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "c", "uid": "c-uid", "labels": {
                "cluster.x-k8s.io/cluster-name": "alpha", "cluster.x-k8s.io/watch-filter": "w", "other": "x"}},
            "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
        }))
        .unwrap()
    }

    fn pool() -> PoolView {
        PoolView { api_version: "ipam.cluster.x-k8s.io/v1alpha2".into(), uid: "p-uid".into(), ..PoolView::default() }
    }

    fn allocation() -> Allocation {
        Allocation { address: [10, 0, 0, 5].into(), prefix: 24, gateway: None }
    }

    #[test]
    fn new_address_satisfies_the_contract() {
        let address = build(ContractVersion::V1Beta2, &claim(), &pool(), &allocation());
        assert_eq!(
            serde_json::to_value(address).unwrap(),
            json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
                "metadata": {
                    "namespace": "n", "name": "c",
                    "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"],
                    "labels": {"cluster.x-k8s.io/cluster-name": "alpha", "cluster.x-k8s.io/watch-filter": "w"},
                    "ownerReferences": [
                        {"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": "c",
                         "uid": "c-uid", "controller": true, "blockOwnerDeletion": true},
                        {"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "name": "p",
                         "uid": "p-uid", "controller": false, "blockOwnerDeletion": true},
                    ],
                },
                "spec": {
                    "claimRef": {"name": "c"}, "address": "10.0.0.5", "prefix": 24,
                    "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"},
                },
            })
        );
    }

    #[test]
    fn cluster_label_requires_a_valid_label_value() {
        let longest = "a".repeat(63);
        for (name, is_label) in
            [("a.b_c-d", true), (&longest, true), (&"a".repeat(64), false), ("a b", false), ("-a", false), ("ü", false)]
        {
            let mut claim = claim();
            claim.spec.cluster_name = Some(name.to_owned());
            let labels = build(ContractVersion::V1Beta2, &claim, &pool(), &allocation()).metadata.labels.unwrap();
            assert_eq!(labels.get(names::CLUSTER_NAME_LABEL).map(String::as_str), is_label.then_some(name));
        }
    }

    #[test]
    fn repair_keeps_foreign_metadata() {
        let mut address = build(ContractVersion::V1Beta2, &claim(), &pool(), &allocation());
        let same = repaired(ContractVersion::V1Beta2, &address, &claim(), &pool(), &allocation());
        assert_eq!(same, address);

        address.metadata.finalizers = Some(vec!["other.io/keep".into()]);
        address.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "metal.example.com/v1".into(),
            kind: "Server".into(),
            name: "s".into(),
            uid: "s-uid".into(),
            ..OwnerReference::default()
        }]);
        let repaired = repaired(ContractVersion::V1Beta2, &address, &claim(), &pool(), &allocation());
        assert_eq!(repaired.finalizers(), ["other.io/keep", names::PROTECT_ADDRESS]);
        assert_eq!(repaired.owner_references().len(), 3);
        assert_eq!(owning_claim(&repaired), Some("c-uid"));
    }

    #[test]
    fn owner_references_in_an_older_version_are_kept() {
        let mut address = build(ContractVersion::V1Beta1, &claim(), &pool(), &allocation());
        for owner in address.metadata.owner_references.iter_mut().flatten() {
            owner.api_version = owner.api_version.replace("v1beta1", "v1alpha1");
        }
        assert_eq!(repaired(ContractVersion::V1Beta2, &address, &claim(), &pool(), &allocation()), address);
    }
}
