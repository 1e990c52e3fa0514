//! A quota that allows fewer IPAddress objects than there are claims.
//!
//! No controller of quotas runs here: what is allowed is written to the quota's status by hand, as that controller does,
//! and the API server counts.

use capi_ipam::support::consumer::{Consumer, eventually, eventually_within};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::workload::{make_all, names, settles, unmake};
use kube::ResourceExt;
use serde_json::json;

const COUNTED: &str = "count/ipaddresses.ipam.cluster.x-k8s.io";

/// Allows so many IPAddress objects, of which so many are there.
fn allow(control_plane: &ControlPlane, namespace: &str, hard: usize, used: usize) {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_beyond_the_quota_says_so_and_is_bound_once_it_is_raised() {
    let control_plane = ControlPlane::start(Options::default());
    let _manager = Manager::start(&control_plane, &["--sweep-interval=1s", "--sweep-grace=2s"]);
    let consumer = Consumer::new(&control_plane).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.20"], "prefix": 24})).await;
    let first = names("first", 2);
    make_all(&consumer, &first, "web").await;
    consumer.all_bound(&first).await;
    allow(&control_plane, &consumer.namespace, 2, 2);
    let beyond = names("beyond", 3);
    // Until the API server knows of the quota.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    make_all(&consumer, &beyond, "web").await;
    for name in &beyond {
        let text = consumer.waits_for(name, "AllocationFailed").await;
        assert!(text.contains("exceeded quota: few"), "{text}");
        eventually("an event says so", || async {
            let told = consumer.events(name).await;
            told.iter().any(|(kind, _, text)| kind == "Warning" && text.contains("exceeded quota")).then_some(())
        })
        .await;
    }
    // A claim that tries again and again keeps one reservation.
    let reserved = async || {
        let all = consumer.reservations().list().await.expect("reservations can be read");
        all.iter().filter(|reservation| reservation.name_any().contains(&consumer.namespace)).count()
    };
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(reserved().await, 5);
    // One that gives up gives its reservation back.
    unmake(&consumer, &beyond[0]).await;
    eventually("its reservation is given back", || async { (reserved().await == 4).then_some(()) }).await;

    allow(&control_plane, &consumer.namespace, 10, 2);
    let all: Vec<String> = first.into_iter().chain(beyond.into_iter().skip(1)).collect();
    let raised = std::time::Instant::now();
    eventually_within(std::time::Duration::from_secs(30), "all are bound", || async {
        (consumer.given().await.len() == 4).then_some(())
    })
    .await;
    println!("bound {:?} after the quota was raised", raised.elapsed());
    settles(&consumer, "web", &all).await;
    consumer.counts("web", (20, 16, 4, 0)).await;
}
