//! Warnings: pools that are valid but probably unintended are written with a warning to the client.

use capi_ipam_api::InClusterKind::{GlobalIPPool, IPPool};
use support::prelude::*;

use crate::{
    api_client::{ApiClient, JSON},
    shared,
};

async fn client() -> ApiClient {
    ApiClient::new(&Consumer::new(&shared().plane).await)
}

/// `tests/data/specifications.yaml` has the warnings about each specification.
#[tokio::test]
async fn creation_and_change_of_the_spec_are_warned_about() {
    let (client, name) = (client().await, unique("warned"));
    let spec = |gateway: &str| json!({"addresses": ["100.64.2.10-100.64.2.20"], "prefix": 24, "gateway": gateway});
    let expected = ["spec.gateway: 192.168.0.1 is outside of the subnet 100.64.2.0/24"];
    let wrong = spec("192.168.0.1");
    let created = client.create(IPPool, &name, &wrong).await;
    assert_eq!(created.warnings, expected);
    created.into_object();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let corrected = json!({"spec": spec("100.64.2.1")});
    for change in [labels, corrected] {
        assert_eq!(client.patch(IPPool, &name, &change).await.warnings, [""; 0]);
    }
    let changed = json!({"spec": wrong});
    assert_eq!(
        client.patch(IPPool, &name, &changed).await.warnings,
        expected
    );
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
    // A pool does not overlap with itself.
    let more = json!({"spec": {"addresses": ["100.64.10.0/25"]}});
    let response = client.dry_run_patch(GlobalIPPool, &first, &more).await;
    assert_eq!(response.warnings, [""; 0]);
}

#[tokio::test]
async fn tightened_rules_are_warned_about() {
    let consumer = Consumer::new(&shared().plane).await;
    let client = ApiClient::new(&consumer);
    let pool = unique("tightened");
    consumer
        .create_global_pool(&pool, "100.66.8.1-100.66.8.9")
        .await;
    for name in ["a", "b", "c"] {
        consumer.bind_global(name, &pool).await;
    }
    let rules = json!({"limits": {"perNamespace": 1}, "allowedNamespaces": {"from": "None"}});
    let expected = [
        "spec.limits: 1 namespace or Cluster has 2 addresses more; addresses in use are kept",
        "spec.allowedNamespaces: 3 addresses are in namespaces that are not allowed; addresses in use are kept",
    ];
    until("the addresses are counted", async || {
        Some(
            client
                .dry_run_patch(GlobalIPPool, &pool, &json!({"spec": rules}))
                .await
                .warnings
                == expected,
        )
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
    assert_contains(
        &response.expect_err("there is a warning"),
        "Warning: spec.gateway: 192.168.0.1 is outside of the subnet 100.64.14.0/24",
    );
}
