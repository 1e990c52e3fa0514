//! What nobody should send, many requests at once, and managers that do not lead.

use std::time::Duration;

use capi_ipam::admission::routes::{CONVERT, paths_of, VALIDATE_RESERVATION};
use capi_ipam::api::InClusterKind::{GlobalIPPool, IPPool};
use capi_ipam::api::names::IN_CLUSTER_LEASE;
use capi_ipam::ask::{ask, Asker, JSON, read};
use capi_ipam::support::consumer::{Consumer, eventually};
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::webhooks::Webhooks;
use capi_ipam::support::webhooks::direct::{Answer, conversion, review};
use capi_ipam::wired;
use futures::future::join_all;
use serde_json::{json, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Longer than the manager takes for anything.
const HANG: Duration = Duration::from_secs(20);

fn validate() -> &'static str {
    paths_of(IPPool).validate
}

fn pool(name: &str, addresses: &str) -> Value {
    json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
           "metadata": {"name": name, "namespace": "default"}, "spec": {"addresses": [addresses], "prefix": 24}})
}

/// Makes sure that good requests are answered.
async fn is_well() {
    let webhooks = &wired().webhooks;
    let good = pool("good", "10.0.0.1");
    assert!(ask(webhooks, IPPool, "CREATE", &Value::Null, &good).await.is_ok());
    let converted = webhooks.ask(CONVERT, &conversion("v1alpha1", &[good])).await.response();
    assert_eq!(converted["convertedObjects"][0]["apiVersion"], "ipam.cluster.x-k8s.io/v1alpha1");
}

/// Sends what nobody should, and makes sure that it is turned down with a text.
async fn turned_down(status: u16, method: &str, path: &str, content_type: &str, body: &[u8]) -> Answer {
    let mut connection = wired().webhooks.connect().await.expect("a connection can be made");
    let answer = timeout(HANG, connection.send(method, path, content_type, body.to_vec())).await;
    let answer = answer.expect("there is an answer in time").expect("there is an answer");
    let start = String::from_utf8_lossy(&body[..body.len().min(100)]);
    assert_eq!(answer.status, status, "{method} {path} {start}: {}", answer.body);
    assert!(!answer.body.trim().is_empty(), "{method} {path} {start}: no text");
    answer
}

#[tokio::test]
async fn what_is_no_review_is_turned_down_with_a_text() {
    let admission = review("CREATE", "InClusterIPPool", &Value::Null, &pool("a", "10.0.0.1"));
    let converts = conversion("v1alpha1", &[pool("a", "10.0.0.1")]);
    let changed = |review: &Value, change: Value| {
        let mut review = review.clone();
        json_patch::merge(&mut review, &change);
        review.to_string().into_bytes()
    };
    let bodies = |right: &Value, other: &Value| -> Vec<Vec<u8>> {
        let mut bodies: Vec<Vec<u8>> = ["", "nonsense", "{", "null", "[]", "5", "\"text\"", "{}", "\u{0}"]
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
            turned_down(400, "POST", path, JSON, &body).await;
        }
        // A byte too few, one too many.
        let text = right.to_string();
        turned_down(400, "POST", path, JSON, &text.as_bytes()[..text.len() - 1]).await;
        turned_down(400, "POST", path, JSON, format!("{text}}}").as_bytes()).await;
        turned_down(415, "POST", path, "text/plain", text.as_bytes()).await;
        turned_down(415, "POST", path, "", text.as_bytes()).await;
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            turned_down(405, method, path, JSON, b"").await;
        }
    }
    for path in ["/", "/validate", "/metrics", "/validate-ipam-cluster-x-k8s-io-v1alpha2-pod", "/convert/", "//convert"]
    {
        turned_down(404, "POST", path, JSON, admission.to_string().as_bytes()).await;
    }
    is_well().await;
}

#[tokio::test]
async fn reviews_of_odd_objects_are_answered() {
    let webhooks = &wired().webhooks;
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
            let said = ask(webhooks, IPPool, operation, old, new).await;
            assert!((400..500).contains(&said.code), "{operation} {object}: {said:?}");
        }
        let made = review("CREATE", "IPReservation", &Value::Null, object);
        let said = read(&webhooks.ask(VALIDATE_RESERVATION, &made).await);
        assert_eq!(said.code, 400, "{object}: {said:?}");
        let response =
            webhooks.ask(CONVERT, &conversion("v1alpha1", &[pool("a", "10.0.0.1"), object.clone()])).await.response();
        assert_eq!((&response["result"]["status"], &response["convertedObjects"]), (&json!("Failure"), &json!([])));
        assert!(response["result"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    }
    let strange = conversion("v7", &[pool("a", "10.0.0.1")]);
    let response = webhooks.ask(CONVERT, &strange).await.response();
    assert!(response["result"]["message"].as_str().is_some_and(|text| text.contains("v7")), "{response}");
    is_well().await;
}

