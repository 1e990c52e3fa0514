use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Instant;

use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::service_fn;

use super::*;
use crate::health::Health;

/// Records the calls of its methods.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Recorder {
    fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl EventHandler<ConfigMap> for Recorder {
    fn init(&self) {
        self.add("init");
    }
    fn init_done(&self) {
        self.add("init_done");
    }
    fn apply(&self, object: &ConfigMap) {
        self.add(object.name_any());
    }
    fn delete(&self, _: &ConfigMap) {}
    fn restored(&self) {
        self.add("restored");
    }
    fn apply_invalid(&self, object: &Invalid) {
        self.add(format!("{:?} is invalid", object.metadata.name));
    }
    fn delete_invalid(&self, object: &Invalid) {
        self.add(format!("{:?} was invalid", object.metadata.name));
    }
}

#[test]
fn handler_sees_metadata_of_invalid_objects() {
    let recorder = Recorder::default();
    let read = |text: &str| serde_json::from_str::<MaybeInvalid<ConfigMap>>(text).unwrap();
    let invalid = || read(r#"{"metadata": {"name": "a"}, "data": 7}"#);
    for event in [
        Event::InitApply(invalid()),
        Event::Apply(invalid()),
        Event::Delete(invalid()),
    ] {
        change_of(event, "ConfigMap", |_| {}).pass_to(&recorder);
    }
    let is_invalid = r#"Some("a") is invalid"#;
    assert_eq!(
        recorder.calls(),
        [is_invalid, is_invalid, r#"Some("a") was invalid"#]
    );
    let valid = Event::Delete(read(r#"{"metadata": {"name": "a"}}"#));
    assert!(matches!(
        change_of(valid, "ConfigMap", |_| {}),
        Change::Delete(_)
    ));
}

/// A server that supports only lists in pages. It has two pages of one object each, and sends
/// the second one when `release` is notified.
fn two_pages(release: Arc<Notify>) -> Client {
    let answer = move |request: Request<Body>| {
        let release = Arc::clone(&release);
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let page = |name: &str, more: Value| {
                let item = json!({"metadata": {"name": name, "resourceVersion": "1"}});
                let metadata = json!({"resourceVersion": "1", "continue": more});
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": [item]});
                Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
            };
            if query.contains("sendInitialEvents") {
                let status =
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422});
                Ok(Response::builder()
                    .status(422)
                    .body(Body::from(status.to_string().into_bytes()))
                    .unwrap())
            } else if query.contains("watch=true") {
                std::future::pending().await
            } else if query.contains("continue=more") {
                release.notified().await;
                page("b", Value::Null)
            } else {
                page("a", json!("more"))
            }
        }
    };
    Client::new(service_fn(answer), "default")
}

#[tokio::test]
async fn gate_is_ready_after_the_whole_initial_list() {
    let (release, recorder) = (Arc::new(Notify::new()), Arc::new(Recorder::default()));
    let synced = Health::default().register_watch("ConfigMap");
    let api = WatchApi::all(two_pages(Arc::clone(&release)));
    let spec = WatchSpec::new(api, (), Arc::clone(&recorder) as _, synced.clone());
    let watch = watch_into(WatchSpec {
        config: watcher::Config::default().page_size(1),
        ..spec
    });
    let watch = tokio::spawn(watch.for_each(|()| std::future::ready(())));
    while recorder.calls() != ["init", "init", "a"] {
        tokio::task::yield_now().await;
    }
    assert!(!synced.is_ready(), "the second page is missing");
    release.notify_one();
    synced.wait().await;
    assert_eq!(recorder.calls(), ["init", "init", "a", "b", "init_done"]);
    watch.abort();
}

/// A server whose etcd is restored once `restored` is set: then the versions are lower. One
/// watch fails at that moment, the others deliver nothing.
fn restored_server(restored: Arc<AtomicBool>, fails: Arc<Notify>) -> Client {
    let answer = move |request: Request<Body>| {
        let (restored, fails) = (Arc::clone(&restored), Arc::clone(&fails));
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_silent = request.uri().path().contains("silent");
            let status = |code: u16| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
                let body = Body::from(status.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            };
            if query.contains("sendInitialEvents") {
                return status(422);
            }
            if query.contains("watch=true") {
                if is_silent || restored.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                fails.notified().await;
                return status(500);
            }
            let version = if restored.load(Ordering::Relaxed) {
                "5"
            } else {
                "9"
            };
            let item = json!({"metadata": {"name": "a", "resourceVersion": version}});
            let metadata = json!({"resourceVersion": version});
            let list =
                json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": [item]});
            Ok(Response::new(Body::from(list.to_string().into_bytes())))
        }
    };
    Client::new(service_fn(answer), "default")
}

