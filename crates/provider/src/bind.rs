//! Binding a claim to an address, in four steps:
//!
//! - A1: our finalizer is added to the claim.
//! - A2: the provider allocates an address.
//! - A3: the IPAddress is created under the name of the claim, complete with finalizer and owner
//!   references.
//! - A4: the status of the claim refers to the IPAddress. This commits the binding.
//!
//! Each write has the preconditions of what the previous step read. Each step may already be done,
//! by an earlier attempt or another process: an existing IPAddress with the name of the claim is
//! adopted.
//!
//! For a provider that frees addresses of claims that no longer exist, A1 and A2 run concurrently.
//! A3 waits for both.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::Action;
use capi_ipam_controller::{clock, finalizer, patch, trace_span, traces};
use kube::ResourceExt;
use tracing::{Span, debug, field, info};

use crate::adapter::{Allocation, ClaimHandler, Ensured, HandlerError, PoolView, ProviderAdapter};
use crate::api::{IPAddress, IPAddressClaim, conditions, names};
use crate::claim_conditions::ClaimConditions;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::index::owning_claim;
use crate::ip_address::{is_for, new_ip_address, repaired};
use crate::message_debounce::MessageDebounce;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler};
use crate::restore::{RestoreCheck, confirm_restored, end_wait, replaced_address};

