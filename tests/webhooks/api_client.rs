//! Sends requests to the API server or directly to the webhooks, and reads code, fields, message
//! and warnings.

use capi_ipam::admission::routes::paths_of;
use kube::{Client, client::Body};
use support::{
    prelude::*,
    webhooks::direct::{HttpResponse, review},
};

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const PATCH: &str = "application/json-patch+json";

/// The code of a request that was not answered in time, which the API server returns too.
const NO_ANSWER: u16 = 504;

/// The response to a request.
#[derive(Debug)]
pub(crate) struct Response {
    /// 200 or 201 when it was applied, or would be in a dry run.
    pub(crate) code: u16,
    pub(crate) reason: String,
    /// The fields in the causes of a denial.
    pub(crate) fields: Vec<String>,
    pub(crate) message: String,
    pub(crate) warnings: Vec<String>,
    /// The current object.
    pub(crate) object: Value,
}

impl Response {
    fn new(code: u16, status: &Value, warnings: Vec<String>) -> Self {
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        let causes = status["details"]["causes"].as_array().into_iter().flatten();
        let fields = causes
            .filter_map(|cause| cause["field"].as_str())
            .map(str::to_owned)
            .collect();
        Self {
            code,
            reason: text("reason"),
            fields,
            message: text("message"),
            warnings,
            object: Value::Null,
        }
    }

    /// Whether the request succeeded.
    pub(crate) fn is_ok(&self) -> bool {
        self.code < 300
    }

    /// The object of a successful request.
    pub(crate) fn into_object(self) -> Value {
        assert!(self.is_ok(), "{self:?}");
        self.object
    }

    /// Asserts that the request succeeded with a warning that begins with a text.
    pub(crate) fn assert_warned(&self, start: &str) {
        let is_warned = self.warnings.iter().any(|text| text.starts_with(start));
        assert!(self.is_ok() && is_warned, "no {start:?} in {self:?}");
    }

    /// Asserts a denial. A field may have a suffix, such as an index.
    pub(crate) fn assert_denied(&self, code: u16, field: &str, text: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.message.contains(text), "no {text:?} in {self:?}");
        if !field.is_empty() {
            assert!(
                self.fields.iter().any(|found| found.starts_with(field)),
                "no {field} in {self:?}"
            );
        }
    }
}

/// The specification of a pool of a kind.
pub(crate) fn spec_of(kind: InClusterKind) -> Value {
    if kind.has_prefixes() {
        json!({ "prefixes": ["fd00::/62"], "allocationPrefixLength": 64 })
    } else {
        json!({ "addresses": ["10.0.0.5-10.0.0.9"], "prefix": 24 })
    }
}

/// A client of the API server in one namespace.
#[derive(Clone)]
pub(crate) struct ApiClient {
    api: Client,
    namespace: String,
}

impl ApiClient {
    pub(crate) fn new(consumer: &Consumer) -> Self {
        Self {
            api: consumer.client.clone(),
            namespace: consumer.namespace.clone(),
        }
    }

    /// The path of a pool, or with an empty name that of all pools of the kind in the namespace.
    pub(crate) fn path(&self, kind: InClusterKind, version: &str, name: &str) -> String {
        let namespace = if kind.is_global() {
            String::new()
        } else {
            format!("/namespaces/{}", self.namespace)
        };
        let slash = if name.is_empty() { "" } else { "/" };
        format!(
            "/apis/ipam.cluster.x-k8s.io/{version}{namespace}/{}{slash}{name}",
            kind.plural()
        )
    }

    /// The body of a pool.
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

