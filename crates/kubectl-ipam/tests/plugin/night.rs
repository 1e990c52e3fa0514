//! The operator's night: what breaks in a real system, and whether `doctor` and `status` say it.
//! Rows with `day` are in the recordings of `day.rs`.
//!
//! | # | broken | `doctor` | test here | other layers, tested elsewhere |
//! |---|---|---|---|---|
//! | 1 | pool full | `PoolExhausted` | day | condition: tests/cluster/exhaustion.rs; alert: tests/alerts |
//! | 2 | gateway outside of the subnet | `UnusableGateway` | day | warning: tests/webhooks/warnings.rs |
//! | 3 | overlapping pools | `DuplicateAddress`, `PoolsOverlap` | day | condition: tests/cluster/pools.rs |
//! | 4 | pool does not exist | `MissingPool` | day | condition: tests/cluster/reporting.rs |
//! | 5 | typing error in the kind | `UnknownPoolKind` | day | `claims`: doctor.rs |
//! | 6 | finalizer of another controller | `ReleaseBlocked` | day | condition: tests/cluster/finalizers.rs |
//! | 7 | namespace in deletion | `ReleaseBlocked` | day | tests/cluster/lifecycle.rs |
//! | 8 | webhooks gone | `WebhookFailing`, `ReplicasNotReady` | webhooks | alert: tests/alerts/webhooks.yaml |
//! | 9 | definition missing, manager runs | `MissingDefinition` | definitions | probes: tests/rollout/readiness.rs |
//! | 9b | definition missing at the start | `MissingDefinition` | definitions | probes: tests/rollout/readiness.rs |
//! | 10 | permission missing | `MissingPermission` | definitions | probes: tests/rollout/permissions.rs |
//! | 11 | manager killed | `NoLeader`, `NotReconciled` | managers | tests/rollout/restart.rs |
//! | 12 | two active managers | `SeveralManagers` | managers | tests/rollout/several.rs |
//! | 13 | claims restored without IPAddresses | `RestoredWithoutAddress` | day | tests/cluster/restore.rs |
//! | 14 | pool shrunk below its use | `AddressesOutOfRange` | day | webhook: tests/webhooks/in_use.rs |
//! | 15 | pool in deletion | `PoolDeleting` | day | tests/cluster/lifecycle.rs |
//! | 16 | paused Cluster, claim, pool | `Paused` | day | condition: tests/cluster/pausing.rs |
//! | 17 | expired certificate, other authority | `WebhookFailing` | webhooks | metric: tests/webhooks/certificates.rs |
//! | 18 | API server frozen | `NoLeader` until the restart | managers | tests/chaos/outages.rs |
//! | 19 | other authority of the conversion | `ConversionFailing` | webhooks | |
//! | 20 | older definition, same versions | `OutdatedDefinition` | definitions | |

pub(crate) mod system;

use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use self::system::{ACCOUNT, System};
use crate::run;

fn range(addresses: &str) -> Value {
    json!({ "addresses": [addresses], "prefix": 24 })
}

/// Rows 8, 17 and 19.
#[tokio::test]
async fn night_of_webhooks() {
    let mut system = System::start().await;
    system.trust_another();
    let problem = system
        .finds("Error", "WebhookFailing", "configuration", "Webhooks")
        .await;
    assert!(
        problem.contains("x509: certificate signed by unknown authority"),
        "{problem}"
    );
    system.trust();
    system.is_healthy().await;

    system.convert_with_another();
    let definition = "customresourcedefinition inclusterippools.ipam.cluster.x-k8s.io";
    let problem = system
        .finds("Error", "ConversionFailing", definition, "Webhooks")
        .await;
    assert!(
        problem.contains("x509: certificate signed by unknown authority"),
        "{problem}"
    );
    system.convert();
    system.is_healthy().await;

    system.renew(2002);
    system.restart();
    let problem = system
        .finds("Error", "WebhookFailing", "configuration", "Webhooks")
        .await;
    assert!(
        problem.contains("x509: certificate has expired"),
        "{problem}"
    );
    system.renew(2100);
    system.restart();
    system.is_healthy().await;

    system.manager.kill();
    system.deploy(0);
    let problem = system
        .finds("Error", "WebhookFailing", "configuration", "Webhooks")
        .await;
    assert!(problem.contains("connection refused"), "{problem}");
    system
        .finds("Error", "ReplicasNotReady", ACCOUNT, "Probes")
        .await;
}

