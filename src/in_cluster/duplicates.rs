//! Addresses that two bound claims have: told on the claim that came second, and never mended, for both may be in use.
//!
//! Nothing here gives an address out twice; but a restore, a merge of two clusters or a hand can. The claim for which
//! the address is reserved keeps it.

use std::collections::HashSet;
use std::sync::Arc;

use capi_ipam_controller::client::{CallError, chain};
use capi_ipam_ip::Block;
use capi_ipam_provider::api::Uid;
use capi_ipam_provider::{Claims, ContractClient, DuplicateReports, ProviderSetup, ClaimSnapshot};
use prometheus_client::metrics::gauge::Gauge;
use tracing::debug;

use crate::api::Audience;
use super::context::Shared;
use super::ledger::{ClaimKey, Conflict, holding};

pub(super) struct Duplicates {
    shared: Arc<Shared>,
    contract: ContractClient,
    claims: Claims,
    reports: DuplicateReports,
    found: Gauge,
}

impl Duplicates {
    pub(super) fn new(setup: &ProviderSetup<'_>, shared: Arc<Shared>) -> Self {
        let found = Gauge::default();
        let help = "Addresses that more than one bound claim has, as last looked for";
        setup.manager.metrics.register("capi_ipam_duplicate_addresses", help, found.clone());
        Self {
            shared,
            contract: setup.contract.clone(),
            claims: setup.claims(),
            reports: DuplicateReports::new(setup.contract.clone(), setup.manager.events.clone()),
            found,
        }
    }

    /// Counts them, and tells it on the claims concerned.
    pub(super) async fn report(&self) {
        let contested: Vec<_> =
            self.shared.ledger.contested().into_iter().filter(|found| self.is_duplicate(found)).collect();
        let slots: HashSet<_> = contested.iter().map(|found| &found.slot).collect();
        self.found.set(i64::try_from(slots.len()).unwrap_or(i64::MAX));
        let is_served = |found: &&Conflict| self.bound(&found.claim).is_some_and(|claim| claim.served);
        for found in contested.iter().filter(is_served) {
            if let Err(error) = self.tell(found).await {
                let (namespace, claim) = &found.claim;
                debug!(namespace, claim, error = chain(&error), "a duplicate address cannot be told now");
            }
        }
    }

    /// Tells it on a claim, if live reads say the same and it is not told yet.
    async fn tell(&self, found: &Conflict) -> Result<(), CallError> {
        let (namespace, name) = &found.claim;
        let claim = self.contract.claims(namespace).get(name).await?;
        let bound = claim.filter(|claim| claim.bound_address() == Some(name) && !self.reports.says_duplicate(claim));
        let Some(claim) = bound else { return Ok(()) };
        let reservation = found.slot.reservation_name();
        let Some(address) = self.contract.addresses(namespace).get(name).await? else { return Ok(()) };
        let Some(reserved) = self.shared.reservations.get(&reservation).await? else { return Ok(()) };
        let held_by = reserved.spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_deref()).map(Uid::of);
        let has_it = holding(&address).is_some_and(|(_, block, _)| block == found.slot.block);
        if !has_it || held_by != Some(found.uid) || reserved.spec.released_at.is_some() {
            return Ok(());
        }
        let text = duplicate(found.slot.block, namespace, &found.reservations_of, &reservation);
        self.reports.duplicate(&claim, text).await
    }

    fn bound(&self, (namespace, name): &ClaimKey) -> Option<ClaimSnapshot> {
        self.claims.get(namespace, name).filter(|claim| claim.bound)
    }

    /// Whether both claims are bound, with that address. A reservation of a claim that is not frees itself, or its claim
    /// gets another.
    fn is_duplicate(&self, found: &Conflict) -> bool {
        let holds = |claim: ClaimSnapshot| found.both_have_it && claim.uid == found.uid;
        self.bound(&found.claim).is_some() && self.bound(&found.reservations_of).is_some_and(holds)
    }
}

/// What a bound claim of `namespace` reports when its address is reserved for another one.
pub(super) fn duplicate(block: Block, namespace: &str, holder: &ClaimKey, reservation: &str) -> String {
    let other = Audience::of(Some(namespace)).object("IPAddressClaim", &holder.0, &holder.1);
    format!(
        "{block} is in use by this claim and by {other}, for which it is reserved (IPReservation {reservation}); recreate \
         one of the two claims and the machine that uses it"
    )
}
