//! Admission review (`admission.k8s.io`): decides whether an object may be written.
//!
//! v1 and v1beta1 differ only in their name; a reply has the version of its request.

use k8s_openapi::ByteString;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tracing::error;

use crate::denial::{Denial, FieldError};
use crate::memory::exceeds;
use crate::reply::{Outcome, Reply, ReplyError, catch_panic, serialize};

const KIND: &str = "AdmissionReview";
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// Limit for the memory of a parsed review, as [`exceeds`] estimates it. A review contains an object twice; the largest
/// pool that the CustomResourceDefinitions allow takes 4 MiB.
const MAX_MEMORY: usize = 32 * 1024 * 1024;

/// Limits for the length of one warning and of all. The API server truncates and drops what exceeds them.
const MAX_WARNING_LENGTH: usize = 256;
const MAX_WARNINGS_LENGTH: usize = 4096;

/// An admission request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Identifier of the request.
    pub uid: String,
    /// The kind of the object, in the version of the webhook configuration.
    pub kind: GroupVersionKind,
    /// The operation.
    pub operation: Operation,
    /// The written subresource, such as `status`; empty for the main resource.
    #[serde(default, deserialize_with = "or_default")]
    pub sub_resource: String,
    /// Namespace of the object; empty for a cluster-scoped one.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// Name of the object; empty if the API server generates it.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The new object; `None` for a deletion.
    #[serde(default)]
    pub object: Option<Value>,
    /// The existing object; `None` for a creation.
    #[serde(default)]
    pub old_object: Option<Value>,
    /// The request is not persisted.
    #[serde(default, deserialize_with = "or_default")]
    pub dry_run: bool,
    /// The user who sent the request.
    #[serde(default, deserialize_with = "or_default", rename = "userInfo")]
    pub user: UserInfo,
}

/// Group, version and kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct GroupVersionKind {
    /// API group; empty for the core group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// API version, such as `v1`.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// Kind in CamelCase.
    pub kind: String,
}

/// The operation of an admission request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    #[default]
    Create,
    /// The object is updated or patched.
    Update,
    /// The object is deleted.
    Delete,
    /// A subresource is connected to, as by `kubectl exec`.
    Connect,
}

/// The user who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct UserInfo {
    /// Name of the user or service account.
    #[serde(default, deserialize_with = "or_default")]
    pub username: String,
    /// Groups of the user.
    #[serde(default, deserialize_with = "or_default")]
    pub groups: Vec<String>,
}

/// The decision on an admission request.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The request is allowed.
    Allowed {
        /// Warnings that the client shows.
        warnings: Vec<String>,
        /// Changes of the object, for mutating webhooks.
        patch: Option<json_patch::Patch>,
    },
    /// The request is denied.
    Denied(Denial),
}

impl Decision {
    /// Allows the request without warnings.
    pub fn allowed() -> Self {
        Self::Allowed { warnings: Vec::new(), patch: None }
    }
}

impl From<Denial> for Decision {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

/// Decides on admission requests. Functions implement it.
pub trait Validator: Send + Sync + 'static {
    /// Decides on one request. Must not block.
    fn validate(&self, request: &AdmissionRequest) -> Decision;
}

impl<F> Validator for F
where
    F: Fn(&AdmissionRequest) -> Decision + Send + Sync + 'static,
{
    fn validate(&self, request: &AdmissionRequest) -> Decision {
        self(request)
    }
}