    /// Sends any request to the API server.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Response {
        let body = if body.is_null() {
            Body::empty()
        } else {
            Body::from(body.to_string().into_bytes())
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type);
        let request = request.body(body).expect("the test writes valid requests");
        let response = match self.api.send(request).await {
            Ok(response) => response,
            // A poll asks again.
            Err(error) => {
                return Response::new(
                    NO_ANSWER,
                    &json!({ "message": error.to_string() }),
                    Vec::new(),
                );
            }
        };
        let code = response.status().as_u16();
        let headers = response
            .headers()
            .get_all("warning")
            .iter()
            .filter_map(|header| header.to_str().ok());
        let warnings = headers.map(warning).collect();
        let body = response
            .into_body()
            .collect_bytes()
            .await
            .expect("the answer has a body");
        let body: Value = serde_json::from_slice(&body).expect("the API server writes JSON");
        let mut response = Response::new(code, &body, warnings);
        response.object = body;
        response
    }

    /// Reads an object. A loaded API server is asked three times.
    pub(crate) async fn get(&self, path: &str) -> Value {
        for _ in 0..2 {
            let response = self.call("GET", path, JSON, &Value::Null).await;
            if response.code != NO_ANSWER {
                return response.into_object();
            }
        }
        self.call("GET", path, JSON, &Value::Null)
            .await
            .into_object()
    }

    pub(crate) async fn create(&self, kind: InClusterKind, name: &str, spec: &Value) -> Response {
        self.call(
            "POST",
            &self.path(kind, "v1alpha2", ""),
            JSON,
            &self.pool(kind, name, spec),
        )
        .await
    }

    /// Creates an object of any kind with a dry run.
    pub(crate) async fn dry_run(&self, object: &Value) -> Response {
        let text = |value: &Value| value.as_str().map(str::to_lowercase);
        let kind = text(&object["kind"]).expect("an object has a kind");
        let plural = kind
            .strip_suffix('y')
            .map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
        let namespace = text(&object["metadata"]["namespace"]);
        let folder = namespace.map_or_else(String::new, |name| format!("/namespaces/{name}"));
        let path = format!("/apis/ipam.cluster.x-k8s.io/v1alpha2{folder}/{plural}?dryRun=All");
        self.call("POST", &path, JSON, object).await
    }

    /// Creates a pool with a dry run.
    pub(crate) async fn dry_run_create(
        &self,
        kind: InClusterKind,
        name: &str,
        spec: &Value,
    ) -> Response {
        let path = format!("{}?dryRun=All", self.path(kind, "v1alpha2", ""));
        self.call("POST", &path, JSON, &self.pool(kind, name, spec))
            .await
    }

    /// Applies a merge patch.
    pub(crate) async fn patch(&self, kind: InClusterKind, name: &str, change: &Value) -> Response {
        self.call("PATCH", &self.path(kind, "v1alpha2", name), MERGE, change)
            .await
    }

    /// Applies a merge patch with a dry run.
    pub(crate) async fn dry_run_patch(
        &self,
        kind: InClusterKind,
        name: &str,
        change: &Value,
    ) -> Response {
        let path = format!("{}?dryRun=All", self.path(kind, "v1alpha2", name));
        self.call("PATCH", &path, MERGE, change).await
    }

    /// Replaces the spec with a dry run.
    pub(crate) async fn dry_run_replace(
        &self,
        kind: InClusterKind,
        name: &str,
        spec: &Value,
    ) -> Response {
        let path = format!("{}?dryRun=All", self.path(kind, "v1alpha2", name));
        self.call(
            "PATCH",
            &path,
            PATCH,
            &json!([{"op": "replace", "path": "/spec", "value": spec}]),
        )
        .await
    }

    pub(crate) async fn delete(&self, kind: InClusterKind, name: &str) -> Response {
        self.call(
            "DELETE",
            &self.path(kind, "v1alpha2", name),
            JSON,
            &Value::Null,
        )
        .await
    }
}

/// Posts a review of an old and a new pool, either of which may be null, to a webhook.
pub(crate) async fn post_review(
    webhooks: &Webhooks,
    kind: InClusterKind,
    operation: &str,
    old: &Value,
    new: &Value,
) -> Response {
    let review = review(operation, kind.name(), old, new);
    parse(&webhooks.post_review(paths_of(kind).validate, &review).await)
}

/// Parses the response of a webhook.
pub(crate) fn parse(response: &HttpResponse) -> Response {
    let response = response.response();
    let warnings = response["warnings"].as_array().into_iter().flatten();
    let warnings = warnings
        .filter_map(|text| Some(text.as_str()?.to_owned()))
        .collect();
    let code = if response["allowed"] == true {
        json!(200)
    } else {
        response["status"]["code"].clone()
    };
    let code = code
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .expect("a refusal has a code");
    Response::new(code, &response["status"], warnings)
}

/// The text of a header `Warning: 299 - "text"`.
fn warning(header: &str) -> String {
    let text = header
        .strip_prefix("299 - \"")
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(header);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}
