//! Tests of webhooks over real TLS connections, with generated certificates and without an API
//! server.

mod certificates;
mod limits;
pub(crate) mod support;

use std::time::Duration;

use serde_json::{Value, json};

use crate::endpoints::MAX_BODY_SIZE;
use crate::https::Limits;
use support::{Request, Server, review, things};

#[tokio::test]
async fn reviews_are_served_over_http1_and_http2() {
    let server = Server::start(things).await;
    for http2 in [false, true] {
        let mut client = server.client(http2).await.unwrap();
        let (status, answer) = client.send(Request::review(1)).await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, &answer["response"]),
            (200, &json!({"uid": "u-1", "allowed": true}))
        );

        let (status, answer) = client.send(Request::review(11)).await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let status_object = &answer["response"]["status"];
        assert_eq!(
            (status, &answer["response"]["allowed"]),
            (200, &json!(false))
        );
        assert_eq!(
            (
                &status_object["code"],
                &status_object["details"]["causes"][0]["field"]
            ),
            (&json!(422), &json!("spec.size"))
        );
    }
    let text = server.metrics.encode().unwrap();
    for line in [
        r#"webhook_reviews_total{path="/validate",outcome="allowed"} 2"#,
        r#"webhook_reviews_total{path="/validate",outcome="denied"} 2"#,
        r#"webhook_review_duration_seconds_count{path="/validate"} 4"#,
        "webhook_reviews_in_flight 0",
        "webhook_certificate_loads_total 1",
        // The start of the year 4096, the default of rcgen.
        "webhook_certificate_expiry_timestamp_seconds 67090118400\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn conversions_are_served() {
    let server = Server::start(things).await;
    let object = json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}});
    let request = json!({"uid": "u", "desiredAPIVersion": "v2", "objects": [object]});
    let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    let request = Request {
        path: "/convert",
        body: body.to_string().into(),
        ..Request::review(1)
    };
    let (status, answer) = server.ask(request).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (
            status,
            &answer["response"]["convertedObjects"][0]["apiVersion"]
        ),
        (200, &json!("v2"))
    );
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_rejected_with_a_reason() {
    let server = Server::start(things).await;
    let valid = || Request::review(1);
    let long = Request {
        body: vec![b' '; MAX_BODY_SIZE + 1].into(),
        ..valid()
    };
    for (request, status, reason) in [
        (
            Request {
                body: "{".into(),
                ..valid()
            },
            400,
            "the body is not an AdmissionReview: EOF",
        ),
        (
            Request {
                body: "".into(),
                ..valid()
            },
            400,
            "EOF",
        ),
        (
            Request {
                body: vec![0xff; 100].into(),
                ..valid()
            },
            400,
            "the body is not",
        ),
        (
            Request {
                content_type: "text/plain",
                ..valid()
            },
            415,
            "must be application/json, not \"text/plain\"",
        ),
        (
            Request {
                method: "GET",
                ..valid()
            },
            405,
            "webhooks accept POST, not GET",
        ),
        (
            Request {
                path: "/elsewhere",
                ..valid()
            },
            404,
            "there is no webhook at /elsewhere",
        ),
        (
            Request {
                chunked: true,
                ..long.clone()
            },
            413,
            "the body is too long",
        ),
        (
            long,
            413,
            "the body is too long; the length limit is 16777216 bytes",
        ),
    ] {
        for http2 in [false, true] {
            let answer = server
                .client(http2)
                .await
                .unwrap()
                .send(request.clone())
                .await;
            let (found, text) = answer.unwrap_or_else(|error| panic!("{reason}: {error}"));
            assert_eq!(found, status, "{text}");
            assert!(text.contains(reason), "{text}");
        }
    }
    let valid = Request {
        content_type: "application/json; charset=utf-8",
        chunked: true,
        ..valid()
    };
    assert_eq!(server.ask(valid).await.unwrap().0, 200);
    server.stop().await;
}

#[tokio::test]
async fn panic_denies_only_its_own_request() {
    let server = Server::start(things).await;
    let mut client = server.client(true).await.unwrap();
    let (status, answer) = client.send(Request::review(666)).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, &answer["response"]["uid"]), (200, &json!("u-666")));
    assert_eq!(
        (
            &answer["response"]["allowed"],
            &answer["response"]["status"]["code"]
        ),
        (&json!(false), &json!(500))
    );
    assert_eq!(client.send(Request::review(1)).await.unwrap().0, 200);
    let text = server.metrics.encode().unwrap();
    assert!(
        text.contains(r#"webhook_reviews_total{path="/validate",outcome="panic"} 1"#),
        "{text}"
    );
    server.stop().await;
}

#[tokio::test]
async fn request_beyond_its_limit_gets_504() {
    let limits = Limits {
        request: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = Server::start_with(things, limits, support::tls()).await;
    for http2 in [false, true] {
        let (status, text) = server
            .client(http2)
            .await
            .unwrap()
            .send(Request::review(4000))
            .await
            .unwrap();
        assert_eq!((status, text.as_str()), (504, "no response within 200ms"));
    }
    let text = server.metrics.encode().unwrap();
    assert!(
        text.contains(r#"webhook_reviews_total{path="/validate",outcome="error"} 2"#),
        "{text}"
    );
    server.stop().await;
}

#[test]
fn test_review_has_the_format_of_the_api_server() {
    let review: Value = serde_json::from_slice(&review(3)).unwrap();
    assert_eq!(review["request"]["object"]["spec"]["size"], 3);
}
