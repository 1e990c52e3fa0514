//! Invalid requests, many concurrent requests, and standby managers.

use capi_ipam::admission::routes::{CONVERT, VALIDATE_RESERVATION, paths_of};
use capi_ipam_api::{
    InClusterKind::{GlobalIPPool, IPPool},
    names::IN_CLUSTER_LEASE,
};
use support::{
    prelude::*,
    webhooks::direct::{conversion, review},
};
use tokio::time::timeout;

use crate::{
    api_client::{ApiClient, JSON, parse, post_review},
    shared,
};

/// Longer than any timeout of the manager.
const HANG: Duration = Duration::from_mins(1);

fn validate() -> &'static str {
    paths_of(IPPool).validate
}

fn pool(name: &str, addresses: &str) -> Value {
    json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
           "metadata": {"name": name, "namespace": "default"}, "spec": {"addresses": [addresses], "prefix": 24}})
}

/// Asserts that valid requests are answered.
async fn assert_responsive() {
    let webhooks = &shared().webhooks;
    let good = pool("good", "10.0.0.1");
    assert!(
        post_review(webhooks, IPPool, "CREATE", &Value::Null, &good)
            .await
            .is_ok()
    );
    let converted = webhooks
        .post_review(CONVERT, &conversion("v1alpha1", &[good]))
        .await
        .response();
    assert_eq!(
        converted["convertedObjects"][0]["apiVersion"],
        "ipam.cluster.x-k8s.io/v1alpha1"
    );
}

/// Sends an invalid request, and asserts that it is rejected with a message.
async fn assert_rejected(status: u16, method: &str, path: &str, content_type: &str, body: &str) {
    let mut connection = shared()
        .webhooks
        .connect()
        .await
        .expect("a connection can be created");
    let sent = connection.send(method, path, content_type, body.to_owned());
    let response = timeout(HANG, sent)
        .await
        .expect("a response is received in time")
        .expect("a response is received");
    assert_eq!(
        response.status, status,
        "{method} {path}: {}",
        response.body
    );
    assert!(!response.body.trim().is_empty(), "{method} {path}: no text");
}

/// All forms of invalid requests are tests of the crate of the webhooks.
#[tokio::test]
async fn invalid_request_gets_an_error_with_a_message() {
    let pool = pool("a", "10.0.0.1");
    let admission = review("CREATE", "InClusterIPPool", &Value::Null, &pool).to_string();
    let converts = conversion("v1alpha1", &[pool]).to_string();
    for (path, right, other) in [
        (validate(), &admission, &converts),
        (VALIDATE_RESERVATION, &admission, &converts),
        (CONVERT, &converts, &admission),
    ] {
        for body in ["", "nonsense", other, right.trim_end_matches('}')] {
            assert_rejected(400, "POST", path, JSON, body).await;
        }
        assert_rejected(415, "POST", path, "text/plain", right).await;
        assert_rejected(405, "GET", path, JSON, "").await;
    }
    for path in ["/", "/validate", "/convert/"] {
        assert_rejected(404, "POST", path, JSON, &admission).await;
    }
    assert_responsive().await;
}

#[tokio::test]
async fn reviews_of_unusual_objects_are_answered() {
    let webhooks = &shared().webhooks;
    for object in [json!(5), json!({"spec": {"addresses": {}}})] {
        let response = post_review(webhooks, IPPool, "CREATE", &Value::Null, &object).await;
        assert_eq!(response.code, 400, "{object}: {response:?}");
        let made = review("CREATE", "IPReservation", &Value::Null, &object);
        let response = parse(&webhooks.post_review(VALIDATE_RESERVATION, &made).await);
        assert_eq!(response.code, 400, "{object}: {response:?}");
        let both = conversion("v1alpha1", &[pool("a", "10.0.0.1"), object]);
        let response = webhooks.post_review(CONVERT, &both).await.response();
        assert_eq!(
            (&response["result"]["status"], &response["convertedObjects"]),
            (&json!("Failure"), &json!([]))
        );
        assert!(response["result"]["message"].is_string(), "{response}");
    }
    assert_responsive().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_serves_admission_and_keeps_serving_as_leader() {
    let elected = [
        "--leader-elect=true",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=200ms",
    ];
    let plane = ControlPlane::new();
    let mut leader = Manager::start(&plane, &elected);
    leader.wait_for_log("acquired leadership lease");
    let webhooks = Webhooks::new(&plane);
    let standby = crate::serving(&plane, &webhooks, &elected);
    webhooks.register(&plane);
    let consumer = Consumer::new(&plane).await;
    let client = ApiClient::new(&consumer);
    consumer.create_pool("web", "10.0.0.5-10.0.0.9").await;
    client
        .create(
            GlobalIPPool,
            "all",
            &json!({"addresses": ["10.1.0.5-10.1.0.9"], "prefix": 24}),
        )
        .await
        .into_object();
    consumer.create_claim("a", "web").await;
    consumer.create_global_claim("g", "all").await;
    for name in ["a", "g"] {
        consumer.wait_for_address(name).await;
    }
    let drops = [(IPPool, "web", "10.0.0"), (GlobalIPPool, "all", "10.1.0")];
    for (kind, name, net) in drops {
        let less = json!({"spec": {"addresses": [format!("{net}.6-{net}.9")]}});
        until(
            "the standby has observed the addresses in use",
            async || {
                let response = client.dry_run_patch(kind, name, &less).await;
                Some(response.code == 400 && response.message.contains(&format!("{net}.5")))
            },
        )
        .await;
        client
            .delete(kind, name)
            .await
            .assert_denied(400, "", &format!("{net}.5"));
    }
    assert!(
        !standby.log().contains("acquired leadership lease"),
        "{}",
        standby.log()
    );

    // It takes over, and denies the drop of an address in use at any moment. The lease was
    // released.
    leader.kill();
    plane.kubectl(&["-n", NAMESPACE, "delete", "lease", IN_CLUSTER_LEASE]);
    until("the standby leads, with its own index", async || {
        for (kind, name, net) in drops {
            let less = json!({"spec": {"addresses": [format!("{net}.6-{net}.9")]}});
            client.dry_run_patch(kind, name, &less).await.assert_denied(
                400,
                "",
                &format!("{net}.5"),
            );
            let more = json!({"spec": {"addresses": [format!("{net}.5-{net}.10")]}});
            client.dry_run_patch(kind, name, &more).await.into_object();
        }
        Some(
            standby
                .log()
                .contains("the ledger of the provider is complete"),
        )
    })
    .await;
    consumer.bind("b", "web").await;
    client
        .delete(IPPool, "web")
        .await
        .assert_denied(400, "", "10.0.0.5");
    assert!(
        standby.log().contains("acquired leadership lease"),
        "{}",
        standby.log()
    );
}
