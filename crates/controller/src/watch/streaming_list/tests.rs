use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::health::Health;

/// A server with scripted responses, which records the queries of its requests.
#[derive(Clone, Default)]
struct Server {
    responses: Arc<Mutex<VecDeque<(u16, String)>>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Responds with events, and ends the watch.
    fn sends(self, events: &[Value]) -> Self {
        let lines: Vec<_> = events.iter().map(Value::to_string).collect();
        self.responses
            .lock()
            .unwrap()
            .push_back((200, lines.join("\n") + "\n"));
        self
    }

    /// Responds with an error status.
    fn fails(self, code: u16) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"});
        self.responses
            .lock()
            .unwrap()
            .push_back((code, status.to_string()));
        self
    }

    /// The items of the stream until there are no more responses, and whether it has given up
    /// streaming.
    async fn items(&self) -> (Vec<String>, bool) {
        let server = self.clone();
        let client = Client::new(
            service_fn(move |request| {
                std::future::ready(Ok::<_, Infallible>(server.respond(&request)))
            }),
            "default",
        );
        let refused = Arc::new(AtomicBool::new(false));
        let synced = Health::default().register_watch("ConfigMap");
        let events = streaming_list(
            LIMITS,
            Api::<ConfigMap>::all(client),
            Config::default(),
            Arc::clone(&refused),
            synced,
            Arc::default(),
        );
        let mut events = Box::pin(events);
        let mut items = Vec::new();
        while let Some(event) = events.next().await {
            items.push(match event {
                Ok(Event::Init) => "init".to_owned(),
                Ok(Event::InitApply(object)) => format!("init_apply {}", object.name_any()),
                Ok(Event::InitDone) => "init_done".to_owned(),
                Ok(Event::Apply(object)) => format!("apply {}", object.name_any()),
                Ok(Event::Delete(object)) => format!("delete {}", object.name_any()),
                Err(error) => error
                    .to_string()
                    .split(':')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            });
            if items.last().is_some_and(|last| last.contains("failed"))
                && self.responses.lock().unwrap().is_empty()
            {
                break;
            }
        }
        (items, refused.load(Ordering::Relaxed))
    }

    fn respond(&self, request: &Request<Body>) -> Response<Body> {
        self.queries
            .lock()
            .unwrap()
            .push(request.uri().query().unwrap_or_default().to_owned());
        let response = self.responses.lock().unwrap().pop_front();
        let (code, text) = response.unwrap_or((500, String::new()));
        Response::builder()
            .status(code)
            .body(Body::from(text.into_bytes()))
            .unwrap()
    }

    /// The resourceVersion of each request; "all" if it asked for a list.
    fn requested_versions(&self) -> Vec<String> {
        let queries = self.queries.lock().unwrap();
        let version = |query: &String| {
            let value = |name: &str| {
                let pair = query
                    .split('&')
                    .find_map(|pair| pair.strip_prefix(&format!("{name}=")));
                pair.unwrap_or_default().to_owned()
            };
            match (
                value("sendInitialEvents").as_str(),
                value("resourceVersion"),
            ) {
                ("true", version) if version.is_empty() => "all".to_owned(),
                (_, version) => version,
            }
        };
        queries.iter().map(version).collect()
    }
}

fn event(kind: &str, name: &str, version: u32) -> Value {
    json!({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version.to_string()}}})
}

fn bookmark(version: u32, ends_list: bool) -> Value {
    let annotations = if ends_list {
        json!({INITIAL_EVENTS_END: "true"})
    } else {
        json!({})
    };
    json!({"type": "BOOKMARK", "object": {
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string(), "annotations": annotations},
    }})
}

fn expired() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "message": "too old", "code": 410}})
}

#[tokio::test]
async fn watch_continues_at_the_version_of_the_list() {
    let server = Server::default()
        .sends(&[
            event("ADDED", "a", 3),
            event("ADDED", "b", 5),
            event("DELETED", "a", 6),
            bookmark(7, true),
        ])
        .sends(&[event("MODIFIED", "b", 8)])
        .sends(&[bookmark(12, false)])
        .sends(&[event("DELETED", "b", 13)])
        .fails(500);
    let expected = [
        "init",
        "init_apply a",
        "init_apply b",
        "delete a",
        "init_done",
        "apply b",
        "delete b",
        "failed to start watching object",
    ];
    assert_eq!(
        server.items().await,
        (expected.map(str::to_owned).to_vec(), false)
    );
    assert_eq!(server.requested_versions(), ["all", "7", "8", "12", "13"]);
}