/// How often in one attempt an IPAddress of another writer may appear under the name of the claim.
const MAX_ROUNDS: usize = 3;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    pub(super) async fn bind(
        &self,
        claim: &IPAddressClaim,
        pool: &PoolView,
        handler: &mut Guarded<A::Handler>,
        debounce: &mut MessageDebounce,
    ) -> Result<Action, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let had_finalizer = finalizer::is_set(claim, names::RELEASE_ADDRESS);
        let is_known = self.addresses.get(&namespace, &name).is_some();
        let begun = if had_finalizer || is_known || !self.options.allocate_before_finalizer {
            traces::in_span(trace_span!("finalizer"), self.add_finalizer(claim))
                .await?
                .map(|claim| (claim, None))
        } else {
            self.add_finalizer_and_allocate(claim, handler).await?
        };
        let Some((mut claim, mut early_allocation)) = begun else {
            return Ok(Action::AwaitChange);
        };
        let addresses = self.contract.addresses(&namespace);
        let mut existing = if is_known {
            addresses.get(&name).await?
        } else {
            None
        };
        if had_finalizer && existing.is_none() {
            claim = match self.check_restore(claim, debounce).await? {
                RestoreCheck::Wait(action) => return Ok(action),
                RestoreCheck::Serve(latest) => *latest,
            };
        }
        for _ in 0..MAX_ROUNDS {
            if let Some(leftover) = existing
                .as_ref()
                .filter(|address| address.metadata.deletion_timestamp.is_some())
            {
                self.remove_address(leftover).await?;
                return Ok(Action::Requeue(CONFLICT_RETRY_DELAY));
            }
            if let Some(address) = &existing
                && !is_for(address, &claim)
            {
                return Err(HandlerError::Permanent(name_conflict(address)).into());
            }
            // The IPAddress may belong to a newer claim with this name. It is a leftover only if
            // this claim still exists.
            if let Some(address) = &existing
                && owning_claim(address) != claim.metadata.uid.as_deref()
                && let Some(action) = self.clean_up_if_gone(&claim, handler).await?
            {
                return Ok(action);
            }
            let ensured = match early_allocation.take() {
                Some(allocated) => allocated?,
                None => handler.ensure_address(existing.as_ref()).await?,
            };
            let allocation = match ensured {
                Ensured::Allocated(allocation) => allocation,
                // Whatever the provider knows, a machine may use the address.
                Ensured::DeleteExisting(why) if claim.bound_address().is_some() => {
                    return Err(HandlerError::Permanent(format!(
                        "the provider wants to delete IPAddress {name} of a bound claim: {why}; this is a bug of the \
                         provider"
                    ))
                    .into());
                }
                Ensured::DeleteExisting(why) => {
                    info!(
                        namespace,
                        name, why, "deleting the IPAddress of an earlier claim"
                    );
                    if let Some(address) = existing.take() {
                        self.remove_address(&address).await?;
                    }
                    continue;
                }
            };
            Span::current().record("address", field::display(allocation.address));
            // The IPAddress of an earlier claim of this name: the claim has the address that it had
            // before.
            let is_restored = existing
                .as_ref()
                .is_some_and(|address| owning_claim(address) != claim.metadata.uid.as_deref());
            let write = match existing.take() {
                Some(address) => {
                    let adopt = self.adopt(&address, &claim, pool, &allocation);
                    traces::in_span(trace_span!("adopt_address"), adopt).await?
                }
                None => {
                    let create = self.create_address(&claim, pool, &allocation);
                    traces::in_span(trace_span!("create_address"), create).await?
                }
            };
            match write {
                AddressWrite::Owned => {
                    let commit = self.commit(&claim, &allocation, is_restored);
                    let committed = traces::in_span(trace_span!("commit"), commit).await;
                    return match committed {
                        // A patch of a claim that was just deleted can also fail with a conflict.
                        Err(error) if error.is_not_found() || error.is_conflict() => self
                            .clean_up_if_gone(&claim, handler)
                            .await?
                            .ok_or_else(|| error.into()),
                        ended => Ok(ended?),
                    };
                }
                AddressWrite::NameTaken(address) => existing = Some(*address),
            }
        }
        Ok(Action::Requeue(CONFLICT_RETRY_DELAY))
    }

    /// A1. Returns `None` if the claim does not exist, or is being deleted.
    async fn add_finalizer(
        &self,
        claim: &IPAddressClaim,
    ) -> Result<Option<IPAddressClaim>, ReconcileError> {
        if finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            return Ok(Some(claim.clone()));
        }
        let namespace = claim.namespace().unwrap_or_default();
        let claims = self.contract.claims(&namespace);
        let mut desired = claim.clone();
        desired
            .finalizers_mut()
            .push(names::RELEASE_ADDRESS.to_owned());
        end_wait(self.contract.ipam, &mut desired, clock::now());
        if claim.owner_references().is_empty() {
            // Otherwise `clusterctl move` moves its pool, but neither the claim nor its IPAddress.
            desired
                .labels_mut()
                .insert(names::MOVE_LABEL.to_owned(), String::new());
        }
        match patch::write(&claims, claim, &desired).await {
            Ok(written) => {
                written.iter().for_each(|claim| self.expect_write(claim));
                Ok(written)
            }
            Err(error) if error.is_not_found() => Ok(None),
            // The API server rejects a new finalizer on an object that is being deleted; a webhook
            // may reject it as well.
            Err(error) if error.is_invalid() || error.is_forbidden() => {
                match claims.get(&claim.name_any()).await? {
                    Some(found) if found.metadata.deletion_timestamp.is_none() => {
                        Err(HandlerError::transient(
                            "the API server rejected our finalizer on the claim",
                            error,
                        )
                        .into())
                    }
                    _ => Ok(None),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A1 and A2 concurrently. Returns `None` if the claim does not exist, in which case its
    /// address is released, or if it is being deleted.
    async fn add_finalizer_and_allocate(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Option<(IPAddressClaim, Option<AllocationResult>)>, ReconcileError> {
        let add = traces::in_span(trace_span!("finalizer"), self.add_finalizer(claim));
        let (finalized, allocated) = tokio::join!(add, handler.ensure_address(None));
        // Without our finalizer, no event may report that the claim was deleted meanwhile.
        if !matches!(finalized, Ok(Some(_)))
            && self.clean_up_if_gone(claim, handler).await?.is_some()
        {
            return Ok(None);
        }
        Ok(finalized?.map(|claim| (claim, Some(allocated))))
    }

    /// A3 for a claim without an IPAddress.
    async fn create_address(
        &self,
        claim: &IPAddressClaim,
        pool: &PoolView,
        allocation: &Allocation,
    ) -> Result<AddressWrite, ReconcileError> {
        let addresses = self
            .contract
            .addresses(&claim.namespace().unwrap_or_default());
        let desired = new_ip_address(self.contract.ipam, claim, pool, allocation);
        match self
            .pending_creates
            .track(claim, addresses.create(&desired))
            .await
        {
            Ok(created) => {
                self.addresses.insert(&created);
                Ok(AddressWrite::Owned)
            }
            Err(error) if error.is_already_exists() || error.outcome_is_unknown() => {
                match addresses.get(&claim.name_any()).await? {
                    Some(address) => Ok(AddressWrite::NameTaken(Box::new(address))),
                    // It does not exist, or not yet: the next attempt adopts it.
                    None => Err(error.into()),
                }
            }
            Err(error) if error.is_namespace_terminating() => Err(HandlerError::PoolNotReady(
                "the claim's namespace is being deleted".to_owned(),
            )
            .into()),
            Err(error) if error.is_invalid() || error.is_forbidden() => {
                Err(rejected("the API server rejected the IPAddress", error).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A3 for a claim with an IPAddress of the right address: repairs owner references, finalizer
    /// and labels.
    async fn adopt(
        &self,
        address: &IPAddress,
        claim: &IPAddressClaim,
        pool: &PoolView,
        allocation: &Allocation,
    ) -> Result<AddressWrite, ReconcileError> {
        let addresses = self
            .contract
            .addresses(&claim.namespace().unwrap_or_default());
        let desired = repaired(self.contract.ipam, address, claim, pool, allocation);
        let written = match patch::write(&addresses, address, &desired).await {
            Err(error) if error.is_invalid() || error.is_forbidden() => {
                return Err(
                    rejected("the API server rejected the change of the IPAddress", error).into(),
                );
            }
            written => written?,
        };
        if let Some(written) = written {
            debug!(claim = claim.name_any(), "adopted existing IPAddress");
            self.addresses.insert(&written);
        } else {
            self.addresses.insert(address);
        }
        Ok(AddressWrite::Owned)
    }

    /// A4. Commits the binding. `is_restored` is whether the IPAddress is that of an earlier claim
    /// of this name.
    async fn commit(
        &self,
        claim: &IPAddressClaim,
        allocation: &Allocation,
        is_restored: bool,
    ) -> Result<Action, CallError> {
        let version = self.contract.ipam;
        let status = ClaimConditions::bound(claim, allocation);
        let mut desired = status.bind(version, claim, clock::now());
        if is_restored || replaced_address(version, claim).is_none() {
            confirm_restored(version, &mut desired);
        }
        let namespace = claim.namespace().unwrap_or_default();
        if let Some(written) =
            patch::write(&self.contract.claims(&namespace), claim, &desired).await?
        {
            self.expect_write(&written);
            debug!(namespace, claim = claim.name_any(), address = %allocation.address, "claim is bound");
            if claim.bound_address().is_none() {
                self.metrics.record_bind(claim);
            }
            self.events
                .normal(claim, &version, status.reason, "Allocate", &status.message);
            if let Some(replaced) = replaced_address(version, &written) {
                let reason = replaced
                    .reason
                    .as_deref()
                    .unwrap_or(conditions::RESTORED_WITHOUT_ADDRESS);
                let text = replaced.message.as_deref().unwrap_or_default();
                self.events.warning(
                    claim,
                    &version,
                    reason,
                    "Allocate",
                    &format!("{}: {text}", status.message),
                );
            }
        }
        Ok(Action::AwaitChange)
    }
}

/// The result of A2.
type AllocationResult = Result<Ensured, HandlerError>;

/// The result of A3.
enum AddressWrite {
    /// The IPAddress exists, with the right address and this claim as owner.
    Owned,
    /// Another IPAddress exists under the name.
    NameTaken(Box<IPAddress>),
}

fn rejected(message: &str, error: CallError) -> HandlerError {
    let hint = if error.is_owner_kind_unknown() {
        ", which lasts up to 30 s after the start of the API server"
    } else {
        ""
    };
    HandlerError::transient(format!("{message}{hint}"), error)
}

fn name_conflict(address: &IPAddress) -> String {
    let (pool, claim) = (&address.spec.pool_ref, &address.spec.claim_ref.name);
    format!(
        "an IPAddress with the name of the claim already exists for claim {claim} and {} {}; delete the IPAddress or \
         rename the claim",
        pool.kind, pool.name
    )
}
