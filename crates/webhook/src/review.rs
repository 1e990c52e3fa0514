//! Admission review (`admission.k8s.io`): decides whether an object may be written, and how it is
//! changed before.

use std::sync::Arc;

use json_patch::PatchOperation;
use k8s_openapi::ByteString;
use kube::core::Status;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tracing::error;

pub use kube::core::GroupVersionKind;
pub use kube::core::admission::Operation;

use crate::denial;
use crate::memory::is_too_large;
use crate::reply::{Answered, Outcome, Reply, ReplyError, ReviewKind, catch_panic};

const KIND: ReviewKind = ReviewKind {
    name: "AdmissionReview",
    with_article: "an AdmissionReview",
    versions: ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"],
    supported: "AdmissionReview of admission.k8s.io/v1 and v1beta1",
};

/// Limits for the length of one warning and of all. The API server truncates and drops what exceeds
/// them.
const MAX_WARNING_LENGTH: usize = 256;
const MAX_WARNINGS_LENGTH: usize = 4096;

/// An admission request: the fields that validators read.
///
/// The objects are not decoded, so that a validator can deny an object that it cannot decode.
/// kube's `AdmissionRequest` decodes their metadata, so such a request would get no response.
#[derive(Clone, Debug, Deserialize)]
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
    /// Whether the API server stores nothing, so that the webhook must not write either.
    #[serde(default, deserialize_with = "or_default")]
    pub dry_run: bool,
}

/// The decision on an admission request: it is allowed with warnings that the client shows, or
/// denied with a status of the module [`denial`].
pub type Decision = Result<Vec<String>, Box<Status>>;

/// What a mutating webhook changes in the object of an admission request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mutation {
    /// The changes of the object.
    pub patch: Vec<PatchOperation>,
    /// The warnings that the client shows.
    pub warnings: Vec<String>,
}

/// The decision on an admission request of a mutating webhook: as [`Decision`], with changes of the
/// object.
pub type MutationDecision = Result<Mutation, Box<Status>>;

/// Responds to an `AdmissionReview`. `validate` decides on its request; a panic of it denies the
/// request.
pub fn respond(
    body: &[u8],
    validate: impl Fn(&AdmissionRequest) -> Decision,
) -> Result<Reply, ReplyError> {
    let review = Review::parse(body)?;
    let decided = catch_panic(|| validate(&review.request));
    let without_changes = |warnings| Mutation {
        patch: Vec::new(),
        warnings,
    };
    review.reply(decided.map(|decision| decision.map(without_changes)))
}

/// A review that was received.
pub(crate) struct Review {
    version: String,
    pub(crate) request: Arc<AdmissionRequest>,
}

impl Review {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, ReplyError> {
        if is_too_large(body) {
            return Err(ReplyError::TooManyValues);
        }
        let (version, request): (String, AdmissionRequest) = KIND.parse(body)?;
        if request.uid.is_empty() {
            return Err(ReplyError::Missing {
                field: "request.uid",
            });
        }
        Ok(Self {
            version,
            request: Arc::new(request),
        })
    }

    /// The reply with a decision, or after a panic with this message.
    pub(crate) fn reply(
        &self,
        decided: Result<MutationDecision, String>,
    ) -> Result<Reply, ReplyError> {
        let (mutation, status, outcome) = match decided {
            Ok(Ok(mutation)) => (mutation, None, Outcome::Allowed),
            Ok(Err(status)) => (Mutation::default(), Some(status), Outcome::Denied),
            Err(panic) => {
                let AdmissionRequest {
                    kind,
                    namespace,
                    name,
                    ..
                } = self.request.as_ref();
                error!(
                    kind = kind.kind,
                    namespace, name, panic, "the admission of an object panicked; this is a bug"
                );
                let message = "the webhook failed on this object because of a bug; see its log";
                let status = denial::internal(message);
                (Mutation::default(), Some(status), Outcome::Panicked)
            }
        };
        let serialize_error = |source| ReplyError::Serialize { source };
        let Mutation { patch, warnings } = mutation;
        let patch = if patch.is_empty() {
            None
        } else {
            let operations = serde_json::to_vec(&patch).map_err(serialize_error)?;
            Some(ByteString(operations))
        };
        let response = Response {
            uid: &self.request.uid,
            allowed: status.is_none(),
            status,
            warnings: header_safe(&warnings),
            patch_type: patch.as_ref().map(|_| "JSONPatch"),
            patch,
        };
        let review = Answered {
            api_version: &self.version,
            kind: KIND.name,
            response,
        };
        let body = serde_json::to_vec(&review).map_err(serialize_error)?;
        Ok(Reply {
            body,
            outcome,
            failure: None,
        })
    }
}

