mod requests;

use capi_ipam_api::ClusterField;
use serde_json::{Value, json};

use super::super::record::{is_delivered, item_names};
use super::*;

const CLUSTER_UID: &str = "6101ef08-5b98-40af-8a1f-bc85701b2e47";

/// A Cluster with this specification.
fn cluster(spec: &Value) -> AddressableCluster {
    serde_json::from_value(json!({
        "metadata": {"name": "alpha", "namespace": "n", "uid": CLUSTER_UID}, "spec": spec}))
    .unwrap()
}

fn item(name: &str, kind: &str, to: &Value) -> Value {
    json!({"name": name, "to": to,
        "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "p"}})
}

fn addressing(items: &[Value]) -> ClusterAddressing {
    serde_json::from_value(json!({
        "metadata": {"name": "bonn", "namespace": "n"}, "spec": {"clusterSelector": {}, "items": items}}))
    .unwrap()
}

/// An endpoint that is also written into a variable, and the network of pods.
fn endpoint_and_pods() -> ClusterAddressing {
    let endpoint = json!([{"controlPlaneEndpoint": {"port": 6443}}, {"variable": {"name": "vip"}}]);
    addressing(&[
        item("endpoint", "InClusterIPPool", &endpoint),
        item(
            "pods",
            "InClusterPrefixPool",
            &json!([{"clusterNetwork": "Pods"}]),
        ),
    ])
}

/// The claim that the plan creates for an item, as the API server returns it, and its address.
fn claim(item: &str, address: Option<(&str, i64)>) -> ItemClaim {
    let kind = match item {
        "endpoint" => "InClusterIPPool",
        _ => "InClusterPrefixPool",
    };
    let status = address.map(|_| json!({"addressRef": {"name": format!("alpha-{item}")}}));
    let claim = json!({
        "status": status,
        "metadata": {
            "name": format!("alpha-{item}"), "namespace": "n",
            "labels": {"cluster.x-k8s.io/cluster-name": "alpha", "ipam.cluster.x-k8s.io/cluster-addressing": "bonn"},
            "finalizers": [names::PROTECT_CLUSTER_ADDRESS],
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "alpha",
                "uid": CLUSTER_UID}],
        },
        "spec": {"clusterName": "alpha", "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "p"}},
    });
    let address = address.map(|(address, prefix)| {
        let spec =
            json!({"address": address, "prefix": prefix, "poolRef": claim["spec"]["poolRef"]});
        let address = json!({"metadata": {"namespace": "n"}, "spec": spec});
        serde_json::from_value(address).unwrap()
    });
    ItemClaim {
        claim: serde_json::from_value(claim).unwrap(),
        address,
    }
}

fn bound() -> BTreeMap<&'static str, ItemClaim> {
    BTreeMap::from([
        ("endpoint", claim("endpoint", Some(("10.0.0.10", 24)))),
        ("pods", claim("pods", Some(("10.128.16.0", 20)))),
    ])
}

fn steps(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
    claims: &BTreeMap<&str, ItemClaim>,
) -> Vec<Step> {
    plan(cluster, addressing, claims, Versions::default(), None)
}

/// The only problem of a plan without another step.
fn only_problem(steps: &[Step]) -> (&str, &str) {
    match steps {
        [Step::Report(problem)] => (&problem.reason, &problem.message),
        steps => panic!("one problem is expected: {steps:?}"),
    }
}

/// The Cluster that a plan writes; it is the last step.
fn delivered(steps: &[Step]) -> AddressableCluster {
    match steps.last() {
        Some(Step::WriteCluster(wanted)) => wanted.as_ref().clone(),
        last => panic!("the Cluster is expected: {last:?}"),
    }
}

/// The claim that a plan without another step releases.
fn released(steps: &[Step]) -> &UnusedClaim {
    match steps {
        [Step::ReleaseClaim(unused)] => unused,
        steps => panic!("one claim is released: {steps:?}"),
    }
}

fn deleted(known: &mut ItemClaim) {
    known.claim.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
}

fn with_class() -> AddressableCluster {
    cluster(&json!({"topology": {"variables": [{"name": "size", "value": "large"}]}}))
}

#[test]
fn new_cluster_gets_a_claim_for_each_item() {
    let steps = steps(&with_class(), &endpoint_and_pods(), &BTreeMap::new());
    let names: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::CreateClaim(claim) => claim.name_any(),
            step => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(names, ["alpha-endpoint", "alpha-pods"]);
    let Some(Step::CreateClaim(created)) = steps.first() else {
        panic!("{steps:?}");
    };
    assert_eq!(**created, claim("endpoint", None).claim);
}

