//! Why a reconcile of a claim fails.

use capi_ipam_controller::client::CallError;

use crate::adapter::HandlerError;

/// Why a reconcile failed. It is retried with backoff.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request to the API server failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The provider failed to look up a pool, or to allocate or release an address.
    #[error(transparent)]
    Handler(#[from] HandlerError),
}

impl ReconcileError {
    /// Returns the request that failed, of this crate or of the handler.
    pub(crate) fn failed_call(&self) -> Option<&CallError> {
        match self {
            Self::Call(error) => Some(error),
            Self::Handler(HandlerError::Transient { source, .. }) => source.downcast_ref(),
            Self::Handler(_) => None,
        }
    }

    /// Returns whether an object changed since it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Handler(HandlerError::Conflict(_)))
            || self.failed_call().is_some_and(CallError::is_conflict)
    }

    /// Returns whether the API server did not respond: it is unreachable or overloaded.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self.failed_call() {
            Some(CallError::TimedOut { .. }) => true,
            Some(CallError::Failed { source, .. }) => {
                !matches!(source.as_ref(), kube::Error::Api(_))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_handlers_are_classified() {
        let failed = |code, reason| {
            let status = kube::core::Status::failure("text", reason).with_code(code);
            let source = Box::new(kube::Error::Api(Box::new(status)));
            let error = CallError::Failed {
                operation: "test".to_owned(),
                source,
            };
            ReconcileError::from(HandlerError::transient("it failed", error))
        };
        assert!(
            ReconcileError::from(HandlerError::Conflict(
                "another writer was faster".to_owned()
            ))
            .is_conflict()
        );
        assert!(failed(409, "Conflict").is_conflict() && !failed(422, "Invalid").is_conflict());
        assert!(!failed(500, "InternalError").is_unanswered());
        assert!(
            ReconcileError::from(CallError::TimedOut {
                operation: "test".to_owned()
            })
            .is_unanswered()
        );
        let is_rejected =
            |error: ReconcileError| error.failed_call().is_some_and(CallError::is_rejected);
        assert!(is_rejected(failed(422, "Invalid")) && !is_rejected(failed(500, "InternalError")));
    }
}
