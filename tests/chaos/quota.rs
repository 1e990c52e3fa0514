//! A quota that allows fewer IPAddress objects than there are claims.
//!
//! No quota controller runs here: the test writes the hard limit and the usage to the status of the
//! quota, as that controller does, and the API server enforces it.

use support::prelude::*;

use crate::workload::{create_all, delete, wait_until_settled};

const COUNTED: &str = "count/ipaddresses.ipam.cluster.x-k8s.io";

/// Allows `hard` IPAddress objects, `used` of which exist.
fn set_quota(control_plane: &ControlPlane, namespace: &str, hard: usize, used: usize) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": namespace},
        "spec": {"hard": {COUNTED: hard.to_string()}}});
    control_plane.kubectl_apply(&quota.to_string());
    let status = json!({"status": {"hard": {COUNTED: hard.to_string()}, "used": {COUNTED: used.to_string()}}});
    let patch = format!("--patch={status}");
    control_plane.kubectl(&[
        "-n",
        namespace,
        "patch",
        "resourcequota/few",
        "--subresource=status",
        "--type=merge",
        &patch,
    ]);
}

/// Waits until the API server refuses another IPAddress: it observes a quota with a delay.
async fn wait_until_refused(control_plane: &ControlPlane, namespace: &str) {
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    let probe = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"claimRef": {"name": "probe"}, "address": "10.0.0.20", "prefix": 24, "poolRef": pool},
    });
    let file = control_plane.folder().join("probe.json");
    std::fs::write(&file, probe.to_string()).expect("a file can be written");
    let file = format!("--filename={}", file.display());
    until("the quota is enforced", async || {
        let refused = control_plane
            .try_kubectl(&["create", "--dry-run=server", &file])
            .err()?;
        Some(refused.contains("exceeded quota"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_reports_exceeded_quota_and_binds_after_a_raise() {
    let (control_plane, _manager, consumer) =
        scene_with_manager(&["--sweep-interval=1s", "--sweep-grace=2s"]).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.20").await;
    let first = numbered("first", 2);
    create_all(&consumer, &first, "web").await;
    consumer.wait_for_addresses(&first).await;
    set_quota(&control_plane, &consumer.namespace, 2, 2);
    let beyond = numbered("beyond", 3);
    wait_until_refused(&control_plane, &consumer.namespace).await;
    create_all(&consumer, &beyond, "web").await;
    for name in &beyond {
        let text = consumer.wait_for_reason(name, "AllocationFailed").await;
        assert_contains(&text, "exceeded quota: few");
        until("an event reports it", async || {
            let reported = consumer.events(name).await;
            Some(
                reported
                    .iter()
                    .any(|(kind, _, text)| kind == "Warning" && text.contains("exceeded quota")),
            )
        })
        .await;
    }
    // A claim that retries keeps one reservation.
    let reserved = async || {
        let all = consumer
            .reservations()
            .list()
            .await
            .expect("reservations can be read");
        all.iter()
            .filter(|reservation| reservation.name_any().contains(&consumer.namespace))
            .count()
    };
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(reserved().await, 5);
    // A deleted claim releases its reservation.
    delete(&consumer, &beyond[0]).await;
    until("its reservation is released", async || {
        Some(reserved().await == 4)
    })
    .await;

    set_quota(&control_plane, &consumer.namespace, 10, 2);
    let all: Vec<String> = first
        .into_iter()
        .chain(beyond.into_iter().skip(1))
        .collect();
    let raised = std::time::Instant::now();
    until_within(
        std::time::Duration::from_mins(2),
        "all are bound",
        || async { Some(consumer.allocated_addresses().await.len() == 4) },
    )
    .await;
    println!("bound {:?} after the quota was raised", raised.elapsed());
    wait_until_settled(&consumer, &all).await;
    consumer.wait_for_counts("web", (20, 16, 4, 0)).await;
}