#[test]
fn claim_has_the_watch_filter_of_its_addressing() {
    let mut addressing = endpoint_and_pods();
    let filter = (WATCH_FILTER_LABEL.to_owned(), "blue".to_owned());
    addressing.labels_mut().extend([filter]);
    let steps = steps(&with_class(), &addressing, &BTreeMap::new());
    let Some(Step::CreateClaim(created)) = steps.first() else {
        panic!("{steps:?}");
    };
    assert_eq!(created.labels()[WATCH_FILTER_LABEL], "blue");
}

#[test]
fn nothing_is_written_before_all_claims_are_bound() {
    let mut claims = bound();
    claims.insert("pods", claim("pods", None));
    let steps = steps(&with_class(), &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::ADDRESSES_PENDING);
    assert_eq!(message, "IPAddressClaim alpha-pods: it is not bound yet");
}

/// A claim for a set, whose member has this kind.
fn claim_of_set(item: &str, address: (&str, i64), member: &str) -> ItemClaim {
    let mut known = claim(item, Some(address));
    let address = known.address.as_mut().unwrap();
    for pool in [&mut known.claim.spec.pool_ref, &mut address.spec.pool_ref] {
        pool.kind = "IPPoolSet".to_owned();
    }
    let annotations = address.annotations_mut();
    let member = format!("{member}/rack");
    annotations.insert(names::MEMBER_POOL_ANNOTATION.to_owned(), member);
    known
}

#[test]
fn member_of_a_set_decides_whether_a_prefix_is_written() {
    let pods =
        json!([{"clusterNetwork": "Pods"}, {"variable": {"name": "range", "format": "Range"}}]);
    let addressing = addressing(&[item("pods", "IPPoolSet", &pods)]);
    let steps_of = |member| {
        let known = claim_of_set("pods", ("10.128.16.0", 20), member);
        steps(
            &with_class(),
            &addressing,
            &BTreeMap::from([("pods", known)]),
        )
    };
    let cluster = delivered(&steps_of("InClusterPrefixPool"));
    let value = |field: &str| fields::read(&cluster, &ClusterField::parse(field).unwrap());
    let range = value("spec.topology.variables[range]");
    assert_eq!(range.as_deref(), Some("10.128.16.0-10.128.31.255"));
    let steps = steps_of("InClusterIPPool");
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::DELIVERY_FAILED);
    let expected = "IPAddressClaim alpha-pods: clusterNetwork needs a pool of prefixes";
    assert!(message.starts_with(expected), "{message}");
    // Nobody knows the member.
    let steps = steps_of("InClusterIPPoolSet");
    let (reason, _) = only_problem(&steps);
    assert_eq!(reason, conditions::DELIVERY_FAILED);
}

#[test]
fn claim_that_waits_says_why() {
    let mut claims = bound();
    let mut waiting = claim("pods", None);
    waiting.claim.status = serde_json::from_value(json!({"conditions": [
        {"type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no free prefix"}]}))
    .unwrap();
    claims.insert("pods", waiting);
    let steps = steps(&with_class(), &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, "PoolExhausted");
    assert_eq!(message, "IPAddressClaim alpha-pods: no free prefix");
}

#[test]
fn all_fields_are_written_at_once() {
    let before = with_class();
    let steps = steps(&before, &endpoint_and_pods(), &bound());
    assert_eq!(steps.len(), 1);
    let after = delivered(&steps);
    let record = json!({
        "item:endpoint": "10.0.0.10", "item:pods": "10.128.16.0/20",
        "spec.clusterNetwork.pods": "10.128.16.0/20", "spec.controlPlaneEndpoint": "10.0.0.10",
        "spec.topology.variables[vip]": "10.0.0.10",
    });
    let annotation = "addressing.ipam.cluster.x-k8s.io/bonn";
    assert_eq!(after.annotations()[annotation], record.to_string());
    let spec = json!({
        "controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443},
        "clusterNetwork": {"pods": {"cidrBlocks": ["10.128.16.0/20"]}},
        "topology": {"variables": [{"name": "size", "value": "large"}, {"name": "vip", "value": "10.0.0.10"}]},
    });
    assert_eq!(serde_json::to_value(&after.spec).unwrap(), spec);
    // Then there is nothing left to do.
    let addressing = endpoint_and_pods();
    let again = super::plan(&after, &addressing, &bound(), Versions::default(), None);
    assert_eq!(again, []);
}

