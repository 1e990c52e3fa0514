//! Warnings: pools that are valid but probably unintended are written with a warning to the client.

use capi_ipam_api::InClusterKind::{self, GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use serde_json::{Value, json};

use crate::api_client::{ApiClient, JSON, post_review};
use crate::shared;
use support::consumer::{Consumer, unique};
use support::wait::{eventually, eventually_ok};

async fn client() -> ApiClient {
    ApiClient::new(&Consumer::new(&shared().plane).await)
}

/// Asserts that the creation of a pool and the change of a pool without warnings return exactly
/// these warnings.
async fn assert_warnings(kind: InClusterKind, spec: Value, expected: &[&str]) {
    let client = client().await;
    let (name, other) = (unique("warned"), unique("warned"));
    let created = client.create(kind, &name, &spec).await;
    assert!(created.is_ok(), "{created:?}");
    assert_eq!(created.warnings, expected);
    let direct = post_review(
        &shared().webhooks,
        kind,
        "CREATE",
        &Value::Null,
        &client.pool(kind, &name, &spec),
    )
    .await;
    assert_eq!(direct.warnings, expected);
    // A change that does not affect the spec returns no warning.
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(client.patch(kind, &name, &labels).await.warnings, [""; 0]);
    client.delete(kind, &name).await.into_object();

    let mut before = spec.clone();
    for field in [
        "gateway",
        "excludedAddresses",
        "excludedPrefixes",
        "headroom",
        "reclaim",
    ] {
        before
            .as_object_mut()
            .expect("a specification is an object")
            .remove(field);
    }
    client.create(kind, &other, &before).await.into_object();
    let change = json!({"spec": spec});
    if before != spec {
        eventually_ok(
            "the deletion of the first pool is observed, and exactly these warnings are returned",
            || async {
                let warnings = client.dry_run_patch(kind, &other, &change).await.warnings;
                if warnings == expected {
                    Ok(())
                } else {
                    Err(format!("{kind}: {warnings:?}"))
                }
            },
        )
        .await;
    }
    client.patch(kind, &other, &change).await.into_object();
    client.delete(kind, &other).await.into_object();
}

#[tokio::test]
async fn plausible_pool_gets_no_warning() {
    for (kind, third) in [(IPPool, 0), (GlobalIPPool, 1)] {
        let spec = json!({"addresses": [format!("100.64.{third}.0/24")], "prefix": 24,
                          "gateway": format!("100.64.{third}.1"), "excludedAddresses": [format!("100.64.{third}.200")]});
        assert_warnings(kind, spec, &[]).await;
    }
    for (kind, second) in [(PrefixPool, 1), (GlobalPrefixPool, 2)] {
        let spec = json!({"prefixes": [format!("fd64:{second}::/48")], "gateway": "fe80::1",
                          "excludedPrefixes": [format!("fd64:{second}::/60")]});
        assert_warnings(kind, spec, &[]).await;
    }
}

#[tokio::test]
async fn limit_of_terminating_claims_is_warned_about() {
    let reclaim = json!({"terminating": {"afterSeconds": 86400}});
    let expected = "spec.reclaim.terminating.afterSeconds: an address is released 86400 seconds after the deletion of \
                    its claim, even if a machine still uses it; another machine can then get the same address";
    for (kind, third) in [(IPPool, 12), (GlobalIPPool, 13)] {
        let spec = json!({"addresses": [format!("100.64.{third}.0/24")], "prefix": 24, "reclaim": reclaim});
        assert_warnings(kind, spec, &[expected]).await;
    }
}

#[tokio::test]
async fn gateway_outside_the_subnet_is_warned_about() {
    for (kind, third) in [(IPPool, 2), (GlobalIPPool, 3)] {
        let addresses = format!("100.64.{third}.10-100.64.{third}.20");
        let spec = json!({"addresses": [addresses], "prefix": 24, "gateway": "192.168.0.1"});
        let expected =
            format!("spec.gateway: 192.168.0.1 is outside of the subnet 100.64.{third}.0/24");
        assert_warnings(kind, spec, &[&expected]).await;
    }
}

#[tokio::test]
async fn host_bits_are_warned_about() {
    for (kind, third) in [(IPPool, 20), (GlobalIPPool, 21)] {
        let network = format!("100.64.{third}");
        let spec = json!({"addresses": [format!("{network}.200/28")], "prefix": 24,
                          "excludedAddresses": [format!("{network}.193/30")]});
        let expected = [
            format!(
                "spec.addresses[0]: {network}.200/28 means {network}.192/28 (16 addresses, {network}.192-{network}.207)"
            ),
            format!(
                "spec.excludedAddresses[0]: {network}.193/30 means {network}.192/30 (4 addresses, {network}.192-{network}.195)"
            ),
        ];
        let client = client().await;
        let created = client.create(kind, &unique("host-bits"), &spec).await;
        assert_eq!((created.code, created.warnings), (201, expected.to_vec()));
    }
    let network = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPNetwork", "metadata": {"name": unique("host-bits")},
        "spec": {"excluded": ["fd00::5/126"], "namespaces": {"from": "Selector", "selector": {}}},
    });
    let path = "/apis/ipam.cluster.x-k8s.io/v1alpha2/ipnetworks";
    let created = client().await.call("POST", path, JSON, &network).await;
    let expected = [
        "spec.excluded[0]: fd00::5/126 means fd00::4/126 (4 addresses, fd00::4-fd00::7)",
        "spec.namespaces.selector: is empty and selects all namespaces; write from: All if this is intended",
    ];
    assert_eq!(
        (created.code, created.warnings),
        (201, expected.map(str::to_owned).to_vec())
    );
}