/// The response. kube's `AdmissionResponse` can only be created from its `AdmissionRequest`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Box<Status>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// In base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
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
        json!({"apiVersion": version, "kind": KIND.name, "request": {
            "uid": "u-1", "operation": "CREATE", "name": "a", "namespace": "n", "dryRun": true,
            "kind": {"group": "example.com", "version": "v1", "kind": "Thing"},
            "resource": {"group": "example.com", "version": "v1", "resource": "things"},
            "userInfo": {"username": "me", "groups": ["g"], "extra": {"x": ["y"]}},
            "object": {"spec": {"size": 3}}, "oldObject": null, "options": {"kind": "CreateOptions"}}})
    }

    fn response_to(
        review: &Value,
        validator: impl Fn(&AdmissionRequest) -> Decision,
    ) -> (Value, Outcome) {
        let reply = respond(review.to_string().as_bytes(), validator).unwrap();
        let mut body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body["response"]["uid"], "u-1");
        (body["response"].take(), reply.outcome)
    }

    #[test]
    fn response_has_the_version_of_the_request() {
        for version in KIND.versions {
            let read = |request: &AdmissionRequest| {
                assert_eq!(request.kind.kind, "Thing");
                assert_eq!(request.operation, Operation::Create);
                assert_eq!(
                    (request.namespace.as_str(), request.name.as_str()),
                    ("n", "a")
                );
                assert!(request.old_object.is_none());
                assert_eq!(request.object.as_ref().unwrap()["spec"]["size"], 3);
                Ok(Vec::new())
            };
            let reply = respond(review(version).to_string().as_bytes(), read).unwrap();
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            let expected = json!({"apiVersion": version, "kind": KIND.name, "response": {"uid": "u-1", "allowed": true}});
            assert_eq!((body, reply.outcome), (expected, Outcome::Allowed));
        }
    }

    #[test]
    fn changes_are_a_json_patch() {
        let body = review(KIND.versions[0]).to_string();
        let received = Review::parse(body.as_bytes()).unwrap();
        assert!(received.request.dry_run);
        let patch = json!([{"op": "add", "path": "/spec/color", "value": "red"}]);
        let mutation = Mutation {
            patch: serde_json::from_value(patch.clone()).unwrap(),
            warnings: vec!["a".to_owned()],
        };
        let reply = received.reply(Ok(Ok(mutation))).unwrap();
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        let response = &body["response"];
        assert_eq!(response["patchType"], "JSONPatch");
        let decoded: ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
        let decoded: Value = serde_json::from_slice(&decoded.0).unwrap();
        assert_eq!((decoded, &response["warnings"]), (patch, &json!(["a"])));
    }

    #[test]
    fn denial_has_all_details() {
        let deny = |_: &AdmissionRequest| {
            Err(denial::invalid(
                "example.com",
                "Thing",
                "a",
                vec![denial::invalid_value("spec.size", &json!(3), "too big")],
            ))
        };
        let (response, outcome) = response_to(&review(KIND.versions[0]), deny);
        assert_eq!(outcome, Outcome::Denied);
        let message = "Thing.example.com \"a\" is invalid: spec.size: Invalid value: 3: too big";
        let cause = json!({"reason": "FieldValueInvalid", "field": "spec.size", "message": "Invalid value: 3: too big"});
        let expected = json!({"uid": "u-1", "allowed": false, "status": {
            "status": "Failure", "code": 422, "reason": "Invalid", "message": message,
            "details": {"group": "example.com", "kind": "Thing", "name": "a", "causes": [cause]}}});
        assert_eq!(response, expected);
    }

    #[test]
    fn denial_has_the_retry_delay() {
        let (response, _) = response_to(&review(KIND.versions[0]), |_: &AdmissionRequest| {
            Err(denial::unavailable("wait"))
        });
        assert_eq!(
            response["status"]["details"],
            json!({"retryAfterSeconds": 1})
        );
        assert_eq!(response["status"]["code"], 503);
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
        let (response, outcome) = response_to(&review(KIND.versions[1]), |_: &AdmissionRequest| {
            panic!("oh")
        });
        assert_eq!(
            (outcome, &response["allowed"]),
            (Outcome::Panicked, &json!(false))
        );
        assert_eq!(
            (&response["status"]["code"], &response["status"]["reason"]),
            (&json!(500), &json!("InternalError"))
        );
    }

    #[test]
    fn malformed_review_is_an_error() {
        let error = |body: &str| {
            respond(body.as_bytes(), |_: &AdmissionRequest| panic!("validated")).unwrap_err()
        };
        let with = |path: &str, value: Value| {
            let mut review = review(KIND.versions[0]);
            *review.pointer_mut(path).unwrap() = value;
            error(&review.to_string()).to_string()
        };
        assert!(
            error("")
                .to_string()
                .starts_with("the body is not an AdmissionReview: EOF")
        );
        assert!(error("[1").to_string().contains("invalid"));
        assert!(
            error(&"[".repeat(100_000))
                .to_string()
                .starts_with("the body is not")
        );
        assert!(
            error("{}")
                .to_string()
                .starts_with("\"\" in version \"\" is not supported")
        );
        assert_eq!(with("/request", Value::Null), "request is missing");
        assert_eq!(with("/request/uid", json!("")), "request.uid is missing");
        assert!(with("/request/uid", json!(5)).contains("invalid type"));
        assert!(with("/request/operation", json!("EAT")).contains("unknown variant `EAT`"));
        assert!(
            with("/apiVersion", json!("admission.k8s.io/v2"))
                .contains("in version \"admission.k8s.io/v2\"")
        );
        assert!(with("/kind", json!("ConversionReview")).starts_with("\"ConversionReview\""));
    }

    #[test]
    fn review_of_too_many_values_is_not_parsed() {
        let validator = |_: &AdmissionRequest| panic!("it was parsed");
        for junk in ["0,", "{\"\":0},", "[0],", "\"\","] {
            let body = format!("{{\"request\": {{\"object\": [{}", junk.repeat(400_000));
            let error = respond(body.as_bytes(), validator).unwrap_err();
            assert!(matches!(error, ReplyError::TooManyValues), "{error}");
        }
    }
}
