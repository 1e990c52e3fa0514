//! A minimal client of the API server, which parses only names and versions of responses.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use capi_ipam_controller::client::connect;
use futures::{AsyncBufReadExt as _, Stream, TryStreamExt as _};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

/// The API group of the contract and of the pools.
pub(crate) const GROUP: &str = "ipam.cluster.x-k8s.io";

/// The identity and version of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    metadata: Identity,
}

/// A client of the API server.
#[derive(Clone)]
pub(crate) struct ApiClient {
    pub(crate) client: Client,
}

impl ApiClient {
    pub(crate) async fn new(kubeconfig: &Path, name: &str) -> Self {
        Self {
            client: connect(Some(kubeconfig), name)
                .await
                .expect("the kubeconfig is valid"),
        }
    }

    /// Sends a request, with retries on 429.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> kube::Result<T> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        loop {
            let request = http::Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", content);
            let request = request.body(body.clone()).expect("the request is valid");
            match self.client.request(request).await {
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn write(&self, method: &str, path: &str, content: &str, body: &Value) -> Identity {
        let answer: kube::Result<Answer> = self.send(method, path, content, body).await;
        answer
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{:.1000}", body.to_string()))
            .metadata
    }

    /// Creates an object.
    pub(crate) async fn create(&self, folder: &str, object: &Value) -> Identity {
        self.write("POST", folder, "application/json", object).await
    }

    /// Sets fields of an object with a JSON patch, with uid and resource version as preconditions.
    pub(crate) async fn patch(
        &self,
        path: &str,
        was: &Identity,
        set: &[(&str, Value)],
    ) -> Identity {
        let guard =
            |path: &str, value: &str| json!({"op": "replace", "path": path, "value": value});
        let mut operations = vec![
            guard("/metadata/uid", &was.uid),
            guard("/metadata/resourceVersion", &was.resource_version),
        ];
        operations.extend(
            set.iter()
                .map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        );
        self.write(
            "PATCH",
            path,
            "application/json-patch+json",
            &Value::Array(operations),
        )
        .await
    }

    /// Changes an object with a merge patch (RFC 7396), without preconditions.
    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Identity {
        self.write("PATCH", path, "application/merge-patch+json", change)
            .await
    }

    /// Deletes the object with this uid, and returns it as in the response.
    pub(crate) async fn delete(&self, path: &str, uid: &str) -> Identity {
        let options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        self.write("DELETE", path, "application/json", &options)
            .await
    }

    /// Lists all objects in pages, parsed as `T`.
    pub(crate) async fn list<T: DeserializeOwned>(&self, folder: &str) -> Vec<T> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let page: List<T> = self.page(folder, 500, &next).await;
            all.extend(page.items);
            if page.metadata.r#continue.is_empty() {
                return all;
            }
            next = page.metadata.r#continue;
        }
    }

    /// Reads a whole collection as one stream, as watches begin, and returns its size. The objects
    /// are not parsed.
    pub(crate) async fn stream(&self, folder: &str) -> usize {
        const INITIAL: &str = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = self.watch(folder, INITIAL).await.into_async_read().lines();
        let mut count = 0;
        while let Some(line) = lines
            .try_next()
            .await
            .expect("the stream goes on until its bookmark")
        {
            if line.contains("k8s.io/initial-events-end") {
                return count;
            }
            count += 1;
        }
        panic!("the stream of {folder} ended without a bookmark")
    }

    /// Watches a collection and discards the events, until the task is aborted.
    pub(crate) async fn discard_events(&self, folder: &str) -> AbortHandle {
        let events = self.watch(folder, "&resourceVersion=0").await;
        tokio::spawn(events.try_for_each(async |_| Ok(()))).abort_handle()
    }

    async fn watch(
        &self,
        folder: &str,
        options: &str,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + use<> + Unpin {
        let path = format!("{folder}?watch=1&allowWatchBookmarks=true{options}");
        let request = http::Request::get(path)
            .body(kube::client::Body::empty())
            .expect("the request is valid");
        let answer = self
            .client
            .send(request)
            .await
            .expect("the API server answers");
        answer
            .into_body()
            .into_data_stream()
            .map_err(std::io::Error::other)
    }

    /// The current resource version of a collection, and its size.
    pub(crate) async fn version_and_count(&self, folder: &str) -> (String, usize) {
        let page: List<Value> = self.page(folder, 1, "").await;
        (
            page.metadata.resource_version,
            page.items.len() + page.metadata.remaining_item_count,
        )
    }

    /// Runs the Go garbage collector of the API server.
    pub(crate) async fn collect_garbage(&self) {
        // With 300,000 objects a collection can take longer than a request may.
        for _ in 0..10 {
            let request = http::Request::get("/debug/pprof/heap?gc=1&debug=1").body(Vec::new());
            let request = request.expect("the request is valid");
            if self.client.request_text(request).await.is_ok() {
                return;
            }
        }
        panic!("the API server serves no heap profiles")
    }

    /// A CPU profile of the API server over some seconds, for `go tool pprof`. Requests may take 10
    /// s.
    pub(crate) async fn profile(&self, seconds: u32) -> Vec<u8> {
        let path = format!("/debug/pprof/profile?seconds={seconds}");
        let request = http::Request::get(path)
            .body(kube::client::Body::empty())
            .expect("the request is valid");
        let answer = self
            .client
            .send(request)
            .await
            .expect("the API server serves profiles");
        answer
            .into_body()
            .collect()
            .await
            .expect("the profile is sent")
            .to_bytes()
            .to_vec()
    }

    /// The size of a collection, after a restart of the API server.
    pub(crate) async fn count_when_loaded(&self, folder: &str) -> usize {
        let path = format!("{folder}?limit=1");
        for _ in 0..300 {
            match self
                .send::<List<Value>>("GET", &path, "application/json", &Value::Null)
                .await
            {
                Ok(page) => return page.items.len() + page.metadata.remaining_item_count,
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
        panic!("{folder} cannot be read")
    }

    async fn page<T: DeserializeOwned>(&self, folder: &str, limit: usize, next: &str) -> List<T> {
        let mut path = format!("{folder}?limit={limit}");
        if !next.is_empty() {
            write!(path, "&continue={next}").expect("writing to a string does not fail");
        }
        let page = self
            .send("GET", &path, "application/json", &Value::Null)
            .await;
        page.unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMetadata,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: String,
    r#continue: String,
    remaining_item_count: usize,
}

/// The path of the claims of a namespace.
pub(crate) fn claims(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1beta2/namespaces/{namespace}/ipaddressclaims")
}

/// The path of the IPAddresses of a namespace.
pub(crate) fn addresses(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1beta2/namespaces/{namespace}/ipaddresses")
}

/// The path of the pools of a namespace.
pub(crate) fn pools(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1alpha2/namespaces/{namespace}/inclusterippools")
}

/// The path of the reservations.
pub(crate) fn reservations() -> String {
    format!("/apis/{GROUP}/v1alpha2/ipreservations")
}
