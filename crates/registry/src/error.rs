//! Why an operation of a registry fails.

use std::error::Error;

/// The reason of a [`RegistryError`].
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why an operation of a registry failed. With its sources, the text is one line
/// ([`error_chain`](capi_ipam_controller::client::error_chain)).
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The record does not have the expected version. After a request without an answer this also
    /// means that the write may have been applied and then overwritten.
    #[error("record {key} of {registry} was changed by another writer")]
    Conflict {
        /// The registry.
        registry: String,
        /// The name of the record.
        key: String,
    },
    /// The registry does not answer. Nothing was written or read. The operation can be repeated.
    #[error("{registry} cannot be reached")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The reason.
        source: Cause,
    },
    /// The write was not answered, and reading it back did not settle its outcome: it may still be
    /// applied. [`Backend::read`](crate::Backend::read) tells later.
    #[error("the outcome of a write of record {key} of {registry} is unknown")]
    Unknown {
        /// The registry.
        registry: String,
        /// The name of the record.
        key: String,
        /// Why there is no answer.
        source: Cause,
    },
    /// A limit of the registry is reached. Nothing was written.
    #[error("{registry} is full")]
    Full {
        /// The registry.
        registry: String,
        /// The answer of the server.
        source: Cause,
    },
    /// The registry, its settings, or a record is not usable. A repetition does not help.
    #[error("{registry} cannot be used")]
    Invalid {
        /// The registry.
        registry: String,
        /// What is wrong.
        source: Cause,
    },
    /// The registry denies the credentials, or the request. Nothing was written or read.
    #[error("{registry} denies access")]
    Forbidden {
        /// The registry.
        registry: String,
        /// The answer of the server.
        source: Cause,
    },
}

impl RegistryError {
    /// Whether no request can succeed now. All other errors concern one record, or one user.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// What an operator can do about it; `None` if the text says what is wrong, or if it ends without this.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => Some("check its servers, the network and the Secret"),
            Self::Full { .. } => Some("raise its limit"),
            Self::Forbidden { .. } => Some("check the Secret and the permissions of its user"),
            Self::Conflict { .. } | Self::Unknown { .. } | Self::Invalid { .. } => None,
        }
    }

    /// Whether the state of the record is not known any more: it has to be read.
    pub fn leaves_record_unknown(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Unknown { .. })
    }
}
