//! Conversion: objects of one version are wanted in another. (`apiextensions.k8s.io`)
//!
//! Versions v1 and v1beta1 are the same but for their name; each is answered in its own.
//!
//! Objects are read one at a time, when it is their turn, and written at once, so that a review takes little more memory
//! than its text and its answer. The API server sends one object in most reviews, and never more than a list has.

use std::cell::RefCell;
use std::{fmt, io};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::error;

use crate::answer::{Reply, ReplyError, caught, Outcome, shortened};
use crate::memory::exceeds;

const KIND: &str = "ConversionReview";
const VERSIONS: [&str; 2] = ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"];

/// The most objects in one review. API servers give clients lists in pieces of at most 10,000.
pub const MAX_OBJECTS: usize = 10_000;

/// The most memory that one object may take, as [`exceeds`] counts it. The API server stores objects of up to 3 MiB; the
/// largest pool that the definitions admit takes 4 MiB.
const MAX_OBJECT_MEMORY: usize = 16 * 1024 * 1024;

/// The longest answer. A conversion adds an annotation to an object, of 256 KiB at most.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

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
pub fn answer(body: &[u8], converter: &dyn Converter) -> Result<Reply, ReplyError> {
    let review: Review<'_> = serde_json::from_slice(body)
        .map_err(|source| ReplyError::Unreadable { what: "a ConversionReview", source })?;
    if review.kind != KIND || !VERSIONS.contains(&review.api_version.as_str()) {
        let expected = "ConversionReview of apiextensions.k8s.io/v1 and v1beta1";
        return Err(ReplyError::Unexpected { kind: review.kind, version: review.api_version, expected });
    }
    let Request { uid, desired_api_version: desired, objects } =
        review.request.ok_or(ReplyError::Missing { field: "request" })?;
    if uid.is_empty() {
        return Err(ReplyError::Missing { field: "request.uid" });
    }
    if desired.is_empty() {
        return Err(ReplyError::Missing { field: "request.desiredAPIVersion" });
    }
    let write = |objects: &Converting<'_>, result: Status<'_>| {
        let response = Response { uid: &uid, converted_objects: objects, result };
        let review = Converted { api_version: &review.api_version, kind: KIND, response };
        let mut answer = Limited { bytes: Vec::new(), left: MAX_ANSWER };
        serde_json::to_writer(&mut answer, &review).map(|()| answer.bytes)
    };
    let objects = objects.unwrap_or_default().0;
    let all = Converting { objects: &objects, desired: &desired, converter, failure: RefCell::default() };
    let source = match write(&all, Status { status: "Success", message: None }) {
        Ok(body) => return Ok(Reply { body, outcome: Outcome::Converted, failure: None }),
        Err(source) => source,
    };
    let (message, outcome) = all.failure.take().unwrap_or_else(|| (source.to_string(), Outcome::Failed));
    let message = shortened(message);
    let none = Converting { objects: &[], ..all };
    let body = write(&none, Status { status: "Failure", message: Some(&message) })
        .map_err(|source| ReplyError::Unwritable { source })?;
    Ok(Reply { body, outcome, failure: Some(message) })
}

/// Objects that are converted when they are written.
struct Converting<'a> {
    objects: &'a [&'a RawValue],
    desired: &'a str,
    converter: &'a dyn Converter,
    /// Why the first one that could not be converted was not.
    failure: RefCell<Option<Failure>>,
}

type Failure = (String, Outcome);

impl Serialize for Converting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.objects.len()))?;
        for (index, object) in self.objects.iter().enumerate() {
            match read(index, object).and_then(|object| convert(object, self.desired, self.converter)) {
                Ok(object) => list.serialize_element(&object)?,
                Err(failure) => {
                    *self.failure.borrow_mut() = Some(failure);
                    return Err(S::Error::custom("an object cannot be converted"));
                }
            }
        }
        list.end()
    }
}

