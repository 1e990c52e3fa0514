//! Invalid requests, many concurrent requests, and standby managers.

use capi_ipam::admission::routes::{CONVERT, VALIDATE_RESERVATION, paths_of};
use capi_ipam_api::{
    InClusterKind::{GlobalIPPool, IPPool},
    names::IN_CLUSTER_LEASE,
};
use support::{
    prelude::*,
    webhooks::direct::{HttpResponse, conversion, review},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

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
async fn assert_rejected(
    status: u16,
    method: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> HttpResponse {
    let mut connection = shared()
        .webhooks
        .connect()
        .await
        .expect("a connection can be created");
    let response = timeout(
        HANG,
        connection.send(method, path, content_type, body.to_vec()),
    )
    .await;
    let response = response
        .expect("a response is received in time")
        .expect("a response is received");
    let start = String::from_utf8_lossy(&body[..body.len().min(100)]);
    assert_eq!(
        response.status, status,
        "{method} {path} {start}: {}",
        response.body
    );
    assert!(
        !response.body.trim().is_empty(),
        "{method} {path} {start}: no text"
    );
    response
}

#[tokio::test]
async fn invalid_request_gets_an_error_with_a_message() {
    let admission = review(
        "CREATE",
        "InClusterIPPool",
        &Value::Null,
        &pool("a", "10.0.0.1"),
    );
    let converts = conversion("v1alpha1", &[pool("a", "10.0.0.1")]);
    let changed = |review: &Value, change: Value| {
        let mut review = review.clone();
        json_patch::merge(&mut review, &change);
        review.to_string().into_bytes()
    };
    let bodies = |right: &Value, other: &Value| -> Vec<Vec<u8>> {
        let mut bodies: Vec<Vec<u8>> = [
            "", "nonsense", "{", "null", "[]", "5", "\"text\"", "{}", "\u{0}",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
        bodies.push(vec![0xff, 0xfe, b'{', b'}']);
        bodies.push(b"[".repeat(100_000));
        bodies.push(b"{\"a\":".repeat(40_000));
        bodies.push(other.to_string().into_bytes());
        bodies.push(changed(right, json!({"kind": "Pod"})));
        bodies.push(changed(right, json!({"apiVersion": "v1"})));
        bodies.push(changed(right, json!({"request": null})));
        bodies.push(changed(right, json!({"request": 5})));
        bodies.push(changed(right, json!({"request": {"uid": ""}})));
        bodies.push(changed(right, json!({"request": {"uid": ["x"]}})));
        bodies
    };
    let paths = [
        (validate(), &admission, &converts),
        (VALIDATE_RESERVATION, &admission, &converts),
        (CONVERT, &converts, &admission),
    ];
    for (path, right, other) in paths {
        for body in bodies(right, other) {
            assert_rejected(400, "POST", path, JSON, &body).await;
        }
        // One byte too few, and one too many.
        let text = right.to_string();
        assert_rejected(400, "POST", path, JSON, &text.as_bytes()[..text.len() - 1]).await;
        assert_rejected(400, "POST", path, JSON, format!("{text}}}").as_bytes()).await;
        assert_rejected(415, "POST", path, "text/plain", text.as_bytes()).await;
        assert_rejected(415, "POST", path, "", text.as_bytes()).await;
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            assert_rejected(405, method, path, JSON, b"").await;
        }
    }
    for path in [
        "/",
        "/validate",
        "/metrics",
        "/validate-ipam-cluster-x-k8s-io-v1alpha2-pod",
        "/convert/",
        "//convert",
    ] {
        assert_rejected(404, "POST", path, JSON, admission.to_string().as_bytes()).await;
    }
    assert_responsive().await;
}

#[tokio::test]
async fn reviews_of_unusual_objects_are_answered() {
    let webhooks = &shared().webhooks;
    let odd = [
        json!(5),
        json!("x"),
        json!([]),
        json!({"spec": 5}),
        json!({"metadata": []}),
        json!({"spec": {"addresses": {}}}),
        json!({"metadata": {"name": 5}}),
        json!({"spec": {"addresses": ["10.0.0.1"], "prefix": 1.5}}),
    ];
    for object in &odd {
        for (operation, old, new) in [
            ("CREATE", &Value::Null, object),
            ("UPDATE", &pool("a", "10.0.0.1"), object),
            ("DELETE", object, &Value::Null),
        ] {
            let response = post_review(webhooks, IPPool, operation, old, new).await;
            // A pool that cannot be read is deleted if it is not in use.
            let is_deleted = operation == "DELETE" && response.is_ok();
            assert!(
                is_deleted || (400..500).contains(&response.code),
                "{operation} {object}: {response:?}"
            );
        }
        let made = review("CREATE", "IPReservation", &Value::Null, object);
        let response = parse(&webhooks.post_review(VALIDATE_RESERVATION, &made).await);
        assert_eq!(response.code, 400, "{object}: {response:?}");
        let response = webhooks
            .post_review(
                CONVERT,
                &conversion("v1alpha1", &[pool("a", "10.0.0.1"), object.clone()]),
            )
            .await
            .response();
        assert_eq!(
            (&response["result"]["status"], &response["convertedObjects"]),
            (&json!("Failure"), &json!([]))
        );
        assert!(
            response["result"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
    let strange = conversion("v7", &[pool("a", "10.0.0.1")]);
    let response = webhooks.post_review(CONVERT, &strange).await.response();
    assert!(
        response["result"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("v7")),
        "{response}"
    );
    assert_responsive().await;
}

/// The response to raw bytes.
async fn raw(bytes: &str, close: bool) -> String {
    let mut stream = shared()
        .webhooks
        .stream("http/1.1")
        .await
        .expect("a connection can be created");
    stream
        .write_all(bytes.as_bytes())
        .await
        .expect("it can be sent");
    if close {
        stream
            .shutdown()
            .await
            .expect("the stream can be shut down");
    }
    let mut response = Vec::new();
    // The read must end, with any result.
    let _ = timeout(HANG, stream.read_to_end(&mut response))
        .await
        .expect("the connection does not hang");
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test]
async fn oversized_and_partial_bodies_block_no_request() {
    let head = |path: &str, length: u64| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{{"
        )
    };
    let beginning = head(validate(), 1000);
    let promised = [
        head(validate(), 17 << 20),
        head(CONVERT, 17 << 20),
        head(CONVERT, u64::MAX / 4),
    ];
    let nonsense = [
        "nonsense\r\n\r\n",
        "\r\n\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    ];
    let (too_long, stalled, broken, odd) = tokio::join!(
        join_all(promised.iter().map(|head| raw(head, false))),
        raw(&beginning, false),
        raw(&beginning, true),
        join_all(nonsense.iter().map(|text| raw(text, true))),
    );
    for response in too_long {
        assert!(
            response.starts_with("HTTP/1.1 413 ") && response.contains("too long"),
            "{response}"
        );
    }
    assert!(stalled.starts_with("HTTP/1.1 504 "), "{stalled}");
    assert!(!broken.starts_with("HTTP/1.1 2"), "{broken}");
    for response in odd {
        assert!(
            response.is_empty() || response.starts_with("HTTP/1.1 4"),
            "{response}"
        );
    }
    assert_responsive().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_concurrent_reviews_are_answered_correctly() {
    let webhooks = &shared().webhooks;
    let connections = join_all((0..4).map(|_| webhooks.connect_http2())).await;
    let connections: Vec<_> = connections
        .into_iter()
        .map(|connection| connection.expect("the connection can be created"))
        .collect();
    let responses = join_all((0..1000).map(async |number: usize| {
        let mut connection = connections[number % 4]
            .another()
            .expect("HTTP/2 can do that");
        let (name, good) = (format!("p{number}"), !number.is_multiple_of(3));
        let pool = pool(&name, if good { "10.0.0.1" } else { "nonsense" });
        let review = review("CREATE", "InClusterIPPool", &Value::Null, &pool);
        let mut tries = 0;
        let response = loop {
            let response = connection
                .post(validate(), review.to_string())
                .await
                .expect("a response is received");
            tries += 1;
            // On a loaded machine a body can arrive too late.
            if response.status != 504 || tries == 5 {
                break parse(&response);
            }
        };
        if good {
            response.is_ok()
        } else {
            response.code == 422
                && response.message.contains(&format!("\"{name}\" is invalid"))
                && response.message.contains("nonsense")
        }
    }));
    let right = responses.await.into_iter().filter(|right| *right).count();
    assert_eq!(right, 1000);
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
