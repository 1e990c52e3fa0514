//! Name servers, search domains and DNS names of addresses.

use std::path::PathBuf;

use capi_ipam_api::{conditions, names};
use support::control_plane::ensure;
use support::prelude::*;

use crate::{consumer, start_with};

const NAME: &str = names::DNS_NAME_ANNOTATION;

/// The annotations of the IPAddress of a claim for DNS: name servers, search domains and DNS name.
async fn annotations(consumer: &Consumer, claim: &str) -> [String; 3] {
    let address = consumer.the_address(claim).await;
    let annotations = address.annotations();
    [
        names::DNS_SERVERS_ANNOTATION,
        names::SEARCH_DOMAINS_ANNOTATION,
        NAME,
    ]
    .map(|name| annotations.get(name).cloned().unwrap_or_default())
}

#[tokio::test]
async fn addresses_have_the_name_servers_of_their_range() {
    let consumer = consumer().await;
    let spec = json!({
        "addresses": ["10.0.0.1"], "prefix": 24,
        "dnsServers": ["10.0.0.53", "10.0.1.53"], "searchDomains": ["example.com", "b.example.com"],
        "ranges": [{"addresses": ["10.1.0.1"], "prefix": 24, "dnsServers": ["10.1.0.53"]}],
    });
    consumer.create_pool("pool", spec).await;
    consumer.bind_to("first", "pool", "10.0.0.1").await;
    consumer.bind_to("second", "pool", "10.1.0.1").await;
    let domains = "example.com,b.example.com";
    assert_eq!(
        annotations(&consumer, "first").await,
        ["10.0.0.53,10.0.1.53", domains, ""]
    );
    assert_eq!(
        annotations(&consumer, "second").await,
        ["10.1.0.53", domains, ""]
    );
    let spec = json!({"addresses": ["10.2.0.1"], "prefix": 24, "dns": {"zone": "m.example.com"}});
    consumer.create_pool("named", spec).await;
    // The garbage collector does not know this kind, and so keeps the claim.
    let owner = json!({"ownerReferences": [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "TestVM",
                       "name": "vm-1", "uid": "1"}]});
    consumer.bind_with_metadata("third", "named", owner).await;
    let expected = ["", "", "vm-1.m.example.com"];
    assert_eq!(annotations(&consumer, "third").await, expected);
}

/// Waits until the DNSEndpoint of a claim has this name, record type and target; empty if there is
/// none.
async fn wait_for_endpoint(plane: &ControlPlane, consumer: &Consumer, claim: &str, expected: &str) {
    let path = "-o=jsonpath={range .spec.endpoints[*]}{.dnsName} {.recordType} {.targets}{end}";
    let namespace = consumer.namespace.as_str();
    let arguments = [
        "-n",
        namespace,
        "get",
        "dnsendpoint",
        claim,
        path,
        "--ignore-not-found",
    ];
    let what = format!("the DNSEndpoint of {claim} is {expected:?}");
    eventually(&what, async || {
        (plane.kubectl(&arguments) == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn dns_endpoint_follows_its_address() {
    let world = start_with(&["--dns-endpoints"], |plane| {
        plane.permit("dns-endpoints");
        let folder = PathBuf::from(ensure(&["external-dns"]));
        let file = folder.join("dnsendpoints.externaldns.k8s.io.yaml");
        let definition = std::fs::read_to_string(file).expect("the definition can be read");
        plane.kubectl_apply(&definition);
    });
    let plane = &world.control_plane;
    let consumer = Consumer::new(plane).await;
    let spec =
        json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24, "dns": {"zone": "m.example.com"}});
    consumer.create_pool("pool", spec).await;
    let spec = json!({"addresses": ["fd00::1"], "prefix": 64, "dns": {"zone": "six.example.com"}});
    consumer.create_pool("six", spec).await;
    consumer.bind_to("a", "pool", "10.0.0.1").await;
    consumer.bind_to("s", "six", "fd00::1").await;
    let (of_a, of_s) = (
        r#"a.m.example.com A ["10.0.0.1"]"#,
        r#"s.six.example.com AAAA ["fd00::1"]"#,
    );
    wait_for_endpoint(plane, &consumer, "a", of_a).await;
    wait_for_endpoint(plane, &consumer, "s", of_s).await;

    let namespace = consumer.namespace.as_str();
    plane.kubectl(&["-n", namespace, "delete", "dnsendpoint", "a"]);
    wait_for_endpoint(plane, &consumer, "a", of_a).await;
    let annotate = |value: &str| {
        let annotation = format!("{NAME}{value}");
        plane.kubectl(&[
            "-n",
            namespace,
            "annotate",
            "--overwrite",
            "ipaddresses.ipam.cluster.x-k8s.io/a",
            &annotation,
        ]);
    };
    // A name outside of the zone is refused.
    annotate("=www.example.com");
    consumer
        .wait_for_event("a", "Warning", conditions::DNS_NAME_REFUSED, "zone")
        .await;
    wait_for_endpoint(plane, &consumer, "a", of_a).await;
    annotate("=www.m.example.com");
    wait_for_endpoint(plane, &consumer, "a", r#"www.m.example.com A ["10.0.0.1"]"#).await;
    annotate("-");
    wait_for_endpoint(plane, &consumer, "a", "").await;

    consumer.release("s").await;
    wait_for_endpoint(plane, &consumer, "s", "").await;
    // A DNSEndpoint of somebody else is not changed.
    let other = json!({"apiVersion": "externaldns.k8s.io/v1alpha1", "kind": "DNSEndpoint",
        "metadata": {"namespace": namespace, "name": "b"}, "spec": {"endpoints": []}});
    plane.kubectl_apply(&other.to_string());
    consumer.bind_to("b", "pool", "10.0.0.2").await;
    consumer
        .wait_for_event("b", "Warning", conditions::DNS_NAME_REFUSED, "another")
        .await;
    wait_for_endpoint(plane, &consumer, "b", "").await;
    assert!(!world.manager.was_forbidden(), "{}", world.manager.log());
}
