//! Plans for a Cluster that is being created.

use serde_json::json;

use super::*;

/// A Cluster of a request, and its claims, which have no owner yet.
fn requested() -> (AddressableCluster, BTreeMap<&'static str, ItemClaim>) {
    let mut cluster = with_class();
    cluster.metadata.uid = None;
    let mut claims = bound();
    for known in claims.values_mut() {
        known.claim.metadata.owner_references = None;
        let request = (CLUSTER_REQUESTED.to_owned(), "1".to_owned());
        known.claim.annotations_mut().extend([request]);
    }
    (cluster, claims)
}

#[test]
fn claims_of_a_request_have_no_owner_and_name_the_request() {
    let (cluster, claims) = requested();
    let versions = Versions::default();
    let steps = plan(
        &cluster,
        &endpoint_and_pods(),
        &BTreeMap::new(),
        versions,
        Some("1"),
    );
    let Some(Step::CreateClaim(created)) = steps.first() else {
        panic!("{steps:?}");
    };
    let mut wanted = claims["endpoint"].claim.clone();
    wanted.status = None;
    assert_eq!(**created, wanted);
    // Another request changes them, so that they are not released by an earlier decision.
    let steps = plan(&cluster, &endpoint_and_pods(), &claims, versions, Some("2"));
    let changed = steps.iter().filter_map(|step| match step {
        Step::ProtectClaim(change) => Some(change.1.annotations()[CLUSTER_REQUESTED].clone()),
        _ => None,
    });
    assert_eq!(changed.collect::<Vec<_>>(), ["2", "2"]);
}

#[test]
fn config_maps_follow_when_the_cluster_exists() {
    let (cluster, mut claims) = requested();
    let to = json!([{"resource": "MetalLB"}]);
    let mut addressing = endpoint_and_pods();
    let pods = &mut addressing.spec.items[1];
    pods.to
        .extend(serde_json::from_value::<Vec<_>>(to).unwrap());
    let versions = Versions::default();
    let steps = plan(&cluster, &addressing, &claims, versions, Some("1"));
    assert_eq!(steps.len(), 1, "{steps:?}");
    let mut stored = delivered(&steps);
    assert!(!is_delivered(&stored, &addressing));
    stored.metadata.uid = Some(CLUSTER_UID.to_owned());
    // A claim that somebody deletes meanwhile keeps its address.
    deleted(claims.get_mut("pods").unwrap());
    let steps = super::plan(&stored, &addressing, &claims, versions, None);
    let config_maps = steps
        .iter()
        .filter(|step| matches!(step, Step::CreateConfigMap(_)));
    assert_eq!(config_maps.count(), 1, "{steps:?}");
    let owners = steps.iter().filter(|step| match step {
        Step::ProtectClaim(change) => owner(&change.1).is_some(),
        _ => false,
    });
    assert_eq!(owners.count(), 2, "{steps:?}");
    assert!(is_delivered(&delivered(&steps), &addressing));
    // A field that was changed meanwhile is reported, and nothing else is done.
    stored.spec.control_plane_endpoint = None;
    let steps = super::plan(&stored, &addressing, &claims, versions, None);
    let reported = steps.iter().any(|step| matches!(step, Step::Report(_)));
    let written = steps
        .iter()
        .any(|step| matches!(step, Step::WriteCluster(_)));
    assert!(reported && !written, "{steps:?}");
}

#[test]
fn leftover_claim_does_not_block_its_cluster() {
    let (mut cluster, claims) = requested();
    let own = json!({"pods": {"cidrBlocks": ["192.168.0.0/16"]}});
    cluster.spec.cluster_network = serde_json::from_value(own).unwrap();
    let addressing = endpoint_and_pods();
    let versions = Versions::default();
    let mut stored = delivered(&plan(&cluster, &addressing, &claims, versions, Some("1")));
    assert_eq!(stored.spec.cluster_network, cluster.spec.cluster_network);
    assert_eq!(
        stored.spec.control_plane_endpoint.as_ref().unwrap().host,
        "10.0.0.10"
    );
    // The controller releases the claim, and completes the record.
    stored.metadata.uid = Some(CLUSTER_UID.to_owned());
    let steps = super::plan(&stored, &addressing, &claims, versions, None);
    let released = steps.iter().find_map(|step| match step {
        Step::ReleaseClaim(unused) => Some(unused.claim.name_any()),
        _ => None,
    });
    assert_eq!(released.as_deref(), Some("alpha-pods"));
    assert!(
        !steps
            .iter()
            .any(|step| matches!(step, Step::WriteCluster(_)))
    );
    let mut left = claims;
    left.remove("pods");
    let steps = super::plan(&stored, &addressing, &left, versions, None);
    assert!(is_delivered(&delivered(&steps), &addressing));
}

