//! The condition `AddressInUse` of claims.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::conditions::{self, Condition};
use crate::api::{ContractVersion, IPAddressClaim};

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
        let (status, reason, message) = match self {
            Self::InUse => ("True", conditions::MACHINE_HAS_ADDRESS, ""),
            Self::NotInUse(message) => {
                ("False", conditions::MACHINE_LACKS_ADDRESS, message.as_str())
            }
            Self::Unknown(reason, message) => ("Unknown", *reason, message.as_str()),
        };
        Condition {
            status: status.into(),
            ..Condition::new(conditions::IN_USE, false, reason, message)
        }
    }
}

/// The claim with the condition, `None` if it has it already.
pub(super) fn desired(
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
    use capi_ipam_controller::clock;
    use serde_json::json;

    use super::*;
    use crate::claim_conditions::condition;

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
