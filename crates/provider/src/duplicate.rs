//! Telling on a bound claim that another one has its address too.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::{clock, patch};
use kube::ResourceExt;

use crate::adapter::HandlerError;
use crate::api::{conditions, IPAddressClaim};
use crate::contract::ContractClient;
use crate::report::Report;

/// Writes on bound claims whether their address is theirs alone.
///
/// The reconciler leaves a bound claim alone whose objects are right; that another claim has the address too is for the
/// provider to find out.
pub struct DuplicateReports {
    contract: ContractClient,
    events: EventPublisher,
}

impl DuplicateReports {
    /// Writes with the calls of `contract`, and tells events to `events`.
    pub fn new(contract: ContractClient, events: EventPublisher) -> Self {
        Self { contract, events }
    }

    /// Whether the claim says that its address is another's too.
    pub fn says_duplicate(&self, claim: &IPAddressClaim) -> bool {
        let conditions = claim.status.as_ref().map(|status| status.conditions(self.contract.ipam)).unwrap_or_default();
        let ready = conditions::find(conditions, conditions::READY);
        ready.is_some_and(|ready| ready.reason.as_deref() == Some(conditions::DUPLICATE_ADDRESS))
    }

    /// Tells by condition and event that another claim has the address too; to be called once for as long as it is so.
    /// The reconciler takes it back once the address can be reserved for the claim.
    pub async fn duplicate(&self, claim: &IPAddressClaim, message: String) -> Result<(), CallError> {
        let report = Report::refused(&HandlerError::DuplicateAddress(message));
        let wanted = report.written_on(self.contract.ipam, claim, clock::now());
        let claims = self.contract.claims(&claim.namespace().unwrap_or_default());
        match patch::write(&claims, claim, &wanted).await {
            Ok(_) => self.events.warning(claim, &self.contract.ipam, report.reason, "Look", &report.message),
            // A claim that has changed since is looked at again later.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
