//! Admission: may this object be written? (`admission.k8s.io`)
//!
//! Versions v1 and v1beta1 are the same but for their name; each is answered in its own.

use k8s_openapi::ByteString;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tracing::error;

use crate::answer::{Reply, ReplyError, caught, Outcome, write};
use crate::denial::{FieldError, Denial};
use crate::memory::exceeds;

const KIND: &str = "AdmissionReview";
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// The most memory that a review may take once it is read, as [`exceeds`] counts it. A review holds an object twice; the
/// largest pool that the definitions admit takes 4 MiB.
const MAX_MEMORY: usize = 32 * 1024 * 1024;

/// The API server cuts longer warnings, and drops those that exceed this together.
const MOST_WARNING: usize = 256;
const MOST_WARNINGS: usize = 4096;

/// What is to be decided on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Names this request.
    pub uid: String,
    /// The kind of the object, in the version that the webhook is configured for.
    pub kind: Kind,
    /// What is done.
    pub operation: Operation,
    /// The part of the object that is written, such as `status`; empty for the object itself.
    #[serde(default, deserialize_with = "or_default")]
    pub sub_resource: String,
    /// Namespace of the object; empty when it has none.
    #[serde(default, deserialize_with = "or_default")]
    pub namespace: String,
    /// Name of the object; empty when the API server is to make one.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The object as it is to be written; none for a deletion.
    #[serde(default)]
    pub object: Option<Value>,
    /// The object as it is; none for a creation.
    #[serde(default)]
    pub old_object: Option<Value>,
    /// Nothing will be stored, whatever the answer is.
    #[serde(default, deserialize_with = "or_default")]
    pub dry_run: bool,
    /// Who wants it.
    #[serde(default, deserialize_with = "or_default", rename = "userInfo")]
    pub user: User,
}

/// A kind with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Kind {
    /// API group; empty for the core group.
    #[serde(default, deserialize_with = "or_default")]
    pub group: String,
    /// Version in the group.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// The kind itself.
    pub kind: String,
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is made.
    #[default]
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// It is connected to, as a pod is by `kubectl exec`.
    Connect,
}

/// Who wants something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Name of the user or service account.
    #[serde(default, deserialize_with = "or_default")]
    pub username: String,
    /// Groups of the user.
    #[serde(default, deserialize_with = "or_default")]
    pub groups: Vec<String>,
}

/// What is answered.
#[derive(Clone, Debug)]
pub enum Decision {
    /// The object may be written.
    Allowed {
        /// Texts that whoever wants to write it gets to see.
        warnings: Vec<String>,
        /// What is changed in it before.
        patch: Option<json_patch::Patch>,
    },
    /// The object may not be written.
    Denied(Denial),
}

impl Decision {
    /// Allowed, without a word.
    pub fn allowed() -> Self {
        Self::Allowed { warnings: Vec::new(), patch: None }
    }
}

impl From<Denial> for Decision {
    fn from(refusal: Denial) -> Self {
        Self::Denied(refusal)
    }
}

/// Decides whether objects may be written. Functions can do that.
pub trait Validator: Send + Sync + 'static {
    /// Decides on one object. It does not wait for anything.
    fn review(&self, request: &AdmissionRequest) -> Decision;
}

impl<F> Validator for F
where
    F: Fn(&AdmissionRequest) -> Decision + Send + Sync + 'static,
{
    fn review(&self, request: &AdmissionRequest) -> Decision {
        self(request)
    }
}

