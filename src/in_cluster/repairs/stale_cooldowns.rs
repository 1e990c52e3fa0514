//! Cool-downs of addresses that are in use: a provider without reservations allocated them, or a
//! user set `releasedAt`.

use std::sync::Arc;

use capi_ipam_api::{PoolKey, Slot};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{KnownReservation, Ledger, allocated_block};
use capi_ipam_provider::advanced::{ClaimSnapshot, Repair, Repaired};
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
            let Some(user) = self.claims.get_user(&claim) else {
                continue;
            };
            let users = self
                .context
                .ledger
                .read(|ledger| ledger.addresses().owners(&slot));
            if !may_use(&user, released_by, users.len() > 1) {
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

    /// Reads the claim that uses an IPAddress. `None` if the claim is bound to another one, does
    /// not own it, or is being deleted: it may be releasing the address.
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

/// Whether a claim that has an IPAddress may use its address, which `released_by` has released.
/// `is_shared`: another IPAddress has the address, too.
fn may_use(claim: &ClaimSnapshot, released_by: Option<Uid>, is_shared: bool) -> bool {
    // Another claim may be bound to the address.
    if is_shared && !claim.bound {
        return false;
    }
    // A later claim with the name of the one that released the address is another claim.
    released_by.is_none_or(|uid| uid == claim.uid)
}

/// Whether a claim is an owner of an IPAddress.
fn owns(claim: &IPAddressClaim, address: &IPAddress) -> bool {
    let mut owners = address.owner_references().iter();
    owners.any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbound_claim_takes_over_no_address_of_another_one() {
        let uid = Uid::of("00000000-0000-0000-0000-000000000001");
        let other = Uid::of("00000000-0000-0000-0000-000000000002");
        for (bound, released_by, is_shared, expected) in [
            (true, None, false, true),
            (true, None, true, true),
            (false, None, false, true),
            (false, None, true, false),
            (true, Some(uid), false, true),
            (true, Some(other), false, false),
        ] {
            let claim = ClaimSnapshot {
                uid,
                is_managed: true,
                created: 0,
                bound,
                deleted: None,
            };
            assert_eq!(
                may_use(&claim, released_by, is_shared),
                expected,
                "{bound} {released_by:?} {is_shared}"
            );
        }
    }
}
