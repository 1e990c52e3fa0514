//! Renewed, expired, missing and untrusted certificates, and webhooks that do not respond.

use capi_ipam_api::{
    InClusterKind::{GlobalIPPool, IPPool},
    names,
};
use support::{prelude::*, webhooks::authority};

use crate::{
    Environment,
    api_client::{ApiClient, JSON, MERGE, Response},
    serving,
};

fn spec() -> Value {
    json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24})
}

/// Waits until the dry run of a creation returns this code and text.
async fn wait_for_response(client: &ApiClient, code: u16, text: &str) -> Response {
    eventually(
        &format!("the API server returns {code} {text:?}"),
        || async {
            let response = client.dry_run_create(IPPool, "probe", &spec()).await;
            (response.code == code && response.message.contains(text)).then_some(response)
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_webhook_blocks_only_pool_spec_changes() {
    let Environment {
        plane,
        webhooks,
        mut manager,
    } = Environment::start(&[]);
    let consumer = Consumer::new(&plane).await;
    let client = ApiClient::new(&consumer);
    for (kind, name) in [
        (IPPool, "web"),
        (IPPool, "unused"),
        (IPPool, "forced"),
        (IPPool, "moved"),
        (GlobalIPPool, "global"),
    ] {
        client.create(kind, name, &spec()).await.into_object();
    }
    let old = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": "InClusterIPPool",
                     "metadata": {"name": "old"}, "spec": {"subnet": "10.1.0.0/24"}});
    client
        .call("POST", &client.path(IPPool, "v1alpha1", ""), JSON, &old)
        .await
        .into_object();
    consumer.bind("before", "web").await;
    manager.kill();

    let webhook = "failed calling webhook \"validation.inclusterippool.ipam.cluster.x-k8s.io\"";
    // The first error may be about an open connection that was closed.
    until(
        "the API server reports that no server listens",
        async || {
            let response = client.create(IPPool, "new", &spec()).await;
            response.assert_denied(500, "", webhook);
            Some(response.message.contains("connection refused"))
        },
    )
    .await;
    client
        .patch(IPPool, "web", &json!({"spec": {"gateway": "10.0.0.9"}}))
        .await
        .assert_denied(500, "", webhook);
    client
        .delete(IPPool, "unused")
        .await
        .assert_denied(500, "", webhook);
    for (name, annotation) in [
        ("forced", names::SKIP_VALIDATE_DELETE),
        ("moved", names::DELETE_FOR_MOVE),
    ] {
        client
            .patch(
                IPPool,
                name,
                &json!({"metadata": {"annotations": {annotation: ""}}}),
            )
            .await
            .into_object();
        client.delete(IPPool, name).await.into_object();
    }
    // The stored version can be read, the old one cannot.
    let converted = client
        .call(
            "GET",
            &client.path(IPPool, "v1alpha1", "old"),
            JSON,
            &Value::Null,
        )
        .await;
    converted.assert_denied(500, "", "conversion webhook");
    client.get(&client.path(IPPool, "v1alpha2", "old")).await;
    // Changes of metadata and status call no webhook.
    for (kind, name) in [(IPPool, "web"), (GlobalIPPool, "global")] {
        let metadata = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
        client.patch(kind, name, &metadata).await.into_object();
        let counts =
            json!({"status": {"ipAddresses": {"total": 9, "free": 9, "used": 0, "outOfRange": 0}}});
        client
            .call(
                "PATCH",
                &format!("{}/status", client.path(kind, "v1alpha2", name)),
                MERGE,
                &counts,
            )
            .await
            .into_object();
    }
    client
        .patch(
            GlobalIPPool,
            "global",
            &json!({"metadata": {"finalizers": ["e.example/f"]}}),
        )
        .await
        .into_object();
    // Claims need a manager, but no webhook.
    let without = Manager::start(&plane, &[]);
    consumer.bind("during", "web").await;
    consumer.release("before").await;
    drop(without);
    // With the webhooks all requests succeed again.
    let _manager = serving(&plane, &webhooks, &[]);
    wait_for_response(&client, 201, "").await;
    assert!(client.delete(IPPool, "unused").await.is_ok());
    client.get(&client.path(IPPool, "v1alpha1", "old")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificate_is_served_without_restart() {
    let plane = ControlPlane::new();
    let webhooks = Webhooks::new(&plane);
    webhooks.expire();
    let manager = serving(&plane, &webhooks, &[]);
    webhooks.register_with_ca(&plane, &webhooks.authority());
    let client = ApiClient::new(&Consumer::new(&plane).await);
    let response = wait_for_response(&client, 500, "certificate has expired").await;
    response.assert_denied(500, "", "failed calling webhook");
    assert!(manager.log().contains("has expired"), "{}", manager.log());
    webhooks.renew();
    wait_for_response(&client, 201, "").await;
    // Reads in the old version work again, too.
    webhooks.register(&plane);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_an_unknown_ca_is_rejected() {
    let Environment {
        plane,
        webhooks,
        manager: _manager,
    } = Environment::start(&[]);
    let client = ApiClient::new(&Consumer::new(&plane).await);
    client.create(IPPool, "web", &spec()).await.into_object();
    webhooks.register_with_ca(&plane, &authority().pem());
    wait_for_response(&client, 500, "certificate signed by unknown authority").await;
    let old = client.path(IPPool, "v1alpha1", "web");
    until("conversion does not trust it either", async || {
        let response = client.call("GET", &old, JSON, &Value::Null).await;
        Some(
            response
                .message
                .contains("certificate signed by unknown authority"),
        )
    })
    .await;
    webhooks.register(&plane);
    wait_for_response(&client, 201, "").await;
    client.get(&old).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_is_unready_until_it_has_a_certificate() {
    let plane = ControlPlane::new();
    let webhooks = Webhooks::without_certificate(&plane);
    let own = webhooks.flags();
    let flags: Vec<&str> = own.iter().map(String::as_str).collect();
    let manager = Manager::launch(&plane, plane.provider_kubeconfig(), &flags);
    until("only the certificate is missing", async || {
        let response = manager.probe("/readyz")?;
        let missing = response
            .lines()
            .filter(|line| line.starts_with("- "))
            .collect::<Vec<_>>();
        let certificate = "- certificate for webhooks: cannot read ";
        Some(
            response.starts_with("HTTP/1.1 503")
                && missing.len() == 1
                && missing[0].starts_with(certificate),
        )
    })
    .await;
    assert!(
        webhooks.served_certificate().await.is_err(),
        "a handshake fails without a certificate"
    );
    // Claims do not wait for it.
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", spec()).await;
    consumer.bind("a", "web").await;
    webhooks.renew();
    manager.wait_until_ready();
    webhooks.register(&plane);
}
