//! Assigns slices to owners: an owner without a free address gets another slice of its pool.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{
    IPSlice, Pool, PoolKey, Scope, SliceOwner, SliceOwnerKind, conditions, slice_name,
};
use capi_ipam_controller::client::Creation;
use capi_ipam_controller::{clock, patch};
use capi_ipam_ip::Block;
use capi_ipam_ledger::{ClaimAttributes, PoolInfo};
use capi_ipam_provider::api::names::CLUSTER_NAME_LABEL;
use capi_ipam_provider::prelude::HandlerError;
use tracing::{debug, info, warn};

use super::errors::request_error;
use super::handler::InClusterHandler;
use super::shared_ledger::SharedLedger;

/// How long no other claim of the owner tries to assign a slice after the API server has refused
/// one. The end of an assignment wakes the claims that wait for it, without their backoff.
const REFUSED_DELAY: Duration = Duration::from_secs(2);

/// A slice that is being assigned. Dropping it, also by cancelling the attempt, ends the assignment
/// unless the slice was observed.
struct Assignment {
    ledger: Arc<SharedLedger>,
    pool: PoolKey,
    block: Block,
}

impl Assignment {
    /// Ends the assignment after a delay.
    fn end_later(self) {
        tokio::spawn(async move {
            tokio::time::sleep(REFUSED_DELAY).await;
            drop(self);
        });
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.ledger
            .change(|ledger| ledger.end_slice_assignment(&self.pool, self.block));
    }
}

impl InClusterHandler {
    /// Fails if the pool has slices, and the claim no owner of slices. The claim waits for a change
    /// of the pool then.
    pub(super) fn check_slice_owner(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        attributes: &ClaimAttributes,
    ) -> Result<(), HandlerError> {
        let Some(rules) = info
            .slices
            .as_deref()
            .filter(|_| attributes.slice_owner.is_none())
        else {
            return Ok(());
        };
        self.ledger()
            .change(|ledger| ledger.wait_for_change(pool, &self.key, None));
        let (what, label) = match (rules.per, &rules.label) {
            (SliceOwnerKind::Label, Some(label)) => (format!("label {label}"), &**label),
            _ => ("cluster name".to_owned(), CLUSTER_NAME_LABEL),
        };
        Err(HandlerError::Waiting {
            reason: conditions::SLICE_OWNER_MISSING,
            message: format!(
                "the claim has no {what}, by which {pool} assigns its slices (spec.slices); set the label {label} of \
                 the claim"
            ),
        })
    }

    /// Assigns a slice to the owner of the claim. If it is assigned to another owner already, the
    /// ledger records this.
    pub(super) async fn assign_slice(
        &self,
        pool: &PoolKey,
        block: Block,
        owner: &SliceOwner,
    ) -> Result<(), HandlerError> {
        let assignment = Assignment {
            ledger: Arc::clone(&self.context.ledger),
            pool: pool.clone(),
            block,
        };
        let scope = Scope::Pool(pool.clone());
        let slice = IPSlice::assigned(&scope, block, owner.clone(), clock::now());
        match self.context.slices.create_or_find(&slice).await {
            Ok(Creation::Created(created)) => {
                self.ledger().change(|ledger| ledger.insert_slice(&created));
                info!(%pool, %block, %owner, "assigned a slice");
                let message = format!("slice {block} is assigned to {}", describe(pool, owner));
                self.context.events.normal(
                    &pool_object(self.ledger(), pool),
                    &pool.kind,
                    "SliceAssigned",
                    "Assign",
                    &message,
                );
                Ok(())
            }
            Ok(Creation::Found(found)) => {
                if found.0.as_ref().is_ok_and(|found| found.place().is_ok()) {
                    debug!(%pool, %block, "the slice is already assigned");
                } else {
                    warn!(%pool, %block, "an IPSlice that is not valid has the name of the slice; delete it");
                }
                self.ledger()
                    .change(|ledger| ledger.insert_found_slice(&scope, block, &found));
                Ok(())
            }
            Err(error) => {
                assignment.end_later();
                Err(request_error("assign a slice", error))
            }
        }
    }

    /// Removes the mark that a slice is empty, so that it is not returned while an address of it is
    /// allocated.
    pub(super) async fn resume_slice(
        &self,
        pool: &PoolKey,
        block: Block,
    ) -> Result<(), HandlerError> {
        let name = slice_name(pool, block);
        let read = self
            .context
            .slices
            .get(&name)
            .await
            .map_err(|error| request_error("read the IPSlice", error))?;
        let Some(slice) = read else {
            self.ledger()
                .change(|ledger| ledger.forget_slice(&Scope::Pool(pool.clone()), block));
            return Ok(());
        };
        if slice.spec.empty_since.is_none() {
            self.ledger().change(|ledger| ledger.insert_slice(&slice));
            return Ok(());
        }
        let mut wanted = slice.clone();
        wanted.spec.empty_since = None;
        let written = patch::write(&self.context.slices, &slice, &wanted).await;
        if let Some(written) =
            written.map_err(|error| request_error("change the IPSlice", error))?
        {
            self.ledger().change(|ledger| ledger.insert_slice(&written));
        }
        Ok(())
    }
}

/// The reference of a pool, for events.
pub(super) fn pool_object(ledger: &SharedLedger, pool: &PoolKey) -> Pool {
    let info = ledger.read(|ledger| ledger.pools().pool_info(pool));
    Pool::reference(pool, info.map(|info| info.uid.clone()))
}

/// Describes the owner of a slice for the readers of events on the pool. Those of a global pool may
/// not know the names of Clusters.
pub(super) fn describe(pool: &PoolKey, owner: &SliceOwner) -> String {
    match (&pool.namespace, owner.kind) {
        (None, SliceOwnerKind::Cluster) => "a Cluster".to_owned(),
        (None, SliceOwnerKind::Namespace) => "a namespace".to_owned(),
        _ => owner.to_string(),
    }
}
