//! Errors of requests to the API server: what they mean, and their text.

use std::sync::Arc;

use super::REQUEST_TIMEOUT;
use capi_ipam_objects::maybe_invalid::Invalid;

/// The message of an error about a kind that the API server does not serve.
pub(crate) const NOT_SERVED: &str = "the API server does not serve this kind";
/// What to do about it.
pub(crate) const INSTALL_DEFINITION: &str = "install its CustomResourceDefinition: apply the manifest of the provider, or of Cluster API, again";
/// The reason of the status of such an error. The API server sends none.
const UNSERVED_REASON: &str = "KindNotServed";
/// The message of the API server about a JSON patch that cannot be applied.
const INAPPLICABLE_PATCH: &str = "the server rejected our request due to an error in our request";
/// The reason of the API server for an object that does not exist.
const NOT_FOUND_REASON: &str = "NotFound";

/// A request to the API server that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server rejected the request, or the connection failed.
    #[error("cannot {operation}")]
    Failed {
        /// The operation with kind and name, such as `create Lease a`.
        operation: String,
        /// The error of the server or the connection.
        #[source]
        source: Box<kube::Error>,
    },
    /// The server did not answer in time.
    #[error("cannot {operation}: no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    TimedOut {
        /// The operation with kind and name.
        operation: String,
    },
    /// An object in the response cannot be decoded: it exists, but is not valid. Correct or delete
    /// it.
    #[error("cannot {operation}: the object exists and cannot be decoded; correct or delete it")]
    Undecodable {
        /// The operation with kind and name.
        operation: String,
        /// Why it cannot be decoded, and its metadata.
        #[source]
        source: Invalid,
    },
    /// A request failed whose result several callers wait for.
    #[error("cannot {operation}")]
    Shared {
        /// What the caller needs the result for.
        operation: String,
        /// The error of the request.
        #[source]
        source: Arc<CallError>,
    },
    /// The object could not be serialized; a bug in this program. Nothing was sent.
    #[error("cannot {operation}: the request cannot be serialized")]
    Serialize {
        /// The operation with kind and name.
        operation: String,
        /// What cannot be serialized.
        #[source]
        source: serde_json::Error,
    },
}

impl CallError {
    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Failed { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    fn has_code(&self, code: u16) -> bool {
        self.status().is_some_and(|status| status.code == code)
    }

    fn has_reason(&self, reason: &str) -> bool {
        self.status().is_some_and(|status| status.reason == reason)
    }

    /// The object does not exist. A kind that the API server does not serve is another error
    /// ([`CallError::is_unserved`]): its objects may exist, and be served in another version.
    pub fn is_not_found(&self) -> bool {
        self.has_code(404) && !self.is_unserved()
    }

    /// The API server does not serve the kind in this version.
    pub fn is_unserved(&self) -> bool {
        self.has_reason(UNSERVED_REASON)
    }

    /// An object of that name already exists.
    pub fn is_already_exists(&self) -> bool {
        self.has_code(409) && self.has_reason("AlreadyExists")
    }

    /// The object has changed since it was read. This is expected: read it again and retry.
    pub fn is_conflict(&self) -> bool {
        self.has_code(409) && !self.has_reason("AlreadyExists") || self.is_inapplicable_patch()
    }

    /// The object has changed since it was read, or is gone.
    pub fn has_changed(&self) -> bool {
        self.is_conflict() || self.is_not_found()
    }

    /// An operation of a JSON patch names a field that the object does not have. If the patched
    /// object is not valid, the API server sends another message.
    fn is_inapplicable_patch(&self) -> bool {
        let message = self.status().map(|status| status.message.as_str());
        self.has_code(422) && message == Some(INAPPLICABLE_PATCH)
    }

    /// The permissions, or an admission plugin, do not allow the request.
    pub fn is_forbidden(&self) -> bool {
        self.has_code(403)
    }

    /// The API server does not accept the credentials.
    pub fn is_unauthorized(&self) -> bool {
        self.has_code(401)
    }

    /// No connection could be opened, so the request was not sent.
    pub fn was_not_sent(&self) -> bool {
        let Self::Failed { source, .. } = self else {
            return false;
        };
        let first: &(dyn std::error::Error + 'static) = source.as_ref();
        let mut errors = std::iter::successors(Some(first), |error| error.source());
        errors.any(|error| {
            let transport = error.downcast_ref::<hyper_util::client::legacy::Error>();
            transport.is_some_and(hyper_util::client::legacy::Error::is_connect)
        })
    }

    /// The API server or an admission webhook rejected the object as invalid.
    pub fn is_invalid(&self) -> bool {
        self.has_code(422) || self.has_code(400)
    }

    /// The API server or an admission plugin rejects what is written: a retry alone does not help.
    pub fn is_rejected(&self) -> bool {
        self.is_invalid() || self.is_forbidden()
    }

    /// The namespace is being deleted and accepts no new objects.
    pub fn is_namespace_terminating(&self) -> bool {
        let cause = "NamespaceTerminating";
        let details = self.status().and_then(|status| status.details.as_ref());
        self.is_forbidden()
            && details
                .is_some_and(|details| details.causes.iter().any(|entry| entry.reason == cause))
    }

    /// The API server does not know the kind of a blocking owner reference. Its admission plugin
    /// `OwnerReferencesPermissionEnforcement` reads the kinds every 30 s, so the request can fail
    /// for that long after the start of the API server.
    pub fn is_owner_kind_unknown(&self) -> bool {
        let is_reason = |text: &str| text.contains("cannot find RESTMapping");
        self.is_forbidden()
            && self
                .status()
                .is_some_and(|status| is_reason(&status.message))
    }

    /// The object cannot be serialized, so the request fails until the object changes.
    pub fn is_unserializable(&self) -> bool {
        matches!(self, Self::Serialize { .. })
    }

    /// Why the response is no valid object of the kind, in the words of the parser. `None` if the
    /// request failed for another reason.
    pub fn invalid_response(&self) -> Option<String> {
        if let Self::Undecodable { source, .. } = self {
            return Some(source.to_string());
        }
        let Self::Failed { source, .. } = self else {
            return None;
        };
        if let kube::Error::SerdeError(error) = source.as_ref() {
            Some(error.to_string())
        } else {
            None
        }
    }

    /// The request may have been applied, or may be applied later. Read the object to find out.
    pub fn outcome_is_unknown(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::Serialize { .. } | Self::Undecodable { .. } => false,
            Self::Shared { source, .. } => source.outcome_is_unknown(),
            Self::Failed { .. } => match self.status() {
                Some(status) => status.code >= 500,
                None => !self.was_not_sent(),
            },
        }
    }
}

/// Whether the API server does not serve the kind: it responds to an unknown path with 404 and a
/// text instead of a status, which has no reason of the API server.
fn is_unserved(status: &kube::core::Status) -> bool {
    status.code == 404 && status.reason != NOT_FOUND_REASON
}

/// Replaces the text of the API server for an unknown path, `404 page not found`, by what to do.
pub(crate) fn explain_unserved(error: &mut kube::Error) {
    if let kube::Error::Api(status) = error
        && is_unserved(status)
    {
        status.message = format!("{NOT_SERVED}; {INSTALL_DEFINITION}");
        UNSERVED_REASON.clone_into(&mut status.reason);
    }
}

/// The error and all its sources in one line. A source whose text is already included is left out.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error, status_message)
}

