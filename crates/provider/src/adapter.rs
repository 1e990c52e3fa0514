//! The traits that a provider implements, and the types that they exchange with the framework.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::{ControllerBuilder, Trigger};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::watch::EventHandler;
use kube::Resource;

use crate::api::{IPAddress, IPAddressClaim, PoolReference, is_paused};
use crate::claim_cache::{ClaimCache, CompactClaim};
use crate::contract::ContractClient;
use crate::index::AddressIndex;
use crate::selection::Selection;

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

/// A provider: declares the kinds of pools that it serves and creates a [`ClaimHandler`] for each reconcile of a claim.
pub trait ProviderAdapter: Send + Sync + 'static {
    /// The type that handles one claim during one reconcile.
    type Handler: ClaimHandler;

    /// Declares the kinds of pools that the provider serves ([`ProviderSetup::serve`]) and adds its own watches and
    /// services. Called once, before any controller runs. An error ends the program.
    fn setup(&self, setup: &mut ProviderSetup<'_>) -> Result<(), BoxError>;

    /// Creates the handler of a claim. Called once per reconcile; must not block.
    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> Self::Handler;

    /// How often a claim that waits for its pool is reconciled without a trigger. A provider that enqueues its waiting
    /// claims ([`ProviderSetup::trigger`]) can return a long interval.
    fn resync_interval(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How long a claim that was moved or restored to this cluster waits for its IPAddress to be restored too, counted
    /// from the creation of the claim. After that it gets a new address.
    fn restored_claim_timeout(&self) -> Duration {
        Duration::from_hours(1)
    }

    /// Whether an address may be allocated at the same time as the finalizer is added to the claim, and not only
    /// afterwards. This saves the latency of one write.
    ///
    /// Return `true` only if the provider itself finds and frees addresses of claims that no longer exist: if the
    /// program ends between the two writes and the claim is deleted, [`ClaimHandler::release_address`] is not called.
    fn allocates_before_finalizer(&self) -> bool {
        false
    }

    /// Called after every reconcile of the claim, whether it succeeded or not. A provider with a wait queue needs it.
    fn reconciled(&self, _claim: &IPAddressClaim) {}
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
    /// earlier attempt, an upgrade or a restore, or a user created it. Return [`HandlerError::Discard`] to have it
    /// deleted.
    fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> impl Future<Output = Result<Allocation, HandlerError>> + Send;

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
    /// The pool does not exist. Reported as `PoolNotReady`; retried after [`ProviderAdapter::resync_interval`].
    #[error("{0}")]
    PoolNotFound(String),
    /// The pool cannot serve claims. Reported as `PoolNotReady`; retried after [`ProviderAdapter::resync_interval`].
    #[error("{0}")]
    PoolNotReady(String),
    /// The pool has no free address. Reported as `PoolExhausted`; retried after [`ProviderAdapter::resync_interval`].
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
    /// The existing IPAddress is a leftover whose address cannot be kept. It is deleted, and allocation is tried again.
    #[error("{0}")]
    Discard(String),
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
    /// A failed request is [`HandlerError::Transient`].
    fn from(error: CallError) -> Self {
        Self::transient("request to the API server failed", error)
    }
}

impl HandlerError {
    /// Creates a [`HandlerError::Transient`] from the operation that failed and the cause.
    pub fn transient(message: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Transient { message: message.into(), source: source.into() }
    }
}

/// What an adapter can configure before the controller of claims starts.
pub struct ProviderSetup<'a> {
    /// The manager of the program: client, options, events, metrics and services.
    pub manager: &'a mut Manager,
    /// The controller of claims, to add watches.
    pub controller: &'a mut ControllerBuilder<IPAddressClaim, CompactClaim>,
    /// Clients for the contract kinds, in the versions that the API server serves.
    pub contract: ContractClient,
    /// All IPAddress objects, as last seen by their watch.
    pub addresses: Arc<AddressIndex>,
    /// Becomes ready when the claims have been listed once.
    pub claims_synced: ReadinessGate,
    /// Becomes ready when the addresses have been listed once.
    pub addresses_synced: ReadinessGate,
    pub(super) pools: Vec<PoolKind>,
    pub(super) address_event_handlers: Vec<Arc<dyn EventHandler<IPAddress>>>,
    pub(super) claim_event_handlers: Vec<Arc<dyn EventHandler<IPAddressClaim>>>,
}

impl ProviderSetup<'_> {
    /// Reconciles the claims for pools of this kind.
    pub fn serve(&mut self, kind: PoolKind) {
        self.pools.push(kind);
    }

    /// Passes the watch events of all IPAddresses to `handler`, including those of pools of other providers.
    pub fn add_address_event_handler(&mut self, handler: Arc<dyn EventHandler<IPAddress>>) {
        self.address_event_handlers.push(handler);
    }

    /// Passes the watch events of the claims that this process reconciles to `handler`. A claim that it stops
    /// reconciling, because a label changed, is passed as deleted.
    pub fn add_claim_event_handler(&mut self, handler: Arc<dyn EventHandler<IPAddressClaim>>) {
        self.claim_event_handlers.push(handler);
    }

    /// Returns a handle that enqueues claims for reconciliation, for example when their pool changes.
    pub fn trigger(&self) -> Trigger<IPAddressClaim> {
        self.controller.trigger()
    }

    /// Returns a cache of all claims, as last seen by their watch.
    pub fn claim_cache(&self) -> ClaimCache {
        ClaimCache { store: self.controller.store(), selection: Selection::of(&self.manager.options) }
    }
}
