//! Calls to the API server that do no more than they have to: of each answer only names and versions are read.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use capi_ipam_controller::client::connect;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{json, Value};

/// The API group of the contract and of the pools.
pub(crate) const GROUP: &str = "ipam.cluster.x-k8s.io";

/// What identifies an object and its state.
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

/// Talks to an API server as somebody.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) client: Client,
}

impl Calls {
    pub(crate) async fn new(kubeconfig: &Path, name: &str) -> Self {
        Self { client: connect(Some(kubeconfig), name).await.expect("the kubeconfig is good") }
    }

    /// Sends a request, and again while the API server says that it is too early to ask.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> kube::Result<T> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        loop {
            let request = http::Request::builder().method(method).uri(path).header("content-type", content);
            let request = request.body(body.clone()).expect("the requests are written as they should be");
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
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}\n{body}")).metadata
    }

    /// Creates an object.
    pub(crate) async fn create(&self, folder: &str, object: &Value) -> Identity {
        self.write("POST", folder, "application/json", object).await
    }

    /// Changes an object that is still what it was: the fields at these paths are set.
    pub(crate) async fn patch(&self, path: &str, was: &Identity, set: &[(&str, Value)]) -> Identity {
        let guard = |path: &str, value: &str| json!({"op": "replace", "path": path, "value": value});
        let mut operations =
            vec![guard("/metadata/uid", &was.uid), guard("/metadata/resourceVersion", &was.resource_version)];
        operations.extend(set.iter().map(|(path, value)| json!({"op": "add", "path": path, "value": value})));
        self.write("PATCH", path, "application/json-patch+json", &Value::Array(operations)).await
    }

    /// Changes an object whatever it was (RFC 7396).
    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Identity {
        self.write("PATCH", path, "application/merge-patch+json", change).await
    }

    /// Deletes the object with that uid. Where finalizers hold it, the answer is the object as it is then.
    pub(crate) async fn delete(&self, path: &str, uid: &str) -> Identity {
        let options = json!({"preconditions": {"uid": uid}, "propagationPolicy": "Background"});
        self.write("DELETE", path, "application/json", &options).await
    }

    /// All objects in a folder as they are now, of which `T` says what is read.
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

    /// As [`Self::list`], all at once. That comes out of the API server's cache, and pages do not.
    pub(crate) async fn list_at_once<T: DeserializeOwned>(&self, folder: &str) -> Vec<T> {
        self.page(folder, 0, "").await.items
    }

    /// The version that a folder is at now, and how many objects it has.
    pub(crate) async fn version_and_count(&self, folder: &str) -> (String, usize) {
        let page: List<Value> = self.page(folder, 1, "").await;
        (page.metadata.resource_version, page.items.len() + page.metadata.remaining_item_count)
    }

    /// Returns when the API server has collected its garbage.
    pub(crate) async fn collect_garbage(&self) {
        let request = http::Request::get("/debug/pprof/heap?gc=1&debug=1").body(Vec::new());
        let request = request.expect("the request is written as it should be");
        self.client.request_text(request).await.expect("the API server tells what its memory is used for");
    }

    /// How many objects a folder has, from a server that may not have read them all yet.
    pub(crate) async fn count_when_loaded(&self, folder: &str) -> usize {
        let path = format!("{folder}?limit=1");
        for _ in 0..300 {
            match self.send::<List<Value>>("GET", &path, "application/json", &Value::Null).await {
                Ok(page) => return page.items.len() + page.metadata.remaining_item_count,
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
        panic!("{folder} cannot be read")
    }

    async fn page<T: DeserializeOwned>(&self, folder: &str, limit: usize, next: &str) -> List<T> {
        let mut path = format!("{folder}?limit={limit}");
        if !next.is_empty() {
            write!(path, "&continue={next}").expect("a string takes all that is written to it");
        }
        let page = self.send("GET", &path, "application/json", &Value::Null).await;
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

/// Where the claims of a namespace are.
pub(crate) fn claims(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1beta2/namespaces/{namespace}/ipaddressclaims")
}

/// Where the IPAddresses of a namespace are.
pub(crate) fn addresses(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1beta2/namespaces/{namespace}/ipaddresses")
}

/// Where the pools of a namespace are.
pub(crate) fn pools(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1alpha2/namespaces/{namespace}/inclusterippools")
}

/// Where the reservations are.
pub(crate) fn reservations() -> String {
    format!("/apis/{GROUP}/v1alpha2/ipreservations")
}
