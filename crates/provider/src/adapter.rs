//! The traits that a provider implements, and the types that they exchange with the framework.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::manager::BoxError;
use kube::Resource;

use crate::api::{IPAddress, IPAddressClaim, PoolReference, is_paused};
#[cfg(doc)]
use crate::options::ClaimOptions;

/// A kind of pool, in any version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKind {
    /// API group, as in `apiGroup` of the pool reference of a claim.
    pub group: String,
    /// Name of the kind, as in `kind` of the pool reference of a claim.
    pub kind: String,
}

impl PoolKind {
    /// Creates the kind from its API group and its name.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// Returns whether a reference names a pool of this kind.
    pub fn matches(&self, reference: &PoolReference) -> bool {
        self.group == reference.api_group && self.kind == reference.kind
    }
}

/// A provider: creates a [`ClaimHandler`] for each reconcile of a claim.
pub trait ProviderAdapter: Send + Sync + 'static {
    /// The type that handles one claim during one reconcile.
    type Handler: ClaimHandler;

    /// Creates the handler of a claim. Called once per reconcile; must not block. The handler is dropped when the
    /// reconcile ends, whatever its result.
    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> Self::Handler;
}

/// Allocates and releases the address of one claim. Lives for one reconcile.
///
/// The methods may wait for the provider's backend. Each must end in bounded time and must be idempotent: it may be
/// called again after any failure, also by another process.
pub trait ClaimHandler: Send {
    /// Looks up the pool of the claim. Called before the other two methods. If it fails while the claim is being
    /// deleted, [`ClaimHandler::release_address`] is called nevertheless.
    fn fetch_pool(&mut self) -> impl Future<Output = Result<PoolView, HandlerError>> + Send;

    /// Allocates an address for the claim. Repeated calls for the same claim return the same address.
    ///
    /// `existing` is the IPAddress with the claim's name, as just read, whose address must be kept. It comes from an
    /// earlier attempt, an upgrade or a restore, or a user created it. Return [`Ensured::DeleteExisting`] if it is a
    /// leftover whose address cannot be kept.
    fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> impl Future<Output = Result<Ensured, HandlerError>> + Send;

    /// Releases the address of the claim. Called once the IPAddress no longer exists, also if none ever existed, and
    /// possibly again after success.
    fn release_address(&mut self) -> impl Future<Output = Result<Released, HandlerError>> + Send;
}

/// The properties of a pool that decide what happens to its claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// `apiVersion` of the pool, for the owner reference on the IPAddress.
    pub api_version: String,
    /// `metadata.uid` of the pool, for the owner reference on the IPAddress.
    pub uid: String,
    /// Whether the pool has the annotation `cluster.x-k8s.io/paused`.
    pub paused: bool,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Whether an earlier attempt already allocated an address of the pool to the claim. Such a claim is bound even
    /// while the pool is being deleted.
    pub holds_address: bool,
}

impl PoolView {
    /// Creates the view of a pool object. [`Self::holds_address`] is `false`.
    pub fn of<K: Resource<DynamicType = ()>>(pool: &K) -> Self {
        let meta = pool.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            uid: meta.uid.clone().unwrap_or_default(),
            paused: is_paused(meta),
            deleting: meta.deletion_timestamp.is_some(),
            holds_address: false,
        }
    }
}

/// An address that is allocated to a claim; becomes the spec of the IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The allocated address.
    pub address: IpAddr,
    /// Prefix length of the subnet of the address, in bits.
    pub prefix: u8,
    /// Gateway of the subnet of the address, if it has one.
    pub gateway: Option<IpAddr>,
}

/// The result of [`ClaimHandler::ensure_address`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// The claim has this address: the one of the existing IPAddress, if there is one.
    Allocated(Allocation),
    /// The existing IPAddress is a leftover whose address cannot be kept, for this reason. It is deleted, and
    /// [`ClaimHandler::ensure_address`] is called without it.
    DeleteExisting(String),
}

impl From<Allocation> for Ensured {
    fn from(allocation: Allocation) -> Self {
        Self::Allocated(allocation)
    }
}

/// The result of [`ClaimHandler::release_address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The address is released; the finalizer is removed from the claim.
    Now,
    /// The release is in progress; the claim keeps its finalizer and is reconciled again after this time.
    After(Duration),
}

/// Why a handler did not return an address or a pool. The variant determines condition, event and retry. The message is
/// shown to users: it says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The pool does not exist. Reported as `PoolNotReady`; retried after [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolNotFound(String),
    /// The pool cannot serve claims. Reported as `PoolNotReady`; retried after [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolNotReady(String),
    /// The pool has no free address. Reported as `PoolExhausted`; retried after [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolExhausted(String),
    /// The provider is not ready to answer, for example because its caches are not filled yet. Not a failure; retried
    /// after a delay.
    #[error("{message}")]
    RetryAfter {
        /// What the provider waits for.
        message: String,
        /// The delay before the next attempt.
        after: Duration,
    },
    /// The address of the existing IPAddress is allocated to another claim. Reported as `DuplicateAddress`.
    #[error("{0}")]
    DuplicateAddress(String),
    /// Another writer was faster, and the next attempt reads what it wrote. Not a failure; retried within a fraction of
    /// a second and not reported.
    #[error("{0}")]
    Conflict(String),
    /// The attempt failed and may succeed later. Retried with exponential backoff; reported only if it keeps failing.
    #[error("{message}")]
    Transient {
        /// The operation that failed.
        message: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The attempt fails until a user changes an object. Reported as `AllocationFailed`.
    #[error("{0}")]
    Permanent(String),
}

impl From<CallError> for HandlerError {
    /// A conflict is [`HandlerError::Conflict`]; any other failed request is [`HandlerError::Transient`].
    fn from(error: CallError) -> Self {
        if error.is_conflict() {
            return Self::Conflict(error.to_string());
        }
        Self::transient("request to the API server failed", error)
    }
}

impl HandlerError {
    /// Creates a [`HandlerError::Transient`] from the operation that failed and the cause.
    pub fn transient(message: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Transient { message: message.into(), source: source.into() }
    }
}
