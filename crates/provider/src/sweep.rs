//! The sweep: deletes IPAddresses whose claim no longer exists, and releases their addresses.
//!
//! They remain when somebody removes the finalizer of a claim, or when a restore contains them
//! without their claim. The sweep is deliberately slow: an IPAddress must have no claim in two
//! passes and for a grace period, and then according to live reads; its deletion has the version
//! that was read as precondition; and only a small part of a pool is released in one pass.
//!
//! Every process sweeps all namespaces, also those that it does not manage: it watches the claims
//! of all of them, and live reads decide.

mod lasting;
mod suspects;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::controller::Action;
use capi_ipam_controller::finalizer;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::trace_span;
use kube::ResourceExt;
use tracing::{Instrument, debug, info, warn};

pub use self::lasting::Lasting;
pub use self::suspects::Suspects;
use crate::adapter::{ClaimHandler, HandlerError, ProviderAdapter};
use crate::api::{IPAddress, IPAddressClaim, PoolReference, conditions, names};
use crate::claim_cache::ClaimCache;
use crate::error::ReconcileError;
use crate::index::{AddressRecord, owning_claim};
use crate::reconciler::ClaimReconciler;

/// The maximum number of IPAddresses of a pool that are deleted in one pass, unless a twentieth of
/// them is more.
const MAX_DELETED_PER_PASS: usize = 5;

/// How IPAddresses without a claim are swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepOptions {
    /// The time between two passes. Default: one minute.
    pub interval: Duration,
    /// How long an IPAddress must have no claim before it is deleted. Default: one minute.
    pub grace: Duration,
    /// Only report IPAddresses without a claim, by an event, and delete none. Default: `false`.
    pub report_only: bool,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(1),
            grace: Duration::from_mins(1),
            report_only: false,
        }
    }
}

/// Who created an IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A provider, for a claim: it has the finalizer of the provider, or a claim as owner.
    Provider,
    /// A user: it has neither.
    Manual,
}

impl Origin {
    /// `None` if that is unknown: it is being deleted and no longer has the finalizer of the
    /// provider.
    fn of(is_protected: bool, is_deleted: bool, has_owner: bool) -> Option<Self> {
        match (is_protected, is_deleted, has_owner) {
            (true, ..) | (false, false, true) => Some(Self::Provider),
            (false, true, _) => None,
            (false, false, false) => Some(Self::Manual),
        }
    }

    fn of_record(record: &AddressRecord) -> Option<Self> {
        Self::of(record.protected, record.deleting, record.claim.is_some())
    }

    fn of_address(address: &IPAddress) -> Option<Self> {
        let is_protected = finalizer::is_set(address, names::PROTECT_ADDRESS);
        Self::of(
            is_protected,
            address.metadata.deletion_timestamp.is_some(),
            owning_claim(address).is_some(),
        )
    }
}

/// The sweep of one provider.
pub(super) struct Sweep<A: ProviderAdapter> {
    reconciler: Arc<ClaimReconciler<A>>,
    claims: ClaimCache,
    options: SweepOptions,
    suspects: Suspects<NamespacedName>,
    /// IPAddresses without a claim that are reported and kept.
    reported: Lasting<NamespacedName>,
    /// Deleted IPAddresses whose addresses could not be released yet, and their former claims.
    unreleased: Vec<(Arc<IPAddressClaim>, IPAddress)>,
}

impl<A: ProviderAdapter> BackgroundTask for Sweep<A> {
    async fn run_once(&mut self) -> NextRun {
        self.pass()
            .instrument(trace_span!("sweep", what = "ipaddresses"))
            .await;
        NextRun::After(self.options.interval)
    }
}

impl<A: ProviderAdapter> Sweep<A> {
    pub(super) fn new(
        reconciler: Arc<ClaimReconciler<A>>,
        claims: ClaimCache,
        options: SweepOptions,
    ) -> Self {
        let (suspects, reported) = (Suspects::default(), Lasting::default());
        Self {
            reconciler,
            claims,
            options,
            suspects,
            reported,
            unreleased: Vec::new(),
        }
    }

    async fn pass(&mut self) {
        for (claim, address) in std::mem::take(&mut self.unreleased) {
            self.release(claim, address).await;
        }
        let report_only = self.options.report_only;
        let (kept, abandoned): (Vec<_>, Vec<_>) = self
            .unclaimed()
            .into_iter()
            .partition(|(_, origin)| report_only || *origin == Origin::Manual);
        // One that a provider created has no finalizer for a moment before it is deleted.
        for key in self
            .reported
            .update(kept.into_iter().map(|(key, _)| key).collect())
        {
            if let Err(error) = self.report(&key).await {
                debug!(
                    ?key,
                    error = error_chain(&error),
                    "cannot read an IPAddress without a claim"
                );
            }
        }
        let abandoned = abandoned.into_iter().map(|(key, _)| key);
        let (mut counts, mut postponed) = (HashMap::new(), 0_usize);
        for key in self
            .suspects
            .update(abandoned, self.options.grace, Instant::now())
        {
            if self
                .delete(&key, &mut counts)
                .await
                .unwrap_or_else(|error| {
                    debug!(
                        ?key,
                        error = error_chain(&error),
                        "cannot sweep an IPAddress, will retry"
                    );
                    true
                })
            {
                self.suspects.remove(&key);
            } else {
                postponed = postponed.saturating_add(1);
            }
        }
        if postponed > 0 {
            warn!(
                count = postponed,
                "too many IPAddresses without a claim for one pass; the others are deleted later"
            );
        }
    }

