use serde_json::json;

use super::*;

fn claim() -> IPAddressClaim {
    serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "c", "uid": "c-uid", "labels": {
            "cluster.x-k8s.io/cluster-name": "alpha", "cluster.x-k8s.io/watch-filter": "w", "other": "x"}},
        "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}},
    }))
    .unwrap()
}

fn pool() -> PoolView {
    PoolView {
        api_version: "ipam.cluster.x-k8s.io/v1alpha2".into(),
        uid: "p-uid".into(),
        ..PoolView::default()
    }
}

fn allocation() -> Allocation {
    Allocation::new([10, 0, 0, 5], 24)
}

#[test]
fn new_address_satisfies_the_contract() {
    let address = new_ip_address(ContractVersion::V1Beta2, &claim(), &pool(), &allocation());
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
    for (name, is_label) in [
        ("a.b_c-d", true),
        (&longest, true),
        (&"a".repeat(64), false),
        ("a b", false),
        ("-a", false),
        ("ü", false),
    ] {
        let mut claim = claim();
        claim.spec.cluster_name = Some(name.to_owned());
        let labels = new_ip_address(ContractVersion::V1Beta2, &claim, &pool(), &allocation())
            .metadata
            .labels
            .unwrap();
        assert_eq!(
            labels.get(names::CLUSTER_NAME_LABEL).map(String::as_str),
            is_label.then_some(name)
        );
    }
}

#[test]
fn repair_keeps_foreign_metadata() {
    let mut address = new_ip_address(ContractVersion::V1Beta2, &claim(), &pool(), &allocation());
    let same = repaired(
        ContractVersion::V1Beta2,
        &address,
        &claim(),
        &pool(),
        &allocation(),
    );
    assert_eq!(same, address);

    address.metadata.finalizers = Some(vec!["other.io/keep".into()]);
    address.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "metal.example.com/v1".into(),
        kind: "Server".into(),
        name: "s".into(),
        uid: "s-uid".into(),
        ..OwnerReference::default()
    }]);
    let repaired = repaired(
        ContractVersion::V1Beta2,
        &address,
        &claim(),
        &pool(),
        &allocation(),
    );
    assert_eq!(
        repaired.finalizers(),
        ["other.io/keep", names::PROTECT_ADDRESS]
    );
    assert_eq!(repaired.owner_references().len(), 3);
    assert_eq!(repaired.claim_uid(), Some("c-uid"));
}

#[test]
fn owner_references_in_an_older_version_are_kept() {
    let mut address = new_ip_address(ContractVersion::V1Beta1, &claim(), &pool(), &allocation());
    for owner in address.metadata.owner_references.iter_mut().flatten() {
        owner.api_version = owner.api_version.replace("v1beta1", "v1alpha1");
    }
    assert_eq!(
        repaired(
            ContractVersion::V1Beta2,
            &address,
            &claim(),
            &pool(),
            &allocation()
        ),
        address
    );
}

#[test]
fn allocation_labels_do_not_replace_contract_labels() {
    let labels = [(names::CLUSTER_NAME_LABEL, "beta"), ("example.com/id", "7")];
    let labels = labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let annotations = [("example.com/dns".to_owned(), "c.example.com".to_owned())].into();
    let allocation = Allocation {
        labels,
        annotations,
        ..allocation()
    };
    let present = new_ip_address(
        ContractVersion::V1Beta2,
        &claim(),
        &pool(),
        &self::allocation(),
    );
    for address in [
        new_ip_address(ContractVersion::V1Beta2, &claim(), &pool(), &allocation),
        repaired(
            ContractVersion::V1Beta2,
            &present,
            &claim(),
            &pool(),
            &allocation,
        ),
    ] {
        assert_eq!(
            (
                &*address.labels()[names::CLUSTER_NAME_LABEL],
                &*address.labels()["example.com/id"]
            ),
            ("alpha", "7")
        );
        assert_eq!(address.annotations()["example.com/dns"], "c.example.com");
    }
}
