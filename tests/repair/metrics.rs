//! The metrics of pools, claims, controllers and requests.

use support::prelude::*;

use crate::{environment, metric, scrape, with_claims};

/// The metrics that a manager without webhooks, leader election, registries, allocation log and plans
/// of rollouts has, and without a failure of a watch.
fn is_expected(name: &str) -> bool {
    !name.starts_with("webhook_")
        && !name.starts_with("capi_ipam_registry_request")
        && !name.starts_with("capi_ipam_allocation_log")
        && name != "capi_ipam_pool_planned_addresses"
        && !["leader", "watch_restarts_total", "controller_retries_total"].contains(&name)
}

/// The names of the metrics in the documentation.
fn documented() -> BTreeSet<&'static str> {
    let lines = include_str!("../../docs/metrics.md").lines();
    lines
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect()
}

#[tokio::test]
async fn documented_metrics_are_served() {
    let consumer = with_claims(3, &["a", "b"]).await;
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    consumer
        .create_leftover_address("left", pool, "10.0.0.3")
        .await;
    // Creation times have whole seconds: of two waiting claims either could get the freed address.
    consumer.bind("c", "web").await;
    consumer.claim_waits("d", "web", "PoolExhausted").await;
    let network = format!("net-{}", consumer.namespace);
    consumer.create_open_network(&network).await;
    for (pool, addresses) in [
        ("left", "10.60.0.1-10.60.0.9"),
        ("right", "10.60.0.8-10.60.0.20"),
    ] {
        consumer
            .create_pool(
                pool,
                json!({"addresses": [addresses], "prefix": 24, "network": network}),
            )
            .await;
    }
    let text = consumer
        .wait_for_network_condition(&network, "True", "MembersOverlap")
        .await;
    assert!(text.starts_with("2 addresses"), "{text}");
    let labels = format!(
        "kind=\"InClusterIPPool\",namespace=\"{}\",pool=\"web\"",
        consumer.namespace
    );
    for (sample, value) in [
        (format!("capi_ipam_pool_waiting_claims{{{labels}}}"), 1.0),
        (
            format!("capi_ipam_pool_addresses{{{labels},state=\"total\"}}"),
            3.0,
        ),
        (
            format!("capi_ipam_pool_addresses{{{labels},state=\"used\"}}"),
            3.0,
        ),
        (
            format!("capi_ipam_network_addresses{{network=\"{network}\",state=\"total\"}}"),
            20.0,
        ),
        (
            format!("capi_ipam_network_pools{{network=\"{network}\",phase=\"member\"}}"),
            2.0,
        ),
    ] {
        until(&sample, async || {
            Some((metric(&sample)? - value).abs() < 0.5)
        })
        .await;
    }
    for sample in [
        "capi_ipam_orphans_freed_total{what=\"ipaddresses\"}",
        "capi_ipam_claim_failures_total{reason=\"PoolExhausted\"}",
        "capi_ipam_claims{state=\"waiting\"}",
        "capi_ipam_claim_bind_seconds_count",
        "controller_reconcile_seconds_count{controller=\"claims\",outcome=\"success\"}",
        "apiserver_request_seconds_count{verb=\"create\",resource=\"ipreservations\",code=\"201\"}",
        "apiserver_request_seconds_count{verb=\"watch\",resource=\"ipaddressclaims\",code=\"200\"}",
    ] {
        until(sample, async || Some(metric(sample)? >= 1.0)).await;
    }
    let text = scrape(environment().metrics).expect("the manager serves metrics");
    let served: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    let documented = documented();
    let base = |name: &str| name.strip_suffix("_total").unwrap_or(name).to_owned();
    let names: BTreeSet<String> = documented.iter().map(|name| base(name)).collect();
    let unknown: Vec<_> = served
        .iter()
        .filter(|name| !names.contains(**name))
        .collect();
    assert!(
        unknown.is_empty(),
        "docs/metrics.md does not contain {unknown:?}"
    );
    let missing: Vec<_> = documented
        .iter()
        .filter(|name| is_expected(name) && !served.contains(base(name).as_str()))
        .collect();
    assert!(missing.is_empty(), "not served: {missing:?} in\n{text}");
    consumer.release("a").await;
    consumer.wait_for_address("d").await;
    let sample = format!("capi_ipam_pool_waiting_claims{{{labels}}}");
    until("no claim waits", async || Some(metric(&sample)? < 0.5)).await;
    assert!(!environment().manager.was_forbidden());
}
