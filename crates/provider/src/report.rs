//! What a claim's conditions say.

use std::error::Error;

use capi_ipam_controller::{clock, finalizer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::adapter::{Allocation, HandlerError};
use crate::api::conditions::{self, Condition};
use crate::api::{ContractVersion, IPAddressClaim, IPAddressClaimStatus, LocalReference};
use crate::decision::Waiting;
use crate::reconciler::is_foreign;
use crate::rewrite::Difference;

/// A claim's state in words: the reason and text of `Ready`, and whether `Paused` is True. The text of a claim that is ready
/// is for the event alone: other controllers copy the messages of conditions into those of their own objects.
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
            Waiting::Finalizers => {
                let mut others: Vec<&str> = finalizer::all(claim).filter(|name| is_foreign(name)).collect();
                others.sort_unstable();
                Self::waiting(
                    conditions::DELETING,
                    format!(
                        "the claim is being deleted; its address is released once others have removed their finalizers: {}",
                        others.join(", ")
                    ),
                )
            }
            Waiting::PoolUnavailable => Self::waiting(
                conditions::POOL_NOT_READY,
                why.map_or_else(|| format!("{} cannot serve claims", pool_name(claim)), ToString::to_string),
            ),
        }
    }

    /// The claim is being deleted, and others have finalizers on its IPAddress.
    pub(super) fn address_held(claim: &IPAddressClaim) -> Self {
        let name = claim.name_any();
        let message = format!(
            "the claim is being deleted; its address is released once others have removed their finalizers from the \
             IPAddress {name}"
        );
        Self::waiting(conditions::DELETING, message)
    }

    /// The claim had an address where it comes from.
    pub(super) fn awaits_address(until: jiff::Timestamp) -> Self {
        Self::waiting(
            conditions::AWAITING_ADDRESS,
            format!(
                "the claim was moved or restored here and had an address; waiting until {until} for its IPAddress to be \
                 restored; to allocate a new address now, remove the finalizer {} from the claim",
                crate::api::names::RELEASE_ADDRESS
            ),
        )
    }

    /// The claim cannot be served: attempts at it keep failing.
    pub(super) fn keeps_failing(claim: &IPAddressClaim, error: &(dyn Error + 'static)) -> Self {
        let message = explain(error);
        if claim.metadata.deletion_timestamp.is_some() {
            return Self::failed(conditions::RELEASE_FAILED, format!("cannot release the address: {message}"));
        }
        Self::failed(conditions::ALLOCATION_FAILED, message)
    }

    /// The handler did not give an address.
    pub(super) fn refused(error: &HandlerError) -> Self {
        let message = explain(error);
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

    /// How the claim's conditions differ from those that say so.
    pub(super) fn difference(&self, version: ContractVersion, claim: &IPAddressClaim) -> Difference {
        let written = self.written_on(version, claim, clock::now());
        if written.status == claim.status {
            Difference::None
        } else if without_messages(written.status) == without_messages(claim.status.clone()) {
            Difference::Message
        } else {
            Difference::State
        }
    }

    /// The claim with its conditions saying so, in the lists of both versions of the contract: controllers that read the
    /// older one take a claim without `Ready` there for one that is not.
    pub(super) fn written_on(&self, version: ContractVersion, claim: &IPAddressClaim, now: Time) -> IPAddressClaim {
        let mut written = claim.clone();
        let generation = claim.metadata.generation;
        let status = written.status.get_or_insert_default();
        let message = if self.ready { "" } else { self.message.as_str() };
        let ready = Condition::new(conditions::READY, self.ready, self.reason, message).observed(generation);
        conditions::set(status.legacy_conditions_mut(version), ready.legacy(self.severity), now.clone());
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

/// The error and its sources in one line; what the API server answered in its own words.
fn explain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let answer = answer(source);
        let part = answer.map_or_else(|| source.to_string(), str::to_owned);
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        next = if answer.is_some() { None } else { source.source() };
    }
    text.replace('\n', " ")
}

/// The message of the API server's answer, if the error is one.
fn answer<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(Box::as_ref);
    match error.downcast_ref::<kube::Error>().or_else(boxed) {
        Some(kube::Error::Api(status)) if !status.message.is_empty() => Some(&status.message),
        _ => None,
    }
}

