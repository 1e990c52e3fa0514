//! Asks the API server, or the webhooks themselves, and reads all that they say: code, fields, text, warnings.

use capi_ipam::admission::routes::paths_of;
use capi_ipam::api::InClusterKind;
use capi_ipam::support::consumer::Consumer;
use capi_ipam::support::webhooks::Webhooks;
use capi_ipam::support::webhooks::direct::{Answer, review};
use kube::Client;
use kube::client::Body;
use serde_json::{json, Value};

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const PATCH: &str = "application/json-patch+json";

/// What was said to a request.
#[derive(Debug)]
pub(crate) struct Said {
    /// 200 or 201 when it was done, or would be.
    pub(crate) code: u16,
    pub(crate) reason: String,
    /// The fields of the causes of a refusal.
    pub(crate) fields: Vec<String>,
    pub(crate) message: String,
    pub(crate) warnings: Vec<String>,
    /// The object as it is now.
    pub(crate) object: Value,
}

impl Said {
    fn new(code: u16, status: &Value, warnings: Vec<String>) -> Self {
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        let causes = status["details"]["causes"].as_array().into_iter().flatten();
        let fields = causes.filter_map(|cause| cause["field"].as_str()).map(str::to_owned).collect();
        Self { code, reason: text("reason"), fields, message: text("message"), warnings, object: Value::Null }
    }

    /// Whether it was done, or would be.
    pub(crate) fn is_ok(&self) -> bool {
        self.code < 300
    }

    /// The object, once it is clear that there is one.
    pub(crate) fn done(self) -> Value {
        assert!(self.is_ok(), "{self:?}");
        self.object
    }

    /// Makes sure of a refusal. A field may have more behind the path, such as an index.
    pub(crate) fn refused(&self, code: u16, field: &str, text: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.message.contains(text), "no {text:?} in {self:?}");
        if !field.is_empty() {
            assert!(self.fields.iter().any(|found| found.starts_with(field)), "no {field} in {self:?}");
        }
    }
}

/// Somebody who talks to the API server in a namespace.
#[derive(Clone)]
pub(crate) struct Asker {
    client: Client,
    namespace: String,
}

impl Asker {
    pub(crate) fn new(consumer: &Consumer) -> Self {
        Self { client: consumer.client.clone(), namespace: consumer.namespace.clone() }
    }

    /// The path of a pool, or with an empty name of all pools of that kind and namespace.
    pub(crate) fn path(&self, kind: InClusterKind, version: &str, name: &str) -> String {
        let namespace = if kind.is_global() { String::new() } else { format!("/namespaces/{}", self.namespace) };
        let slash = if name.is_empty() { "" } else { "/" };
        format!("/apis/ipam.cluster.x-k8s.io/{version}{namespace}/{}{slash}{name}", kind.plural())
    }

    /// A pool as it is sent.
    pub(crate) fn pool(&self, kind: InClusterKind, name: &str, spec: &Value) -> Value {
        let mut pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(), "metadata": { "name": name },
            "spec": spec,
        });
        if !kind.is_global() {
            pool["metadata"]["namespace"] = json!(self.namespace);
        }
        pool
    }

    /// Any request to the API server.
    pub(crate) async fn call(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Said {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(body).expect("the test writes requests as they should be");
        let answer = self.client.send(request).await.expect("the API server answers");
        let code = answer.status().as_u16();
        let headers = answer.headers().get_all("warning").iter().filter_map(|header| header.to_str().ok());
        let warnings = headers.map(warning).collect();
        let body = answer.into_body().collect_bytes().await.expect("the answer has a body");
        let body: Value = serde_json::from_slice(&body).expect("the API server writes JSON");
        let mut said = Said::new(code, &body, warnings);
        said.object = body;
        said
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.call("GET", path, JSON, &Value::Null).await.done()
    }

    pub(crate) async fn create(&self, kind: InClusterKind, name: &str, spec: &Value) -> Said {
        self.call("POST", &self.path(kind, "v1alpha2", ""), JSON, &self.pool(kind, name, spec)).await
    }

    /// What would be said to a creation.
    pub(crate) async fn try_create(&self, kind: InClusterKind, name: &str, spec: &Value) -> Said {
        let path = format!("{}?dryRun=All", self.path(kind, "v1alpha2", ""));
        self.call("POST", &path, JSON, &self.pool(kind, name, spec)).await
    }

    /// Changes some fields.
    pub(crate) async fn change(&self, kind: InClusterKind, name: &str, change: &Value) -> Said {
        self.call("PATCH", &self.path(kind, "v1alpha2", name), MERGE, change).await
    }

    /// What would be said to a change of some fields.
    pub(crate) async fn try_change(&self, kind: InClusterKind, name: &str, change: &Value) -> Said {
        let path = format!("{}?dryRun=All", self.path(kind, "v1alpha2", name));
        self.call("PATCH", &path, MERGE, change).await
    }

    /// What would be said to another specification.
    pub(crate) async fn try_replace(&self, kind: InClusterKind, name: &str, spec: &Value) -> Said {
        let path = format!("{}?dryRun=All", self.path(kind, "v1alpha2", name));
        self.call("PATCH", &path, PATCH, &json!([{"op": "replace", "path": "/spec", "value": spec}])).await
    }

    pub(crate) async fn delete(&self, kind: InClusterKind, name: &str) -> Said {
        self.call("DELETE", &self.path(kind, "v1alpha2", name), JSON, &Value::Null).await
    }
}

/// Asks a webhook about a pool as it was and as it is to be, either of which may be null.
pub(crate) async fn ask(webhooks: &Webhooks, kind: InClusterKind, operation: &str, old: &Value, new: &Value) -> Said {
    let review = review(operation, kind.name(), old, new);
    read(&webhooks.ask(paths_of(kind).validate, &review).await)
}

/// What a webhook says in its answer.
pub(crate) fn read(answer: &Answer) -> Said {
    let response = answer.response();
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings.filter_map(|text| Some(text.as_str()?.to_owned())).collect();
    let code = if response["allowed"] == true { json!(200) } else { response["status"]["code"].clone() };
    let code = code.as_u64().and_then(|code| u16::try_from(code).ok()).expect("a refusal has a code");
    Said::new(code, &response["status"], warnings)
}

/// The text of a header `Warning: 299 - "text"`.
fn warning(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"')).unwrap_or(header);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}
