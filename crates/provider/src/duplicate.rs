//! Reporting that two bound claims share an address.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::{clock, patch};

use crate::adapter::HandlerError;
use crate::api::{IPAddressClaim, conditions};
use crate::claim_conditions::{ClaimConditions, condition};
use crate::contract::ContractClient;

/// Reports on bound claims that another claim has the same address.
///
/// The reconciler does not change a bound claim whose objects are valid. Only the provider can
/// detect duplicates, and reports them with this type.
pub struct DuplicateReporter {
    contract: ContractClient,
    events: EventPublisher,
}

impl DuplicateReporter {
    /// Creates a reporter that writes conditions with `contract` and publishes events with
    /// `events`.
    pub fn new(contract: ContractClient, events: EventPublisher) -> Self {
        Self { contract, events }
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
    pub async fn report(&self, claim: &IPAddressClaim, message: String) -> Result<(), CallError> {
        let status = ClaimConditions::failed(&HandlerError::DuplicateAddress(message));
        let desired = status.apply_to(self.contract.ipam, claim, clock::now());
        let claims = self.contract.claims_beside(claim);
        match patch::write(&claims, claim, &desired).await {
            Ok(None) => {}
            Ok(Some(_)) => self.events.warning(
                claim,
                &self.contract.ipam,
                status.reason,
                "Inspect",
                &status.message,
            ),
            // The provider checks the changed claim again later.
            Err(error) if error.has_changed() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
