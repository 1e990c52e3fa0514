//! Taking an address back: steps R1 to R3.
//!
//! R1 the IPAddress loses our finalizer and is deleted. R2 the provider takes the address back, which is safe since
//! nobody can read it any more. R3 the claim loses our finalizer, only after a live read showed no IPAddress.

use kube::ResourceExt;
use tracing::debug;

use super::adapter::{ClaimHandler, ProviderAdapter, Released};
use super::address::{is_for, owning_claim};
use super::reconciler::{AFTER_CONFLICT, ClaimReconciler, ReconcileError};
use crate::api::{IPAddress, IPAddressClaim, names};
use crate::runtime::controller::Outcome;
use crate::runtime::finalizer;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    pub(super) async fn release(
        &self,
        claim: &IPAddressClaim,
        handler: &mut A::Handler,
    ) -> Result<Outcome, ReconcileError> {
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let addresses = self.contract.addresses(&namespace);
        // An IPAddress of an earlier claim of this name goes too: two claims of one name never live at once.
        if let Some(address) = addresses.get(&name).await?.filter(|address| is_for(address, claim))
            && !self.remove_address(&address).await?
        {
            debug!(namespace, name, "the IPAddress is held by finalizers of others");
            return Ok(Outcome::Yield(self.adapter.resync()));
        }
        if let Released::After(wait) = handler.release_address().await? {
            return Ok(Outcome::Yield(wait));
        }
        if addresses.get(&name).await?.is_some_and(|address| is_for(&address, claim)) {
            return Ok(Outcome::Yield(AFTER_CONFLICT));
        }
        match finalizer::remove(&self.contract.claims(&namespace), claim, names::RELEASE_ADDRESS).await {
            Ok(_) => self.note_gone(claim),
            Err(error) if error.is_not_found() => self.note_gone(claim),
            Err(error) => return Err(error.into()),
        }
        debug!(namespace, claim = name, "claim is released");
        Ok(Outcome::Done)
    }

    /// Takes back what was given to a claim that is gone. The API server may remove a claim in the moment in which it
    /// gets its finalizer; nothing will tell of it again.
    pub(super) async fn undo(
        &self,
        claim: &IPAddressClaim,
        handler: &mut A::Handler,
    ) -> Result<Outcome, ReconcileError> {
        let addresses = self.contract.addresses(&claim.namespace().unwrap_or_default());
        // A later claim of this name may have made the IPAddress its own.
        let is_its = |address: &IPAddress| owning_claim(address) == claim.metadata.uid.as_deref();
        if let Some(address) = addresses.get(&claim.name_any()).await?.filter(is_its) {
            self.remove_address(&address).await?;
        }
        handler.release_address().await?;
        self.note_gone(claim);
        debug!(namespace = claim.namespace(), claim = claim.name_any(), "claim is gone; its address is taken back");
        Ok(Outcome::Done)
    }
}