    /// The IPAddresses of this provider for which no claim of their name is cached.
    fn unclaimed(&self) -> Vec<(NamespacedName, Origin)> {
        let pools = &self.reconciler.filter.pools;
        self.reconciler
            .addresses
            .filter_map(|(namespace, name, record)| {
                let is_ours = pools.iter().any(|kind| kind.matches(&record.pool));
                let origin = Origin::of_record(record).filter(|_| is_ours)?;
                let is_unclaimed = self.claims.get(namespace, name).is_none();
                is_unclaimed.then(|| (NamespacedName::new(namespace, name), origin))
            })
    }

    /// Reports an IPAddress without a claim by an event.
    async fn report(&self, address: &NamespacedName) -> Result<(), ReconcileError> {
        let Self {
            reconciler, claims, ..
        } = self;
        let (namespace, name) = address.parts();
        if !claims.selection.includes_namespace(Some(namespace)) {
            return Ok(());
        }
        let Some(address) = reconciler.contract.addresses(namespace).get(name).await? else {
            return Ok(());
        };
        let value = &address.spec.address;
        let message = format!(
            "no IPAddressClaim {name} exists: {value} counts as in use and is not allocated; delete this IPAddress to \
             release it"
        );
        warn!(
            namespace,
            address = name,
            value,
            "IPAddress has no claim and is kept"
        );
        reconciler.events.warning(
            &address,
            &reconciler.contract.ipam,
            conditions::NO_CLAIM,
            "Inspect",
            &message,
        );
        Ok(())
    }

    /// Deletes an IPAddress if no claim of its name exists. Returns `false` if as many IPAddresses
    /// of its pool as allowed are deleted already, according to `counts`.
    async fn delete(
        &mut self,
        address: &NamespacedName,
        counts: &mut HashMap<(String, PoolReference), usize>,
    ) -> Result<bool, ReconcileError> {
        let reconciler = Arc::clone(&self.reconciler);
        let (namespace, name) = address.parts();
        let found = reconciler.contract.addresses(namespace).get(name).await?;
        let is_abandoned = |found: &IPAddress| Origin::of_address(found) == Some(Origin::Provider);
        let Some(address) = found.filter(is_abandoned) else {
            return Ok(true);
        };
        let pool = &address.spec.pool_ref;
        let count = counts
            .entry((namespace.to_owned(), pool.clone()))
            .or_default();
        if *count >= MAX_DELETED_PER_PASS.max(reconciler.addresses.count(namespace, pool) / 20) {
            return Ok(false);
        }
        if let Some(cluster) = address.labels().get(names::CLUSTER_NAME_LABEL)
            && reconciler
                .contract
                .clusters(namespace)
                .get(cluster)
                .await?
                .is_some_and(|cluster| cluster.is_paused())
        {
            return Ok(true);
        }
        let claim = Arc::new(former_claim(&address));
        let mut pool = reconciler.handler_of(&claim).fetch_pool().await;
        if matches!(pool, Err(HandlerError::RetryAfter { .. })) {
            // A handler may report a pool that is not cached as missing only at the second lookup.
            pool = reconciler.handler_of(&claim).fetch_pool().await;
        }
        match pool {
            Ok(pool) if pool.paused => return Ok(true),
            Ok(_) | Err(HandlerError::PoolNotFound(_) | HandlerError::PoolNotReady(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if reconciler
            .contract
            .claims(namespace)
            .get(name)
            .await?
            .is_some()
        {
            return Ok(true);
        }
        // With the version that was read: a claim may have been created since, and have adopted the
        // IPAddress.
        if reconciler.remove_address(&address).await? {
            *count = count.saturating_add(1);
            let value = &address.spec.address;
            info!(
                namespace,
                address = name,
                value,
                "deleted an IPAddress without a claim"
            );
            reconciler.metrics.orphans_freed("ipaddresses").inc();
            let message = format!(
                "no IPAddressClaim {name} exists: deleted the IPAddress and released {value}"
            );
            reconciler.events.normal(
                &address,
                &reconciler.contract.ipam,
                conditions::ORPHAN_FREED,
                "Sweep",
                &message,
            );
            // At once: if the process ends before, the address is left to other repairs.
            if claim.metadata.uid.is_some() {
                self.release(claim, address).await;
            }
        }
        Ok(true)
    }

    /// Releases the address of a deleted IPAddress. A failed release is repeated in the next pass.
    async fn release(&mut self, claim: Arc<IPAddressClaim>, address: IPAddress) {
        let mut handler = self.reconciler.handler_of(&claim);
        handler.address_deleted(&address);
        match self.reconciler.clean_up_if_gone(&claim, &mut handler).await {
            Ok(None | Some(Action::AwaitChange)) => {}
            Ok(Some(Action::Requeue(_))) => self.unreleased.push((claim, address)),
            Err(error) => {
                let claim_name = claim.name_any();
                debug!(
                    claim = claim_name,
                    error = error_chain(&error),
                    "cannot release an address, will retry"
                );
                self.unreleased.push((claim, address));
            }
        }
    }
}

/// The claim for which an IPAddress was created, as far as the IPAddress shows it.
fn former_claim(address: &IPAddress) -> IPAddressClaim {
    let mut claim = IPAddressClaim::default();
    (claim.metadata.namespace, claim.metadata.name) =
        (address.namespace(), Some(address.name_any()));
    claim.metadata.uid = owning_claim(address).map(str::to_owned);
    claim.spec.pool_ref = address.spec.pool_ref.clone();
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_in_deletion_without_finalizer_has_no_known_origin() {
        assert_eq!(Origin::of(true, true, false), Some(Origin::Provider));
        assert_eq!(Origin::of(false, false, true), Some(Origin::Provider));
        assert_eq!(Origin::of(false, false, false), Some(Origin::Manual));
        assert_eq!(Origin::of(false, true, true), None);
    }
}
