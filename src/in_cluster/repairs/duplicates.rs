//! Duplicate addresses: two bound claims with the same address. A prefix that another prefix in use
//! contains is counted.
//!
//! They are reported on the claim for which the address is not reserved, and never repaired: both
//! may be in use. This provider never allocates duplicates, but a restore, a merge of two clusters
//! or a user can create them.

use std::collections::HashSet;
use std::sync::Arc;

use capi_ipam_api::Audience;
use capi_ipam_api::advice::DUPLICATE;
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{Conflict, allocated_block};
use capi_ipam_provider::advanced::{
    ClaimCache, ClaimReporter, ClaimSnapshot, ProviderSetup, Repair, Repaired,
};
use prometheus_client::metrics::gauge::Gauge;
use tracing::debug;

use super::is_held_by;
use crate::in_cluster::context::Context;
use crate::in_cluster::metrics::DUPLICATE_ADDRESSES;

/// Counts and reports duplicate addresses.
pub(super) struct ReportDuplicates {
    context: Arc<Context>,
    claims: ClaimCache,
    reporter: ClaimReporter,
    found: Gauge,
}

impl Repair for ReportDuplicates {
    const NAME: &'static str = "duplicates";

    /// Counts the duplicates, and reports each on the claim for which the address is not reserved.
    async fn pass(&mut self) -> Repaired {
        let mut duplicates = self
            .context
            .ledger
            .read(|ledger| ledger.addresses().conflicts());
        duplicates.retain(|found| self.is_duplicate(found));
        let contained = self
            .context
            .ledger
            .read(|ledger| ledger.addresses().contained_in_use());
        let slots: HashSet<_> = duplicates
            .iter()
            .map(|found| &found.slot)
            .chain(&contained)
            .collect();
        self.found
            .set(i64::try_from(slots.len()).unwrap_or(i64::MAX));
        for found in &duplicates {
            // The process that manages the claim reports it.
            let claim = self.bound(&found.claim);
            if !claim.is_some_and(|claim| claim.is_managed) {
                continue;
            }
            if let Err(error) = self.report_on_claim(found).await {
                let (namespace, claim) = found.claim.parts();
                debug!(
                    namespace,
                    claim,
                    error = error_chain(&error),
                    "cannot report a duplicate address, will retry"
                );
            }
        }
        Repaired::default()
    }
}

impl ReportDuplicates {
    pub(super) fn new(setup: &ProviderSetup<'_>, context: Arc<Context>) -> Self {
        let found = Gauge::default();
        setup
            .manager
            .metrics
            .add(&DUPLICATE_ADDRESSES, found.clone());
        Self {
            context,
            claims: setup.claim_cache(),
            reporter: ClaimReporter::new(setup),
            found,
        }
    }

    /// Reports a duplicate on its claim, unless it is reported already or live reads do not confirm
    /// it.
    async fn report_on_claim(&self, found: &Conflict) -> Result<(), CallError> {
        let (namespace, name) = found.claim.parts();
        let contract = &self.context.contract;
        let Some(claim) = contract.claims(namespace).get(name).await? else {
            return Ok(());
        };
        // Reported once: nothing is written while nothing changes.
        if claim.bound_address() != Some(name) || self.reporter.reports_duplicate(&claim) {
            return Ok(());
        }
        let Some(address) = contract.addresses(namespace).get(name).await? else {
            return Ok(());
        };
        let Some(reserved) = self.context.reservations.get(&found.slot).await? else {
            return Ok(());
        };
        let allocated = allocated_block(&address);
        let has_it = allocated.is_some_and(|(_, block, _)| block == found.slot.block);
        if !has_it || !is_held_by(&reserved, found.uid) {
            return Ok(());
        }
        let message = duplicate_message(
            found.slot.block,
            namespace,
            &found.reserved_for,
            &found.slot.reservation_name(),
        );
        self.reporter.report_duplicate(&claim, message).await
    }

    fn bound(&self, claim: &NamespacedName) -> Option<ClaimSnapshot> {
        self.claims
            .get(claim.namespace(), claim.name())
            .filter(|claim| claim.bound)
    }

    /// Whether both claims are bound with the address. Other conflicts resolve: the reservation is
    /// released, or the unbound claim gets another address.
    fn is_duplicate(&self, found: &Conflict) -> bool {
        let holds = |claim: ClaimSnapshot| found.is_duplicate && claim.uid == found.uid;
        self.bound(&found.claim).is_some() && self.bound(&found.reserved_for).is_some_and(holds)
    }
}

/// The message for a bound claim of `namespace` whose address is reserved for another claim.
pub(in crate::in_cluster) fn duplicate_message(
    block: Block,
    namespace: &str,
    holder: &NamespacedName,
    reservation: &str,
) -> String {
    let other =
        Audience::of(Some(namespace)).object("IPAddressClaim", holder.namespace(), holder.name());
    format!(
        "{block} is in use by this claim and by {other}, for which it is reserved (IPReservation {reservation}); \
         {DUPLICATE}"
    )
}