/// Answers an `AdmissionReview`. A panic of the reviewer becomes a refusal.
pub fn answer(body: &[u8], reviewer: &dyn Validator) -> Result<Reply, ReplyError> {
    if exceeds(body, MAX_MEMORY) {
        return Err(ReplyError::TooManyValues { most: MAX_MEMORY });
    }
    let review: Review = serde_json::from_slice(body)
        .map_err(|source| ReplyError::Unreadable { what: "an AdmissionReview", source })?;
    if review.kind != KIND || !VERSIONS.contains(&review.api_version.as_str()) {
        let expected = "AdmissionReview of admission.k8s.io/v1 and v1beta1";
        return Err(ReplyError::Unexpected { kind: review.kind, version: review.api_version, expected });
    }
    let request = review.request.ok_or(ReplyError::Missing { field: "request" })?;
    if request.uid.is_empty() {
        return Err(ReplyError::Missing { field: "request.uid" });
    }
    let (verdict, panicked) = match caught(|| reviewer.review(&request)) {
        Ok(verdict) => (verdict, false),
        Err(text) => {
            let AdmissionRequest { kind, namespace, name, .. } = &request;
            error!(kind = kind.kind, namespace, name, panic = text, "a bug: the review of an object panicked");
            let text = "the webhook has a bug and failed on this object; its log says more";
            (Denial::internal(text).into(), true)
        }
    };
    let response = Response::new(&request.uid, verdict);
    let outcome = match response.allowed {
        _ if panicked => Outcome::Panicked,
        true => Outcome::Allowed,
        false => Outcome::Denied,
    };
    write(&Reviewed { api_version: &review.api_version, kind: KIND, response }, outcome)
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
#[expect(clippy::struct_field_names, reason = "the names are those of the API")]
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
    fn new(uid: &'a str, verdict: Decision) -> Self {
        let empty = Self { uid, allowed: true, status: None, patch_type: None, patch: None, warnings: Vec::new() };
        match verdict {
            Decision::Allowed { warnings, patch } => {
                // An empty patch changes nothing, and validating webhooks must not send any.
                let patch = patch.filter(|patch| !patch.0.is_empty());
                match patch.map(|patch| serde_json::to_vec(&patch)) {
                    None => Self { warnings: presentable(&warnings), ..empty },
                    Some(Ok(patch)) => Self {
                        warnings: presentable(&warnings),
                        patch_type: Some("JSONPatch"),
                        patch: Some(ByteString(patch)),
                        ..empty
                    },
                    Some(Err(error)) => {
                        Self::new(uid, Denial::internal(format!("the patch cannot be written: {error}")).into())
                    }
                }
            }
            Decision::Denied(refusal) => {
                let Denial { code, reason, message, group, kind, name, causes, retry_after, warnings } = refusal;
                let details = Details { group, kind, name, causes, retry_after_seconds: retry_after };
                let status = Some(Status { status: "Failure", code, reason, message, details });
                Self { allowed: false, status, warnings: presentable(&warnings), ..empty }
            }
        }
    }
}

/// Warnings travel in an HTTP header, so they are short, and have no control characters.
fn presentable(warnings: &[String]) -> Vec<String> {
    let mut left = MOST_WARNINGS;
    let mut presentable = Vec::new();
    for warning in warnings {
        let text: String = warning.trim().chars().take(MOST_WARNING).collect();
        let text = text.replace(char::is_control, " ");
        let length = text.chars().count();
        if length > left {
            break;
        }
        left -= length;
        if length > 0 {
            presentable.push(text);
        }
    }
    presentable
}