#[tokio::test]
async fn exclusion_outside_the_pool_is_warned_about() {
    for (kind, third) in [(IPPool, 4), (GlobalIPPool, 5)] {
        let spec = json!({"addresses": [format!("100.64.{third}.10-100.64.{third}.20")], "prefix": 24,
                          "excludedAddresses": [format!("100.64.{third}.20"), "10.99.0.0/16"]});
        let expected =
            "spec.excludedAddresses[1]: 10.99.0.0/16 excludes nothing: it is not in the pool";
        assert_warnings(kind, spec, &[expected]).await;
    }
    for (kind, second) in [(PrefixPool, 4), (GlobalPrefixPool, 5)] {
        let spec =
            json!({"prefixes": [format!("fd64:{second}::/48")], "excludedPrefixes": ["fd99::/64"]});
        let expected =
            "spec.excludedPrefixes[0]: fd99::/64 excludes nothing: it is not in the pool";
        assert_warnings(kind, spec, &[expected]).await;
    }
}

#[tokio::test]
async fn single_address_prefixes_are_warned_about() {
    for (kind, second) in [(PrefixPool, 6), (GlobalPrefixPool, 7)] {
        let spec =
            json!({"prefixes": [format!("fd64:{second}::/120")], "allocationPrefixLength": 128});
        let expected = "spec.allocationPrefixLength: 128 allocates single addresses; consider a pool of addresses instead";
        assert_warnings(kind, spec, &[expected]).await;
    }
}

#[tokio::test]
async fn gateway_within_the_prefixes_is_warned_about() {
    for (kind, second) in [(PrefixPool, 8), (GlobalPrefixPool, 9)] {
        let gateway = format!("fd64:{second}::1");
        let spec = json!({"prefixes": [format!("fd64:{second}::/48")], "gateway": gateway});
        let expected = format!(
            "spec.gateway: {gateway} is within the pool and can be allocated; exclude it to prevent this"
        );
        assert_warnings(kind, spec, &[&expected]).await;
    }
}

#[tokio::test]
async fn overlap_with_another_pool_is_warned_about() {
    let client = client().await;
    let (first, second) = (unique("overlapping"), unique("overlapping"));
    client
        .create(
            GlobalIPPool,
            &first,
            &json!({"addresses": ["100.64.10.0/24"], "prefix": 24}),
        )
        .await
        .into_object();
    let spec = json!({"addresses": ["100.64.10.200-100.64.10.210"], "prefix": 24});
    let response = eventually("the overlap is observed", || async {
        let response = client.dry_run_create(IPPool, &second, &spec).await;
        (!response.warnings.is_empty()).then_some(response)
    })
    .await;
    let problem = format!(
        "the same addresses, such as 100.64.10.200-100.64.10.210, can be allocated by GlobalInClusterIPPool {first}, so \
         two machines can get one address"
    );
    let advice = "overlapping pools: if they are in one network, create an IPNetwork that allows the namespaces, and \
                  name the same IPNetwork in spec.network of all of them; otherwise exclude the \
                  shared range in all but one of them";
    let expected = vec![problem, advice.to_owned()];
    assert_eq!((response.code, &response.warnings), (201, &expected));
    // A pool of prefixes overlaps with pools of addresses, too.
    let prefixes = json!({"prefixes": ["100.64.0.0/18"], "allocationPrefixLength": 24});
    let response = client.dry_run_create(PrefixPool, &second, &prefixes).await;
    assert!(
        response
            .warnings
            .iter()
            .any(|warning| warning.contains("one network cannot have them")),
        "{response:?}"
    );
    // A pool does not overlap with itself, nor with one of its network.
    let more = json!({"spec": {"addresses": ["100.64.10.0/25"]}});
    assert_eq!(
        client
            .dry_run_patch(GlobalIPPool, &first, &more)
            .await
            .warnings,
        [""; 0]
    );
    let (lab, third) = (unique("lab"), unique("overlapping"));
    Consumer::new(&shared().plane)
        .await
        .create_open_network(&lab)
        .await;
    let networked =
        |addresses: &str| json!({"addresses": [addresses], "prefix": 24, "network": lab});
    client
        .create(IPPool, &third, &networked("100.64.11.0/24"))
        .await
        .into_object();
    let path = client.path(IPPool, "v1alpha2", &third);
    eventually("the pool joins the network", || async {
        let pool = client.get(&path).await;
        pool["status"]["network"].is_object().then_some(())
    })
    .await;
    let (fourth, spec) = (unique("overlapping"), networked("100.64.11.0/25"));
    eventually("the network is observed", || async {
        let response = client.dry_run_create(GlobalIPPool, &fourth, &spec).await;
        (response.is_ok() && response.warnings.is_empty()).then_some(())
    })
    .await;
    let response = client.create(GlobalIPPool, &fourth, &spec).await;
    assert_eq!((response.code, response.warnings), (201, Vec::new()));
}

