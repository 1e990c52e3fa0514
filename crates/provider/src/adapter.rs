//! What a provider implements.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::{ControllerBuilder, Trigger};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::watch::Observer;
use kube::Resource;

use crate::api::{IPAddress, IPAddressClaim, names, PoolReference};
use crate::claim_cache::{Claims, CompactClaim};
use crate::contract::ContractClient;
use crate::index::AddressIndex;
use crate::selection::Selection;

/// A kind of pool, whatever its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKind {
    /// Group of the kind.
    pub group: String,
    /// The kind.
    pub kind: String,
}

impl PoolKind {
    /// The kind of that name in that group.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// Whether a reference names a pool of this kind.
    pub fn is_meant_by(&self, reference: &PoolReference) -> bool {
        self.group == reference.api_group && self.kind == reference.kind
    }
}

/// A provider: which pools it serves, and who handles a claim for one of them.
pub trait ProviderAdapter: Send + Sync + 'static {
    /// Handles one claim during one reconcile.
    type Handler: ClaimHandler;

    /// Says which kinds of pools the provider serves, and what else it watches. Called once, before anything runs.
    fn setup(&self, setup: &mut ProviderSetup<'_>) -> Result<(), BoxError>;

    /// A handler for the claim. Called for every reconcile; must not block.
    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> Self::Handler;

    /// After what time a claim that waits for its pool is looked at again even though nobody woke it. A provider that
    /// wakes its waiting claims can afford a long time.
    fn resync(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How long after its creation a claim that was moved or restored here waits for the IPAddress that it had.
    fn restored_claim_timeout(&self) -> Duration {
        Duration::from_hours(1)
    }

    /// Whether an address may be allocated while the claim is still being given its finalizer, instead of after that. It
    /// saves the time of a write. Only for a provider that finds by itself, sooner or later, what it gave to a claim that
    /// is gone: if the program ends in this moment, and the claim is deleted, it is not told of it.
    fn allocates_before_finalizer(&self) -> bool {
        false
    }

    /// The claim has been reconciled, whatever came of it. For providers that keep claims in line.
    fn finished(&self, _claim: &IPAddressClaim) {}
}

/// Allocates and gives back the address of one claim. Lives for one reconcile.
///
/// All methods may block on the provider's backend; each must end in bounded time and tolerate being called again after
/// any failure, in another process too.
pub trait ClaimHandler: Send {
    /// Looks up the claim's pool. Called before the other two methods; when it fails while the claim is being deleted,
    /// [`ClaimHandler::release_address`] is called all the same.
    fn fetch_pool(&mut self) -> impl Future<Output = Result<PoolView, HandlerError>> + Send;

    /// Allocates an address for the claim, and gives the same one for the same claim when called again.
    ///
    /// `existing` is an IPAddress of the claim's name, read just now, whose address has to be kept: from an earlier
    /// attempt, an upgrade, a restore, or made by hand. Answer [`HandlerError::Discard`] to have it removed.
    fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> impl Future<Output = Result<Allocation, HandlerError>> + Send;

    /// Takes the claim's address back. Called when the IPAddress is gone; also when there never was one, and again after
    /// success.
    fn release_address(&mut self) -> impl Future<Output = Result<Released, HandlerError>> + Send;
}

/// What the life cycle of a claim needs to know of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// `apiVersion` for the owner reference.
    pub api_version: String,
    /// Unique id for the owner reference.
    pub uid: String,
    /// Whether the pool carries the annotation that pauses it.
    pub paused: bool,
    /// Whether the pool is being deleted.
    pub deleting: bool,
    /// Whether the claim holds an address of the pool already, bound or not: an earlier attempt allocated it. Such a
    /// claim is bound even while the pool is being deleted.
    pub holds: bool,
}

