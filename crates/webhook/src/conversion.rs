//! Conversion review (`apiextensions.k8s.io`): converts objects between versions of their API.
//!
//! Objects are parsed, converted and serialized one by one, so a review takes little more memory
//! than its text and its reply. kube's `ConversionReview` holds all parsed objects at once, which
//! for hostile requests is a hundred times their text. The API server sends one object in most
//! reviews, and the objects of a list otherwise.

use std::cell::RefCell;
use std::{fmt, io};

use kube::core::Status;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tracing::error;

use crate::memory::{MAX_MEMORY, is_too_large};
use crate::reply::{Answered, Outcome, Reply, ReplyError, ReviewKind, catch_panic, truncated};

const KIND: ReviewKind = ReviewKind {
    name: "ConversionReview",
    with_article: "a ConversionReview",
    versions: ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"],
    supported: "ConversionReview of apiextensions.k8s.io/v1 and v1beta1",
};

/// Limit for the number of objects in one review. API servers return lists in pages of at most
/// 10,000 objects.
const MAX_OBJECTS: usize = 10_000;

/// Limit for the size of a reply. A conversion adds an annotation of at most 256 KiB to an object.
const MAX_REPLY_SIZE: usize = 32 * 1024 * 1024;

type Converter<'a> = dyn Fn(Value, &str) -> Result<Value, String> + 'a;

/// Responds to a `ConversionReview`: with all objects in the order of the request, or, as the API
/// requires, with none if one of them cannot be converted. `converter` converts one object to a
/// version, for example `example.com/v2`, or returns an error message; a panic of it is a failed
/// conversion.
pub fn respond(
    body: &[u8],
    converter: &dyn Fn(Value, &str) -> Result<Value, String>,
) -> Result<Reply, ReplyError> {
    let (
        version,
        Request {
            uid,
            desired_api_version: desired,
            objects,
        },
    ) = KIND.parse(body)?;
    if uid.is_empty() {
        return Err(ReplyError::Missing {
            field: "request.uid",
        });
    }
    if desired.is_empty() {
        return Err(ReplyError::Missing {
            field: "request.desiredAPIVersion",
        });
    }
    let write = |objects: &Converting<'_>, result: Status| {
        let response = Response {
            uid: &uid,
            converted_objects: objects,
            result,
        };
        let review = Answered {
            api_version: &version,
            kind: KIND.name,
            response,
        };
        let mut output = Limited {
            bytes: Vec::new(),
            left: MAX_REPLY_SIZE,
        };
        serde_json::to_writer(&mut output, &review).map(|()| output.bytes)
    };
    let objects = objects.unwrap_or_default().0;
    let all = Converting {
        objects: &objects,
        desired: &desired,
        converter,
        failure: RefCell::default(),
    };
    let source = match write(&all, Status::success()) {
        Ok(body) => {
            return Ok(Reply {
                body,
                outcome: Outcome::Converted,
                failure: None,
            });
        }
        Err(source) => source,
    };
    let (message, outcome) = all
        .failure
        .take()
        .unwrap_or_else(|| (source.to_string(), Outcome::Failed));
    let message = truncated(message);
    let none = Converting {
        objects: &[],
        ..all
    };
    let body = write(&none, Status::failure(&message, ""))
        .map_err(|source| ReplyError::Serialize { source })?;
    Ok(Reply {
        body,
        outcome,
        failure: Some(message),
    })
}

/// Objects that are converted during serialization.
struct Converting<'a> {
    objects: &'a [&'a RawValue],
    desired: &'a str,
    converter: &'a Converter<'a>,
    /// The failure of the first object that cannot be converted.
    failure: RefCell<Option<Failure>>,
}

type Failure = (String, Outcome);

