//! Taking an address back: steps R1 to R3.
//!
//! R1 the IPAddress loses our finalizer and is deleted. R2 the provider takes the address back, which is safe since
//! nobody can read it any more. R3 the claim loses our finalizer, only after the API server said that there is no IPAddress: in its
//! answer to the deletion, and where a creation may have been applied since, in one to a read.

use std::time::Instant;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::Outcome;
use capi_ipam_controller::finalizer;
use kube::ResourceExt;
use tracing::debug;

use crate::adapter::{ClaimHandler, ProviderAdapter, Released};
use crate::address::is_for;
use crate::api::{IPAddressClaim, names};
use crate::index::owning_claim;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler, ReconcileError};
use crate::report::Report;
use crate::rewrite::MessageDelay;

/// How often the clean-up after a claim is tried while others keep changing its IPAddress.
const MAX_CLEAN_UPS: usize = 5;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    pub(super) async fn release(
        &self,
        claim: &IPAddressClaim,
        handler: &mut A::Handler,
        delay: &mut MessageDelay,
    ) -> Result<Outcome, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let addresses = self.contract.addresses(&namespace);
        let mut removed = self.remove_as_seen(claim).await?;
        if removed.is_none()
            && let Some(address) = addresses.get(&name).await?.filter(|address| is_for(address, claim))
        {
            // That of a later claim stays: another manager may have let this one go long ago. One of an earlier claim of
            // this name goes too: two claims of one name never live at once.
            if owning_claim(&address) != claim.metadata.uid.as_deref()
                && let Some(outcome) = self.clean_up_if_gone(claim, handler).await?
            {
                return Ok(outcome);
            }
            removed = Some(self.remove_address(&address).await?);
        }
        if removed == Some(false) {
            debug!(namespace, name, "the IPAddress is held by finalizers of others");
            return self.report_deletion(claim, &Report::address_held(claim), delay).await;
        }
        if let Released::After(wait) = handler.release_address().await? {
            return Ok(Outcome::Yield(wait));
        }
        if self.late.may_still_apply(claim, Instant::now())
            && addresses.get(&name).await?.is_some_and(|address| is_for(&address, claim))
        {
            return Ok(Outcome::Yield(CONFLICT_RETRY_DELAY));
        }
        match self.remove_finalizer(claim).await {
            Ok(_) => self.expect_deleted(claim),
            Err(error) if error.is_not_found() => self.expect_deleted(claim),
            Err(error) => return Err(error.into()),
        }
        debug!(namespace, claim = name, "claim is released");
        Ok(Outcome::Done)
    }

    /// R3. A claim that is not kept whole is read first: its last finalizer is removed by a replacement of the object.
    async fn remove_finalizer(&self, claim: &IPAddressClaim) -> Result<IPAddressClaim, CallError> {
        let claims = self.contract.claims(&claim.namespace().unwrap_or_default());
        let mut whole = None;
        if claim.is_trimmed {
            let found = claims.get(&claim.name_any()).await?;
            // Another state is refused by its version.
            whole = found.filter(|found| found.metadata.resource_version == claim.metadata.resource_version);
        }
        finalizer::remove(&claims, whole.as_ref().unwrap_or(claim), names::RELEASE_ADDRESS).await
    }

    /// R1 without reading first: removes the IPAddress that is known as this claim's, if it still is what it was. `None` when
    /// none is known, or it has changed.
    async fn remove_as_seen(&self, claim: &IPAddressClaim) -> Result<Option<bool>, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let Some((uid, version)) = self.addresses.identity_for(claim) else { return Ok(None) };
        let addresses = self.contract.addresses(&namespace);
        match finalizer::delete_as_seen(&addresses, &name, &uid, &version).await {
            Ok(gone) => {
                if gone {
                    self.addresses.remove(&namespace, &name);
                }
                Ok(Some(gone))
            }
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes back what was allocated to a claim that no longer exists. `None`, and nothing is touched, when a live read
    /// finds the claim of this uid: that a watch no longer shows a claim does not mean that it is gone.
    ///
    /// The API server may remove a claim in the moment in which it gets its finalizer; no event follows then that would
    /// have the address released.
    pub(super) async fn clean_up_if_gone(
        &self,
        claim: &IPAddressClaim,
        handler: &mut A::Handler,
    ) -> Result<Option<Outcome>, ReconcileError> {
        let found = self.contract.claims(&claim.namespace().unwrap_or_default()).get(&claim.name_any()).await?;
        if found.is_some_and(|found| found.metadata.uid == claim.metadata.uid) {
            return Ok(None);
        }
        for _ in 1..MAX_CLEAN_UPS {
            match self.clean_up(claim, handler).await {
                // The garbage collector changed it in the same moment. There is no claim left to come back to later.
                Err(ReconcileError::Call(error)) if error.is_conflict() => {}
                ended => return ended.map(Some),
            }
        }
        self.clean_up(claim, handler).await.map(Some)
    }

    /// The part of [`Self::clean_up_if_gone`] that follows the live read. Only to be called there.
    async fn clean_up(&self, claim: &IPAddressClaim, handler: &mut A::Handler) -> Result<Outcome, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        if let Some(address) =
            self.contract.addresses(&namespace).get(&name).await?.filter(|found| is_for(found, claim))
        {
            // The garbage collector removes owners that are gone; a later claim of this name adopts what has none.
            let left_over = match owning_claim(&address) {
                Some(owner) => Some(owner) == claim.metadata.uid.as_deref(),
                None => self.contract.claims(&namespace).get(&name).await?.is_none(),
            };
            if left_over {
                self.remove_address(&address).await?;
            }
        }
        handler.release_address().await?;
        self.expect_deleted(claim);
        debug!(namespace, claim = name, "claim is gone; its address is released");
        Ok(Outcome::Done)
    }
}
