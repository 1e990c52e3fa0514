//! The sweeper of a manager makes no calls for claims that another one serves.

use std::collections::BTreeMap;
use std::time::Duration;

use capi_ipam::serving;
use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::control_plane::{ControlPlane, Options, ProviderRequest};
use capi_ipam::versions::{assert_same, holdings};
use serde_json::json;

/// Whether a sweeper may have sent a request: it is neither a watch nor the list of one object that polls the version.
fn is_sweep(request: &ProviderRequest) -> bool {
    let ours = ["ipaddressclaims", "ipaddresses", "ipreservations"];
    let resource = request.resource.split('/').next().unwrap_or_default();
    let polls_version = request.verb == "list" && request.uri.split(['?', '&']).any(|part| part == "limit=1");
    ours.contains(&resource) && request.verb != "watch" && !polls_version
}

/// Makes sure that a manager with these flags makes no call in 8 s, beside 200 bound claims that it does not serve.
async fn makes_no_call(flag: impl Fn(&Consumer) -> String) {
    let plane = ControlPlane::start(Options { audit: true, ..Options::default() });
    let (consumer, other) = (Consumer::new(&plane).await, Consumer::new(&plane).await);
    let mut unlimited = serving(&plane, &[]);
    consumer.pool("web", json!({"addresses": ["10.0.0.0/23"], "prefix": 23})).await;
    let names: Vec<String> = (0..200).map(|number| format!("c{number}")).collect();
    consumer.claim_all(&names, "web").await;
    consumer.all_bound(&names).await;
    consumer.counts("web", (510, 310, 200, 0)).await;
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
    assert_eq!(swept, BTreeMap::new(), "calls within 8 s at rest");
    assert_same("claims that the manager does not serve", &before, &holdings(&consumer).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeper_makes_no_call_for_claims_of_other_labels() {
    makes_no_call(|_| "--watch-filter=blue".to_owned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeper_makes_no_call_for_claims_of_other_namespaces() {
    makes_no_call(|other| format!("--namespace={}", other.namespace)).await;
}