fn read(index: usize, object: &RawValue) -> Result<Value, Failure> {
    let text = object.get();
    if exceeds(text.as_bytes(), MAX_OBJECT_MEMORY) {
        let why = format!("it has too many values: they would take more than {MAX_OBJECT_MEMORY} bytes of memory");
        return Err((format!("object {index}: {why}"), Outcome::Failed));
    }
    serde_json::from_str(text).map_err(|error| (format!("object {index} cannot be read: {error}"), Outcome::Failed))
}

fn convert(object: Value, desired: &str, converter: &dyn Converter) -> Result<Value, Failure> {
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
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default, rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(borrow)]
    objects: Option<Objects<'a>>,
}

/// The texts of the objects, [`MAX_OBJECTS`] at most: what follows is not read.
#[derive(Default)]
struct Objects<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Objects<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;

        impl<'de> Visitor<'de> for Texts {
            type Value = Objects<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a sequence of objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut objects = Vec::new();
                while let Some(object) = list.next_element()? {
                    if objects.len() == MAX_OBJECTS {
                        return Err(A::Error::custom(format!("more than {MAX_OBJECTS} objects")));
                    }
                    objects.push(object);
                }
                Ok(Objects(objects))
            }
        }

        deserializer.deserialize_seq(Texts)
    }
}

/// Bytes that must not become too many.
struct Limited {
    bytes: Vec<u8>,
    left: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| {
            io::Error::other(format!("the converted objects would have more than {MAX_ANSWER} bytes"))
        })?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    converted_objects: &'a Converting<'a>,
    result: Status<'a>,
}

#[derive(Serialize)]
struct Status<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
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
    #[test]
    fn list_is_read_up_to_its_limit_and_no_further() {
        let start = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"objects": ["#;
        let body = format!("{start}{}nonsense", "0,".repeat(MAX_OBJECTS + 1));
        let error = answer(body.as_bytes(), &rename).unwrap_err().to_string();
        assert!(error.contains("more than 10000 objects"), "{error}");
        let most = json!(vec![object("example.com/v1", "A", "a"); MAX_OBJECTS]);
        let (response, outcome) = answered(&most);
        assert_eq!(outcome, Outcome::Converted);
        assert_eq!(response["convertedObjects"].as_array().unwrap().len(), MAX_OBJECTS);
    }

    #[test]
    fn object_of_too_many_values_is_not_read() {
        let mut large = object("example.com/v1", "A", "large");
        large["x"] = json!(vec![0; 500_000]);
        let convert = |object: Value, desired: &str| {
            assert_ne!(object["metadata"]["name"], "large", "it was read");
            rename(object, desired)
        };
        let body = review(&json!([object("example.com/v1", "A", "a"), large])).to_string();
        let answer = answer(body.as_bytes(), &convert).unwrap();
        let message = "object 1: it has too many values: they would take more than 16777216 bytes of memory";
        assert_eq!((answer.outcome, answer.failure.as_deref()), (Outcome::Failed, Some(message)));
        assert!(answer.body.len() < 1000);
    }

    #[test]
    fn answer_does_not_grow_without_limit() {
        let pad = |mut object: Value, desired: &str| {
            object["apiVersion"] = desired.into();
            object["padding"] = "x".repeat(1024 * 1024).into();
            Ok(object)
        };
        let body = review(&json!(vec![json!({}); 40])).to_string();
        let answer = answer(body.as_bytes(), &pad).unwrap();
        let failure = answer.failure.unwrap();
        assert!(answer.outcome == Outcome::Failed && failure.contains("more than 33554432 bytes"), "{failure}");
    }

    #[test]
    fn texts_that_quote_a_request_are_cut() {
        let refuse = |_: Value, _: &str| Err("é".repeat(1_000_000));
        let answer = answer(review(&json!([{}])).to_string().as_bytes(), &refuse).unwrap();
        let failure = answer.failure.unwrap();
        assert!(failure.chars().count() < 2100 && failure.ends_with('…'), "{}", failure.len());
    }
}
