//! The traits that a provider implements, and the types that they exchange with the framework.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::BoxError;
use capi_ipam_controller::ready::NotReady;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};

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
    /// Whether a pool has no namespace. Otherwise claims use pools of their own namespace.
    pub is_cluster_scoped: bool,
}

impl PoolKind {
    /// Returns the kind of a namespaced type.
    ///
    /// ```
    /// use capi_ipam_provider::advanced::PoolKind;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// assert_eq!(PoolKind::of::<ConfigMap>(), PoolKind::new("", "ConfigMap"));
    /// ```
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self::new(K::group(&()), K::kind(&()))
    }

    /// Creates a namespaced kind from its API group and its name.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
            is_cluster_scoped: false,
        }
    }

    /// The same kind, whose pools have no namespace.
    ///
    /// ```
    /// use capi_ipam_provider::advanced::PoolKind;
    ///
    /// let pools = PoolKind::new("example.com", "GlobalPool").cluster_scoped();
    /// assert!(pools.is_cluster_scoped);
    /// ```
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.is_cluster_scoped = true;
        self
    }

    /// Returns whether a reference names a pool of this kind.
    pub fn matches(&self, reference: &PoolReference) -> bool {
        self.group == reference.api_group && self.kind == reference.kind
    }

    /// Returns whether an owner, in any version, is a pool of this kind.
    pub(super) fn is_kind_of(&self, owner: &OwnerReference) -> bool {
        let version = owner.api_version.split_once('/');
        let group = version.map_or("", |(group, _)| group);
        self.group == group && self.kind == owner.kind
    }
}

/// A provider: creates a [`ClaimHandler`] for each reconcile of a claim.
///
/// ```no_run
/// use std::net::IpAddr;
/// use std::process::ExitCode;
/// use std::sync::Arc;
///
/// use capi_ipam_provider::advanced::{ClaimHandler, Ensured, PoolKind, PoolView, ProviderAdapter};
/// use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
/// use capi_ipam_provider::controller::client::ResourceClient;
/// use capi_ipam_provider::prelude::*;
/// use kube::{Api, Client, CustomResource, ResourceExt};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// # mod ipam {
/// #     pub async fn reserve(_: &str, _: &str, _: Option<&str>) -> Result<std::net::IpAddr, std::io::Error> {
/// #         Ok([10, 0, 0, 5].into())
/// #     }
/// #     pub async fn release(_: &str) -> Result<(), std::io::Error> {
/// #         Ok(())
/// #     }
/// # }
/// /// A pool of the IPAM system.
/// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "ExternalPool", namespaced)]
/// struct ExternalPoolSpec {
///     network: String,
///     prefix: u8,
/// }
///
/// struct Adapter {
///     client: Client,
/// }
///
/// impl ProviderAdapter for Adapter {
///     type Handler = Handler;
///
///     fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> Handler {
///         let namespace = claim.namespace().unwrap_or_default();
///         let pools = ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &());
///         Handler { pools, claim, pool: None }
///     }
/// }
///
/// struct Handler {
///     pools: ResourceClient<ExternalPool>,
///     claim: Arc<IPAddressClaim>,
///     pool: Option<ExternalPool>,
/// }
///
/// impl ClaimHandler for Handler {
///     async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
///         let name = &self.claim.spec.pool_ref.name;
///         let pool = self.pools.get(name).await?;
///         let missing = || HandlerError::PoolNotFound(format!("ExternalPool {name} does not exist; create it"));
///         Ok(PoolView::of(self.pool.insert(pool.ok_or_else(missing)?)))
///     }
///
///     async fn ensure_address(&mut self, existing: Option<&IPAddress>) -> Result<Ensured, HandlerError> {
///         let pool = self.pool.as_ref().ok_or_else(|| HandlerError::Permanent("the pool is missing".to_owned()))?;
///         let claim = Claim::of(&self.claim)?;
///         let wanted = existing.map(|address| address.spec.address.as_str());
///         // Idempotent: returns the same address for the same owner.
///         let address: IpAddr = ipam::reserve(&pool.spec.network, &claim.uid.to_string(), wanted)
///             .await
///             .map_err(|error| HandlerError::transient("cannot reserve an address", error))?;
///         Ok(Allocation::new(address, pool.spec.prefix).into())
///     }
///
///     async fn release_address(&mut self) -> Result<Released, HandlerError> {
///         let claim = Claim::of(&self.claim)?;
///         ipam::release(&claim.uid.to_string())
///             .await
///             .map_err(|error| HandlerError::transient("cannot release the address", error))?;
///         Ok(Released::Now)
///     }
/// }
///
/// fn main() -> ExitCode {
///     manager::main(Identity::new("external-ipam", env!("CARGO_PKG_VERSION")), async |manager| {
///         ClaimReconciler::builder(manager)
///             .pools(PoolKind::new("example.com", "ExternalPool"))
///             .build(async |setup| Ok(Adapter { client: setup.manager.client.clone() }))
///             .await
///     })
/// }
/// ```
pub trait ProviderAdapter: Send + Sync + 'static {
    /// The type that handles one claim during one reconcile.
    type Handler: ClaimHandler;

    /// Creates the handler of a claim. Called once per reconcile; must not block. The handler is
    /// dropped when the reconcile ends, whatever its result.
    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> Self::Handler;

    /// Called before each reconcile of a claim without an address and without an IPAddress, in the
    /// order in which these reconciles start: of the claims of a namespace, that in which the watch
    /// has shown them. A provider can allocate addresses in this order, although the handlers run
    /// concurrently. The returned value is dropped when the reconcile has ended. Must not block.
    fn starting(&self, _claim: &IPAddressClaim) -> Option<Box<dyn Any + Send>> {
        None
    }
}