/// Like [`error_chain`], for users: of an API status it has the message alone.
pub fn error_text(error: &(dyn std::error::Error + 'static)) -> String {
    chain(error, |status| match status.message.as_str() {
        "" => status_message(status),
        message => message.to_owned(),
    })
}

fn chain(
    error: &(dyn std::error::Error + 'static),
    text_of: fn(&kube::core::Status) -> String,
) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let status = api_status(error);
        let part = status.map_or_else(|| error.to_string(), text_of);
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        // An API status has the whole message.
        next = match status {
            Some(_) => None,
            None => error.source(),
        };
    }
    text.replace('\n', " ")
}

/// The status that the API server returned, if the error is one. kube prints it with all its fields.
fn api_status<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a kube::core::Status> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref);
    match error.downcast_ref().or_else(boxed) {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The message of an API status, with code and reason.
pub(crate) fn status_message(status: &kube::core::Status) -> String {
    let outcome = format!("{} {}", status.code, status.reason);
    match status.message.trim() {
        "" => outcome.trim().to_owned(),
        message => format!("{message} ({})", outcome.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: u16, reason: &str) -> CallError {
        let status = kube::core::Status::failure("text", reason).with_code(code);
        CallError::Failed {
            operation: "test".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn outcome_is_unknown_after_5xx_and_timeouts() {
        for (code, reason, unknown) in [
            (409, "AlreadyExists", false),
            (422, "Invalid", false),
            (429, "TooManyRequests", false),
        ]
        .into_iter()
        .chain([
            (500, "InternalError", true),
            (503, "x", true),
            (504, "Timeout", true),
        ]) {
            assert_eq!(failed(code, reason).outcome_is_unknown(), unknown, "{code}");
        }
        assert!(
            CallError::TimedOut {
                operation: String::new()
            }
            .outcome_is_unknown()
        );
    }

    #[test]
    fn api_status_is_short_in_error_chain() {
        let text = error_chain(&failed(429, "TooManyRequests"));
        assert_eq!(text, "cannot test: text (429 TooManyRequests)");
    }

    #[test]
    fn already_exists_is_not_a_conflict() {
        assert!(
            failed(409, "AlreadyExists").is_already_exists()
                && !failed(409, "AlreadyExists").is_conflict()
        );
        assert!(
            failed(409, "Conflict").is_conflict() && !failed(409, "Conflict").is_already_exists()
        );
    }
}
