//! Whether a claim may use its pool: allowed namespaces, limits and headroom of global pools.

use std::time::Duration;

use capi_ipam_api::advice::{ANOTHER_POOL, exhausted};
use capi_ipam_api::{PoolKey, Slot};
use capi_ipam_ip::Block;
use capi_ipam_ledger::{ClaimAttributes, LimitCheck, PoolInfo};
use capi_ipam_provider::api::MachineOwner;
use capi_ipam_provider::prelude::HandlerError;
use kube::ResourceExt;
use kube::core::SelectorExt;

use super::blocks::check::is_in_own_block;
use super::errors::{limit_error, request_error};
use super::handler::InClusterHandler;
use super::pools::describe_counts;

/// The delay before a claim is reconciled again whose reservation the watch has not reported. The
/// report wakes it earlier.
const UNOBSERVED_RETRY_DELAY: Duration = Duration::from_secs(5);

impl InClusterHandler {
    /// What the wait queue of a pool in this state has to know about the claim. Fails if the claim
    /// has no owner in a pool with slices.
    pub(super) fn attributes(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        requested: Option<Block>,
    ) -> Result<ClaimAttributes, HandlerError> {
        let attributes = ClaimAttributes::of(&self.claim, info, requested);
        self.check_slice_owner(pool, info, &attributes)?;
        Ok(attributes)
    }

    /// Fails if claims of this namespace must not use the pool.
    pub(super) fn check_permission(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
    ) -> Result<(), HandlerError> {
        if info.access.is_none()
            || self
                .ledger()
                .change(|ledger| ledger.is_allowed_or_waits(pool, &self.key))
        {
            return Ok(());
        }
        Err(HandlerError::PoolNotAllowed(format!(
            "{pool} does not allow claims of this namespace (spec.allowedNamespaces); allow it, or {ANOTHER_POOL}"
        )))
    }

    /// Fails if the reserved address is beyond a limit of the pool: another manager has reserved
    /// the last ones first. The reservation is kept, because the other manager may be about to bind
    /// the claim to its address. Fails also if the watch has not reported the reservation yet,
    /// which wakes the claim then.
    pub(super) fn check_limits(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        slot: &Slot,
    ) -> Result<(), HandlerError> {
        let has_limits = info
            .access
            .as_ref()
            .is_some_and(|rules| rules.per_namespace.is_some() || rules.per_cluster.is_some());
        if !has_limits {
            return Ok(());
        }
        let check = self
            .ledger()
            .change(|ledger| ledger.check_limits(pool, slot, &self.key, self.uid));
        match check {
            LimitCheck::Within => Ok(()),
            LimitCheck::Exceeded(limit) => Err(limit_error(pool, &limit)),
            LimitCheck::Unknown => Err(HandlerError::RetryAfter {
                message: format!(
                    "the watch has not reported the IPReservation {} yet",
                    slot.reservation_name()
                ),
                after: UNOBSERVED_RETRY_DELAY,
            }),
        }
    }

    /// Fails if the reserved address is not in a block of this management cluster: the block is
    /// being returned. The claim gets another address, and the sweeper deletes the reservation.
    pub(super) async fn check_block(&self, slot: &Slot) -> Result<(), HandlerError> {
        let is_own = is_in_own_block(&self.context, slot).await;
        if is_own.map_err(|error| request_error("read the IPSlice", error))? {
            return Ok(());
        }
        let message = format!(
            "the block of {} is being returned to the registry",
            slot.block
        );
        Err(HandlerError::Conflict(message))
    }

    /// Whether the headroom of the pool is for the Machine of the claim, by its labels. The Machine
    /// owns the claim, or has the name of the infrastructure machine that owns it.
    pub(super) async fn is_of_selected_machine(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
    ) -> Result<bool, HandlerError> {
        let Some(selector) = info.headroom_selector() else {
            return Ok(false);
        };
        if self
            .ledger()
            .read(|ledger| ledger.pools().counts(pool))
            .free
            == 0
        {
            return Ok(false);
        }
        let Some(owner) = MachineOwner::of(&self.claim) else {
            return Ok(false);
        };
        let machines = self.context.contract.machines(self.key.namespace());
        let machine = machines
            .get(owner.name)
            .await
            .map_err(|error| request_error("read the Machine of the claim", error))?;
        Ok(machine.is_some_and(|machine| selector.matches(machine.labels())))
    }

    /// Describes a pool without a free address for the claim.
    pub(super) fn exhausted(&self, pool: &PoolKey, info: &PoolInfo) -> String {
        let ledger = self.ledger();
        let (counts, end) = ledger.read(|ledger| {
            (
                ledger.pools().counts(pool),
                ledger.pools().cooldown_end(pool),
            )
        });
        let described = describe_counts(counts, end);
        let advice = exhausted(&counts, info.scope.network().is_some());
        if counts.free > 0 && info.headroom_selector().is_some() {
            return format!(
                "{pool} has {} free addresses, which are only for the claims that its spec.headroom selects \
                 ({described}); {advice}",
                counts.free,
            );
        }
        format!("{pool} has no free address ({described}); {advice}")
    }
}