#[tokio::test]
async fn all_watches_list_again_when_one_sees_a_restore() {
    let (restored, fails) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (client, health) = (
        restored_server(Arc::clone(&restored), Arc::clone(&fails)),
        Health::default(),
    );
    let recorders: [Arc<Recorder>; 2] = Default::default();
    let mut watches = tokio::task::JoinSet::new();
    for (recorder, namespace) in recorders.iter().zip(["failing", "silent"]) {
        let api = WatchApi::namespaced(client.clone(), namespace);
        let spec = WatchSpec::new(
            api,
            (),
            Arc::clone(recorder) as _,
            health.register_watch("ConfigMap"),
        );
        watches.spawn(watch_into(spec).for_each(|()| std::future::ready(())));
    }
    let wait_for = async |calls: &[&str]| {
        while recorders.iter().any(|recorder| recorder.calls() != calls) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // A streaming list begins, and then one in pages.
    let listed = ["init", "init", "a", "init_done"];
    wait_for(&listed).await;
    restored.store(true, Ordering::Relaxed);
    let started = Instant::now();
    fails.notify_one();
    wait_for(&[&listed[..], &["restored"], &listed].concat()).await;
    assert!(
        started.elapsed() < VERSION_CHECK_INTERVAL / 2,
        "it is checked at once: {:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn closed_watch_reports_no_restore() {
    let (recorder, health) = (Arc::new(Recorder::default()), Health::default());
    let api = WatchApi::all(failing_lists(Arc::default()));
    let synced = health.register_watch("ConfigMap");
    let watch = WatchSpec::new(api, (), Arc::clone(&recorder) as _, synced).open();
    let restores = health.restores();
    restores.report(restores.epoch());
    drop(watch);
    restores.report(restores.epoch());
    assert_eq!(recorder.calls(), ["restored"]);
}

/// A server that does not support streaming lists, and fails lists in pages.
fn failing_lists(lists: Arc<AtomicU64>) -> Client {
    let answer = move |request: Request<Body>| {
        let is_streaming = request
            .uri()
            .query()
            .unwrap_or_default()
            .contains("sendInitialEvents");
        lists.fetch_add(u64::from(!is_streaming), Ordering::Relaxed);
        let code = if is_streaming { 422 } else { 500 };
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code});
        let response = Response::builder()
            .status(code)
            .body(Body::from(status.to_string().into_bytes()))
            .unwrap();
        std::future::ready(Ok::<_, Infallible>(response))
    };
    Client::new(service_fn(answer), "default")
}

#[tokio::test]
async fn delay_grows_with_failed_lists() {
    let (lists, synced) = (
        Arc::new(AtomicU64::new(0)),
        Health::default().register("ConfigMap").unwrap(),
    );
    let api: WatchApi<ConfigMap> = WatchApi::all(failing_lists(Arc::clone(&lists)));
    let watch = watch_into(WatchSpec::new(api, (), Arc::new(()), synced));
    let _ = tokio::time::timeout(
        Duration::from_secs(2),
        watch.for_each(|()| std::future::ready(())),
    )
    .await;
    // A list that fails has sent `Init`, which is no success. The delays are 0.2, 0.4, 0.8 and
    // 1.6 s at most.
    let lists = lists.load(Ordering::Relaxed);
    assert!((2..=6).contains(&lists), "{lists} lists");
}