impl PoolView {
    /// What is to be known of a pool object, with the annotation that Cluster API pauses objects with.
    pub fn of<K: Resource<DynamicType = ()>>(pool: &K) -> Self {
        let meta = pool.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            uid: meta.uid.clone().unwrap_or_default(),
            paused: meta.annotations.as_ref().is_some_and(|all| all.contains_key(names::PAUSED_ANNOTATION)),
            deleting: meta.deletion_timestamp.is_some(),
            holds: false,
        }
    }
}

/// An address for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The address.
    pub address: IpAddr,
    /// Length of its subnet's prefix, in bits.
    pub prefix: u8,
    /// Gateway of its subnet.
    pub gateway: Option<IpAddr>,
}

/// How an address was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The claim may go.
    Now,
    /// The claim has to stay; ask again after this time.
    After(Duration),
}

/// Why a handler did not do what it was asked. Each kind decides condition, event and retry. Texts are for operators:
/// what is wrong, and what they can do.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The pool is not there. The claim waits to be woken.
    #[error("{0}")]
    PoolNotFound(String),
    /// The pool cannot serve claims. The claim waits to be woken.
    #[error("{0}")]
    PoolNotReady(String),
    /// The pool has nothing left. The claim waits to be woken.
    #[error("{0}")]
    PoolExhausted(String),
    /// Not yet; to be asked again after this time. No failure.
    #[error("{message}")]
    NotReady {
        /// What is being waited for.
        message: String,
        /// When to ask again.
        after: Duration,
    },
    /// The address of the existing IPAddress belongs to another claim.
    #[error("{0}")]
    DuplicateAddress(String),
    /// The existing IPAddress cannot be kept and has no right to be: remove it and ask again.
    #[error("{0}")]
    Discard(String),
    /// It failed this time; to be tried again by the retry policy.
    #[error("{message}")]
    Transient {
        /// What failed.
        message: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// It fails until somebody changes something.
    #[error("{0}")]
    Permanent(String),
}

impl From<CallError> for HandlerError {
    /// A call that failed may succeed next time.
    fn from(error: CallError) -> Self {
        Self::transient("the API server did not do what it was asked", error)
    }
}

impl HandlerError {
    /// A failure that may pass.
    pub fn transient(message: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Transient { message: message.into(), source: source.into() }
    }
}

/// What an adapter sets up before the claims' controller starts.
pub struct ProviderSetup<'a> {
    /// The program: client, flags, events, and what else is to run.
    pub manager: &'a mut Manager,
    /// The claims' controller, to watch more kinds and to wake claims.
    pub controller: &'a mut ControllerBuilder<IPAddressClaim, CompactClaim>,
    /// The contract kinds in the versions that the API server serves.
    pub contract: ContractClient,
    /// The addresses as their watch last saw them.
    pub addresses: Arc<AddressIndex>,
    /// Says when the claims have been listed for the first time.
    pub claims_synced: ReadinessGate,
    /// Says when the addresses have been listed for the first time.
    pub addresses_synced: ReadinessGate,
    pub(super) pools: Vec<PoolKind>,
    pub(super) address_observers: Vec<Arc<dyn Observer<IPAddress>>>,
    pub(super) claim_observers: Vec<Arc<dyn Observer<IPAddressClaim>>>,
}

impl ProviderSetup<'_> {
    /// Serves the claims for pools of a kind.
    pub fn serve(&mut self, kind: PoolKind) {
        self.pools.push(kind);
    }

    /// Tells an observer of every IPAddress, whoever's pool it is of.
    pub fn observe_addresses(&mut self, observer: Arc<dyn Observer<IPAddress>>) {
        self.address_observers.push(observer);
    }

    /// Tells an observer of every claim that this process serves. A claim that it no longer serves counts as deleted.
    pub fn observe_claims(&mut self, observer: Arc<dyn Observer<IPAddressClaim>>) {
        self.claim_observers.push(observer);
    }

    /// Wakes claims.
    pub fn waker(&self) -> Trigger<IPAddressClaim> {
        self.controller.waker()
    }

    /// The claims as their watch last saw them.
    pub fn claims(&self) -> Claims {
        Claims { store: self.controller.store(), selection: Selection::of(&self.manager.options) }
    }
}