/// What is answered to bytes that are no whole request.
async fn raw(bytes: &str, close: bool) -> String {
    let mut stream = wired().webhooks.stream("http/1.1").await.expect("a connection can be made");
    stream.write_all(bytes.as_bytes()).await.expect("it can be sent");
    if close {
        stream.shutdown().await.expect("it can be said that there is no more");
    }
    let mut answer = Vec::new();
    // However it ends, it ends.
    let _ = timeout(HANG, stream.read_to_end(&mut answer)).await.expect("the connection does not hang");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn too_long_bodies_and_half_ones_hold_nothing_up() {
    let head = |path: &str, length: u64| {
        format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{{"
        )
    };
    let beginning = head(validate(), 1000);
    let promised = [head(validate(), 9 << 20), head(CONVERT, 17 << 20), head(CONVERT, u64::MAX / 4)];
    let nonsense =
        ["nonsense\r\n\r\n", "\r\n\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n"];
    let (too_long, stalled, broken, odd) = tokio::join!(
        join_all(promised.iter().map(|head| raw(head, false))),
        raw(&beginning, false),
        raw(&beginning, true),
        join_all(nonsense.iter().map(|text| raw(text, true))),
    );
    for answer in too_long {
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("too long"), "{answer}");
    }
    assert!(stalled.starts_with("HTTP/1.1 504 "), "{stalled}");
    assert!(!broken.starts_with("HTTP/1.1 2"), "{broken}");
    for answer in odd {
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_reviews_at_once_are_all_answered_right() {
    let webhooks = &wired().webhooks;
    let connections = join_all((0..4).map(|_| webhooks.connect_http2())).await;
    let connections: Vec<_> = connections.into_iter().map(|connection| connection.expect("it can be made")).collect();
    let answers = join_all((0..1000).map(async |number: usize| {
        let mut connection = connections[number % 4].another().expect("HTTP/2 can do that");
        let (name, good) = (format!("p{number}"), !number.is_multiple_of(3));
        let pool = pool(&name, if good { "10.0.0.1" } else { "nonsense" });
        let review = review("CREATE", "InClusterIPPool", &Value::Null, &pool);
        let answer = connection.post(validate(), review.to_string()).await.expect("there is an answer");
        let said = read(&answer);
        if good {
            said.is_ok()
        } else {
            said.code == 422
                && said.message.contains(&format!("\"{name}\" is invalid"))
                && said.message.contains("nonsense")
        }
    }));
    let right = answers.await.into_iter().filter(|right| *right).count();
    assert_eq!(right, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_the_lease_knows_what_is_in_use_and_goes_on_answering_as_leader() {
    let elected = [
        "--leader-elect=true",
        "--leader-elect-lease-duration=60s",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=200ms",
    ];
    let plane = ControlPlane::start(Options::default());
    let mut leader = Manager::start(&plane, &elected);
    leader.wait_for_log("acquired leadership lease");
    let webhooks = Webhooks::new(&plane);
    let standby = crate::serving(&plane, &webhooks, &elected);
    webhooks.wire(&plane);
    let consumer = Consumer::new(&plane).await;
    let asker = Asker::new(&consumer);
    consumer.pool("web", json!({"addresses": ["10.0.0.5-10.0.0.9"], "prefix": 24})).await;
    asker.create(GlobalIPPool, "all", &json!({"addresses": ["10.1.0.5-10.1.0.9"], "prefix": 24})).await.done();
    consumer.claim("a", "web").await;
    consumer.global_claim("g", "all").await;
    for name in ["a", "g"] {
        consumer.bound(name).await;
    }
    let drops = [(IPPool, "web", "10.0.0"), (GlobalIPPool, "all", "10.1.0")];
    for (kind, name, net) in drops {
        let less = json!({"spec": {"addresses": [format!("{net}.6-{net}.9")]}});
        eventually("the standby knows what is in use", || async {
            let said = asker.try_change(kind, name, &less).await;
            (said.code == 400 && said.message.contains(&format!("{net}.5"))).then_some(())
        })
        .await;
        asker.delete(kind, name).await.refused(400, "", &format!("{net}.5"));
    }
    assert!(!standby.log().contains("acquired leadership lease"), "{}", standby.log());

    // It takes over, and at no moment lets go of what is in use. Nobody waits for the lease to end.
    leader.kill();
    plane.kubectl(&["-n", NAMESPACE, "delete", "lease", IN_CLUSTER_LEASE]);
    eventually("the standby leads, by an index of its own", || async {
        for (kind, name, net) in drops {
            let less = json!({"spec": {"addresses": [format!("{net}.6-{net}.9")]}});
            asker.try_change(kind, name, &less).await.refused(400, "", &format!("{net}.5"));
            let more = json!({"spec": {"addresses": [format!("{net}.5-{net}.10")]}});
            asker.try_change(kind, name, &more).await.done();
        }
        standby.log().contains("the provider's own index is complete").then_some(())
    })
    .await;
    consumer.claim("b", "web").await;
    consumer.bound("b").await;
    asker.delete(IPPool, "web").await.refused(400, "", "10.0.0.5");
    assert!(standby.log().contains("acquired leadership lease"), "{}", standby.log());
}