/// Allocates and releases the address of one claim. Lives for one reconcile.
///
/// The methods may wait for the provider's backend. Each must end in bounded time and must be
/// idempotent: it may be called again after any failure, also by another process.
pub trait ClaimHandler: Send {
    /// Looks up the pool of the claim. Called before the other two methods. If it fails while the
    /// claim is being deleted, [`ClaimHandler::release_address`] is called nevertheless.
    fn fetch_pool(&mut self) -> impl Future<Output = Result<PoolView, HandlerError>> + Send;

    /// Allocates an address for the claim. Repeated calls for the same claim return the same
    /// address.
    ///
    /// `existing` is the IPAddress with the claim's name, as just read, whose address must be kept.
    /// It comes from an earlier attempt, an upgrade or a restore, or a user created it. Return
    /// [`Ensured::DeleteExisting`] if it is a leftover whose address cannot be kept.
    fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> impl Future<Output = Result<Ensured, HandlerError>> + Send;

    /// Called once the claim is bound, with the result of [`ClaimHandler::ensure_address`], for each
    /// IPAddress that the claim gets. Not called again while the claim keeps it, also not after a
    /// restart. For a record of allocations: what happens here must not block.
    fn address_bound(&mut self, _allocation: &Allocation, _origin: AddressOrigin) {}

    /// Called with the IPAddress of the claim, in its last state, when the reconciler has deleted
    /// it and before [`ClaimHandler::release_address`]. A provider that finds what it has allocated
    /// by the address can use it, also if its own index lags behind. Not called if the IPAddress
    /// was deleted by an earlier attempt or by others.
    fn address_deleted(&mut self, _address: &IPAddress) {}

    /// Releases the address of the claim. Called once the IPAddress no longer exists, also if none
    /// ever existed, and possibly again after success.
    fn release_address(&mut self) -> impl Future<Output = Result<Released, HandlerError>> + Send;

    /// Returns whether the address of a bound claim is still allocated to the claim. Changes
    /// nothing.
    ///
    /// Called for each bound claim once in [`ClaimOptions::verify_interval`], if that is set, after
    /// [`ClaimHandler::fetch_pool`]. If it returns `false`, an event reports it, and
    /// [`ClaimHandler::ensure_address`] is called, which allocates the address again or reports why
    /// that is impossible.
    fn verify(
        &mut self,
        _address: &IPAddress,
    ) -> impl Future<Output = Result<bool, HandlerError>> + Send {
        std::future::ready(Ok(true))
    }
}

