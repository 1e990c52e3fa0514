//! The sweeper of a manager sends no requests for claims that another manager serves.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::serving;
use crate::support::consumer::Consumer;
use crate::support::control_plane::{ControlPlane, Options, ProviderRequest};
use crate::versions::{assert_same, holdings};

/// Whether a request may be one of a sweeper: neither a watch nor the list with a limit of one that polls the version.
fn is_sweep(request: &ProviderRequest) -> bool {
    let ours = ["ipaddressclaims", "ipaddresses", "ipreservations"];
    let resource = request.resource.split('/').next().unwrap_or_default();
    let polls_version = request.verb == "list" && request.uri.split(['?', '&']).any(|part| part == "limit=1");
    ours.contains(&resource) && request.verb != "watch" && !polls_version
}

/// Asserts that a manager with this flag sends no request in 8 s, beside 200 bound claims that it does not serve.
async fn assert_sends_no_request(flag: impl Fn(&Consumer) -> String) {
    let plane = ControlPlane::start(Options { audit: true, ..Options::default() });
    let (consumer, other) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    let mut unlimited = serving(&plane, &[]);
    consumer.create_pool("web", json!({"addresses": ["10.0.0.0/23"], "prefix": 23})).await;
    let names: Vec<String> = (0..200).map(|number| format!("c{number}")).collect();
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;
    consumer.wait_for_counts("web", (510, 310, 200, 0)).await;
    unlimited.stop();
    let before = holdings(&consumer).await;

    let _manager = serving(&plane, &[&flag(&other)]);
    let earlier = plane.provider_requests().len();
    tokio::time::sleep(Duration::from_secs(8)).await;
    let requests = plane.provider_requests();
    let mut swept: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests.iter().skip(earlier).filter(|request| is_sweep(request)) {
        *swept.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    assert_eq!(swept, BTreeMap::new(), "requests within 8 s without changes");
    assert_same("claims that the manager does not serve", &before, &holdings(&consumer).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeper_sends_no_request_for_claims_of_other_labels() {
    assert_sends_no_request(|_| "--watch-filter=blue".to_owned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeper_sends_no_request_for_other_namespaces() {
    assert_sends_no_request(|other| format!("--namespace={}", other.namespace)).await;
}
