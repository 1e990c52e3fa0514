//! A webhook of another product rejects writes with the code 409, which usually means that an
//! object changed since it was read. Claims and pools report it if it lasts.

use capi_ipam_controller::{health::Health, metrics::Metrics};
use capi_ipam_webhook::{
    denial::bad_request,
    endpoints::Endpoints,
    options::WebhookOptions,
    review::{AdmissionRequest, Decision},
    server::listen,
};
use clap::Parser;
use k8s_openapi::ByteString;
use support::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::{consumer, environment};

const MESSAGE: &str = "the inventory is being rebuilt";

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    webhooks: WebhookOptions,
}

fn reject(_: &AdmissionRequest) -> Decision {
    let mut status = bad_request(MESSAGE);
    (status.code, status.reason) = (409, "Conflict".to_owned());
    Err(status)
}

/// Rejects an operation on a kind in the namespace of the consumer with the code 409.
async fn reject_with_conflict(consumer: &Consumer, operation: &str, kind: &str) -> Rejection {
    let plane = &environment().control_plane;
    let (name, webhooks) = (
        format!("conflict-{}", consumer.namespace),
        Webhooks::new(plane),
    );
    let flags = Flags::parse_from(["test".to_owned()].into_iter().chain(webhooks.flags()));
    let (health, metrics) = (Health::default(), Metrics::default());
    let server = listen(&flags.webhooks, &health, &metrics)
        .await
        .expect("the port is free")
        .expect("it is enabled");
    let router = Endpoints::new(&metrics).review("/reject", reject).router();
    let stop = CancellationToken::new();
    tokio::spawn(server.serve(router, stop.clone()));
    let url = format!("https://127.0.0.1:{}/reject", webhooks.port());
    plane.kubectl_apply(
        &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "reject.example.com", "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": ByteString(webhooks.authority().into_bytes())},
                "rules": [{"apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["*"], "operations": [operation],
                           "resources": [kind]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": consumer.namespace}},
            }],
        })
        .to_string(),
    );
    Rejection { name, stop }
}

struct Rejection {
    name: String,
    stop: CancellationToken,
}

impl Rejection {
    fn end(self) {
        environment().control_plane.kubectl(&[
            "delete",
            "validatingwebhookconfiguration",
            &self.name,
        ]);
        self.stop.cancel();
    }
}

/// Waits until a write to the object `probe` of a kind is rejected.
async fn wait_until_rejected(consumer: &Consumer, kind: &str) {
    until("a write is rejected", async || {
        let namespace = ["--namespace", &consumer.namespace];
        let label = [
            "label",
            "--overwrite",
            kind,
            "probe",
            "probe=x",
            "--dry-run=server",
        ];
        let result = environment()
            .control_plane
            .try_kubectl(&[&namespace[..], &label[..]].concat());
        Some(result.is_err_and(|text| text.contains(MESSAGE)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lasting_conflict_is_reported_on_the_claim() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer
        .claim_waits("probe", "nowhere", "PoolNotReady")
        .await;
    // The finalizer is rejected, and the status is not.
    let rejection = reject_with_conflict(&consumer, "UPDATE", "ipaddressclaims").await;
    wait_until_rejected(&consumer, "ipaddressclaim").await;
    consumer.create_claim("a", "web").await;
    consumer
        .wait_for_message("a", "AllocationFailed", MESSAGE)
        .await;
    rejection.end();
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lasting_conflict_is_reported_on_the_pool() {
    let consumer = consumer().await;
    consumer.create_pool("probe", "10.9.9.9").await;
    consumer.wait_until_pool_ready("probe").await;
    let rejection = reject_with_conflict(&consumer, "UPDATE", "inclusterippools").await;
    wait_until_rejected(&consumer, "inclusterippool").await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer
        .wait_for_pool_message("web", "InitializationFailed", MESSAGE)
        .await;
    rejection.end();
    consumer.wait_until_pool_ready("web").await;
}
