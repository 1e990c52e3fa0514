//! Why an operation on a bucket failed, and what a failed request means for a write.

use std::time::Duration;

use async_nats::jetstream::{self, ErrorCode};

/// Why an operation on a bucket failed.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// The key does not have the expected revision. After a write without an answer this also means
    /// that the write may have been applied and then overwritten.
    #[error("key {key} of bucket {bucket} was changed by another writer")]
    Conflict {
        /// The name of the bucket.
        bucket: String,
        /// The key.
        key: String,
    },
    /// The write was not answered, and a read did not settle its outcome: it may still be applied.
    /// [`Bucket::read`](crate::Bucket::read) tells later.
    #[error("the outcome of a write of key {key} in bucket {bucket} is unknown")]
    Unknown {
        /// The name of the bucket.
        bucket: String,
        /// The key.
        key: String,
        /// Why there is no answer.
        source: Failure,
    },
    /// Nothing was written or read. The operation can be repeated.
    #[error("bucket {bucket} is unavailable")]
    Unavailable {
        /// The name of the bucket.
        bucket: String,
        /// The failed request.
        source: Failure,
    },
    /// A limit of the bucket, the account or the server is reached. Nothing was written.
    #[error("bucket {bucket} is full, raise its limits or delete keys")]
    Full {
        /// The name of the bucket.
        bucket: String,
        /// The answer of the server.
        source: Failure,
    },
    /// The server, the bucket, a key or a value is not usable. A repetition does not help.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// What is not usable, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// A server that is too old loses writes that it acknowledged.
    #[error("NATS server {server} has version {found}: upgrade it to {needed} or later")]
    Version {
        /// The name of the server.
        server: String,
        /// Its version.
        found: String,
        /// The oldest version that is accepted.
        needed: &'static str,
    },
    /// No server of the cluster has JetStream, or it is off for the account.
    #[error("JetStream is not enabled for the account at NATS server {server}: enable it")]
    NoJetStream {
        /// The name of the server.
        server: String,
        /// The answer of the server.
        source: Failure,
    },
    /// The name of a bucket consists of letters, digits, `-` and `_`.
    #[error("{name:?} is not the name of a bucket: use letters, digits, - and _")]
    BucketName {
        /// The name.
        name: String,
    },
    /// The bucket does not exist, and the options do not allow to create it.
    #[error("bucket {bucket} does not exist: create it")]
    Missing {
        /// The name of the bucket.
        bucket: String,
    },
    /// The bucket has too few replicas, so one lost disk loses it.
    #[error(
        "bucket {bucket} has {found} replicas instead of at least {needed}: \
         add replicas, or allow a single one"
    )]
    Replicas {
        /// The name of the bucket.
        bucket: String,
        /// The number of its replicas, or of those that its servers can have.
        found: usize,
        /// The number that the options require.
        needed: usize,
    },
    /// The configuration of the bucket does not keep values until they are deleted.
    #[error("bucket {bucket} has another shape than required: {}", problems.join(", "))]
    Shape {
        /// The name of the bucket.
        bucket: String,
        /// What differs.
        problems: Vec<String>,
    },
    /// A key consists of letters, digits, `-`, `_`, `/`, `=` and `.`, without empty parts.
    #[error("{key:?} is not a key: use letters, digits, -, _, /, = and . between parts")]
    Key {
        /// The key.
        key: String,
    },
    /// The value is larger than a message of the server or of the bucket.
    #[error("the value of key {key} is too large for bucket {bucket}")]
    TooLarge {
        /// The name of the bucket.
        bucket: String,
        /// The key.
        key: String,
    },
    /// The value cannot be written as JSON.
    #[error("the value of key {key} cannot be written as JSON")]
    Encode {
        /// The key.
        key: String,
        /// The reason.
        source: serde_json::Error,
    },
}