/// Where the IPAddress comes from that a claim was bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressOrigin {
    /// It was created for a claim without an address.
    Created,
    /// It was created for a bound claim whose IPAddress somebody had deleted.
    Recreated,
    /// It existed already: [`ClaimHandler::ensure_address`] has kept its address.
    Existing,
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
    /// Whether an earlier attempt already allocated an address of the pool to the claim. Such a
    /// claim is bound even while the pool is being deleted.
    pub holds_address: bool,
    /// After which time the address of a claim that is being deleted is released although other
    /// controllers have not removed their finalizers from the claim. Such a finalizer means that a
    /// machine may still use the address. `None`: never.
    pub release_terminating_after: Option<Duration>,
}

impl PoolView {
    /// Creates the view of a pool object. [`Self::holds_address`] is `false`, and
    /// [`Self::release_terminating_after`] is `None`.
    pub fn of<K: Resource<DynamicType = ()>>(pool: &K) -> Self {
        let meta = pool.meta();
        Self {
            api_version: K::api_version(&()).into_owned(),
            uid: meta.uid.clone().unwrap_or_default(),
            paused: is_paused(meta),
            deleting: meta.deletion_timestamp.is_some(),
            holds_address: false,
            release_terminating_after: None,
        }
    }
}

/// An address that is allocated to a claim; becomes the IPAddress of the claim.
///
/// ```
/// use capi_ipam_provider::prelude::Allocation;
///
/// let allocation = Allocation {
///     gateway: Some([10, 0, 0, 1].into()),
///     labels: [("example.com/vlan".to_owned(), "120".to_owned())].into(),
///     ..Allocation::new([10, 0, 0, 5], 24)
/// };
/// assert_eq!((allocation.address.to_string(), allocation.prefix), ("10.0.0.5".to_owned(), 24));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The allocated address.
    pub address: IpAddr,
    /// Prefix length of the subnet of the address, in bits.
    pub prefix: u8,
    /// Gateway of the subnet of the address, if it has one.
    pub gateway: Option<IpAddr>,
    /// Labels of the IPAddress, such as the id of the address in the backend. The labels of the
    /// Cluster API contract have precedence. Other labels of an existing IPAddress are kept.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the IPAddress. Other annotations of an existing IPAddress are kept.
    pub annotations: BTreeMap<String, String>,
    /// Whether a user has reserved the address for the claim. A claim that was restored without its
    /// IPAddress does not report then that its machine may have another address.
    pub is_promised: bool,
}

impl Allocation {
    /// Creates an allocation without gateway, labels and annotations.
    pub fn new(address: impl Into<IpAddr>, prefix: u8) -> Self {
        Self {
            address: address.into(),
            prefix,
            gateway: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            is_promised: false,
        }
    }

    /// Checks that the address is the one of the existing IPAddress, or that prefix and gateway of
    /// a new one belong to its family.
    pub(crate) fn validate(&self, existing: Option<&IPAddress>) -> Result<(), HandlerError> {
        let Self {
            address,
            prefix,
            gateway,
            ..
        } = self;
        let problem = if let Some(existing) = existing {
            let present = existing.spec.address.parse::<IpAddr>();
            if !present.is_ok_and(|present| present.to_canonical() != address.to_canonical()) {
                return Ok(());
            }
            format!(
                ", but IPAddress {} has {} already",
                existing.name_any(),
                existing.spec.address
            )
        } else if *prefix > max_prefix(*address) {
            format!(
                " with prefix length {prefix}, which is longer than {}",
                max_prefix(*address)
            )
        } else if let Some(gateway) =
            gateway.filter(|gateway| gateway.is_ipv4() != address.is_ipv4())
        {
            format!(" with gateway {gateway}, which is of another family")
        } else {
            return Ok(());
        };
        Err(HandlerError::Permanent(format!(
            "the provider allocated {address}{problem}; this is a bug of the provider"
        )))
    }
}

