//! The condition `AddressInUse` of claims.

use std::sync::Arc;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::{clock, patch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::{self, Condition};
use crate::api::{ContractVersion, IPAddressClaim};
use crate::claim_conditions::condition;
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::setup::ProviderSetup;

/// Whether the machine of a claim uses the address of the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressUse {
    /// It does.
    InUse,
    /// It uses other addresses only, as the message says.
    NotInUse(String),
    /// This is not known, for this reason and with this message.
    Unknown(&'static str, String),
}

impl AddressUse {
    fn condition(&self) -> Condition {
        match self {
            Self::InUse => Condition::new(
                conditions::IN_USE,
                true,
                conditions::MACHINE_HAS_ADDRESS,
                "",
            ),
            Self::NotInUse(message) => {
                let reason = conditions::MACHINE_LACKS_ADDRESS;
                Condition::new(conditions::IN_USE, false, reason, message.as_str())
            }
            Self::Unknown(reason, message) => {
                let status = "Unknown".into();
                Condition {
                    status,
                    ..Condition::new(conditions::IN_USE, false, reason, message.as_str())
                }
            }
        }
    }
}

/// Reports on bound claims whether their machines use the addresses. It changes nothing else: an
/// address is never released because of this condition.
pub struct AddressUseReporter {
    contract: ContractClient,
    events: EventPublisher,
    clusters: Arc<Clusters>,
}

impl AddressUseReporter {
    /// Creates a reporter for the claims of a provider.
    pub fn new(setup: &ProviderSetup<'_>) -> Self {
        let (contract, events) = (setup.contract.clone(), setup.manager.events.clone());
        Self {
            contract,
            events,
            clusters: Arc::clone(&setup.clusters),
        }
    }

    /// Sets the condition `AddressInUse` of a claim, or removes it if `found` is `None`. Publishes
    /// an event when the condition becomes False. Returns whether the claim was written: not if the
    /// condition is up to date, if the claim or its Cluster is paused, or if the claim changed
    /// since it was read.
    pub async fn report(
        &self,
        claim: &IPAddressClaim,
        found: Option<&AddressUse>,
    ) -> Result<bool, CallError> {
        let Some(desired) = desired(self.contract.ipam, claim, found, clock::now()) else {
            return Ok(false);
        };
        if !self.clusters.permits_changes(claim) {
            return Ok(false);
        }
        let claims = self.contract.claims_beside(claim);
        match patch::write(&claims, claim, &desired).await {
            // Nothing differs from what the API server stores.
            Ok(None) => return Ok(false),
            Ok(Some(_)) => {}
            // The next check reads the claim again.
            Err(error) if error.has_changed() => return Ok(false),
            Err(error) => return Err(error),
        }
        let before = condition(self.contract.ipam, claim, conditions::IN_USE);
        if let Some(AddressUse::NotInUse(message)) = found
            && before.is_none_or(|before| before.status != "False")
        {
            self.events.warning(
                claim,
                &self.contract.ipam,
                conditions::ADDRESS_NOT_IN_USE,
                "Inspect",
                message,
            );
        }
        Ok(true)
    }
}

/// The claim with the condition, `None` if it has it already.
fn desired(
    version: ContractVersion,
    claim: &IPAddressClaim,
    found: Option<&AddressUse>,
    now: Time,
) -> Option<IPAddressClaim> {
    let mut desired = claim.clone();
    let list = desired.status.as_mut()?.conditions_mut(version);
    let is_changed = match found {
        Some(found) => {
            // A claim whose machine has the address needs nothing, whatever address it had before.
            let is_settled = *found == AddressUse::InUse
                && conditions::remove(list, conditions::RESTORED_WITHOUT_ADDRESS);
            let condition = found
                .condition()
                .with_observed_generation(claim.metadata.generation);
            conditions::set(list, condition, now) || is_settled
        }
        None => conditions::remove(list, conditions::IN_USE),
    };
    is_changed.then_some(desired)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn condition_is_written_only_if_it_differs() {
        let claim: IPAddressClaim = serde_json::from_value(json!({
            "metadata": {"name": "c"}, "spec": {"poolRef": {"kind": "Pool", "name": "p"}},
            "status": {"addressRef": {"name": "c"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        for version in ContractVersion::ALL {
            let change = |claim: &IPAddressClaim, found: Option<&AddressUse>| {
                desired(version, claim, found, clock::now()).map(|claim| {
                    let shown = condition(version, &claim, conditions::IN_USE);
                    (shown.map(|shown| shown.status.to_string()), claim)
                })
            };
            assert!(change(&claim, None).is_none());
            let (status, in_use) = change(&claim, Some(&AddressUse::InUse)).unwrap();
            assert_eq!(status.as_deref(), Some("True"));
            assert!(change(&in_use, Some(&AddressUse::InUse)).is_none());
            let (status, lacking) =
                change(&in_use, Some(&AddressUse::NotInUse("other".to_owned()))).unwrap();
            assert_eq!(status.as_deref(), Some("False"));
            let unknown = AddressUse::Unknown(conditions::MACHINE_NOT_FOUND, "none".to_owned());
            assert_eq!(
                change(&lacking, Some(&unknown)).unwrap().0.as_deref(),
                Some("Unknown")
            );
            assert_eq!(change(&lacking, None).unwrap().0, None);
        }
    }
}