/// A request without a useful answer.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// There is no connection, so the request was not sent.
    #[error("not connected to a NATS server")]
    Disconnected,
    /// There is no answer within the deadline.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The user lacks a permission.
    #[error("the server denies the request: {0}")]
    Forbidden(String),
    /// Nobody receives such requests: JetStream is off, or the bucket has no leader.
    #[error("no server answers: the bucket has no leader, or JetStream is off")]
    NoResponders,
    /// The request is larger than the server accepts, so it was not sent.
    #[error("the request is larger than the server accepts")]
    TooLarge,
    /// The server answers with an error.
    #[error("the server answers: {0}")]
    Api(jetstream::Error),
    /// The answer cannot be decoded.
    #[error("the answer of the server cannot be decoded")]
    Answer(#[source] serde_json::Error),
    /// The connection was lost while the request was in progress.
    #[error("the request was interrupted")]
    Interrupted(#[source] async_nats::RequestError),
    /// The bucket was deleted and created again during the operation.
    #[error("the bucket was created again")]
    OtherBucket,
    /// The watch received no heartbeat of its consumer.
    #[error("the watch received nothing for {0:?}")]
    Silence(Duration),
}

/// What a failed request means for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The key has another revision. Nothing was written.
    Conflict,
    /// Another write of the key is in progress. Nothing was written.
    InProgress,
    /// A limit is reached. Nothing was written.
    Full,
    /// The value is too large. Nothing was written.
    TooLarge,
    /// Nothing was written.
    NotApplied,
    /// The write was applied, was not, or will be.
    Unknown,
}

impl Failure {
    /// The error code in the answer of the server.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Api(error) => Some(error.error_code()),
            _ => None,
        }
    }

    /// What this means for a write. An answer that is not known here leaves it unknown.
    pub(crate) fn meaning(&self) -> Meaning {
        match self {
            Self::Disconnected | Self::NoResponders | Self::Forbidden(_) => Meaning::NotApplied,
            Self::TooLarge => Meaning::TooLarge,
            Self::Api(error) => meaning_of_answer(error),
            Self::Timeout(_)
            | Self::Answer(_)
            | Self::Interrupted(_)
            | Self::OtherBucket
            | Self::Silence(_) => Meaning::Unknown,
        }
    }
}

/// What the answer of the server means for a write. Codes are compared, texts only where one code
/// has two meanings.
fn meaning_of_answer(error: &jetstream::Error) -> Meaning {
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE => Meaning::Conflict,
        // The client library maps the first of these two only.
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => Meaning::InProgress,
        // "maximum bytes exceeded" and "maximum messages exceeded", or a failure of the disk.
        ErrorCode::STREAM_STORE_FAILED if error.to_string().contains("maximum") => Meaning::Full,
        ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => Meaning::Full,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => Meaning::TooLarge,
        ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT
        | ErrorCode::STREAM_NOT_FOUND => Meaning::NotApplied,
        _ => Meaning::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(code: u64, description: &str) -> Failure {
        let error = json!({ "code": 400, "err_code": code, "description": description });
        Failure::Api(serde_json::from_value(error).expect("it is an answer"))
    }

    #[test]
    fn answers_are_classified_by_their_code() {
        let cases = [
            (10071, "wrong last sequence: 7", Meaning::Conflict),
            (10164, "wrong last sequence", Meaning::InProgress),
            (10077, "maximum bytes exceeded", Meaning::Full),
            (10077, "maximum messages exceeded", Meaning::Full),
            (10077, "no space left on device", Meaning::Unknown),
            (
                10047,
                "insufficient storage resources available",
                Meaning::Full,
            ),
            (10002, "resource limits exceeded for account", Meaning::Full),
            (
                10054,
                "message size exceeds maximum allowed",
                Meaning::TooLarge,
            ),
            (
                10008,
                "JetStream system temporarily unavailable",
                Meaning::NotApplied,
            ),
            (10059, "stream not found", Meaning::NotApplied),
            (12345, "an answer of a later server", Meaning::Unknown),
        ];
        for (code, description, expected) in cases {
            let meaning = answer(code, description).meaning();
            assert_eq!(meaning, expected, "{code} {description}");
        }
    }

    #[test]
    fn request_without_answer_leaves_the_outcome_unknown() {
        let timeout = Failure::Timeout(Duration::from_secs(1));
        assert_eq!(timeout.meaning(), Meaning::Unknown);
        assert_eq!(Failure::Disconnected.meaning(), Meaning::NotApplied);
        assert_eq!(Failure::NoResponders.meaning(), Meaning::NotApplied);
    }
}
