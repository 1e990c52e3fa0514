//! Releasing the address of a claim, in three steps:
//!
//! - R1: our finalizer is removed from the IPAddress, and the IPAddress is deleted.
//! - R2: the provider releases the address. This is safe because the address can no longer be read
//!   from the cluster.
//! - R3: our finalizer is removed from the claim. The API server must have confirmed before that no
//!   IPAddress exists: in its response to the deletion or, if a pending creation may still be
//!   applied, in its response to a read.

use std::time::Instant;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::Action;
use capi_ipam_controller::{finalizer, trace_span, traces};
use kube::ResourceExt;
use tracing::debug;

use crate::adapter::{ClaimHandler, ProviderAdapter, Released};
use crate::api::{IPAddress, IPAddressClaim, names};
use crate::claim_conditions::ClaimConditions;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::index::owning_claim;
use crate::ip_address::is_for;
use crate::message_debounce::MessageDebounce;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler};

/// How often the clean-up of a deleted claim is attempted while its IPAddress keeps changing.
const MAX_CLEAN_UP_ATTEMPTS: usize = 5;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Releases the address of a claim that is being deleted. `early` is the status of a claim that
    /// has finalizers of other controllers.
    pub(super) async fn release(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
        debounce: &mut MessageDebounce,
        early: Option<&ClaimConditions>,
    ) -> Result<Action, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let addresses = self.contract.addresses(&namespace);
        let delete = self.remove_at_known_version(claim, handler);
        let mut removed = traces::in_span(trace_span!("delete_address"), delete).await?;
        if removed.is_none()
            && let Some(address) = addresses
                .get(&name)
                .await?
                .filter(|address| is_for(address, claim))
        {
            // The IPAddress of a newer claim is kept: another manager may have released this claim
            // long ago. That of an older claim with this name is deleted, since two claims with one
            // name never exist at the same time.
            if owning_claim(&address) != claim.metadata.uid.as_deref()
                && let Some(action) = self.clean_up_if_gone(claim, handler).await?
            {
                return Ok(action);
            }
            let delete = self.remove_address(&address);
            removed = Some(traces::in_span(trace_span!("delete_address"), delete).await?);
            handler.address_deleted(&address);
        }
        if removed == Some(false) {
            debug!(
                namespace,
                name, "IPAddress still has finalizers of other controllers"
            );
            let status = early.map_or_else(
                || ClaimConditions::blocked_by_address_finalizers(claim),
                |early| early.clone().waiting_for_address(claim),
            );
            return self
                .report_blocked_deletion(claim, &status, debounce, self.options.resync_interval)
                .await;
        }
        if let Released::After(wait) = handler.release_address().await? {
            return Ok(Action::Requeue(wait));
        }
        if self.pending_creates.may_still_apply(claim, Instant::now())
            && addresses
                .get(&name)
                .await?
                .is_some_and(|address| is_for(&address, claim))
        {
            return Ok(Action::Requeue(CONFLICT_RETRY_DELAY));
        }
        if !finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            return Ok(Action::AwaitChange);
        }
        if let Some(status) = early
            && self.complete_report(claim, status).await?
        {
            return Ok(Action::Requeue(CONFLICT_RETRY_DELAY));
        }
        match traces::in_span(trace_span!("finalizer"), self.remove_finalizer(claim)).await {
            // Its other finalizers keep the claim.
            Ok(written) if early.is_some() => self.expect_write(&written),
            Ok(_) => self.expect_deleted(claim),
            Err(error) if error.is_not_found() => self.expect_deleted(claim),
            Err(error) => return Err(error.into()),
        }
        debug!(namespace, claim = name, "released the address of the claim");
        Ok(Action::AwaitChange)
    }

    /// R3. A claim of which the cache dropped annotations is read first, since removing the last
    /// finalizer replaces the object.
    async fn remove_finalizer(&self, claim: &IPAddressClaim) -> Result<IPAddressClaim, CallError> {
        let claims = self.contract.claims(&claim.namespace().unwrap_or_default());
        let mut full = None;
        if claim.is_trimmed {
            let found = claims.get(&claim.name_any()).await?;
            // If the version differs, the API server rejects the removal with a conflict.
            full = found
                .filter(|found| found.metadata.resource_version == claim.metadata.resource_version);
        }
        finalizer::remove(
            &claims,
            full.as_ref().unwrap_or(claim),
            names::RELEASE_ADDRESS,
        )
        .await
    }

    /// R1: removes our finalizer from an IPAddress and deletes it. Returns whether it is removed;
    /// other finalizers keep it.
    pub(super) async fn remove_address(&self, address: &IPAddress) -> Result<bool, CallError> {
        let (namespace, name) = (address.namespace().unwrap_or_default(), address.name_any());
        // With the version that was read as precondition: another manager may adopt it for a newer
        // claim.
        let is_removed = finalizer::delete(
            &self.contract.addresses(&namespace),
            address,
            names::PROTECT_ADDRESS,
        )
        .await?;
        if is_removed {
            self.addresses
                .remove(&namespace, &name, address.metadata.uid.as_deref());
        }
        Ok(is_removed)
    }

    /// R1 without a read: deletes the IPAddress of the claim at the version in the cache. Returns
    /// `None` if no IPAddress is cached or if it changed since.
    async fn remove_at_known_version(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Option<bool>, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let Some((uid, version)) = self.addresses.delete_preconditions(claim) else {
            return Ok(None);
        };
        let addresses = self.contract.addresses(&namespace);
        match finalizer::delete_at_version(&addresses, &name, &uid, &version).await {
            Ok(deleted) => {
                if deleted.is_gone {
                    self.addresses.remove(&namespace, &name, Some(&uid));
                }
                if let Some(address) = &deleted.object {
                    handler.address_deleted(address);
                }
                Ok(Some(deleted.is_gone))
            }
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases what was allocated to a claim that no longer exists. Returns `None` and changes
    /// nothing if a live read finds the claim with this uid: absence from a watch does not prove
    /// that a claim is deleted.
    ///
    /// The API server may remove a claim at the moment at which its finalizer is added. No event
    /// then triggers the release.
    pub(super) async fn clean_up_if_gone(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Option<Action>, ReconcileError> {
        let found = self
            .contract
            .claims(&claim.namespace().unwrap_or_default())
            .get(&claim.name_any())
            .await?;
        if found.is_some_and(|found| found.metadata.uid == claim.metadata.uid) {
            return Ok(None);
        }
        for _ in 1..MAX_CLEAN_UP_ATTEMPTS {
            match self.clean_up(claim, handler).await {
                // The garbage collector changed it concurrently. There is no claim left to retry
                // for later.
                Err(ReconcileError::Call(error)) if error.is_conflict() => {}
                ended => return ended.map(Some),
            }
        }
        self.clean_up(claim, handler).await.map(Some)
    }

    /// The part of [`Self::clean_up_if_gone`] after the live read. Do not call it elsewhere.
    async fn clean_up(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Action, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        if let Some(address) = self
            .contract
            .addresses(&namespace)
            .get(&name)
            .await?
            .filter(|found| is_for(found, claim))
        {
            // The garbage collector removes deleted owners; a newer claim with this name adopts an
            // IPAddress without owner.
            let left_over = match owning_claim(&address) {
                Some(owner) => Some(owner) == claim.metadata.uid.as_deref(),
                None => self.contract.claims(&namespace).get(&name).await?.is_none(),
            };
            if left_over {
                self.remove_address(&address).await?;
                handler.address_deleted(&address);
            }
        }
        if let Released::After(wait) = handler.release_address().await? {
            return Ok(Action::Requeue(wait));
        }
        self.expect_deleted(claim);
        debug!(
            namespace,
            claim = name,
            "claim no longer exists; released its address"
        );
        Ok(Action::AwaitChange)
    }
}