fn without_messages(status: Option<IPAddressClaimStatus>) -> Option<IPAddressClaimStatus> {
    let mut status = status?;
    for version in ContractVersion::ALL {
        for condition in status.conditions_mut(version) {
            condition.message = None;
        }
        for condition in status.legacy_conditions_mut(version) {
            condition.message = None;
        }
    }
    Some(status)
}

fn pool_name(claim: &IPAddressClaim) -> String {
    format!("{} {}", claim.spec.pool_ref.kind, claim.spec.pool_ref.name)
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::client::CallError;
    use capi_ipam_controller::clock::now;
    use serde_json::json;

    use crate::api::names;
    use super::*;

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
    fn a_bound_claim_is_ready_in_both_lists_without_message() {
        let allocation = Allocation { address: [10, 0, 0, 5].into(), prefix: 24, gateway: None };
        for version in ContractVersion::ALL {
            let refused = Report::refused(&HandlerError::PoolExhausted("none left".into()));
            for claim in [claim(), refused.written_on(version, &claim(), now())] {
                let mut status = Report::bound(&claim, &allocation).bound_on(version, &claim, now()).status.unwrap();
                let time = status.conditions[0].last_transition_time.clone();
                assert!(time.is_some());
                let ready = json!({"type": "Ready", "status": "True", "reason": "AddressAllocated", "message": "",
                                   "lastTransitionTime": time});
                assert_eq!(json!(status.conditions_mut(version)), json!([ready]), "{version:?}");
                let legacy = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
                assert_eq!(json!(status.legacy_conditions_mut(version)), json!([legacy]), "{version:?}");
            }
        }
    }

    #[test]
    fn a_difference_of_messages_alone_is_recognized() {
        let exhausted = |text: &str| Report::refused(&HandlerError::PoolExhausted(text.into()));
        for version in ContractVersion::ALL {
            assert_eq!(exhausted("1 in use").difference(version, &claim()), Difference::State);
            let written = exhausted("1 in use").written_on(version, &claim(), now());
            assert_eq!(exhausted("1 in use").difference(version, &written), Difference::None);
            assert_eq!(exhausted("2 in use").difference(version, &written), Difference::Message);
            let failed = Report::refused(&HandlerError::Permanent("1 in use".into()));
            assert_eq!(failed.difference(version, &written), Difference::State);
            let paused = Report::waits(&claim(), Waiting::ClusterPaused, None);
            assert_eq!(paused.difference(version, &written), Difference::State);
        }
    }

    #[test]
    fn a_failure_is_reported_in_the_words_of_the_api_server() {
        let status = kube::core::Status::failure("exceeded quota: few", "Forbidden").with_code(403);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let failed = CallError::Failed { operation: "create IPAddress c".to_owned(), source };
        let refused = HandlerError::transient("the API server refuses the IPAddress", failed);
        let report = Report::keeps_failing(&claim(), &refused);
        assert_eq!(report.reason, "AllocationFailed");
        assert_eq!(
            report.message,
            "the API server refuses the IPAddress: cannot create IPAddress c: exceeded quota: few"
        );
        let mut deleted = claim();
        deleted.metadata.deletion_timestamp = Some(now());
        assert_eq!(Report::keeps_failing(&deleted, &refused).reason, "ReleaseFailed");
    }

    #[test]
    fn a_deleted_claim_names_the_finalizers_of_others() {
        let mut claim = claim();
        let all = ["example.com/b", "foregroundDeletion", names::RELEASE_ADDRESS, "example.com/a"];
        claim.metadata.finalizers = Some(all.map(str::to_owned).into());
        let report = Report::waits(&claim, Waiting::Finalizers, None);
        assert!(report.message.ends_with(": example.com/a, example.com/b"), "{}", report.message);
    }

    #[test]
    fn paused_goes_when_the_claim_goes_on() {
        let paused = Report::waits(&claim(), Waiting::ClusterPaused, None);
        let written = paused.written_on(ContractVersion::V1Beta2, &claim(), now());
        let allocation = Allocation { address: [10, 0, 0, 5].into(), prefix: 24, gateway: None };
        let bound = Report::bound(&claim(), &allocation).bound_on(ContractVersion::V1Beta2, &written, now());
        let status = bound.status.unwrap();
        assert_eq!(status.conditions.len(), 1);
        assert_eq!(status.conditions[0].status, "True");
        assert_eq!(status.address_ref.unwrap().name, "c");
    }
}
