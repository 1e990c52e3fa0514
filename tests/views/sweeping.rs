//! The sweeper of a manager sends no requests for claims that another manager serves.

use support::{control_plane::ProviderRequest, prelude::*};

use crate::{
    serving, settled,
    versions::{assert_same, holdings},
};

/// Whether a request may be one of a sweeper. A sweeper reads single objects; lists and watches are
/// those of caches.
fn is_sweep(request: &ProviderRequest) -> bool {
    let ours = ["ipaddressclaims", "ipaddresses", "ipreservations"];
    let resource = request.resource.split('/').next().unwrap_or_default();
    ours.contains(&resource) && !["list", "watch"].contains(&request.verb.as_str())
}

/// The requests so far that may be those of a sweeper.
fn sweeps(plane: &ControlPlane) -> Vec<ProviderRequest> {
    plane
        .provider_requests()
        .into_iter()
        .filter(is_sweep)
        .collect()
}

/// Asserts that a manager with this flag sends no request in 8 s, beside 200 bound claims that it
/// does not serve.
async fn assert_sends_no_request(flag: impl Fn(&Consumer) -> String) {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    });
    let (consumer, other) = two_consumers(&plane).await;
    let mut unlimited = serving(&plane, &[]);
    consumer
        .create_pool("web", json!({"addresses": ["10.0.0.0/23"], "prefix": 23}))
        .await;
    let names: Vec<String> = numbered("c", 200);
    consumer.create_claims(&names, "web").await;
    consumer.wait_for_addresses(&names).await;
    consumer.wait_for_counts("web", (510, 310, 200, 0)).await;
    unlimited.stop();
    let before = holdings(&consumer).await;

    let _manager = serving(&plane, &[&flag(&other)]);
    let earlier = settled("requests in the audit log", || sweeps(&plane).len()).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let mut swept: BTreeMap<String, usize> = BTreeMap::new();
    for request in sweeps(&plane).iter().skip(earlier) {
        *swept
            .entry(format!("{} {}", request.verb, request.resource))
            .or_default() += 1;
    }
    assert_eq!(
        swept,
        BTreeMap::new(),
        "requests within 8 s without changes"
    );
    assert_same(
        "claims that the manager does not serve",
        &before,
        &holdings(&consumer).await,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeper_sends_no_request_for_claims_of_other_labels() {
    assert_sends_no_request(|_| "--watch-filter=blue".to_owned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sweeper_sends_no_request_for_other_namespaces() {
    assert_sends_no_request(|other| format!("--namespace={}", other.namespace)).await;
}
