//! A minimal client of the API server, which parses only names and versions of responses.

use std::path::Path;
use std::time::Duration;

use capi_ipam_controller::client::connect;
use futures::{AsyncBufReadExt as _, Stream, TryStreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The number of concurrent requests of a consumer and of a baseline.
pub(crate) const AT_ONCE: usize = 32;

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

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: Identity,
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

#[derive(Clone)]
pub(crate) struct Api(pub(crate) Client);

/// The path of a collection; an empty namespace selects all.
pub(crate) fn folder(namespace: &str, plural: &str) -> String {
    let version = match plural {
        "ipaddressclaims" | "ipaddresses" => "v1beta2",
        _ => "v1alpha2",
    };
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("namespaces/{namespace}/")
    };
    format!("/apis/{GROUP}/{version}/{namespace}{plural}")
}

impl Api {
    pub(crate) async fn new(kubeconfig: &Path, name: &str) -> Self {
        Self(
            connect(Some(kubeconfig), name)
                .await
                .expect("the kubeconfig is valid"),
        )
    }

    /// Sends a request, with retries on 429.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> kube::Result<T> {
        let content = match (method, body) {
            ("PATCH", Value::Array(_)) => "application/json-patch+json",
            ("PATCH", _) => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        loop {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", content);
            let request = request.body(body.clone()).expect("the request is valid");
            match self.0.request(request).await {
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn write(&self, method: &str, path: &str, body: &Value) -> Identity {
        let answer: kube::Result<Answer> = self.send(method, path, body).await;
        let answer = answer
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{:.1000}", body.to_string()));
        answer.metadata
    }

    pub(crate) async fn create(&self, folder: &str, object: &Value) -> Identity {
        self.write("POST", folder, object).await
    }

    /// Sets fields of an object with a JSON patch, with uid and resource version as preconditions.
    pub(crate) async fn patch(
        &self,
        path: &str,
        was: &Identity,
        field: &str,
        value: Value,
    ) -> Identity {
        let guard =
            |path: &str, value: &str| json!({"op": "replace", "path": path, "value": value});
        let operations = json!([
            guard("/metadata/uid", &was.uid),
            guard("/metadata/resourceVersion", &was.resource_version),
            {"op": "add", "path": field, "value": value},
        ]);
        self.write("PATCH", path, &operations).await
    }

    /// Changes an object with a merge patch (RFC 7396), without preconditions.
    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Identity {
        self.write("PATCH", path, change).await
    }

    /// Deletes the object with this uid, and returns it as in the response.
    pub(crate) async fn delete(&self, path: &str, uid: &str) -> Identity {
        let options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        self.write("DELETE", path, &options).await
    }

    /// Lists all objects in pages, parsed as `T`.
    pub(crate) async fn list<T: DeserializeOwned>(&self, folder: &str) -> Vec<T> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("{folder}?limit=500&continue={next}");
            let page: kube::Result<List<T>> = self.send("GET", &path, &Value::Null).await;
            let page = page.unwrap_or_else(|error| panic!("GET {path}: {error}"));
            all.extend(page.items);
            next = page.metadata.r#continue;
            if next.is_empty() {
                return all;
            }
        }
    }

    /// The current resource version of a collection, and its size.
    pub(crate) async fn version_and_count(&self, folder: &str) -> kube::Result<(String, usize)> {
        let page: List<Value> = self
            .send("GET", &format!("{folder}?limit=1"), &Value::Null)
            .await?;
        Ok((
            page.metadata.resource_version,
            page.items.len() + page.metadata.remaining_item_count,
        ))
    }

    /// Reads a whole collection as one stream, as watches begin. The objects are not parsed.
    pub(crate) async fn stream(&self, folder: &str) {
        const INITIAL: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        let mut lines = self.watch(folder, INITIAL).await.into_async_read().lines();
        while let Some(line) = lines
            .try_next()
            .await
            .expect("the stream goes on until its bookmark")
        {
            if line.contains("k8s.io/initial-events-end") {
                return;
            }
        }
        panic!("the stream of {folder} ended without a bookmark")
    }

    /// The events of a collection, which are not parsed.
    pub(crate) async fn watch(
        &self,
        folder: &str,
        options: &str,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + use<> + Unpin {
        let path = format!("{folder}?watch=1&allowWatchBookmarks=true&{options}");
        self.body(&path)
            .await
            .into_data_stream()
            .map_err(std::io::Error::other)
    }

    async fn body(&self, path: &str) -> Body {
        let request = Request::get(path)
            .body(Body::empty())
            .expect("the request is valid");
        self.0
            .send(request)
            .await
            .expect("the API server answers")
            .into_body()
    }

    /// A page of the diagnostics of the API server.
    pub(crate) async fn diagnostics(&self, path: &str) -> Bytes {
        let body = self.body(&format!("/debug/pprof/{path}")).await;
        body.collect()
            .await
            .expect("the API server sends all")
            .to_bytes()
    }
}