#[tokio::test]
async fn incomplete_list_is_repeated() {
    let all = [event("ADDED", "a", 3), bookmark(4, true)];
    for incomplete in [
        vec![event("ADDED", "a", 3)],
        vec![event("ADDED", "a", 3), bookmark(3, false)],
        vec![expired()],
    ] {
        let server = Server::default().sends(&incomplete).sends(&all).fails(500);
        let (items, refused) = server.items().await;
        assert_eq!(
            items.iter().filter(|what| *what == "init").count(),
            2,
            "{items:?}"
        );
        assert!(
            items.contains(&"init_done".to_owned()) && !refused,
            "{items:?}"
        );
        assert_eq!(server.requested_versions(), ["all", "all", "4"]);
    }
}

#[tokio::test]
async fn streaming_is_given_up_after_three_incomplete_lists() {
    let (half, all) = (
        [event("ADDED", "a", 3)],
        [event("ADDED", "a", 3), bookmark(4, true)],
    );
    let server = Server::default()
        .sends(&half)
        .sends(&half)
        .sends(&half)
        .sends(&all);
    assert!(server.items().await.1);
    assert_eq!(server.requested_versions(), ["all"; 3]);
    let server = Server::default()
        .sends(&half)
        .sends(&half)
        .sends(&all)
        .sends(&[expired()])
        .sends(&half)
        .sends(&all);
    assert!(!server.fails(500).items().await.1);
}

#[tokio::test]
async fn expired_version_causes_a_new_list() {
    let all = [event("ADDED", "a", 3), bookmark(4, true)];
    for server in [
        Server::default().sends(&all).sends(&[expired()]),
        Server::default().sends(&all).fails(410),
    ] {
        let server = server.sends(&all).fails(500);
        assert_eq!(
            server
                .items()
                .await
                .0
                .iter()
                .filter(|what| *what == "init_done")
                .count(),
            2
        );
        assert_eq!(server.requested_versions(), ["all", "4", "all", "4"]);
    }
}

#[tokio::test]
async fn stream_ends_only_if_streaming_is_unsupported() {
    for code in [422, 504] {
        let server = Server::default().fails(403).fails(code);
        let expected = ["init", "failed to start watching object", "init"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(server.items().await, (expected, true));
        assert_eq!(server.requested_versions(), ["all", "all"]);
    }
}

#[tokio::test]
async fn endless_list_is_given_up() {
    // The server sends nothing after the first event, or changes without an end.
    for sends_changes in [false, true] {
        let requests = Arc::new(Mutex::new(0));
        let answer = {
            let requests = Arc::clone(&requests);
            move |_: Request<Body>| {
                *requests.lock().unwrap() += 1;
                let change = format!("{}\n", event("MODIFIED", "a", 3));
                let lines = futures::stream::unfold((), move |()| {
                    let line = change.clone();
                    async move {
                        tokio::time::sleep(Duration::from_millis(if sends_changes {
                            5
                        } else {
                            60_000
                        }))
                        .await;
                        Some((
                            Ok::<_, Infallible>(hyper::body::Frame::data(line.into())),
                            (),
                        ))
                    }
                });
                std::future::ready(Ok::<_, Infallible>(Response::new(
                    http_body_util::StreamBody::new(lines),
                )))
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let (refused, synced) = (
            Arc::new(AtomicBool::new(false)),
            Health::default().register_watch("ConfigMap"),
        );
        let limits = Limits {
            silence: Duration::from_millis(50),
            total: Duration::from_millis(100),
        };
        let api = Api::<ConfigMap>::all(client);
        let events = streaming_list(
            limits,
            api,
            Config::default(),
            Arc::clone(&refused),
            synced,
            Arc::default(),
        );
        let ended = timeout(
            Duration::from_secs(10),
            events.for_each(|_| std::future::ready(())),
        )
        .await;
        assert!(
            ended.is_ok() && refused.load(Ordering::Relaxed),
            "{sends_changes}"
        );
        assert_eq!(*requests.lock().unwrap(), if sends_changes { 1 } else { 3 });
    }
}
