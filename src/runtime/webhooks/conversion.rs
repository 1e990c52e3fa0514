//! Conversion: objects of one version are wanted in another. (`apiextensions.k8s.io`)
//!
//! Versions v1 and v1beta1 are the same but for their name; each is answered in its own.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::{error, warn};

use super::answer::{Answer, AnswerError, Outcome, caught, write};

const KIND: &str = "ConversionReview";
const VERSIONS: [&str; 2] = ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"];

/// Converts objects. Functions can do that.
pub trait Converter: Send + Sync + 'static {
    /// The object in the wanted version, for example `example.com/v2`; or why there is no such thing. It does not wait
    /// for anything, and the answer depends on nothing but the two.
    fn convert(&self, object: Value, desired_api_version: &str) -> Result<Value, String>;
}

impl<F> Converter for F
where
    F: Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
{
    fn convert(&self, object: Value, desired_api_version: &str) -> Result<Value, String> {
        self(object, desired_api_version)
    }
}

/// Answers a `ConversionReview`: with all objects in their order, or, as the API wants it, with none when one cannot be
/// converted. A panic of the converter counts as that.
pub fn answer(body: &[u8], converter: &dyn Converter) -> Result<Answer, AnswerError> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|source| AnswerError::Unreadable { what: "a ConversionReview", source })?;
    if review.kind != KIND || !VERSIONS.contains(&review.api_version.as_str()) {
        let expected = "ConversionReview of apiextensions.k8s.io/v1 and v1beta1";
        return Err(AnswerError::Unexpected { kind: review.kind, version: review.api_version, expected });
    }
    let Request { uid, desired_api_version: desired, objects } =
        review.request.ok_or(AnswerError::Missing { field: "request" })?;
    if uid.is_empty() {
        return Err(AnswerError::Missing { field: "request.uid" });
    }
    if desired.is_empty() {
        return Err(AnswerError::Missing { field: "request.desiredAPIVersion" });
    }
    let all: Result<Vec<_>, _> =
        objects.unwrap_or_default().into_iter().map(|object| convert(object, &desired, converter)).collect();
    let (objects, result, outcome) = match all {
        Ok(objects) => (objects, Status { status: "Success", message: None }, Outcome::Converted),
        Err((message, outcome)) => {
            warn!(version = desired, message, "objects cannot be converted");
            (Vec::new(), Status { status: "Failure", message: Some(message) }, outcome)
        }
    };
    let response = Response { uid: &uid, converted_objects: objects, result };
    write(&Converted { api_version: &review.api_version, kind: KIND, response }, outcome)
}

fn convert(object: Value, desired: &str, converter: &dyn Converter) -> Result<Value, (String, Outcome)> {
    let name = describe(&object);
    match caught(|| converter.convert(object, desired)) {
        Ok(Ok(object)) if text(&object, "/apiVersion") == desired => Ok(object),
        Ok(Ok(object)) => {
            let found = text(&object, "/apiVersion");
            error!(object = name, desired, found, "a bug: an object is converted to the wrong version");
            Err((format!("{name}: it was converted to {found:?} instead of {desired:?}"), Outcome::Failed))
        }
        Ok(Err(why)) => Err((format!("{name}: {why}"), Outcome::Failed)),
        Err(panic) => {
            error!(object = name, desired, panic, "a bug: the conversion of an object panicked");
            let text = "the webhook has a bug and failed on this object; its log says more";
            Err((format!("{name}: {text}"), Outcome::Panicked))
        }
    }
}

/// Kind and name of an object, with its namespace.
fn describe(object: &Value) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    uid: String,
    #[serde(default, rename = "desiredAPIVersion")]
    desired_api_version: String,
    objects: Option<Vec<Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Converted<'a> {
    api_version: &'a str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    converted_objects: Vec<Value>,
    result: Status,
}

#[derive(Serialize)]
struct Status {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str, kind: &str, name: &str) -> Value {
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "n"}, "x": {"y": [1.5, null]}})
    }

    fn review(objects: &Value) -> Value {
        let request = json!({"uid": "u-2", "desiredAPIVersion": "example.com/v2", "objects": objects});
        json!({"apiVersion": VERSIONS[0], "kind": KIND, "request": request})
    }

    fn rename(mut object: Value, desired: &str) -> Result<Value, String> {
        match object["metadata"]["name"].as_str() {
            Some("bad") => return Err("it is bad".to_owned()),
            Some("odd") => return Ok(object),
            Some("bug") => panic!("oh"),
            _ => object["apiVersion"] = desired.into(),
        }
        Ok(object)
    }

    fn answered(objects: &Value) -> (Value, Outcome) {
        let answer = answer(review(objects).to_string().as_bytes(), &rename).unwrap();
        let mut body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((&body["apiVersion"], &body["kind"]), (&json!(VERSIONS[0]), &json!(KIND)));
        assert_eq!(body["response"]["uid"], "u-2");
        (body["response"].take(), answer.outcome)
    }

    #[test]
    fn all_are_converted_in_their_order() {
        let (v1, v2) = ("example.com/v1", "example.com/v2");
        let (response, outcome) =
            answered(&json!([object(v1, "A", "a"), object(v2, "B", "b"), object("example.com/v0", "A", "c")]));
        let expected = json!([object(v2, "A", "a"), object(v2, "B", "b"), object(v2, "A", "c")]);
        assert_eq!(outcome, Outcome::Converted);
        assert_eq!(response["convertedObjects"], expected);
        assert_eq!(response["result"], json!({"status": "Success"}));
    }

    #[test]
    fn nothing_is_converted_to_nothing() {
        for none in [json!([]), Value::Null] {
            let (response, _) = answered(&none);
            assert_eq!((&response["convertedObjects"], &response["result"]["status"]), (&json!([]), &json!("Success")));
        }
    }

    #[test]
    fn one_that_fails_is_named_and_fails_all() {
        for (name, outcome, expected) in [
            ("bad", Outcome::Failed, "Thing n/bad: it is bad"),
            ("odd", Outcome::Failed, "instead of"),
            ("bug", Outcome::Panicked, "Thing n/bug: the webhook has a bug"),
        ] {
            let objects = json!([object("example.com/v1", "Thing", "a"), object("example.com/v1", "Thing", name)]);
            let (response, found) = answered(&objects);
            assert_eq!((found, &response["convertedObjects"]), (outcome, &json!([])));
            assert_eq!(response["result"]["status"], "Failure");
            let message = response["result"]["message"].as_str().unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn what_is_no_review_is_an_error_that_says_why() {
        let error = |body: &str| answer(body.as_bytes(), &rename).unwrap_err().to_string();
        assert!(error("\u{0}").starts_with("the body is not a ConversionReview: "));
        let mut wrong = review(&json!([]));
        wrong["request"]["desiredAPIVersion"] = json!("");
        assert_eq!(error(&wrong.to_string()), "request.desiredAPIVersion is missing");
        wrong["request"] = json!({});
        assert_eq!(error(&wrong.to_string()), "request.uid is missing");
        wrong["apiVersion"] = json!("v1");
        assert!(error(&wrong.to_string()).starts_with("\"ConversionReview\" in version \"v1\""));
        assert!(error(&review(&json!({})).to_string()).contains("expected a sequence"));
        // An object that is none is for the converter to judge.
        let odd = answer(review(&json!([5])).to_string().as_bytes(), &|_, _: &str| Err("no".to_owned())).unwrap();
        assert_eq!(odd.outcome, Outcome::Failed);
    }
}