#[test]
fn field_with_a_value_is_never_changed() {
    let mut cluster = with_class();
    let found = json!({"pods": {"cidrBlocks": ["192.168.0.0/16"]}});
    cluster.spec.cluster_network = serde_json::from_value(found).unwrap();
    let to = json!([{"clusterNetwork": "Pods"}, {"variable": {"name": "pods"}}]);
    let addressing = addressing(&[item("pods", "InClusterPrefixPool", &to)]);
    let mut claims = bound();
    claims.remove("endpoint");
    let steps = steps(&cluster, &addressing, &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::VALUE_PRESENT);
    assert_eq!(
        message,
        "item pods has 10.128.16.0/20, and spec.clusterNetwork.pods is 192.168.0.0/16 already"
    );
}

#[test]
fn claim_of_an_item_that_the_user_has_written_is_released() {
    let mut cluster = with_class();
    let found = json!({"pods": {"cidrBlocks": ["192.168.0.0/16"]}});
    cluster.spec.cluster_network = serde_json::from_value(found).unwrap();
    let steps = steps(&cluster, &endpoint_and_pods(), &bound());
    let unused = released(&steps);
    assert_eq!(unused.claim.name_any(), "alpha-pods");
    assert_eq!(unused.config_maps, Vec::<String>::new());
}

