use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde_json::{json, Value};
use tower::service_fn;

use crate::health::Health;
use super::*;

/// What a server answers to one request after the other, and what it was asked.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// It tells this and ends the watch.
    fn tells(self, events: &[Value]) -> Self {
        let lines: Vec<_> = events.iter().map(Value::to_string).collect();
        self.answers.lock().unwrap().push_back((200, lines.join("\n") + "\n"));
        self
    }

    fn refuses(self, code: u16) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"});
        self.answers.lock().unwrap().push_back((code, status.to_string()));
        self
    }

    /// What is heard until there is nothing more to answer, and whether the server is found to refuse.
    async fn heard(&self) -> (Vec<String>, bool) {
        let server = self.clone();
        let client = Client::new(
            service_fn(move |request| std::future::ready(Ok::<_, Infallible>(server.answer(&request)))),
            "default",
        );
        let refused = Arc::new(AtomicBool::new(false));
        let synced = Health::default().announce("ConfigMap");
        let events = streamed(Api::<ConfigMap>::all(client), Config::default(), Arc::clone(&refused), synced);
        let mut events = Box::pin(events);
        let mut heard = Vec::new();
        while let Some(event) = events.next().await {
            heard.push(match event {
                Ok(Event::Init) => "listing".to_owned(),
                Ok(Event::InitApply(object)) => format!("has {}", object.name_any()),
                Ok(Event::InitDone) => "listed".to_owned(),
                Ok(Event::Apply(object)) => format!("new {}", object.name_any()),
                Ok(Event::Delete(object)) => format!("gone {}", object.name_any()),
                Err(error) => error.to_string().split(':').next().unwrap_or_default().to_owned(),
            });
            if heard.last().is_some_and(|last| last.contains("failed")) && self.answers.lock().unwrap().is_empty() {
                break;
            }
        }
        (heard, refused.load(Ordering::Relaxed))
    }

    fn answer(&self, request: &Request<Body>) -> Response<Body> {
        self.asked.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = self.answers.lock().unwrap().pop_front();
        let (code, text) = answer.unwrap_or((500, String::new()));
        Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap()
    }

    /// Of each request the version that was asked for, or that it was for all there is.
    fn asked_for(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let version = |query: &String| {
            let value = |name: &str| {
                let pair = query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
                pair.unwrap_or_default().to_owned()
            };
            match (value("sendInitialEvents").as_str(), value("resourceVersion")) {
                ("true", version) if version.is_empty() => "all".to_owned(),
                (_, version) => version,
            }
        };
        asked.iter().map(version).collect()
    }
}

fn event(kind: &str, name: &str, version: u32) -> Value {
    json!({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version.to_string()}}})
}

fn mark(version: u32, ends_listing: bool) -> Value {
    let annotations = if ends_listing { json!({END_OF_LISTING: "true"}) } else { json!({}) };
    json!({"type": "BOOKMARK", "object": {
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string(), "annotations": annotations},
    }})
}

fn expired() -> Value {
    json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "message": "too old", "code": 410}})
}

#[tokio::test]
async fn it_begins_with_what_there_is_and_goes_on_from_there() {
    let server = Server::default()
        .tells(&[event("ADDED", "a", 3), event("ADDED", "b", 5), event("DELETED", "a", 6), mark(7, true)])
        .tells(&[event("MODIFIED", "b", 8)])
        .tells(&[mark(12, false)])
        .tells(&[event("DELETED", "b", 13)])
        .refuses(500);
    let told = ["listing", "has a", "has b", "gone a", "listed", "new b", "gone b", "failed to start watching object"];
    assert_eq!(server.heard().await, (told.map(str::to_owned).to_vec(), false));
    assert_eq!(server.asked_for(), ["all", "7", "8", "12", "13"]);
}

#[tokio::test]
async fn a_listing_that_does_not_come_to_its_end_begins_anew() {
    let all = [event("ADDED", "a", 3), mark(4, true)];
    for broken in [vec![event("ADDED", "a", 3)], vec![event("ADDED", "a", 3), mark(3, false)], vec![expired()]] {
        let server = Server::default().tells(&broken).tells(&all).refuses(500);
        let (heard, refused) = server.heard().await;
        assert_eq!(heard.iter().filter(|what| *what == "listing").count(), 2, "{heard:?}");
        assert!(heard.contains(&"listed".to_owned()) && !refused, "{heard:?}");
        assert_eq!(server.asked_for(), ["all", "all", "4"]);
    }
}

#[tokio::test]
async fn it_is_given_up_when_listings_break_off_again_and_again() {
    let (half, all) = ([event("ADDED", "a", 3)], [event("ADDED", "a", 3), mark(4, true)]);
    let server = Server::default().tells(&half).tells(&half).tells(&half).tells(&all);
    assert!(server.heard().await.1);
    assert_eq!(server.asked_for(), ["all"; 3]);
    let server = Server::default().tells(&half).tells(&half).tells(&all).tells(&[expired()]).tells(&half).tells(&all);
    assert!(!server.refuses(500).heard().await.1);
}

#[tokio::test]
async fn what_is_forgotten_is_listed_anew() {
    let all = [event("ADDED", "a", 3), mark(4, true)];
    for server in [Server::default().tells(&all).tells(&[expired()]), Server::default().tells(&all).refuses(410)] {
        let server = server.tells(&all).refuses(500);
        assert_eq!(server.heard().await.0.iter().filter(|what| *what == "listed").count(), 2);
        assert_eq!(server.asked_for(), ["all", "4", "all", "4"]);
    }
}

#[tokio::test]
async fn it_ends_where_it_is_refused_and_goes_on_after_other_failures() {
    for code in [422, 504] {
        let server = Server::default().refuses(403).refuses(code);
        assert_eq!(server.heard().await, (vec!["failed to start watching object".to_owned()], true));
        assert_eq!(server.asked_for(), ["all", "all"]);
    }
}

#[tokio::test]
async fn listing_that_never_ends_gives_way_to_pages() {
    // It begins and tells nothing more, or tells of changes all the time and not of the end.
    for tells_changes in [false, true] {
        let asked = Arc::new(Mutex::new(0));
        let answer = {
            let asked = Arc::clone(&asked);
            move |_: Request<Body>| {
                *asked.lock().unwrap() += 1;
                let change = format!("{}\n", event("MODIFIED", "a", 3));
                let lines = futures::stream::unfold((), move |()| {
                    let line = change.clone();
                    async move {
                        tokio::time::sleep(Duration::from_millis(if tells_changes { 5 } else { 60_000 })).await;
                        Some((Ok::<_, Infallible>(hyper::body::Frame::data(line.into())), ()))
                    }
                });
                std::future::ready(Ok::<_, Infallible>(Response::new(http_body_util::StreamBody::new(lines))))
            }
        };
        let client = Client::new(service_fn(answer), "default");
        let (refused, synced) = (Arc::new(AtomicBool::new(false)), Health::default().announce("ConfigMap"));
        let limits = Limits { silence: Duration::from_millis(50), whole: Duration::from_millis(100) };
        let api = Api::<ConfigMap>::all(client);
        let events = streamed_within(limits, api, Config::default(), Arc::clone(&refused), synced);
        let ended = timeout(Duration::from_secs(10), events.for_each(|_| std::future::ready(()))).await;
        assert!(ended.is_ok() && refused.load(Ordering::Relaxed), "{tells_changes}");
        assert_eq!(*asked.lock().unwrap(), if tells_changes { 1 } else { 3 });
    }
}