/// Reads `null` as what is meant by leaving the field out.
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

    fn answered(review: &Value, reviewer: &dyn Validator) -> (Value, Outcome) {
        let answer = answer(review.to_string().as_bytes(), reviewer).unwrap();
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["response"]["uid"], "u-1");
        (body["response"].take(), answer.outcome)
    }

    #[test]
    fn each_version_is_answered_in_its_own() {
        for version in VERSIONS {
            let read = |request: &AdmissionRequest| {
                assert_eq!(request.kind.kind, "Thing");
                assert_eq!((request.operation, request.dry_run), (Operation::Create, true));
                assert_eq!((request.namespace.as_str(), request.name.as_str()), ("n", "a"));
                assert_eq!(request.user, User { username: "me".to_owned(), groups: vec!["g".to_owned()] });
                assert!(request.old_object.is_none());
                assert_eq!(request.object.as_ref().unwrap()["spec"]["size"], 3);
                Decision::allowed()
            };
            let answer = answer(review(version).to_string().as_bytes(), &read).unwrap();
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            let expected = json!({"apiVersion": version, "kind": KIND, "response": {"uid": "u-1", "allowed": true}});
            assert_eq!((body, answer.outcome), (expected, Outcome::Allowed));
        }
    }

    #[test]
    fn a_refusal_has_all_details() {
        let refuse = |_: &AdmissionRequest| {
            let causes = vec![FieldError::invalid("spec.size", &json!(3), "too big")];
            let mut refusal = Denial::invalid("example.com", "Thing", "a", causes);
            refusal.warnings.push("see elsewhere".to_owned());
            refusal.into()
        };
        let (response, outcome) = answered(&review(VERSIONS[0]), &refuse);
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
    fn whoever_should_try_again_is_told_so() {
        let (response, _) = answered(&review(VERSIONS[0]), &|_: &AdmissionRequest| Denial::unavailable("wait").into());
        assert_eq!(response["status"]["details"], json!({"retryAfterSeconds": 1}));
        assert_eq!(response["status"]["code"], 503);
    }

    #[test]
    fn a_patch_is_sent_when_it_changes_something() {
        let patch = |patch: Value| {
            move |_: &AdmissionRequest| Decision::Allowed {
                warnings: Vec::new(),
                patch: serde_json::from_value(patch.clone()).unwrap(),
            }
        };
        let (response, _) = answered(&review(VERSIONS[0]), &patch(json!([{"op": "remove", "path": "/a"}])));
        // base64 of [{"op":"remove","path":"/a"}]
        let expected = "W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL2EifV0=";
        assert_eq!((&response["patchType"], &response["patch"]), (&json!("JSONPatch"), &json!(expected)));
        let (response, _) = answered(&review(VERSIONS[0]), &patch(json!([])));
        assert_eq!(response, json!({"uid": "u-1", "allowed": true}));
    }

    #[test]
    fn warnings_fit_into_a_header() {
        let warnings: Vec<_> = ["a\nb\u{7f}", "", " "].map(str::to_owned).into();
        assert_eq!(presentable(&warnings), ["a b "]);
        let long = vec!["ä".repeat(1000); 100];
        let found = presentable(&long);
        assert_eq!(found.len(), 16);
        assert!(found.iter().all(|text| text.chars().count() == 256));
    }

    #[test]
    fn a_panic_is_a_refusal() {
        let (response, outcome) = answered(&review(VERSIONS[1]), &|_: &AdmissionRequest| panic!("oh"));
        assert_eq!((outcome, &response["allowed"]), (Outcome::Panicked, &json!(false)));
        assert_eq!(
            (&response["status"]["code"], &response["status"]["reason"]),
            (&json!(500), &json!("InternalError"))
        );
    }

    #[test]
    fn what_is_no_review_is_an_error_that_says_why() {
        let error = |body: &str| answer(body.as_bytes(), &|_: &AdmissionRequest| panic!("asked")).unwrap_err();
        let with = |path: &str, value: Value| {
            let mut review = review(VERSIONS[0]);
            *review.pointer_mut(path).unwrap() = value;
            error(&review.to_string()).to_string()
        };
        assert!(error("").to_string().starts_with("the body is not an AdmissionReview: EOF"));
        assert!(error("[1").to_string().contains("invalid"));
        assert!(error(&"[".repeat(100_000)).to_string().starts_with("the body is not"));
        assert!(error("{}").to_string().starts_with("\"\" in version \"\" is not answered here"));
        assert_eq!(with("/request", Value::Null), "request is missing");
        assert_eq!(with("/request/uid", json!("")), "request.uid is missing");
        assert!(with("/request/uid", json!(5)).contains("invalid type"));
        assert!(with("/request/operation", json!("EAT")).contains("unknown variant `EAT`"));
        assert!(with("/apiVersion", json!("admission.k8s.io/v2")).contains("in version \"admission.k8s.io/v2\""));
        assert!(with("/kind", json!("ConversionReview")).starts_with("\"ConversionReview\""));
    }
    #[test]
    fn review_of_too_many_values_is_not_read() {
        let asked = |_: &AdmissionRequest| panic!("it was read");
        for junk in ["0,", "{\"\":0},", "[0],", "\"\","] {
            let body = format!("{{\"request\": {{\"object\": [{}", junk.repeat(400_000));
            let error = answer(body.as_bytes(), &asked).unwrap_err();
            assert!(matches!(error, ReplyError::TooManyValues { most: MAX_MEMORY }), "{error}");
        }
    }
}
