//! Verifying one bound claim: whether the provider still has its address allocated to it.
//!
//! A verification is a reconcile of the claim, and shares its limits. It reads the claim and its
//! IPAddress, and writes nothing if the address is still allocated.

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_protocol::decision::{ClaimView, ClusterState};
use kube::ResourceExt;
use tracing::debug;

use crate::adapter::{ClaimHandler, HandlerError, PoolView, ProviderAdapter};
use crate::api::{IPAddress, IPAddressClaim, conditions};
use crate::attempt_state::AttemptState;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::ip_address::is_for;
use crate::reconciler::ClaimReconciler;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Verifies a claim that needs no other action, if that is due. An address that is no longer
    /// allocated to the claim is reported, and allocated again.
    pub(super) async fn verify_if_due(
        &self,
        claim: &IPAddressClaim,
        view: &ClaimView,
        handler: &mut Guarded<A::Handler>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        let is_paused = view.paused || view.cluster == ClusterState::Paused;
        let is_due = self
            .verification
            .as_ref()
            .is_some_and(|verification| verification.take(claim));
        if !is_due || !view.bound || view.deleting || is_paused {
            return Ok(Action::AwaitChange);
        }
        match self.lost_address(claim, handler).await {
            Ok(None) => Ok(Action::AwaitChange),
            Ok(Some((address, pool))) => {
                let text = format!(
                    "the provider no longer has {} allocated to the claim, and allocates it again",
                    address.spec.address
                );
                self.events.warning(
                    claim,
                    &self.contract.ipam,
                    conditions::ADDRESS_LOST,
                    "Verify",
                    &text,
                );
                let bind = self.bind(claim, &pool, handler, attempt);
                let bound = bind.await;
                self.handle_bound(claim, attempt, bound).await
            }
            Err(error) => {
                // The claim keeps its conditions: nothing shows that its address is lost.
                debug!(
                    claim = claim.name_any(),
                    error = error_chain(&error),
                    "cannot verify the address of the claim"
                );
                Ok(Action::AwaitChange)
            }
        }
    }

    /// Returns the IPAddress and the pool of a claim whose address is no longer allocated to it.
    async fn lost_address(
        &self,
        claim: &IPAddressClaim,
        handler: &mut Guarded<A::Handler>,
    ) -> Result<Option<(IPAddress, PoolView)>, ReconcileError> {
        let pool = match handler.fetch_pool().await {
            Ok(pool) if !pool.paused && !pool.deleting => pool,
            Ok(_) | Err(HandlerError::PoolNotFound(_) | HandlerError::PoolNotReady(_)) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let addresses = self.contract.addresses_beside(claim);
        let is_owned = |found: &IPAddress| {
            let is_deleted = found.metadata.deletion_timestamp.is_some();
            is_for(found, claim)
                && !is_deleted
                && found.claim_uid() == claim.metadata.uid.as_deref()
        };
        let Some(address) = addresses.get(&claim.name_any()).await?.filter(is_owned) else {
            return Ok(None);
        };
        let is_allocated = handler.verify(&address).await?;
        Ok((!is_allocated).then_some((address, pool)))
    }
}