#[test]
fn claim_that_is_being_deleted_is_not_released_by_a_request() {
    let (cluster, mut claims) = requested();
    deleted(claims.get_mut("pods").unwrap());
    let addressing = endpoint_and_pods();
    let steps = plan(
        &cluster,
        &addressing,
        &claims,
        Versions::default(),
        Some("1"),
    );
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::ADDRESSES_PENDING);
    assert_eq!(message, "IPAddressClaim alpha-pods: it is being deleted");
}

#[test]
fn claim_without_an_address_does_not_block_a_value_of_the_user() {
    let (mut cluster, mut claims) = requested();
    let own = json!({"pods": {"cidrBlocks": ["192.168.0.0/16"]}});
    cluster.spec.cluster_network = serde_json::from_value(own).unwrap();
    let waiting = claims.get_mut("pods").unwrap();
    waiting.claim.status = None;
    waiting.address = None;
    let addressing = endpoint_and_pods();
    let versions = Versions::default();
    // The request does not use the claim, and does not prolong its life.
    let steps = plan(&cluster, &addressing, &claims, versions, Some("2"));
    let is_of_pods = |step: &&Step| matches!(step, Step::ProtectClaim(change) if change.0.name_any() == "alpha-pods");
    assert_eq!(steps.iter().find(is_of_pods), None);
    let mut stored = delivered(&steps);
    assert_eq!(stored.spec.cluster_network, cluster.spec.cluster_network);
    // The controller releases it, before it is bound.
    stored.metadata.uid = Some(CLUSTER_UID.to_owned());
    let steps = super::plan(&stored, &addressing, &claims, versions, None);
    let is_release = |step: &Step| matches!(step, Step::ReleaseClaim(unused) if unused.claim.name_any() == "alpha-pods");
    assert!(steps.iter().any(is_release), "{steps:?}");
}

#[test]
fn claim_without_an_address_is_kept_if_the_cluster_can_have_it() {
    let (mut cluster, mut claims) = requested();
    let addressing = endpoint_and_pods();
    let versions = Versions::default();
    let mut stored = delivered(&plan(&cluster, &addressing, &claims, versions, Some("1")));
    // A restore brings the claims back without their status.
    for known in claims.values_mut() {
        known.claim.status = None;
        known.address = None;
    }
    let is_released = |cluster: &AddressableCluster, request| {
        let steps = super::plan(cluster, &addressing, &claims, versions, request);
        steps
            .iter()
            .any(|step| matches!(step, Step::ReleaseClaim(_) | Step::WriteCluster(_)))
    };
    let record = annotation("bonn");
    let written = stored.annotations()[&record].replace('}', r#","unfinished":"at creation"}"#);
    stored.annotations_mut().insert(record.clone(), written);
    assert!(!is_released(&stored, Some("2")));
    cluster.spec = stored.spec.clone();
    stored.metadata.uid = Some(CLUSTER_UID.to_owned());
    assert!(!is_released(&stored, None));
    // The annotation is lost.
    stored.annotations_mut().remove(&record);
    assert!(!is_released(&stored, None));
}

#[test]
fn claim_that_is_created_late_is_released_without_an_address() {
    let (mut cluster, mut claims) = requested();
    let own = json!({"pods": {"cidrBlocks": ["192.168.0.0/16"]}});
    cluster.spec.cluster_network = serde_json::from_value(own).unwrap();
    let mut late = claims.remove("pods").unwrap();
    let addressing = endpoint_and_pods();
    let versions = Versions::default();
    let mut stored = delivered(&plan(&cluster, &addressing, &claims, versions, Some("1")));
    assert!(is_delivered(&stored, &addressing));
    stored.metadata.uid = Some(CLUSTER_UID.to_owned());
    let is_released = |late: &ItemClaim| {
        let mut claims = claims.clone();
        claims.insert("pods", late.clone());
        let steps = super::plan(&stored, &addressing, &claims, versions, None);
        let is_release = |step: &Step| matches!(step, Step::ReleaseClaim(unused) if unused.claim.name_any() == "alpha-pods");
        steps.iter().any(is_release)
    };
    // The address of a delivered Cluster is not read.
    late.address = None;
    assert!(!is_released(&late));
    late.claim.status = None;
    assert!(is_released(&late));
}
