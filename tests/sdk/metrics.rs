//! Metrics over TLS in a program without webhooks.

use capi_ipam_webhook::diagnostics::MetricsOptions;
use clap::Parser;
use support::{ports::free_port, prelude::*};

use crate::{control_plane, program::Program};

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    metrics: MetricsOptions,
}

#[tokio::test]
async fn program_without_webhooks_serves_metrics_over_tls() {
    let (plane, port) = (control_plane(), free_port());
    let account = [
        "--serviceaccount=default:metrics-reader",
        "--clusterrole=cluster-admin",
    ];
    plane.kubectl(&["create", "serviceaccount", "metrics-reader"]);
    plane.kubectl(
        &[
            &["create", "clusterrolebinding", "metrics-reader"],
            &account[..],
        ]
        .concat(),
    );
    let token = plane.kubectl(&["create", "token", "metrics-reader"]);
    let authorization = format!("authorization: Bearer {}\r\n", token.trim());

    let certificates = Webhooks::new(plane);
    let [_, folder] = certificates.flags();
    let folder = folder.replace("--webhook-cert-dir", "--diagnostics-cert-dir");
    let Flags { metrics } = Flags::parse_from(["program", &folder]);
    let program = Program::launch(
        &[&format!("--diagnostics-address=127.0.0.1:{port}")],
        async move |manager| metrics.register(manager).await,
        async |manager| {
            manager.add("a task", std::future::pending());
            Ok(())
        },
    );
    eventually("the certificate is loaded", || async {
        certificates
            .stream_to(port, "http/1.1")
            .await
            .is_ok()
            .then_some(())
    })
    .await;
    let response = certificates.get(port, "/metrics", &authorization).await;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(
        response.contains("diagnostics_certificate_loads_total 1"),
        "{response}"
    );
    let response = certificates.get(port, "/metrics", "").await;
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    drop(program);
}
