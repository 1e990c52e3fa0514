//! The operator's night: what breaks in a real system, and whether `doctor` and `status` say it.
//!
//! | # | broken | `doctor` | test here | other layers, tested elsewhere |
//! |---|---|---|---|---|
//! | 1 | pool full | `PoolExhausted` | pools | condition: tests/cluster/exhaustion.rs; alert: tests/alerts |
//! | 2 | gateway outside of the subnet | `UnusableGateway` | pools | warning: tests/webhooks/warnings.rs |
//! | 3 | overlapping pools | `DuplicateAddress`, `PoolsOverlap` | pools | condition: tests/cluster/pools.rs |
//! | 4 | pool does not exist | `MissingPool` | claims | condition: tests/cluster/reporting.rs |
//! | 5 | typing error in the kind | `UnknownPoolKind` | claims | `claims`: doctor.rs |
//! | 6 | finalizer of another controller | `ReleaseBlocked` | deletions | condition: tests/cluster/finalizers.rs |
//! | 7 | namespace in deletion | `ReleaseBlocked` | deletions | tests/cluster/lifecycle.rs |
//! | 8 | webhooks gone | `WebhookFailing`, `ReplicasNotReady` | webhooks | alert: tests/alerts/webhooks.yaml |
//! | 9 | definition missing, manager runs | `MissingDefinition` | definitions | probes: tests/rollout/readiness.rs |
//! | 9b | definition missing at the start | `MissingDefinition` | definitions | probes: tests/rollout/readiness.rs |
//! | 10 | permission missing | `MissingPermission` | definitions | probes: tests/rollout/permissions.rs |
//! | 11 | manager killed | `NoLeader`, `NotReconciled` | managers | tests/rollout/restart.rs |
//! | 12 | two active managers | `SeveralManagers` | managers | tests/rollout/several.rs |
//! | 13 | claims restored without IPAddresses | `RestoredWithoutAddress` | claims | tests/cluster/restore.rs |
//! | 14 | pool shrunk below its use | `AddressesOutOfRange` | pools | webhook: tests/webhooks/in_use.rs |
//! | 15 | pool in deletion | `PoolDeleting` | deletions | tests/cluster/lifecycle.rs |
//! | 16 | paused Cluster, claim, pool | `Paused` | claims | condition: tests/cluster/pausing.rs |
//! | 17 | expired certificate, other authority | `WebhookFailing` | webhooks | metric: tests/webhooks/certificates.rs |
//! | 18 | API server frozen | `NoLeader` until the restart | managers | tests/chaos/outages.rs |
//! | 19 | other authority of the conversion | `ConversionFailing` | webhooks | |
//! | 20 | older definition, same versions | `OutdatedDefinition` | definitions | |

pub(crate) mod system;

use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use self::system::{ACCOUNT, System};
use crate::{create, run};

fn range(addresses: &str) -> Value {
    json!({ "addresses": [addresses], "prefix": 24 })
}

/// Rows 1, 2, 3 and 14.
#[tokio::test]
async fn night_of_pools() {
    let system = System::start().await;
    let namespace = system.namespace();

    system.pool("full", &range("10.1.0.10-10.1.0.12"));
    for number in 0..5 {
        system
            .claim(&format!("vm-{number}"), "full", json!({}))
            .await;
    }
    let problem = system
        .finds("Error", "PoolExhausted", "/full", "Pools")
        .await;
    assert!(
        problem.starts_with("no free address (3 in total, 3 in use); 2 claims wait ("),
        "{problem}"
    );
    let (code, output, _) = run(system.admin(), &["doctor"]);
    assert_eq!(code, 1, "{output}");
    let last = output.lines().last().unwrap_or_default();
    assert!(
        last.ends_with(" 2 claims wait: kubectl ipam claims --waiting -A"),
        "{output}"
    );
    assert!(output.contains("\n  error PoolExhausted: "), "{output}");

    let mut gateway = range("10.2.0.10-10.2.0.12");
    gateway["gateway"] = json!("10.99.0.1");
    system.pool("gateway", &gateway);
    let problem = system
        .finds("Warning", "UnusableGateway", "/gateway", "Pools")
        .await;
    assert_eq!(
        problem,
        "spec.gateway: 10.99.0.1 is outside of the subnet 10.2.0.0/24"
    );
    // The correction does not reach the machines that have the old one.
    system.claim("old", "gateway", json!({})).await;
    system.consumer.wait_for_address("old").await;
    let corrected = json!({ "spec": { "gateway": "10.2.0.1" } });
    system.patch("inclusterippool", "gateway", &corrected);
    let problem = system
        .finds("Warning", "OutdatedGateway", "/gateway", "Pools")
        .await;
    assert_eq!(
        problem,
        format!(
            "1 IPAddress has another gateway than the pool (10.99.0.1, the pool has 10.2.0.1): {namespace}/old"
        )
    );

    let shared = format!("{namespace}-shared");
    system.pool("one", &range("10.3.0.10-10.3.0.12"));
    create(
        &system.plane,
        "GlobalInClusterIPPool",
        None,
        &shared,
        &range("10.3.0.10-10.3.0.20"),
    );
    system.claim("a", "one", json!({})).await;
    let global = crate::reference("GlobalInClusterIPPool", &shared);
    system
        .consumer
        .create_claim_for("b", global, json!({}))
        .await;
    let problem = system
        .finds("Error", "DuplicateAddress", "10.3.0.10", "Claims")
        .await;
    assert!(
        problem.contains(&format!("{namespace}/a (InClusterIPPool {namespace}/one)")),
        "{problem}"
    );
    system
        .finds("Warning", "PoolsOverlap", "/one", "Pools")
        .await;

    system
        .plane
        .kubectl(&["delete", "validatingwebhookconfiguration", "--all"]);
    system
        .finds("Warning", "WebhookMissing", "configuration", "Webhooks")
        .await;
    eventually("the pool can be changed without webhooks", async || {
        let patch = json!({ "spec": { "addresses": ["10.1.0.11-10.1.0.12"] } }).to_string();
        let arguments = [
            "patch",
            "inclusterippool",
            "full",
            "-n",
            namespace,
            "--type=merge",
            "-p",
        ];
        system
            .plane
            .try_kubectl(&[&arguments[..], &[&patch]].concat())
            .ok()
    })
    .await;
    system
        .finds("Warning", "AddressesOutOfRange", "/full", "Pools")
        .await;
}