#[tokio::test]
async fn headroom_of_the_whole_pool_is_warned_about() {
    let headroom = json!({"addresses": 4, "for": {"matchLabels": {"role": "control-plane"}}});
    let spec = json!({"addresses": ["100.66.7.1-100.66.7.4"], "prefix": 24, "headroom": headroom});
    let warning = "spec.headroom.addresses: 4 leaves no address for other claims; the pool has 4";
    assert_warnings(GlobalIPPool, spec, &[warning]).await;
}

#[tokio::test]
async fn tightened_rules_are_warned_about() {
    let consumer = Consumer::new(&shared().plane).await;
    let client = ApiClient::new(&consumer);
    let pool = unique("tightened");
    consumer
        .create_global_pool(
            &pool,
            json!({"addresses": ["100.66.8.1-100.66.8.9"], "prefix": 24}),
        )
        .await;
    for name in ["a", "b", "c"] {
        consumer.create_global_claim(name, &pool).await;
        consumer.wait_for_address(name).await;
    }
    let rules = json!({"limits": {"perNamespace": 1}, "allowedNamespaces": {"from": "None"}});
    let expected = [
        "spec.limits: 1 namespace or Cluster has 2 addresses more; addresses in use are kept",
        "spec.allowedNamespaces: 3 addresses are in namespaces that are not allowed; addresses in use are kept",
    ];
    eventually("the addresses are counted", || async {
        (client
            .dry_run_patch(GlobalIPPool, &pool, &json!({"spec": rules}))
            .await
            .warnings
            == expected)
            .then_some(())
    })
    .await;
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
    let invalid = json!({"spec": {"headroom": {"addresses": 1, "for": selector}}});
    let denied = client.dry_run_patch(GlobalIPPool, &pool, &invalid).await;
    denied.assert_denied(422, "spec.headroom.for", "spec.headroom.for");
}

#[tokio::test]
async fn v1alpha1_gets_the_same_warnings() {
    let client = client().await;
    for (kind, second) in [(IPPool, 15), (GlobalIPPool, 16)] {
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind.name(), "metadata": {"name": unique("old")},
            "spec": {"subnet": format!("100.64.{second}.9/24"), "gateway": "192.168.0.1"},
        });
        let response = client
            .call("POST", &client.path(kind, "v1alpha1", ""), JSON, &pool)
            .await;
        let text = |what: &str| {
            response
                .warnings
                .iter()
                .any(|warning| warning.contains(what))
        };
        assert!(
            response.code == 201
                && text("192.168.0.1 is outside of the subnet")
                && text("deprecated"),
            "{response:?}"
        );
        assert!(
            text(&format!(
                "spec.subnet: 100.64.{second}.9/24 means 100.64.{second}.0/24"
            )),
            "{response:?}"
        );
    }
}

#[test]
fn kubectl_prints_warnings() {
    let plane = &shared().plane;
    let file = plane.folder().join("warned.json");
    let pool = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
        "metadata": {"name": unique("kubectl")},
        "spec": {"addresses": ["100.64.14.0/24"], "prefix": 24, "gateway": "192.168.0.1"},
    });
    std::fs::write(&file, pool.to_string()).expect("a file can be written");
    // With this flag a warning is an error, and the error is the output of kubectl.
    let response = plane.try_kubectl(&[
        "create",
        "--warnings-as-errors",
        "-f",
        &file.display().to_string(),
    ]);
    let text = response.expect_err("there is a warning");
    assert!(
        text.contains("Warning: spec.gateway: 192.168.0.1 is outside of the subnet 100.64.14.0/24"),
        "{text}"
    );
}
