//! Cool-downs of addresses that are in use: a provider without reservations allocated them, or a
//! user set `releasedAt`.

use std::sync::Arc;

use capi_ipam_api::{PoolKey, Slot};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{KnownReservation, Ledger, allocated_block};
use capi_ipam_provider::advanced::{Repair, Repaired};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use kube::ResourceExt;
use tracing::debug;

use super::bound_claims::BoundClaims;
use crate::in_cluster::context::Context;
use crate::in_cluster::reservation::claim_reference;
use crate::in_cluster::reservation_store::WriteResult;

/// Ends the cool-downs of addresses that claims own: the claim takes over the reservation.
pub(super) struct EndStaleCooldowns {
    context: Arc<Context>,
    claims: BoundClaims,
}

impl Repair for EndStaleCooldowns {
    const NAME: &'static str = "stale-cooldowns";

    async fn pass(&mut self) -> Repaired {
        let mut repaired = Repaired::default();
        let cooling_down = self.context.ledger.read(Ledger::cooling_down_in_use);
        for (slot, claim, released_by) in cooling_down {
            if !self.may_use(&claim, released_by) {
                continue;
            }
            match self.end(&slot, &claim).await {
                Ok(true) => repaired.count = repaired.count.saturating_add(1),
                Ok(false) => {}
                Err(error) => {
                    debug!(%slot, error = error_chain(&error), "cannot end a cool-down, will retry");
                }
            }
        }
        repaired
    }
}

impl EndStaleCooldowns {
    pub(super) fn new(context: Arc<Context>, claims: BoundClaims) -> Self {
        Self { context, claims }
    }

    /// Whether a claim of this name may use an address that `released_by` has released.
    fn may_use(&self, claim: &NamespacedName, released_by: Option<Uid>) -> bool {
        let Some(claim) = self.claims.get_user(claim) else {
            return false;
        };
        // A later claim with the name of the one that released the address is another claim.
        released_by.is_none_or(|uid| uid == claim.uid)
    }

    /// Makes the reservation of an address that cools down that of the claim that uses it, if
    /// live reads confirm this. One write does it: the address is reserved at any time. Returns
    /// whether it is done.
    async fn end(&self, slot: &Slot, claim: &NamespacedName) -> Result<bool, CallError> {
        // The reservation is read first: a claim that is bound in a later read did not release it.
        let Some(released) = self.read_released(slot).await? else {
            return Ok(false);
        };
        let Some((address, pool)) = self.read_address(slot, claim).await? else {
            return Ok(false);
        };
        let Some(user) = self.read_user(claim, &address).await? else {
            return Ok(false);
        };
        let user = claim_reference(&user);
        let reservations = &self.context.reservations;
        let written = reservations.take_over(&released, &pool, &user, None);
        let is_done = matches!(written.await?, WriteResult::Done(_));
        if is_done {
            debug!(
                reservation = slot.reservation_name(),
                "ended the cool-down of an address in use"
            );
        }
        Ok(is_done)
    }

    /// Reads the reservation. `None` if the address does not cool down.
    async fn read_released(&self, slot: &Slot) -> Result<Option<KnownReservation>, CallError> {
        let found = self.context.reservations.get(slot).await?;
        let released = found.filter(|found| found.spec.released_at.is_some());
        Ok(released.as_ref().and_then(KnownReservation::of))
    }

    /// Reads the IPAddress of a claim, and its pool. `None` if it has another address.
    async fn read_address(
        &self,
        slot: &Slot,
        claim: &NamespacedName,
    ) -> Result<Option<(IPAddress, PoolKey)>, CallError> {
        let addresses = self.context.contract.addresses(claim.namespace());
        let Some(address) = addresses.get(claim.name()).await? else {
            return Ok(None);
        };
        match allocated_block(&address) {
            Some((pool, block, _)) if block == slot.block => Ok(Some((address, pool))),
            _ => Ok(None),
        }
    }

    /// Reads the claim that uses an IPAddress. `None` if the claim is bound to another one, does not
    /// own it, or is being deleted: it may be releasing the address.
    async fn read_user(
        &self,
        claim: &NamespacedName,
        address: &IPAddress,
    ) -> Result<Option<IPAddressClaim>, CallError> {
        let claims = self.context.contract.claims(claim.namespace());
        let found = claims.get(claim.name()).await?;
        let is_user = |found: &IPAddressClaim| {
            found
                .bound_address()
                .is_none_or(|bound| bound == claim.name())
                && found.metadata.deletion_timestamp.is_none()
                && owns(found, address)
        };
        Ok(found.filter(is_user))
    }
}

/// Whether a claim is an owner of an IPAddress.
fn owns(claim: &IPAddressClaim, address: &IPAddress) -> bool {
    let mut owners = address.owner_references().iter();
    owners.any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
}
