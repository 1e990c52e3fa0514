//! What reviews and conversions have in common: answers, and why there may be none.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

/// The most characters of a text that says what is wrong with a request.
const MAX_TEXT: usize = 2048;

/// What is sent back to the API server, with status 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The review with its response, as JSON.
    pub body: Vec<u8>,
    /// What it says.
    pub outcome: Outcome,
    /// Why objects were not converted, for the log.
    pub failure: Option<String>,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The object may be written.
    Allowed,
    /// The object may not be written.
    Denied,
    /// The objects are converted.
    Converted,
    /// An object cannot be converted.
    Failed,
    /// The code that decides panicked.
    Panicked,
}

impl Outcome {
    /// The outcome in one word, for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Converted => "converted",
            Self::Failed => "failed",
            Self::Panicked => "panic",
        }
    }
}

/// Why there is no answer. It is the fault of whoever asks, so the texts go back to it.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// The body is not JSON, or something in it is missing or of the wrong type.
    #[error("the body is not {what}: {source}")]
    Unreadable {
        /// What it should be.
        what: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The body is a review of another kind or version.
    #[error("{kind:?} in version {version:?} is not answered here, only {expected}")]
    Unexpected {
        /// The kind in the body.
        kind: String,
        /// The version in the body.
        version: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Something that the answer needs is empty or missing.
    #[error("{field} is missing")]
    Missing {
        /// The path of the field.
        field: &'static str,
    },
    /// Reading the body would take too much memory.
    #[error("the body has too many values: they would take more than {most} bytes of memory")]
    TooManyValues {
        /// How many bytes it may take.
        most: usize,
    },
    /// The answer could not be written as JSON; a mistake in this program.
    #[error("the answer cannot be written: {source}")]
    Unwritable {
        /// What cannot be written.
        source: serde_json::Error,
    },
}

/// Does the work; a panic becomes an error with its text.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
    })
}

/// A text for people, cut when it is very long: it may quote what somebody sent.
pub(super) fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

pub(super) fn write(review: &impl Serialize, outcome: Outcome) -> Result<Reply, ReplyError> {
    let body = serde_json::to_vec(review).map_err(|source| ReplyError::Unwritable { source })?;
    Ok(Reply { body, outcome, failure: None })
}
