//! What a claim's conditions say.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::adapter::{Allocation, HandlerError};
use super::decision::Waiting;
use crate::api::conditions::{self, Condition};
use crate::api::{ContractVersion, IPAddressClaim, LocalReference};

/// A claim's state in words: the reason and text of `Ready`, and whether `Paused` is True.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) ready: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) paused: bool,
    severity: &'static str,
}

impl Report {
    fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { ready: false, reason, message: message.into(), paused: false, severity: "Info" }
    }

    fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: "Error", ..Self::waiting(reason, message) }
    }

    fn paused(message: impl Into<String>) -> Self {
        Self { paused: true, ..Self::waiting(conditions::PAUSED_REASON, message) }
    }

    /// The claim has its address.
    pub(super) fn bound(claim: &IPAddressClaim, allocation: &Allocation) -> Self {
        let message = format!("{}/{} from {}", allocation.address, allocation.prefix, pool_name(claim));
        Self { ready: true, ..Self::waiting(conditions::ADDRESS_ALLOCATED, message) }
    }

    /// The claim waits. For its pool the handler says why; the text says what somebody can do.
    pub(super) fn waits(claim: &IPAddressClaim, waiting: Waiting, why: Option<&HandlerError>) -> Self {
        let cluster = claim.cluster_name().unwrap_or_default();
        match waiting {
            Waiting::ClusterPaused => Self::paused(format!("Cluster {cluster} is paused; unpause it to go on")),
            Waiting::ClusterMissing => Self::waiting(
                conditions::CLUSTER_NOT_FOUND,
                format!("Cluster {cluster} does not exist; create it, or correct the claim's cluster name"),
            ),
            Waiting::ClaimPaused => Self::paused(format!(
                "the claim is paused; remove its annotation {} to go on",
                crate::api::names::PAUSED_ANNOTATION
            )),
            Waiting::PoolPaused => Self {
                paused: true,
                ..Self::waiting(
                    conditions::POOL_NOT_READY,
                    format!(
                        "{} is paused; remove its annotation {} to go on",
                        pool_name(claim),
                        crate::api::names::PAUSED_ANNOTATION
                    ),
                )
            },
            Waiting::PoolDeleting => Self::waiting(
                conditions::POOL_NOT_READY,
                format!("{} is being deleted and gives out no addresses", pool_name(claim)),
            ),
            Waiting::PoolUnavailable => Self::waiting(
                conditions::POOL_NOT_READY,
                why.map_or_else(|| format!("{} cannot serve claims", pool_name(claim)), ToString::to_string),
            ),
        }
    }

    /// The claim had an address where it comes from.
    pub(super) fn awaits_address(until: jiff::Timestamp) -> Self {
        Self::waiting(
            conditions::AWAITING_ADDRESS,
            format!(
                "the claim was moved or restored here and had an address: its IPAddress is waited for until {until}; to \
                 have it served anew before, take the finalizer {} off the claim",
                crate::api::names::RELEASE_ADDRESS
            ),
        )
    }

    /// The handler did not give an address.
    pub(super) fn refused(error: &HandlerError) -> Self {
        let message = crate::runtime::client::chain(error);
        match error {
            HandlerError::PoolNotFound(_) | HandlerError::PoolNotReady(_) => {
                Self::waiting(conditions::POOL_NOT_READY, message)
            }
            HandlerError::PoolExhausted(_) => {
                Self { severity: "Warning", ..Self::waiting(conditions::POOL_EXHAUSTED, message) }
            }
            HandlerError::NotReady { .. } => Self::waiting(conditions::POOL_NOT_READY, message),
            HandlerError::DuplicateAddress(_) => Self::failed(conditions::DUPLICATE_ADDRESS, message),
            HandlerError::Discard(_) | HandlerError::Transient { .. } | HandlerError::Permanent(_) => {
                Self::failed(conditions::ALLOCATION_FAILED, message)
            }
        }
    }

    /// Whether the claim says so already.
    pub(super) fn is_on(&self, version: ContractVersion, claim: &IPAddressClaim) -> bool {
        self.written_on(version, claim, crate::runtime::clock::now()).status == claim.status
    }

    /// The claim with its conditions saying so. That all is well is not said twice: the list for clients of `v1beta1` costs
    /// the API server a tenth of all that a bound claim does, and tells them what the address tells already.
    pub(super) fn written_on(&self, version: ContractVersion, claim: &IPAddressClaim, now: Time) -> IPAddressClaim {
        let mut written = claim.clone();
        let generation = claim.metadata.generation;
        let status = written.status.get_or_insert_default();
        let ready =
            Condition::new(conditions::READY, self.ready, self.reason, self.message.clone()).observed(generation);
        if version == ContractVersion::V1Beta1 || !self.ready || status.has_legacy_conditions() {
            conditions::set(status.legacy_conditions_mut(version), ready.legacy(self.severity), now.clone());
        }
        let list = status.conditions_mut(version);
        conditions::set(list, ready, now.clone());
        if self.paused {
            let paused = Condition::new(conditions::PAUSED, true, conditions::PAUSED_REASON, self.message.clone());
            conditions::set(list, paused.observed(generation), now);
        } else {
            conditions::remove(list, conditions::PAUSED);
        }
        written
    }

    /// The claim with its conditions saying so and its IPAddress named: the commit point of a claim's life.
    pub(super) fn bound_on(&self, version: ContractVersion, claim: &IPAddressClaim, now: Time) -> IPAddressClaim {
        let mut written = self.written_on(version, claim, now);
        written.status.get_or_insert_default().address_ref = Some(LocalReference { name: claim.name_any() });
        written
    }
}

