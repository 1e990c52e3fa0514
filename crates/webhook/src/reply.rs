//! What `AdmissionReview` and `ConversionReview` have in common: the parts around request and
//! response, the replies, and the errors of requests without one.
//!
//! v1 and v1beta1 of both differ only in their name; a reply has the version of its request.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

use crate::memory::MAX_MEMORY;

/// Length of the longest message about a request, in characters.
const MAX_MESSAGE_LENGTH: usize = 2048;

/// A reply to the API server, which is sent with HTTP status 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The `AdmissionReview` or `ConversionReview` with its response, as JSON.
    pub body: Vec<u8>,
    /// The outcome, for metrics.
    pub outcome: Outcome,
    /// Why the conversion failed, for the log.
    pub failure: Option<String>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The request is allowed.
    Allowed,
    /// The request is denied.
    Denied,
    /// All objects are converted.
    Converted,
    /// An object cannot be converted.
    Failed,
    /// The validator or the converter panicked.
    Panicked,
}

impl Outcome {
    /// The value of the metric label `outcome`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Converted => "converted",
            Self::Failed => "failed",
            Self::Panicked => "panic",
        }
    }
}

/// Why a request cannot be answered. The client gets the message.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The body is not JSON, or a field is missing or of the wrong type.
    #[error("the body is not {expected}: {source}")]
    Malformed {
        /// The expected kind with its article.
        expected: &'static str,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The body is of another kind or version.
    #[error("{kind:?} in version {version:?} is not supported, only {expected}")]
    Unexpected {
        /// The kind in the body.
        kind: String,
        /// The version in the body.
        version: String,
        /// The supported kind and versions.
        expected: &'static str,
    },
    /// A required field is empty or missing.
    #[error("{field} is missing")]
    Missing {
        /// The path of the field.
        field: &'static str,
    },
    /// Parsing the body would take too much memory.
    #[error("the body has too many values: they would take more than {MAX_MEMORY} bytes of memory")]
    TooManyValues,
    /// The reply could not be serialized; a bug in this program.
    #[error("the reply cannot be serialized: {source}")]
    Serialize {
        /// The error of the serializer.
        source: serde_json::Error,
    },
}

/// The kind of a review and its versions.
pub(super) struct ReviewKind {
    pub(super) name: &'static str,
    pub(super) versions: [&'static str; 2],
    /// The kind with its article, for errors.
    pub(super) with_article: &'static str,
    /// The kind and its versions, for errors.
    pub(super) supported: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<R>,
}

/// A review with its response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answered<'a, R> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'static str,
    pub(super) response: R,
}

impl ReviewKind {
    /// Parses a review. Returns its version and its request.
    pub(super) fn parse<'a, R: Deserialize<'a>>(
        &self,
        body: &'a [u8],
    ) -> Result<(String, R), ReplyError> {
        let Received {
            api_version: version,
            kind,
            request,
        } = serde_json::from_slice(body).map_err(|source| ReplyError::Malformed {
            expected: self.with_article,
            source,
        })?;
        if kind != self.name || !self.versions.contains(&version.as_str()) {
            return Err(ReplyError::Unexpected {
                kind,
                version,
                expected: self.supported,
            });
        }
        Ok((
            version,
            request.ok_or(ReplyError::Missing { field: "request" })?,
        ))
    }
}

/// Calls a function. A panic becomes an error with its message.
pub(super) fn catch_panic<T>(function: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(function)).map_err(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_default()
    })
}

/// Truncates a message, which may quote a request, to [`MAX_MESSAGE_LENGTH`].
pub(super) fn truncated(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_MESSAGE_LENGTH) {
        text.truncate(end);
        text.push('…');
    }
    text
}