/// Rows 4, 5, 13 and 16.
#[tokio::test]
async fn night_of_claims() {
    let system = System::start().await;
    let namespace = system.namespace();
    system.pool("web", &range("10.1.0.10-10.1.0.99"));

    system.claim("lost", "reel", json!({})).await;
    let problem = system
        .finds("Error", "MissingPool", "/reel", "Claims")
        .await;
    assert_eq!(
        problem,
        format!("it does not exist; 1 claim waits ({namespace}/lost)")
    );

    let kind = crate::reference("InClusterIpPool", "web");
    system
        .consumer
        .create_claim_for("typo", kind, json!({}))
        .await;
    let problem = system
        .finds("Error", "UnknownPoolKind", "/typo", "Claims")
        .await;
    assert!(
        problem.ends_with("did you mean InClusterIPPool?"),
        "{problem}"
    );

    system.consumer.create_cluster("prod", true).await;
    for (claim, cluster) in [("p", "prod"), ("q", "none")] {
        system
            .claim(claim, "web", json!({ "clusterName": cluster }))
            .await;
    }
    let problem = system.finds("Warning", "Paused", "/prod", "Claims").await;
    assert_eq!(
        problem,
        format!("it is paused; 1 claim waits ({namespace}/p)")
    );
    let problem = system
        .finds("Error", "ClusterNotFound", "/none", "Claims")
        .await;
    assert_eq!(
        problem,
        format!("it does not exist; 1 claim waits ({namespace}/q)")
    );
    let annotation = json!({ "annotations": { "cluster.x-k8s.io/paused": "" } });
    system.claim("r", "web", annotation.clone()).await;
    system.finds("Warning", "Paused", "/r", "Claims").await;
    system.pool("paused", &range("10.2.0.10"));
    system.patch(
        "inclusterippool",
        "paused",
        &json!({ "metadata": annotation }),
    );
    system.finds("Note", "Paused", "/paused", "Claims").await;
    system.claim("s", "paused", json!({})).await;
    system.finds("Warning", "Paused", "/paused", "Claims").await;

    restore_without_address(&system).await;
    system
        .finds("Warning", "RestoredWithoutAddress", "/restored", "Claims")
        .await;
}

/// A claim that is deleted with its IPAddress, and created again from its YAML.
async fn restore_without_address(system: &System) {
    system.claim("restored", "web", json!({})).await;
    system.consumer.wait_for_address("restored").await;
    let resource = "ipaddressclaims.ipam.cluster.x-k8s.io";
    let arguments = [
        "get",
        resource,
        "restored",
        "-n",
        system.namespace(),
        "-o",
        "json",
    ];
    let stored = system.plane.kubectl(&arguments);
    system.delete(resource, "restored");
    system.consumer.wait_until_deleted("restored").await;
    system.plane.kubectl_apply(&stored);
    system.consumer.wait_for_address("restored").await;
}

/// Rows 6, 7 and 15.
#[tokio::test]
async fn night_of_deletions() {
    let system = System::start().await;
    system.pool("web", &range("10.1.0.10-10.1.0.99"));
    for claim in ["kept", "used"] {
        system.claim(claim, "web", json!({})).await;
        system.consumer.wait_for_address(claim).await;
    }
    let foreign = json!({ "metadata": { "finalizers":
        ["ipam.cluster.x-k8s.io/ReleaseAddress", "vspherevm.infrastructure.cluster.x-k8s.io"] } });
    system.patch("ipaddressclaims.ipam.cluster.x-k8s.io", "kept", &foreign);
    system.delete("ipaddressclaims.ipam.cluster.x-k8s.io", "kept");
    // The machine can still be in deletion, so it is a note at first.
    let problem = system
        .finds("Note", "ReleaseBlocked", "/kept", "Claims")
        .await;
    assert!(
        problem.ends_with("1 finalizer: vspherevm.infrastructure.cluster.x-k8s.io"),
        "{problem}"
    );

    let skip = json!({ "metadata": { "annotations": { "ipam.cluster.x-k8s.io/skip-validate-delete-webhook": "" } } });
    system.patch("inclusterippool", "web", &skip);
    system.delete("inclusterippool", "web");
    let problem = system
        .finds("Warning", "PoolDeleting", "/web", "Pools")
        .await;
    assert!(
        problem.contains("2 claims release its addresses"),
        "{problem}"
    );

    system
        .plane
        .kubectl(&["delete", "namespace", system.namespace(), "--wait=false"]);
    let problem = system
        .finds("Note", "ReleaseBlocked", "/kept", "Claims")
        .await;
    assert!(
        problem.ends_with("; the namespace, which is being deleted, waits for it"),
        "{problem}"
    );
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
    assert!(
        output.starts_with("The provider does not work, see Definitions"),
        "{output}"
    );
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
