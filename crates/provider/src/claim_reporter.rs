//! Reports of a provider on bound claims.

use std::sync::Arc;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::{clock, patch};

use crate::adapter::HandlerError;
use crate::address_use::{self, AddressUse};
use crate::api::{IPAddressClaim, conditions};
use crate::claim_conditions::{ClaimConditions, condition};
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::setup::ProviderSetup;

/// Reports on bound claims what only the provider can detect: that their machines do not use their
/// addresses, or that another claim has the same address. The reconciler does not change a bound
/// claim whose objects are valid. An address is never released because of a report.
pub struct ClaimReporter {
    contract: ContractClient,
    events: EventPublisher,
    clusters: Arc<Clusters>,
}

impl ClaimReporter {
    /// Creates a reporter for the claims of a provider.
    pub fn new(setup: &ProviderSetup<'_>) -> Self {
        Self {
            contract: setup.contract.clone(),
            events: setup.manager.events.clone(),
            clusters: Arc::clone(&setup.clusters),
        }
    }

    /// Sets the condition `AddressInUse` of a claim, or removes it if `found` is `None`. Publishes
    /// an event when the condition becomes False. Returns whether the claim was written: not if the
    /// condition is up to date, if the claim or its Cluster is paused, or if the claim changed
    /// since it was read.
    pub async fn report_use(
        &self,
        claim: &IPAddressClaim,
        found: Option<&AddressUse>,
    ) -> Result<bool, CallError> {
        let version = self.contract.ipam;
        let Some(desired) = address_use::desired(version, claim, found, clock::now()) else {
            return Ok(false);
        };
        if !self.clusters.permits_changes(claim) || !self.write(claim, &desired).await? {
            return Ok(false);
        }
        let before = condition(version, claim, conditions::IN_USE);
        if let Some(AddressUse::NotInUse(message)) = found
            && before.is_none_or(|before| before.status != "False")
        {
            self.warn(claim, conditions::ADDRESS_NOT_IN_USE, message);
        }
        Ok(true)
    }

    /// Returns whether the condition `Ready` of the claim has the reason `DuplicateAddress`.
    pub fn reports_duplicate(&self, claim: &IPAddressClaim) -> bool {
        let ready = condition(self.contract.ipam, claim, conditions::READY);
        ready.is_some_and(|ready| ready.reason() == conditions::DUPLICATE_ADDRESS)
    }

    /// Sets the condition `Ready` of the claim to False with the reason `DuplicateAddress`, and
    /// publishes an event. Call it only if [`Self::reports_duplicate`] is false. The reconciler
    /// resets the condition once the address is reserved for the claim. A claim that changed in the
    /// meantime is not written.
    pub async fn report_duplicate(
        &self,
        claim: &IPAddressClaim,
        message: String,
    ) -> Result<(), CallError> {
        let status = ClaimConditions::failed(&HandlerError::DuplicateAddress(message));
        let desired = status.apply_to(self.contract.ipam, claim, clock::now());
        if self.write(claim, &desired).await? {
            self.warn(claim, status.reason, &status.message);
        }
        Ok(())
    }

    /// Writes a claim. Returns whether it was written: not if nothing differs from what the API
    /// server stores, or if the claim has changed, which the next check reads again.
    async fn write(
        &self,
        claim: &IPAddressClaim,
        desired: &IPAddressClaim,
    ) -> Result<bool, CallError> {
        let claims = self.contract.claims_beside(claim);
        match patch::write(&claims, claim, desired).await {
            Ok(written) => Ok(written.is_some()),
            Err(error) if error.has_changed() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn warn(&self, claim: &IPAddressClaim, reason: &str, note: &str) {
        let version = &self.contract.ipam;
        self.events.warning(claim, version, reason, "Inspect", note);
    }
}