impl Serialize for Converting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.objects.len()))?;
        for (index, object) in self.objects.iter().enumerate() {
            match read(index, object)
                .and_then(|object| convert(object, self.desired, self.converter))
            {
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
    if is_too_large(text.as_bytes()) {
        let error =
            format!("too many values: they would take more than {MAX_MEMORY} bytes of memory");
        return Err((format!("object {index}: {error}"), Outcome::Failed));
    }
    serde_json::from_str(text).map_err(|error| {
        (
            format!("object {index} cannot be parsed: {error}"),
            Outcome::Failed,
        )
    })
}

fn convert(object: Value, desired: &str, converter: &Converter<'_>) -> Result<Value, Failure> {
    let name = describe(&object);
    match catch_panic(|| converter(object, desired)) {
        Ok(Ok(object)) if text(&object, "/apiVersion") == desired => Ok(object),
        Ok(Ok(object)) => {
            let found = text(&object, "/apiVersion");
            error!(
                object = name,
                desired, found, "an object was converted to the wrong version; this is a bug"
            );
            Err((
                format!("{name}: converted to {found:?} instead of {desired:?}"),
                Outcome::Failed,
            ))
        }
        Ok(Err(error)) => Err((format!("{name}: {error}"), Outcome::Failed)),
        Err(panic) => {
            error!(
                object = name,
                desired, panic, "the conversion of an object panicked; this is a bug"
            );
            let message = "the webhook failed on this object because of a bug; see its log";
            Err((format!("{name}: {message}"), Outcome::Panicked))
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
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
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

/// The unparsed objects. Deserialization fails at the first one beyond [`MAX_OBJECTS`].
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

/// A buffer with a limit.
struct Limited {
    bytes: Vec<u8>,
    left: usize,
}

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| {
            io::Error::other(format!(
                "the converted objects would have more than {MAX_REPLY_SIZE} bytes"
            ))
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
struct Response<'a> {
    uid: &'a str,
    converted_objects: &'a Converting<'a>,
    result: Status,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(version: &str, kind: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "n"});
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "x": {"y": [1.5, null]}})
    }

    fn review(objects: &Value) -> Value {
        let request =
            json!({"uid": "u-2", "desiredAPIVersion": "example.com/v2", "objects": objects});
        json!({"apiVersion": KIND.versions[0], "kind": KIND.name, "request": request})
    }

    fn rename(mut object: Value, desired: &str) -> Result<Value, String> {
        match object["metadata"]["name"].as_str() {
            Some("bad") => return Err("bad object".to_owned()),
            Some("unchanged") => return Ok(object),
            Some("bug") => panic!("oh"),
            _ => object["apiVersion"] = desired.into(),
        }
        Ok(object)
    }

    fn response_to(objects: &Value) -> (Value, Outcome) {
        let reply = respond(review(objects).to_string().as_bytes(), &rename).unwrap();
        let mut body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(
            (&body["apiVersion"], &body["kind"]),
            (&json!(KIND.versions[0]), &json!(KIND.name))
        );
        assert_eq!(body["response"]["uid"], "u-2");
        (body["response"].take(), reply.outcome)
    }

    #[test]
    fn objects_are_converted_in_order() {
        let (v1, v2) = ("example.com/v1", "example.com/v2");
        let (response, outcome) = response_to(&json!([
            object(v1, "A", "a"),
            object(v2, "B", "b"),
            object("example.com/v0", "A", "c")
        ]));
        let expected = json!([
            object(v2, "A", "a"),
            object(v2, "B", "b"),
            object(v2, "A", "c")
        ]);
        assert_eq!(outcome, Outcome::Converted);
        assert_eq!(response["convertedObjects"], expected);
        assert_eq!(response["result"], json!({"status": "Success"}));
    }

    #[test]
    fn empty_review_has_an_empty_response() {
        for none in [json!([]), Value::Null] {
            let (response, _) = response_to(&none);
            assert_eq!(
                (&response["convertedObjects"], &response["result"]["status"]),
                (&json!([]), &json!("Success"))
            );
        }
    }

    #[test]
    fn failed_object_is_named_and_fails_the_review() {
        for (name, outcome, expected) in [
            ("bad", Outcome::Failed, "Thing n/bad: bad object"),
            ("unchanged", Outcome::Failed, "instead of"),
            (
                "bug",
                Outcome::Panicked,
                "Thing n/bug: the webhook failed on this object because of a bug",
            ),
        ] {
            let objects = json!([
                object("example.com/v1", "Thing", "a"),
                object("example.com/v1", "Thing", name)
            ]);
            let (response, found) = response_to(&objects);
            assert_eq!(
                (found, &response["convertedObjects"]),
                (outcome, &json!([]))
            );
            assert_eq!(response["result"]["status"], "Failure");
            let message = response["result"]["message"].as_str().unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn malformed_review_is_an_error() {
        let error = |body: &str| respond(body.as_bytes(), &rename).unwrap_err().to_string();
        assert!(error("\u{0}").starts_with("the body is not a ConversionReview: "));
        let mut wrong = review(&json!([]));
        wrong["request"]["desiredAPIVersion"] = json!("");
        assert_eq!(
            error(&wrong.to_string()),
            "request.desiredAPIVersion is missing"
        );
        wrong["request"] = json!({});
        assert_eq!(error(&wrong.to_string()), "request.uid is missing");
        wrong["apiVersion"] = json!("v1");
        assert!(error(&wrong.to_string()).starts_with("\"ConversionReview\" in version \"v1\""));
        assert!(error(&review(&json!({})).to_string()).contains("expected a sequence"));
        // A value that is no object is passed to the converter.
        let reply = respond(review(&json!([5])).to_string().as_bytes(), &|_, _: &str| {
            Err("no".to_owned())
        })
        .unwrap();
        assert_eq!(reply.outcome, Outcome::Failed);
    }

    #[test]
    fn list_is_parsed_up_to_its_limit() {
        let start = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"objects": ["#;
        let body = format!("{start}{}nonsense", "0,".repeat(MAX_OBJECTS + 1));
        let error = respond(body.as_bytes(), &rename).unwrap_err().to_string();
        assert!(error.contains("more than 10000 objects"), "{error}");
        let longest = json!(vec![object("example.com/v1", "A", "a"); MAX_OBJECTS]);
        let (response, outcome) = response_to(&longest);
        assert_eq!(outcome, Outcome::Converted);
        assert_eq!(
            response["convertedObjects"].as_array().unwrap().len(),
            MAX_OBJECTS
        );
    }

    #[test]
    fn object_of_too_many_values_is_not_parsed() {
        let mut large = object("example.com/v1", "A", "large");
        large["x"] = json!(vec![0; 500_000]);
        let convert = |object: Value, desired: &str| {
            assert_ne!(object["metadata"]["name"], "large", "it was parsed");
            rename(object, desired)
        };
        let body = review(&json!([object("example.com/v1", "A", "a"), large])).to_string();
        let reply = respond(body.as_bytes(), &convert).unwrap();
        let message =
            "object 1: too many values: they would take more than 33554432 bytes of memory";
        assert_eq!(
            (reply.outcome, reply.failure.as_deref()),
            (Outcome::Failed, Some(message))
        );
        assert!(reply.body.len() < 1000);
    }

    #[test]
    fn reply_size_is_limited() {
        let pad = |mut object: Value, desired: &str| {
            object["apiVersion"] = desired.into();
            object["padding"] = "x".repeat(1024 * 1024).into();
            Ok(object)
        };
        let body = review(&json!(vec![json!({}); 40])).to_string();
        let reply = respond(body.as_bytes(), &pad).unwrap();
        let failure = reply.failure.unwrap();
        assert!(
            reply.outcome == Outcome::Failed && failure.contains("more than 33554432 bytes"),
            "{failure}"
        );
    }

    #[test]
    fn long_error_messages_are_truncated() {
        let fail = |_: Value, _: &str| Err("é".repeat(1_000_000));
        let reply = respond(review(&json!([{}])).to_string().as_bytes(), &fail).unwrap();
        let failure = reply.failure.unwrap();
        assert!(
            failure.chars().count() < 2100 && failure.ends_with('…'),
            "{}",
            failure.len()
        );
    }
}