/// Rows 9, 9b, 10 and 20.
#[tokio::test]
async fn night_of_definitions_and_permissions() {
    let mut system = System::start().await;
    let definition = "ipreservations.ipam.cluster.x-k8s.io";
    let stored = system
        .plane
        .kubectl(&["get", "crd", definition, "-o", "json"]);
    system.plane.kubectl(&["delete", "crd", definition]);
    system
        .finds("Error", "MissingDefinition", definition, "Definitions")
        .await;
    system.restart();
    system
        .finds("Error", "MissingDefinition", definition, "Definitions")
        .await;
    let (code, output, _) = run(system.admin(), &["doctor"]);
    assert_eq!(code, 5, "{output}");
    assert!(output.contains("\n  error MissingDefinition: "), "{output}");
    system.plane.kubectl_apply(&stored);
    system.restart();
    system.is_healthy().await;

    // The manager needs to know which Clusters are paused.
    let clusters = "clusters.cluster.x-k8s.io";
    let stored = system
        .plane
        .kubectl(&["get", "crd", clusters, "-o", "json"]);
    system.plane.kubectl(&["delete", "crd", clusters]);
    system
        .finds("Error", "MissingDefinition", clusters, "Definitions")
        .await;
    system.plane.kubectl_apply(&stored);
    system.is_healthy().await;

    // As with a manifest of an older release.
    let definition = "inclusterippools.ipam.cluster.x-k8s.io";
    let path = "/spec/versions/1/schema/openAPIV3Schema/properties/status/properties/slices";
    let stored = system
        .plane
        .kubectl(&["get", "crd", definition, "-o", "json"]);
    let stored: Value = serde_json::from_str(&stored).expect("a definition is JSON");
    let field = stored
        .pointer(path)
        .expect("the stored version is the second one");
    let write = |operation: Value| {
        let operations = json!([operation]).to_string();
        system
            .plane
            .kubectl(&["patch", "crd", definition, "--type=json", "-p", &operations]);
    };
    write(json!({ "op": "remove", "path": path }));
    let problem = system
        .finds("Error", "OutdatedDefinition", definition, "Definitions")
        .await;
    assert!(
        problem.contains(" without status.slices, and removes"),
        "{problem}"
    );
    write(json!({ "op": "add", "path": path, "value": field }));
    system.is_healthy().await;

    let role = "capi-ipam-in-cluster-manager-role";
    let stored = system
        .plane
        .kubectl(&["get", "clusterrole", role, "-o", "json"]);
    system.plane.kubectl(&["delete", "clusterrole", role]);
    let problem = system
        .finds("Error", "MissingPermission", ACCOUNT, "Permissions")
        .await;
    assert!(
        problem.contains(" permissions are missing, first: ")
            && problem.contains("ipaddressclaims.ipam.cluster.x-k8s.io"),
        "{problem}"
    );
    system.plane.kubectl_apply(&stored);
    system.is_healthy().await;
}

/// Rows 11, 12 and 18.
#[tokio::test]
async fn night_of_managers() {
    let mut system = System::start().await;
    system.pool("web", &range("10.1.0.10-10.1.0.99"));
    let second = system.second_manager();
    second.wait_until_ready();
    eventually("both managers publish events", async || {
        let (_, output, _) = run(system.admin(), &["doctor"]);
        if output.contains("SeveralManagers: managers") {
            return Some(());
        }
        let name = capi_ipam_testing::consumer::unique("vm");
        system.claim(&name, "web", json!({})).await;
        system.consumer.wait_for_address(&name).await;
        None
    })
    .await;
    drop(second);

    // As after a freeze of the API server: the lease is not renewed.
    system.manager.signal("STOP");
    system.claim("late", "web", json!({})).await;
    let problem = system
        .finds(
            "Error",
            "NoLeader",
            "7bb7acb4.ipam.cluster.x-k8s.io",
            "Lease",
        )
        .await;
    assert!(
        problem.starts_with("nobody renews it, and it has expired"),
        "{problem}"
    );
    let problem = system
        .finds("Error", "NotReconciled", "/web", "Claims")
        .await;
    assert!(
        problem.contains("/late) without any condition"),
        "{problem}"
    );
    let (code, output, _) = run(system.admin(), &["doctor", "--wait", "--wait-duration=1s"]);
    assert_eq!(code, 1, "{output}");
    system.restart();
    let (_, output, errors) = run(system.admin(), &["doctor", "--wait"]);
    assert!(!output.contains("nobody renews it"), "{output}{errors}");
    system.consumer.wait_for_address("late").await;
}