#[test]
fn item_that_the_user_has_written_needs_no_claim() {
    let mut cluster = with_class();
    let found = json!({"pods": {"cidrBlocks": ["192.168.0.0/16"]}});
    cluster.spec.cluster_network = serde_json::from_value(found).unwrap();
    let mut claims = bound();
    claims.remove("pods");
    let after = delivered(&steps(&cluster, &endpoint_and_pods(), &claims));
    assert_eq!(after.spec.cluster_network, cluster.spec.cluster_network);
    let annotation = &after.annotations()[&annotation("bonn")];
    assert!(
        annotation.contains(r#""item:pods":"set by the user""#),
        "{annotation}"
    );
    // Its claim is not missed.
    let again = super::plan(
        &after,
        &endpoint_and_pods(),
        &claims,
        Versions::default(),
        None,
    );
    assert_eq!(again, []);
    assert_eq!(after.spec.control_plane_endpoint.unwrap().host, "10.0.0.10");
}

#[test]
fn item_that_is_written_in_part_is_reported_without_a_claim() {
    let spec = json!({"controlPlaneEndpoint": {"host": "10.9.9.9", "port": 6443}, "topology": {}});
    let mut claims = bound();
    claims.remove("endpoint");
    let steps = steps(&cluster(&spec), &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::VALUE_PRESENT);
    let expected =
        "item endpoint: spec.controlPlaneEndpoint is 10.9.9.9 already, and other targets";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn value_that_is_written_already_is_recorded() {
    let mut written = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    written.metadata.annotations = None;
    let again = delivered(&steps(&written, &endpoint_and_pods(), &bound()));
    assert_eq!(again.spec, written.spec);
    assert_eq!(again.annotations().len(), 1);
}

#[test]
fn port_and_empty_host_are_kept_and_filled() {
    let spec = json!({"controlPlaneEndpoint": {"host": "", "port": 8443}, "topology": {}});
    let after = delivered(&steps(&cluster(&spec), &endpoint_and_pods(), &bound()));
    let endpoint = after.spec.control_plane_endpoint.unwrap();
    assert_eq!(
        (endpoint.host.as_str(), endpoint.port),
        ("10.0.0.10", Some(8443))
    );
}

#[test]
fn variable_needs_a_cluster_class() {
    for claims in [BTreeMap::new(), bound()] {
        let steps = steps(&cluster(&json!({})), &endpoint_and_pods(), &claims);
        let (reason, message) = only_problem(&steps);
        assert_eq!(reason, conditions::VALUE_PRESENT);
        assert!(
            message.contains("the Cluster has no spec.topology"),
            "{message}"
        );
    }
}

#[test]
fn fields_of_an_object_variable_are_added() {
    let to = json!([
        {"variable": {"name": "network", "path": "lb.range", "format": "Range"}},
        {"variable": {"name": "network", "path": "lb.cidr", "format": "CIDR"}},
    ]);
    let addressing = addressing(&[item("lb", "InClusterPrefixPool", &to)]);
    let claims = BTreeMap::from([("lb", claim("lb", Some(("10.0.0.8", 29))))]);
    let variables =
        |value: Value| json!({"topology": {"variables": [{"name": "network", "value": value}]}});
    let after = delivered(&steps(
        &cluster(&variables(json!({"mtu": 1500}))),
        &addressing,
        &claims,
    ));
    let lb = json!({"cidr": "10.0.0.8/29", "range": "10.0.0.8-10.0.0.15"});
    let expected = variables(json!({"mtu": 1500, "lb": lb}));
    assert_eq!(serde_json::to_value(&after.spec).unwrap(), expected);
    let steps = steps(&cluster(&variables(json!({"lb": 5}))), &addressing, &claims);
    let (_, message) = only_problem(&steps);
    assert!(
        message.ends_with("cannot be set: range is not an object"),
        "{message}"
    );
}

#[test]
fn change_of_a_written_field_is_reported_and_stays() {
    let mut changed = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    changed.spec.control_plane_endpoint.as_mut().unwrap().host = "10.9.9.9".to_owned();
    changed.spec.cluster_network = None;
    let steps = steps(&changed, &endpoint_and_pods(), &bound());
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::ADDRESS_CHANGED);
    assert_eq!(
        message,
        "spec.clusterNetwork.pods is empty, not 10.128.16.0/20; spec.controlPlaneEndpoint is 10.9.9.9, not \
         10.0.0.10; the field is not changed back"
    );
}

#[test]
fn change_of_an_item_does_not_affect_a_cluster_with_addresses() {
    let cluster = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    let to = json!([{"controlPlaneEndpoint": {"port": 8443}}]);
    let more = json!([{"clusterNetwork": "Services"}]);
    let changed = addressing(&[
        item("endpoint", "GlobalInClusterIPPool", &to),
        item("services", "InClusterPrefixPool", &more),
    ]);
    assert_eq!(steps(&cluster, &changed, &bound()), []);
}

#[test]
fn claim_of_an_earlier_cluster_is_not_used() {
    let mut claims = bound();
    let pods = claims.get_mut("pods").unwrap();
    "other".clone_into(&mut pods.claim.owner_references_mut()[0].uid);
    let steps = steps(&with_class(), &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::ADDRESSES_PENDING);
    assert!(
        message.contains("earlier Cluster of this name"),
        "{message}"
    );
}

#[test]
fn recreated_cluster_owns_the_claims_of_its_addresses() {
    let mut again = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    again.metadata.uid = Some("another".to_owned());
    let steps = steps(&again, &endpoint_and_pods(), &bound());
    assert_eq!(steps.len(), 2);
    for step in steps {
        let Step::ProtectClaim(write) = step else {
            panic!("{step:?}");
        };
        let owners = write.1.owner_references();
        assert_eq!(owners.len(), 1);
        assert_eq!(owners[0].uid, "another");
    }
}

#[test]
fn addresses_without_a_claim_are_reported() {
    let mut copy = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    copy.metadata.name = Some("beta".to_owned());
    let mut claims = bound();
    claims.remove("pods");
    let steps = steps(&copy, &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::CLAIM_MISSING);
    let expected =
        "the Cluster has addresses without its IPAddressClaim beta-endpoint, beta-pods, and";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn claim_of_somebody_else_is_not_used() {
    let change: [fn(&mut IPAddressClaim); 2] = [
        |claim| drop(claim.labels_mut().remove(names::CLUSTER_ADDRESSING_LABEL)),
        |claim| claim.spec.cluster_name = Some("beta".to_owned()),
    ];
    for change in change {
        let mut claims = bound();
        change(&mut claims.get_mut("pods").unwrap().claim);
        let steps = steps(&with_class(), &endpoint_and_pods(), &claims);
        assert_eq!(only_problem(&steps).0, conditions::CLAIM_NAME_IN_USE);
    }
}

#[test]
fn claim_that_is_being_deleted_is_released_before_the_delivery() {
    let resources = json!([{"resource": "MetalLB"}, {"resource": "Values"}]);
    let pods = json!([{"clusterNetwork": "Pods"}]);
    let addressing = addressing(&[
        item("lb", "InClusterPrefixPool", &resources),
        item("pods", "InClusterPrefixPool", &pods),
    ]);
    let mut claims = bound();
    claims.remove("endpoint");
    claims.insert("lb", claim("lb", Some(("10.0.1.0", 29))));
    let pods = claims.get_mut("pods").unwrap();
    deleted(pods);
    let steps_of_first = steps(&with_class(), &addressing, &claims);
    let unused = released(&steps_of_first);
    assert_eq!(unused.claim.name_any(), "alpha-pods");
    // One of them can have its address.
    assert_eq!(unused.config_maps, ["alpha-lb-metallb", "alpha-lb-values"]);
    // Without the finalizer it is gone soon.
    claims.get_mut("pods").unwrap().claim.metadata.finalizers = None;
    let steps = steps(&with_class(), &addressing, &claims);
    assert!(only_problem(&steps).1.ends_with("it is being deleted"));
}

#[test]
fn claim_that_is_being_deleted_is_kept_after_the_delivery() {
    let mut again = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    let mut claims = bound();
    deleted(claims.get_mut("pods").unwrap());
    assert_eq!(steps(&again, &endpoint_and_pods(), &claims), []);
    // A Cluster that was created again owns it, too. It gets no finalizer, which the API server
    // would refuse.
    again.metadata.uid = Some("another".to_owned());
    let pods = &mut claims.get_mut("pods").unwrap().claim.metadata;
    pods.finalizers = Some(vec!["example.com/other".to_owned()]);
    let steps = steps(&again, &endpoint_and_pods(), &claims);
    let Some(Step::ProtectClaim(write)) = steps.last() else {
        panic!("{steps:?}");
    };
    assert_eq!(owner(&write.1).unwrap().uid, "another");
    assert_eq!(write.1.finalizers(), ["example.com/other"]);
}

#[test]
fn claim_from_another_pool_is_not_used() {
    let mut claims = bound();
    let pods = &mut claims.get_mut("pods").unwrap().claim;
    "other".clone_into(&mut pods.spec.pool_ref.name);
    let steps_of_claims = steps(&with_class(), &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps_of_claims);
    assert_eq!(reason, conditions::CLAIM_NAME_IN_USE);
    let expected = "IPAddressClaim alpha-pods: it claims from InClusterPrefixPool other, and item pods from \
                    InClusterPrefixPool p; delete it, and it is created again";
    assert_eq!(message, expected);
    // Neither is one that somebody else has created, after the delivery.
    let written = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    let metadata = &mut claims.get_mut("pods").unwrap().claim.metadata;
    metadata.owner_references = None;
    metadata.finalizers = None;
    let steps = steps(&written, &endpoint_and_pods(), &claims);
    assert_eq!(only_problem(&steps).0, conditions::CLAIM_MISSING);
}

#[test]
fn address_that_does_not_exist_is_reported() {
    let mut claims = bound();
    for (name, known) in &mut claims {
        known.claim.status = serde_json::from_value(json!({"addressRef": {"name": name}})).unwrap();
    }
    claims.get_mut("pods").unwrap().address = None;
    let steps = steps(&with_class(), &endpoint_and_pods(), &claims);
    let (reason, message) = only_problem(&steps);
    assert_eq!(reason, conditions::DELIVERY_FAILED);
    assert!(
        message.ends_with("its IPAddress does not exist"),
        "{message}"
    );
}

#[test]
fn owner_and_finalizer_of_a_claim_are_restored() {
    let change: [fn(&mut IPAddressClaim); 2] = [
        |claim| claim.metadata.owner_references = None,
        |claim| claim.metadata.finalizers = Some(vec!["example.com/other".to_owned()]),
    ];
    let written = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    for change in change {
        let mut claims = bound();
        let pods = &mut claims.get_mut("pods").unwrap().claim;
        change(pods);
        let before = pods.clone();
        for cluster in [with_class(), written.clone()] {
            let steps = steps(&cluster, &endpoint_and_pods(), &claims);
            let Some(Step::ProtectClaim(write)) = steps.first() else {
                panic!("{steps:?}");
            };
            assert_eq!(write.0, before);
            assert_eq!(owner(&write.1).unwrap().uid, CLUSTER_UID);
            assert!(finalizer::is_set(&write.1, names::PROTECT_CLUSTER_ADDRESS));
        }
    }
}

#[test]
fn address_that_is_not_valid_is_reported() {
    for (address, prefix) in [("10.0.0.300", 24), ("10.0.0.1", 33), ("10.0.0.1", -1)] {
        let mut claims = bound();
        claims.insert("endpoint", claim("endpoint", Some((address, prefix))));
        let steps = steps(&with_class(), &endpoint_and_pods(), &claims);
        assert_eq!(
            only_problem(&steps).0,
            conditions::DELIVERY_FAILED,
            "{address}/{prefix}"
        );
    }
}

#[test]
fn values_have_what_the_user_has_written() {
    let endpoint = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
    let pods = json!([{"clusterNetwork": "Pods"}]);
    let addressing = addressing(&[
        item("endpoint", "InClusterIPPool", &endpoint),
        item("pods", "InClusterPrefixPool", &pods),
        item(
            "lb",
            "InClusterPrefixPool",
            &json!([{"resource": "Values"}]),
        ),
    ]);
    let claims = BTreeMap::from([("lb", claim("lb", Some(("10.0.1.0", 29))))]);
    let spec = json!({
        "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
        "clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}},
    });
    let steps = steps(&cluster(&spec), &addressing, &claims);
    let [
        Step::CheckCluster(checked),
        Step::CreateConfigMap(config_map),
        Step::WriteCluster(written),
    ] = &*steps
    else {
        panic!("{steps:?}");
    };
    assert_eq!(checked, written);
    let manifest = &config_map.data.as_ref().unwrap()["manifest.yaml"];
    let manifest: Value = serde_json::from_str(manifest).unwrap();
    let expected = json!({
        "endpoint.address": "api.example",
        "lb.address": "10.0.1.0", "lb.cidr": "10.0.1.0/29", "lb.range": "10.0.1.0-10.0.1.7",
        "pods.address": "192.168.0.0", "pods.cidr": "192.168.0.0/16", "pods.range": "192.168.0.0-192.168.255.255",
    });
    assert_eq!(manifest["data"], expected);
}

#[test]
fn name_servers_are_written_as_lists() {
    let variable = |name, format| json!({"variable": {"name": name, "format": format}});
    let to = json!([variable("servers", "DNSServers"), variable("domains", "SearchDomains"), {"resource": "Values"}]);
    let addressing = addressing(&[item("endpoint", "InClusterIPPool", &to)]);
    let mut bound = claim("endpoint", Some(("10.0.0.10", 24)));
    let annotations = bound.address.as_mut().unwrap().annotations_mut();
    annotations.insert(
        names::DNS_SERVERS_ANNOTATION.to_owned(),
        "10.0.0.53,10.0.1.53".to_owned(),
    );
    let claims = BTreeMap::from([("endpoint", bound)]);
    let steps = steps(
        &cluster(&json!({"topology": {"class": "c"}})),
        &addressing,
        &claims,
    );
    let written = delivered(&steps);
    let topology = written.spec.topology.as_ref().unwrap();
    let values: Vec<&Value> = topology
        .variables
        .iter()
        .map(|variable| &variable.value)
        .collect();
    assert_eq!(values, [&json!(["10.0.0.53", "10.0.1.53"]), &json!([])]);
    let config_map = steps.iter().find_map(|step| match step {
        Step::CreateConfigMap(config_map) => config_map.data.as_ref(),
        _ => None,
    });
    let manifest: Value = serde_json::from_str(&config_map.unwrap()["manifest.yaml"]).unwrap();
    assert_eq!(
        manifest["data"]["endpoint.dnsServers"],
        "10.0.0.53,10.0.1.53"
    );
    assert_eq!(manifest["data"].get("endpoint.searchDomains"), None);
    // The Cluster has what was written.
    assert_eq!(self::steps(&written, &addressing, &claims), []);
}

#[test]
fn claim_of_an_item_with_resources_only_is_missed() {
    let to = json!([{"resource": "MetalLB"}]);
    let addressing = addressing(&[item("lb", "InClusterPrefixPool", &to)]);
    let claims = BTreeMap::from([("lb", claim("lb", Some(("10.0.1.0", 29))))]);
    let written = delivered(&steps(&cluster(&json!({})), &addressing, &claims));
    let record = &written.annotations()[&annotation("bonn")];
    assert_eq!(record, r#"{"item:lb":"10.0.1.0/29"}"#);
    assert_eq!(steps(&written, &addressing, &claims), []);
    let steps = steps(&written, &addressing, &BTreeMap::new());
    assert_eq!(only_problem(&steps).0, conditions::CLAIM_MISSING);
}

#[test]
fn claim_with_another_address_than_the_record_is_not_that_of_the_cluster() {
    let addressing = endpoint_and_pods();
    let written = delivered(&steps(&with_class(), &addressing, &bound()));
    for is_owned in [true, false] {
        let mut claims = bound();
        let mut other = claim("endpoint", Some(("10.0.0.11", 24)));
        if !is_owned {
            other.claim.metadata.owner_references = None;
        }
        claims.insert("endpoint", other);
        let steps = steps(&written, &addressing, &claims);
        let (reason, message) = only_problem(&steps);
        assert_eq!(reason, conditions::CLAIM_MISSING);
        assert!(message.contains("alpha-endpoint"), "{message}");
    }
    // It is not known yet which address it gets.
    let mut claims = bound();
    let mut unbound = claim("endpoint", None);
    unbound.claim.metadata.owner_references = None;
    claims.insert("endpoint", unbound);
    assert_eq!(steps(&written, &addressing, &claims), []);
}

#[test]
fn cluster_that_is_created_again_gets_its_config_maps() {
    let to = json!([{"resource": "MetalLB"}]);
    let mut items = vec![item("lb", "InClusterPrefixPool", &to)];
    let claims = BTreeMap::from([("lb", claim("lb", Some(("10.0.1.0", 29))))]);
    let mut again = delivered(&steps(&cluster(&json!({})), &addressing(&items), &claims));
    again.metadata.uid = Some("new".to_owned());
    // The Cluster does not have the address of an item that was added later.
    items.push(item("more", "InClusterPrefixPool", &to));
    let steps = steps(&again, &addressing(&items), &claims);
    let [Step::CreateConfigMap(created), Step::ProtectClaim(_)] = &*steps else {
        panic!("{steps:?}");
    };
    assert_eq!(created.name_any(), "alpha-lb-metallb");
    assert_eq!(created.owner_references()[0].uid, "new");
    // The owner says that the ConfigMaps exist, and the finalizer waits for nothing.
    let mut claims = claims;
    let claim = &mut claims.get_mut("lb").unwrap().claim;
    claim.metadata.finalizers = None;
    let steps = self::steps(&again, &addressing(&items), &claims);
    let [Step::ProtectClaim(write), Step::CreateConfigMap(_)] = &*steps else {
        panic!("{steps:?}");
    };
    assert!(finalizer::is_set(&write.1, names::PROTECT_CLUSTER_ADDRESS));
    assert_eq!(owner(&write.1), owner(&write.0));
}

#[test]
fn items_of_the_record_are_looked_up() {
    let written = delivered(&steps(&with_class(), &endpoint_and_pods(), &bound()));
    let to = json!([{"clusterNetwork": "Services"}]);
    let changed = addressing(&[item("services", "InClusterPrefixPool", &to)]);
    let found: Vec<String> = item_names(&written, &changed).into_iter().collect();
    assert_eq!(found, ["endpoint", "pods", "services"]);
    let found: Vec<String> = item_names(&with_class(), &changed).into_iter().collect();
    assert_eq!(found, ["services"]);
}

#[test]
fn manifests_are_created_before_the_cluster_is_written() {
    let all = json!([{"resource": "MetalLB"}, {"resource": "CiliumLoadBalancerIPPool"},
        {"resource": "KubeVipConfigMap"}, {"resource": "Values"}]);
    let addressing = addressing(&[item("lb", "InClusterPrefixPool", &all)]);
    let claims = BTreeMap::from([("lb", claim("lb", Some(("fd00::8", 125))))]);
    let steps = steps(&cluster(&json!({})), &addressing, &claims);
    delivered(&steps);
    let config_maps: BTreeMap<String, Value> = steps
        .iter()
        .filter_map(|step| match step {
            Step::CreateConfigMap(config_map) => {
                assert_eq!(config_map.owner_references()[0].uid, CLUSTER_UID);
                let manifest = &config_map.data.as_ref().unwrap()["manifest.yaml"];
                Some((
                    config_map.name_any(),
                    serde_json::from_str(manifest).unwrap(),
                ))
            }
            _ => None,
        })
        .collect();
    let names: Vec<&str> = config_maps.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "alpha-lb-ciliumloadbalancerippool",
            "alpha-lb-kubevipconfigmap",
            "alpha-lb-metallb",
            "alpha-lb-values"
        ]
    );
    assert_eq!(
        config_maps["alpha-lb-metallb"]["spec"],
        json!({"addresses": ["fd00::8/125"]})
    );
    let cilium = &config_maps["alpha-lb-ciliumloadbalancerippool"];
    assert_eq!(cilium["spec"], json!({"blocks": [{"cidr": "fd00::8/125"}]}));
    let kube_vip = &config_maps["alpha-lb-kubevipconfigmap"];
    assert_eq!(kube_vip["data"], json!({"cidr-global": "fd00::8/125"}));
    let values =
        json!({"lb.address": "fd00::8", "lb.cidr": "fd00::8/125", "lb.range": "fd00::8-fd00::f"});
    assert_eq!(config_maps["alpha-lb-values"]["data"], values);
}

#[test]
fn record_that_is_not_valid_is_reported_and_nothing_is_written() {
    for text in ["text", "", "{}", "[]"] {
        let mut cluster = with_class();
        let record = (annotation("bonn"), text.to_owned());
        cluster.annotations_mut().extend([record]);
        for claims in [BTreeMap::new(), bound()] {
            let steps = steps(&cluster, &endpoint_and_pods(), &claims);
            let (reason, message) = only_problem(&steps);
            assert_eq!(reason, conditions::DELIVERY_FAILED, "{text}");
            let expected = "the annotation addressing.ipam.cluster.x-k8s.io/bonn is not a record";
            assert!(message.starts_with(expected), "{message}");
        }
        assert!(!is_delivered(&cluster, &endpoint_and_pods()));
    }
}

/// The states of an item that a plan distinguishes.
const ITEM_STATES: [&str; 7] = [
    "missing", "unbound", "bound", "deleted", "unowned", "previous", "other",
];

/// The states of a field of a Cluster.
const FIELD_STATES: [&str; 3] = ["empty", "same", "different"];

/// The claim of an item in a state; `None` if it is missing.
fn claim_in(state: &str, item: &str, address: (&str, i64)) -> Option<ItemClaim> {
    let mut known = claim(item, (state != "unbound").then_some(address));
    let metadata = &mut known.claim.metadata;
    match state {
        "missing" => return None,
        "deleted" => deleted(&mut known),
        "unowned" => metadata.owner_references = None,
        "previous" => "other".clone_into(&mut metadata.owner_references.as_mut().unwrap()[0].uid),
        "other" => metadata.labels = None,
        _ => {}
    }
    Some(known)
}

/// A Cluster whose endpoint and network of pods are in these states.
fn cluster_in(endpoint: &str, pods: &str) -> AddressableCluster {
    let mut spec = json!({});
    let value = |state: &str, same: &str, different: &str| match state {
        "empty" => None,
        "same" => Some(same.to_owned()),
        _ => Some(different.to_owned()),
    };
    if let Some(host) = value(endpoint, "10.0.0.10", "10.9.9.9") {
        spec["controlPlaneEndpoint"] = json!({"host": host, "port": 6443});
    }
    if let Some(block) = value(pods, "10.128.16.0/20", "192.168.0.0/16") {
        spec["clusterNetwork"] = json!({"pods": {"cidrBlocks": [block]}});
    }
    cluster(&spec)
}

/// Checks the rules that hold for each plan of a Cluster with an endpoint and a network of pods.
fn check_rules(states: [(&str, &str); 2]) {
    let to = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
    let addressing = addressing(&[
        item("endpoint", "InClusterIPPool", &to),
        item(
            "pods",
            "InClusterPrefixPool",
            &json!([{"clusterNetwork": "Pods"}]),
        ),
    ]);
    let [endpoint, pods] = states;
    let before = cluster_in(endpoint.1, pods.1);
    let mut claims = BTreeMap::new();
    for (name, address, (state, _)) in [
        ("endpoint", ("10.0.0.10", 24), endpoint),
        ("pods", ("10.128.16.0", 20), pods),
    ] {
        claims.extend(claim_in(state, name, address).map(|known| (name, known)));
    }
    let steps = steps(&before, &addressing, &claims);
    let is_settled = |(claim, field): &(&str, &str)| match *claim {
        // The user has written the field.
        "missing" => *field != "empty",
        "bound" | "unowned" => *field != "different",
        // The Cluster has the address.
        "deleted" | "previous" => *field == "same",
        _ => false,
    };
    let is_complete = states.iter().all(is_settled);
    let written: Vec<&AddressableCluster> = steps
        .iter()
        .filter_map(|step| match step {
            Step::WriteCluster(wanted) => Some(wanted.as_ref()),
            _ => None,
        })
        .collect();
    assert_eq!(
        written.len(),
        usize::from(is_complete),
        "{states:?}: {steps:?}"
    );
    for step in &steps {
        if let Step::ReleaseClaim(unused) = step {
            let is_endpoint = unused.claim.name_any() == "alpha-endpoint";
            let field = if is_endpoint { endpoint.1 } else { pods.1 };
            assert_ne!(field, "same", "{states:?}: an address in use is released");
        }
    }
    let reports = |step: &Step| {
        matches!(
            step,
            Step::CreateClaim(_) | Step::ReleaseClaim(_) | Step::Report(_)
        )
    };
    assert_eq!(
        steps.iter().any(reports),
        !is_complete,
        "{states:?}: {steps:?}"
    );
    let Some(after) = written.first() else {
        return;
    };
    assert_eq!(
        steps.last(),
        Some(&Step::WriteCluster(Box::new((*after).clone())))
    );
    for field in [
        ClusterField::Endpoint,
        ClusterField::Network(capi_ipam_api::ClusterNetworkKind::Pods),
    ] {
        let value = fields::read(after, &field);
        assert!(value.is_some(), "{states:?}: all fields are written");
        let found = fields::read(&before, &field);
        assert!(
            found.is_none() || found == value,
            "{states:?}: a value is never changed"
        );
    }
    let again = super::plan(after, &addressing, &claims, Versions::default(), None);
    let is_upkeep = |step: &Step| matches!(step, Step::ProtectClaim(_));
    assert!(again.iter().all(is_upkeep), "{states:?}: {again:?}");
}

#[test]
fn rules_hold_in_all_states() {
    let states: Vec<(&str, &str)> = ITEM_STATES
        .into_iter()
        .flat_map(|claim| FIELD_STATES.map(|field| (claim, field)))
        .collect();
    for endpoint in &states {
        for pods in &states {
            check_rules([*endpoint, *pods]);
        }
    }
}