fn max_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The result of [`ClaimHandler::ensure_address`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensured {
    /// The claim has this address: the one of the existing IPAddress, if there is one.
    Allocated(Allocation),
    /// The existing IPAddress is a leftover whose address cannot be kept, for this reason. It is
    /// deleted, and [`ClaimHandler::ensure_address`] is called without it. The IPAddress of a bound
    /// claim is never deleted: that is reported as `AllocationFailed`.
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
    /// The release is in progress; the claim keeps its finalizer and is reconciled again after this
    /// time.
    After(Duration),
}

/// Why a handler did not return an address or a pool. The variant determines condition, event and
/// retry. The message is shown to users: it says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The pool does not exist. Reported as `PoolNotReady`; retried after
    /// [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolNotFound(String),
    /// The pool cannot serve claims. Reported as `PoolNotReady`; retried after
    /// [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolNotReady(String),
    /// The pool has no free address. Reported as `PoolExhausted`; retried after
    /// [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolExhausted(String),
    /// The claim must not use the pool. Reported as `PoolNotAllowed`; retried after
    /// [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    PoolNotAllowed(String),
    /// The namespace or Cluster of the claim has as many addresses of the pool as it may have.
    /// Reported as `QuotaExceeded`; retried after [`ClaimOptions::resync_interval`].
    #[error("{0}")]
    QuotaExceeded(String),
    /// The claim has to wait for another reason of the provider. Reported with this reason; retried
    /// after [`ClaimOptions::resync_interval`].
    #[error("{message}")]
    Waiting {
        /// The reason of the condition, in CamelCase.
        reason: &'static str,
        /// What the claim waits for.
        message: String,
    },
    /// The provider is not ready to answer, for example because its caches are not filled yet. Not
    /// a failure; retried after a delay. Reported as `PoolNotReady` if it lasts for more than 5
    /// seconds.
    #[error("{message}")]
    RetryAfter {
        /// What the provider waits for.
        message: String,
        /// The delay before the next attempt.
        after: Duration,
    },
    /// The address of the existing IPAddress is allocated to another claim. Reported as
    /// `DuplicateAddress`.
    #[error("{0}")]
    DuplicateAddress(String),
    /// Another writer was faster, and the next attempt reads what it wrote. Not a failure; retried
    /// within a fraction of a second, and reported only after ten attempts.
    #[error("{0}")]
    Conflict(String),
    /// The attempt failed and may succeed later. Retried with exponential backoff; reported only if
    /// it keeps failing.
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
    /// A conflict is [`HandlerError::Conflict`]; any other failed request is
    /// [`HandlerError::Transient`].
    fn from(error: CallError) -> Self {
        if error.is_conflict() {
            return Self::Conflict(error_chain(&error));
        }
        Self::transient("request to the API server failed", error)
    }
}

impl From<NotReady> for HandlerError {
    /// [`HandlerError::RetryAfter`]: to wait for a dependency is no failure.
    fn from(dependency: NotReady) -> Self {
        Self::RetryAfter {
            message: dependency.to_string(),
            after: dependency.delay(),
        }
    }
}

impl HandlerError {
    /// Creates a [`HandlerError::Transient`] from the operation that failed and the cause.
    pub fn transient(message: impl Into<String>, source: impl Into<BoxError>) -> Self {
        Self::Transient {
            message: message.into(),
            source: source.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_allocations_are_rejected() {
        let problem = |allocation: Allocation, existing: Option<&str>| {
            let existing = existing.map(|address| {
                let mut existing = IPAddress::default();
                existing.metadata.name = Some("a".to_owned());
                existing.spec.address = address.to_owned();
                existing
            });
            allocation
                .validate(existing.as_ref())
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let (old, new) = (
            Allocation::new([10, 0, 0, 5], 24),
            Allocation::new([10, 0, 0, 5], 64),
        );
        assert_eq!(
            problem(old.clone(), None) + &problem(old.clone(), Some("10.0.0.5")),
            ""
        );
        let text = "the provider allocated 10.0.0.5, but IPAddress a has 10.0.0.6 already; this is a bug of the provider";
        assert_eq!(problem(old.clone(), Some("10.0.0.6")), text);
        assert!(problem(new, None).contains("with prefix length 64, which is longer than 32"));
        let gateway = Some("fd00::1".parse().unwrap());
        assert!(
            problem(Allocation { gateway, ..old }, None)
                .contains("gateway fd00::1, which is of another family")
        );
    }
}