fn pool_name(claim: &IPAddressClaim) -> String {
    format!("{} {}", claim.spec.pool_ref.kind, claim.spec.pool_ref.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::now;
    use serde_json::json;

    fn claim() -> IPAddressClaim {
        serde_json::from_value(json!({"metadata": {"name": "c"},
            "spec": {"clusterName": "alpha", "poolRef": {"kind": "InClusterIPPool", "name": "p"}}}))
        .unwrap()
    }

    #[test]
    fn both_versions_of_the_contract_get_both_lists() {
        let report = Report::refused(&HandlerError::PoolExhausted("none left".into()));
        let new = serde_json::to_value(report.written_on(ContractVersion::V1Beta2, &claim(), now())).unwrap();
        assert_eq!(new["status"]["conditions"][0]["reason"], "PoolExhausted");
        assert_eq!(new["status"]["deprecated"]["v1beta1"]["conditions"][0]["severity"], "Warning");
        let old = serde_json::to_value(report.written_on(ContractVersion::V1Beta1, &claim(), now())).unwrap();
        assert_eq!(old["status"]["conditions"][0]["severity"], "Warning");
        assert_eq!(old["status"]["v1beta2"]["conditions"][0]["reason"], "PoolExhausted");
    }

    #[test]
    fn that_all_is_well_is_told_to_old_clients_only_where_they_were_told_of_trouble() {
        let allocation = Allocation { address: [10, 0, 0, 5].into(), prefix: 24, gateway: None };
        let bound = |claim: &IPAddressClaim| {
            let bound = Report::bound(claim, &allocation).bound_on(ContractVersion::V1Beta2, claim, now());
            serde_json::to_value(bound.status).unwrap()
        };
        assert_eq!(bound(&claim())["conditions"][0]["status"], "True");
        assert_eq!(bound(&claim())["deprecated"], json!(null));
        let refused = Report::refused(&HandlerError::PoolExhausted("none left".into()));
        let waited = refused.written_on(ContractVersion::V1Beta2, &claim(), now());
        assert_eq!(bound(&waited)["deprecated"]["v1beta1"]["conditions"][0]["status"], "True");
    }

    #[test]
    fn what_is_said_already_is_not_said_again() {
        let report = Report::waits(&claim(), Waiting::ClusterPaused, None);
        assert!(!report.is_on(ContractVersion::V1Beta2, &claim()));
        let written = report.written_on(ContractVersion::V1Beta2, &claim(), now());
        assert!(report.is_on(ContractVersion::V1Beta2, &written));
    }

    #[test]
    fn paused_goes_when_the_claim_goes_on() {
        let paused = Report::waits(&claim(), Waiting::ClusterPaused, None);
        let written = paused.written_on(ContractVersion::V1Beta2, &claim(), now());
        let allocation = Allocation { address: [10, 0, 0, 5].into(), prefix: 24, gateway: None };
        let bound = Report::bound(&claim(), &allocation).bound_on(ContractVersion::V1Beta2, &written, now());
        let status = bound.status.unwrap();
        assert_eq!(status.conditions.len(), 1);
        assert_eq!(status.conditions[0].message.as_deref(), Some("10.0.0.5/24 from InClusterIPPool p"));
        assert_eq!(status.address_ref.unwrap().name, "c");
    }
}