/// Responds to an `AdmissionReview`. A panic of the validator denies the request.
pub fn respond(body: &[u8], validator: &dyn Validator) -> Result<Reply, ReplyError> {
    if exceeds(body, MAX_MEMORY) {
        return Err(ReplyError::TooManyValues { limit: MAX_MEMORY });
    }
    let review: Review = serde_json::from_slice(body)
        .map_err(|source| ReplyError::Malformed { expected: "an AdmissionReview", source })?;
    if review.kind != KIND || !VERSIONS.contains(&review.api_version.as_str()) {
        let expected = "AdmissionReview of admission.k8s.io/v1 and v1beta1";
        return Err(ReplyError::Unexpected { kind: review.kind, version: review.api_version, expected });
    }
    let request = review.request.ok_or(ReplyError::Missing { field: "request" })?;
    if request.uid.is_empty() {
        return Err(ReplyError::Missing { field: "request.uid" });
    }
    let (decision, panicked) = match catch_panic(|| validator.validate(&request)) {
        Ok(decision) => (decision, false),
        Err(panic) => {
            let AdmissionRequest { kind, namespace, name, .. } = &request;
            error!(kind = kind.kind, namespace, name, panic, "the validation of an object panicked; this is a bug");
            let message = "the webhook failed on this object because of a bug; see its log";
            (Denial::internal(message).into(), true)
        }
    };
    let response = Response::new(&request.uid, decision);
    let outcome = match response.allowed {
        _ if panicked => Outcome::Panicked,
        true => Outcome::Allowed,
        false => Outcome::Denied,
    };
    serialize(&Reviewed { api_version: &review.api_version, kind: KIND, response }, outcome)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reviewed<'a> {
    api_version: &'a str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct Status {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: String,
    details: Details,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<FieldError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

impl<'a> Response<'a> {
    fn new(uid: &'a str, decision: Decision) -> Self {
        let empty = Self { uid, allowed: true, status: None, patch_type: None, patch: None, warnings: Vec::new() };
        match decision {
            Decision::Allowed { warnings, patch } => {
                // Validating webhooks must not send a patch, not even an empty one.
                let patch = patch.filter(|patch| !patch.0.is_empty());
                match patch.map(|patch| serde_json::to_vec(&patch)) {
                    None => Self { warnings: header_safe(&warnings), ..empty },
                    Some(Ok(patch)) => Self {
                        warnings: header_safe(&warnings),
                        patch_type: Some("JSONPatch"),
                        patch: Some(ByteString(patch)),
                        ..empty
                    },
                    Some(Err(error)) => {
                        Self::new(uid, Denial::internal(format!("the patch cannot be serialized: {error}")).into())
                    }
                }
            }
            Decision::Denied(denial) => {
                let Denial { code, reason, message, group, kind, name, causes, retry_after, warnings } = denial;
                let details = Details { group, kind, name, causes, retry_after_seconds: retry_after };
                let status = Some(Status { status: "Failure", code, reason, message, details });
                Self { allowed: false, status, warnings: header_safe(&warnings), ..empty }
            }
        }
    }
}

/// Shortens warnings and removes control characters: the API server sends them in HTTP headers.
fn header_safe(warnings: &[String]) -> Vec<String> {
    let mut left = MAX_WARNINGS_LENGTH;
    let mut safe = Vec::new();
    for warning in warnings {
        let text: String = warning.trim().chars().take(MAX_WARNING_LENGTH).collect();
        let text = text.replace(char::is_control, " ");
        let length = text.chars().count();
        if length > left {
            break;
        }
        left -= length;
        if length > 0 {
            safe.push(text);
        }
    }
    safe
}

/// Deserializes `null` like a missing field.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(version: &str) -> Value {
        json!({"apiVersion": version, "kind": KIND, "request": {
            "uid": "u-1", "operation": "CREATE", "name": "a", "namespace": "n", "dryRun": true,
            "kind": {"group": "example.com", "version": "v1", "kind": "Thing"},
            "resource": {"group": "example.com", "version": "v1", "resource": "things"},
            "userInfo": {"username": "me", "groups": ["g"], "extra": {"x": ["y"]}},
            "object": {"spec": {"size": 3}}, "oldObject": null, "options": {"kind": "CreateOptions"}}})
    }

    fn response_to(review: &Value, validator: &dyn Validator) -> (Value, Outcome) {
        let reply = respond(review.to_string().as_bytes(), validator).unwrap();
        let mut body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body["response"]["uid"], "u-1");
        (body["response"].take(), reply.outcome)
    }

    #[test]
    fn response_has_the_version_of_the_request() {
        for version in VERSIONS {
            let read = |request: &AdmissionRequest| {
                assert_eq!(request.kind.kind, "Thing");
                assert_eq!((request.operation, request.dry_run), (Operation::Create, true));
                assert_eq!((request.namespace.as_str(), request.name.as_str()), ("n", "a"));
                assert_eq!(request.user, UserInfo { username: "me".to_owned(), groups: vec!["g".to_owned()] });
                assert!(request.old_object.is_none());
                assert_eq!(request.object.as_ref().unwrap()["spec"]["size"], 3);
                Decision::allowed()
            };
            let reply = respond(review(version).to_string().as_bytes(), &read).unwrap();
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            let expected = json!({"apiVersion": version, "kind": KIND, "response": {"uid": "u-1", "allowed": true}});
            assert_eq!((body, reply.outcome), (expected, Outcome::Allowed));
        }
    }

    #[test]
    fn denial_has_all_details() {
        let deny = |_: &AdmissionRequest| {
            let causes = vec![FieldError::invalid("spec.size", &json!(3), "too big")];
            let mut denial = Denial::invalid("example.com", "Thing", "a", causes);
            denial.warnings.push("see elsewhere".to_owned());
            denial.into()
        };
        let (response, outcome) = response_to(&review(VERSIONS[0]), &deny);
        assert_eq!(outcome, Outcome::Denied);
        let message = "Thing.example.com \"a\" is invalid: spec.size: Invalid value: 3: too big";
        let cause =
            json!({"reason": "FieldValueInvalid", "field": "spec.size", "message": "Invalid value: 3: too big"});
        let expected = json!({"uid": "u-1", "allowed": false, "warnings": ["see elsewhere"], "status": {
            "status": "Failure", "code": 422, "reason": "Invalid", "message": message,
            "details": {"group": "example.com", "kind": "Thing", "name": "a", "causes": [cause]}}});
        assert_eq!(response, expected);
    }

    #[test]
    fn denial_has_the_retry_delay() {
        let (response, _) =
            response_to(&review(VERSIONS[0]), &|_: &AdmissionRequest| Denial::unavailable("wait").into());
        assert_eq!(response["status"]["details"], json!({"retryAfterSeconds": 1}));
        assert_eq!(response["status"]["code"], 503);
    }

    #[test]
    fn empty_patch_is_not_sent() {
        let patch = |patch: Value| {
            move |_: &AdmissionRequest| Decision::Allowed {
                warnings: Vec::new(),
                patch: serde_json::from_value(patch.clone()).unwrap(),
            }
        };
        let (response, _) = response_to(&review(VERSIONS[0]), &patch(json!([{"op": "remove", "path": "/a"}])));
        // base64 of [{"op":"remove","path":"/a"}]
        let expected = "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=";
        assert_eq!((&response["patchType"], &response["patch"]), (&json!("JSONPatch"), &json!(expected)));
        let (response, _) = response_to(&review(VERSIONS[0]), &patch(json!([])));
        assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
    }

    #[test]
    fn warnings_are_safe_for_headers() {
        let warnings: Vec<_> = ["a\nb\u{7f}", "", " "].map(str::to_owned).into();
        assert_eq!(header_safe(&warnings), ["a b "]);
        let long = vec!["ä".repeat(1000); 100];
        let found = header_safe(&long);
        assert_eq!(found.len(), 16);
        assert!(found.iter().all(|text| text.chars().count() == 256));
    }

    #[test]
    fn panic_denies_the_request() {
        let (response, outcome) = response_to(&review(VERSIONS[1]), &|_: &AdmissionRequest| panic!("oh"));
        assert_eq!((outcome, &response["allowed"]), (Outcome::Panicked, &json!(false)));
        assert_eq!(
            (&response["status"]["code"], &response["status"]["reason"]),
            (&json!(500), &json!("InternalError"))
        );
    }

    #[test]
    fn malformed_review_is_an_error() {
        let error = |body: &str| respond(body.as_bytes(), &|_: &AdmissionRequest| panic!("validated")).unwrap_err();
        let with = |path: &str, value: Value| {
            let mut review = review(VERSIONS[0]);
            *review.pointer_mut(path).unwrap() = value;
            error(&review.to_string()).to_string()
        };
        assert!(error("").to_string().starts_with("the body is not an AdmissionReview: EOF"));
        assert!(error("[1").to_string().contains("invalid"));
        assert!(error(&"[".repeat(100_000)).to_string().starts_with("the body is not"));
        assert!(error("{}").to_string().starts_with("\"\" in version \"\" is not supported"));
        assert_eq!(with("/request", Value::Null), "request is missing");
        assert_eq!(with("/request/uid", json!("")), "request.uid is missing");
        assert!(with("/request/uid", json!(5)).contains("invalid type"));
        assert!(with("/request/operation", json!("EAT")).contains("unknown variant `EAT`"));
        assert!(with("/apiVersion", json!("admission.k8s.io/v2")).contains("in version \"admission.k8s.io/v2\""));
        assert!(with("/kind", json!("ConversionReview")).starts_with("\"ConversionReview\""));
    }

    #[test]
    fn review_of_too_many_values_is_not_parsed() {
        let validator = |_: &AdmissionRequest| panic!("it was parsed");
        for junk in ["0,", "{\"\":0},", "[0],", "\"\","] {
            let body = format!("{{\"request\": {{\"object\": [{}", junk.repeat(400_000));
            let error = respond(body.as_bytes(), &validator).unwrap_err();
            assert!(matches!(error, ReplyError::TooManyValues { limit: MAX_MEMORY }), "{error}");
        }
    }
}
