//! The causes of the alerts of the webhooks.

use capi_ipam::admission::routes::paths_of;
use capi_ipam_api::InClusterKind::IPPool;
use support::{ports::free_port, prelude::*, webhooks::direct::review};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::server::{Prometheus, scraped};

/// How long a client takes to send a request, so that its answer is late.
const SLOW: Duration = Duration::from_millis(1500);

/// More reviews than an alert tolerates.
const MANY: usize = 60;

/// A pool, valid or not.
fn pool(prefix: u8) -> Value {
    json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"addresses": ["10.0.0.1-10.0.0.9"], "prefix": prefix},
    })
}

/// Sends the head of a request, waits, and sends the body.
async fn send_slowly(webhooks: &Webhooks, path: &str) {
    let body = review("CREATE", "InClusterIPPool", &Value::Null, &pool(24)).to_string();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    let stream = webhooks.stream("http/1.1").await;
    let mut stream = stream.expect("the webhooks accept connections");
    let sent = stream.write_all(head.as_bytes()).await;
    sent.expect("the head can be sent");
    stream.flush().await.expect("the head can be sent");
    tokio::time::sleep(SLOW).await;
    let sent = stream.write_all(body.as_bytes()).await;
    sent.expect("the body can be sent");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("the manager answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_deny_fail_are_slow_and_expire() {
    let plane = ControlPlane::new();
    let webhooks = Webhooks::new(&plane);
    let metrics = free_port();
    let [address, plain] = scraped(metrics);
    let [port, certificates] = webhooks.flags();
    let _manager = Manager::start(&plane, &[&*address, &*plain, &*port, &*certificates]);
    let prometheus = Prometheus::start(plane.folder(), &[metrics]);
    let path = paths_of(IPPool).validate;
    let outcome =
        |outcome: &str| format!("webhook_reviews_total{{path=\"{path}\",outcome=\"{outcome}\"}}");
    prometheus.wait_for(&outcome("failed")).await;

    // The alert needs one request in a hundred: this is the first one.
    send_slowly(&webhooks, path).await;
    prometheus.wait_for(&outcome("allowed")).await;
    send_slowly(&webhooks, path).await;
    let slow = prometheus.wait_for_alert("CapiIpamWebhookSlow").await;
    assert_eq!(slow["path"], path, "{slow}");

    let invalid = review("CREATE", "InClusterIPPool", &Value::Null, &pool(99));
    for number in 0..MANY {
        let answer = webhooks.post_review(path, &invalid).await;
        assert_eq!(answer.response()["allowed"], false);
        if number == 0 {
            prometheus.wait_for(&outcome("denied")).await;
        }
    }
    prometheus.wait_for_alert("CapiIpamWebhookDenies").await;

    let unreadable = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
    let answer = webhooks.post_review(path, &unreadable).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    prometheus.wait_for_alert("CapiIpamWebhookFails").await;

    webhooks.expire();
    prometheus
        .wait_for_alert("CapiIpamCertificateExpires")
        .await;
}
