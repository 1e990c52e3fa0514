//! The conditions of a claim: what they report in each state, and how they are applied.

use std::error::Error;

use capi_ipam_controller::client::error_text;
use capi_ipam_controller::finalizer;
use capi_ipam_protocol::decision::{EarlyRelease, WaitReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use crate::adapter::{Allocation, HandlerError};
use crate::api::advice::{ANOTHER_POOL, MISSING_CLUSTER, PAUSED};
use crate::api::conditions::{self, Condition};
use crate::api::{
    ContractVersion, IPAddress, IPAddressClaim, IPAddressClaimStatus, LocalReference, names,
};
use crate::attempt_state::StatusDiff;

/// Precedes the last error in the message of a claim whose address cannot be released.
const LAST_FAILURE: &str = "; not released yet, the last attempt failed: ";

/// The desired conditions of a claim: status, reason and message of `Ready`, and whether `Paused`
/// is True.
///
/// The message of a bound claim is used for the event only, and its condition has no message: other
/// controllers copy messages of conditions to their own objects.
#[derive(Clone)]
pub(super) struct ClaimConditions {
    pub(super) ready: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) paused: bool,
    severity: &'static str,
}

impl ClaimConditions {
    fn info(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            ready: false,
            reason,
            message: message.into(),
            paused: false,
            severity: "Info",
        }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: "Warning",
            ..Self::info(reason, message)
        }
    }

    fn error(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: "Error",
            ..Self::info(reason, message)
        }
    }

    fn paused(message: impl Into<String>) -> Self {
        Self {
            paused: true,
            ..Self::info(conditions::PAUSED_REASON, message)
        }
    }

    /// The claim is bound to its address, which is from `pool`.
    pub(super) fn bound(pool: &str, allocation: &Allocation) -> Self {
        let Allocation {
            address, prefix, ..
        } = allocation;
        let message = format!("{address}/{prefix} from {pool}");
        Self {
            ready: true,
            ..Self::info(conditions::ADDRESS_ALLOCATED, message)
        }
    }

    /// The claim waits. `pool` is its pool, and `error` the error of the handler if the pool is
    /// unavailable.
    pub(super) fn waiting(
        claim: &IPAddressClaim,
        pool: &str,
        reason: WaitReason,
        error: Option<&HandlerError>,
    ) -> Self {
        let cluster = claim.cluster_name().unwrap_or_default();
        match reason {
            WaitReason::ClusterPaused => {
                Self::paused(format!("Cluster {cluster} is paused; {PAUSED}"))
            }
            WaitReason::ClusterMissing => Self::info(
                conditions::CLUSTER_NOT_FOUND,
                format!("Cluster {cluster} does not exist; {MISSING_CLUSTER}"),
            ),
            WaitReason::ClaimPaused => Self::paused(format!(
                "the claim is paused; {PAUSED}: remove its annotation {}",
                names::PAUSED_ANNOTATION
            )),
            WaitReason::PoolPaused => Self {
                paused: true,
                ..Self::info(
                    conditions::POOL_NOT_READY,
                    format!(
                        "{pool} is paused; {PAUSED}: remove its annotation {}",
                        names::PAUSED_ANNOTATION
                    ),
                )
            },
            WaitReason::PoolDeleting => Self::info(
                conditions::POOL_NOT_READY,
                format!("{pool} is being deleted and does not allocate addresses; {ANOTHER_POOL}"),
            ),
            WaitReason::ForeignFinalizers => Self::terminating(claim, None),
            WaitReason::PoolUnavailable => Self::info(
                conditions::POOL_NOT_READY,
                error.map_or_else(
                    || format!("{pool} cannot serve claims"),
                    ToString::to_string,
                ),
            ),
        }
    }

    /// The claim is being deleted and has finalizers of other controllers. Its address is released
    /// `at` the latest.
    pub(super) fn terminating(claim: &IPAddressClaim, at: Option<jiff::Timestamp>) -> Self {
        let others = foreign_finalizers(claim);
        let at = at
            .map(|at| format!(" (or at {at}, because its pool limits the time)"))
            .unwrap_or_default();
        Self::info(
            conditions::DELETING,
            format!(
                "the claim is being deleted; its address is released after these finalizers are removed{at}: {others}"
            ),
        )
    }

    /// The claim is being deleted, and its address is released although it has finalizers of other
    /// controllers. `pool` is its pool.
    pub(super) fn released_early(claim: &IPAddressClaim, pool: &str, reason: EarlyRelease) -> Self {
        let why = match reason {
            EarlyRelease::Requested => {
                format!(
                    "its annotation {} requests it",
                    names::RELEASE_NOW_ANNOTATION
                )
            }
            EarlyRelease::No | EarlyRelease::TimedOut => {
                format!("it has been terminating for longer than {pool} permits")
            }
        };
        let others = foreign_finalizers(claim);
        let message = format!(
            "the address of the claim is released because {why}; a machine may still use it: these finalizers are left \
             on the claim: {others}"
        );
        Self::warning(conditions::RELEASED_EARLY, message)
    }

    /// The same, after several consecutive attempts that failed, the last one with `error`.
    /// `message` is that of the condition.
    pub(super) fn failed_early_release(message: &str, error: &(dyn Error + 'static)) -> Self {
        let (before, _) = message.split_once(LAST_FAILURE).unwrap_or((message, ""));
        let message = format!("{before}{LAST_FAILURE}{}", error_text(error));
        Self::warning(conditions::RELEASED_EARLY, message)
    }

    /// The same, while finalizers of other controllers keep the IPAddress.
    #[must_use]
    pub(super) fn waiting_for_address(mut self, address: &IPAddress) -> Self {
        self.message.push_str("; it is not free before ");
        self.message.push_str(&address_finalizers(address));
        self
    }

    /// The claim is being deleted, and its IPAddress has finalizers of other controllers.
    pub(super) fn blocked_by_address_finalizers(address: &IPAddress) -> Self {
        let message = format!(
            "the claim is being deleted; its address is released after {}",
            address_finalizers(address)
        );
        Self::info(conditions::DELETING, message)
    }

    /// The claim was moved or restored, and its IPAddress is expected to be restored until `until`.
    pub(super) fn awaiting_address(until: jiff::Timestamp) -> Self {
        Self::info(
            conditions::AWAITING_ADDRESS,
            format!(
                "the claim was moved or restored to this cluster and had an address; waiting until {until} for its \
                 IPAddress to be restored; to allocate an address now, remove the finalizer {}, and no other \
                 one, from the claim, after its old address is reserved for it if it has to keep that one",
                names::RELEASE_ADDRESS
            ),
        )
    }

    /// Several consecutive attempts to allocate or release the address failed, the last one with
    /// `error`.
    pub(super) fn repeated_failure(claim: &IPAddressClaim, error: &(dyn Error + 'static)) -> Self {
        let message = error_text(error);
        if claim.metadata.deletion_timestamp.is_some() {
            return Self::error(
                conditions::RELEASE_FAILED,
                format!("cannot release the address: {message}"),
            );
        }
        Self::error(conditions::ALLOCATION_FAILED, message)
    }

    /// The handler returned an error instead of an address.
    pub(super) fn failed(error: &HandlerError) -> Self {
        let message = error_text(error);
        match error {
            HandlerError::PoolNotFound(_)
            | HandlerError::PoolNotReady(_)
            | HandlerError::RetryAfter { .. }
            | HandlerError::Conflict(_) => Self::info(conditions::POOL_NOT_READY, message),
            HandlerError::PoolExhausted(_) => Self::warning(conditions::POOL_EXHAUSTED, message),
            HandlerError::PoolNotAllowed(_) => Self::warning(conditions::POOL_NOT_ALLOWED, message),
            HandlerError::QuotaExceeded(_) => Self::warning(conditions::QUOTA_EXCEEDED, message),
            HandlerError::Waiting { reason, .. } => Self::warning(reason, message),
            HandlerError::DuplicateAddress(_) => {
                Self::error(conditions::DUPLICATE_ADDRESS, message)
            }
            HandlerError::Transient { .. } | HandlerError::Permanent(_) => {
                Self::error(conditions::ALLOCATION_FAILED, message)
            }
        }
    }

    /// Returns the claim with these conditions, in the lists of both versions of the contract:
    /// controllers that read the `v1beta1` list treat a claim without `Ready` as not ready.
    pub(super) fn apply_to(
        &self,
        version: ContractVersion,
        claim: &IPAddressClaim,
        now: Time,
    ) -> IPAddressClaim {
        let mut written = claim.clone();
        let generation = claim.metadata.generation;
        let status = written.status.get_or_insert_default();
        let mut message = self.message.as_str();
        if self.ready {
            message = "";
            status.address_ref = Some(LocalReference {
                name: claim.name_any(),
            });
        }
        let observed = |condition: Condition| condition.with_observed_generation(generation);
        let ready = Condition::new(conditions::READY, self.ready, self.reason, message);
        let ready = observed(ready);
        conditions::set(
            status.v1beta1_conditions_mut(version),
            ready.to_v1beta1(self.severity),
            now.clone(),
        );
        let list = status.conditions_mut(version);
        conditions::set(list, ready, now.clone());
        if self.reason == conditions::AWAITING_ADDRESS {
            // It stays when `Ready` has another reason: the status that showed the restore may be
            // overwritten.
            let type_ = conditions::RESTORED_WITHOUT_ADDRESS;
            let message = "the IPAddress of the claim is not restored yet";
            let restored = Condition::new(type_, false, self.reason, message);
            conditions::set(list, observed(restored), now.clone());
        }
        if self.paused {
            let (type_, reason) = (conditions::PAUSED, conditions::PAUSED_REASON);
            let paused = Condition::new(type_, true, reason, self.message.clone());
            conditions::set(list, observed(paused), now);
        } else {
            conditions::remove(list, conditions::PAUSED);
        }
        written
    }
}

/// A condition of a claim.
pub(super) fn condition<'a>(
    version: ContractVersion,
    claim: &'a IPAddressClaim,
    type_: &str,
) -> Option<&'a Condition> {
    conditions::find(claim.status.as_ref()?.conditions(version), type_)
}

/// Compares the status of the claim with the desired one.
pub(super) fn status_diff(claim: &IPAddressClaim, desired: &IPAddressClaim) -> StatusDiff {
    if desired.status == claim.status {
        StatusDiff::None
    } else if without_messages(desired.status.clone()) == without_messages(claim.status.clone()) {
        StatusDiff::Message
    } else {
        StatusDiff::State
    }
}

fn without_messages(status: Option<IPAddressClaimStatus>) -> Option<IPAddressClaimStatus> {
    let mut status = status?;
    for version in ContractVersion::ALL {
        for condition in status.conditions_mut(version) {
            condition.message = None;
        }
        for condition in status.v1beta1_conditions_mut(version) {
            condition.message = None;
        }
    }
    Some(status)
}

/// The finalizers of other controllers on a claim, in alphabetical order.
fn foreign_finalizers(claim: &IPAddressClaim) -> String {
    sorted(finalizer::all(claim).filter(|name| names::is_foreign_finalizer(name)))
}

/// Which finalizers keep an IPAddress in deletion.
fn address_finalizers(address: &IPAddress) -> String {
    let others = finalizer::all(address).filter(|name| *name != names::PROTECT_ADDRESS);
    format!(
        "these finalizers are removed from IPAddress {}: {}",
        address.name_any(),
        sorted(others)
    )
}

fn sorted<'a>(finalizers: impl Iterator<Item = &'a str>) -> String {
    let mut finalizers: Vec<&str> = finalizers.collect();
    finalizers.sort_unstable();
    finalizers.join(", ")
}

/// Returns whether the claim reports that it waits for a free address. Then it was reconciled in
/// this cluster before: a restored claim reports none of these reasons.
pub(crate) fn waits_for_free_address(claim: &IPAddressClaim) -> bool {
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let waited = [
        conditions::POOL_EXHAUSTED,
        conditions::QUOTA_EXCEEDED,
        conditions::REQUESTED_ADDRESS_UNAVAILABLE,
    ];
    conditions
        .into_iter()
        .any(|condition| waited.contains(&condition.reason()))
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::client::CallError;
    use capi_ipam_controller::clock::now;
    use serde_json::json;

    use super::*;

    const POOL: &str = "InClusterIPPool n/p";

    fn claim() -> IPAddressClaim {
        serde_json::from_value(json!({"metadata": {"name": "c"},
            "spec": {"clusterName": "alpha", "poolRef": {"kind": "InClusterIPPool", "name": "p"}}}))
        .unwrap()
    }

    #[test]
    fn both_contract_versions_get_both_condition_lists() {
        let status = ClaimConditions::failed(&HandlerError::PoolExhausted("none left".into()));
        let new = serde_json::to_value(status.apply_to(ContractVersion::V1Beta2, &claim(), now()))
            .unwrap();
        assert_eq!(new["status"]["conditions"][0]["reason"], "PoolExhausted");
        assert_eq!(
            new["status"]["deprecated"]["v1beta1"]["conditions"][0]["severity"],
            "Warning"
        );
        let old = serde_json::to_value(status.apply_to(ContractVersion::V1Beta1, &claim(), now()))
            .unwrap();
        assert_eq!(old["status"]["conditions"][0]["severity"], "Warning");
        assert_eq!(
            old["status"]["v1beta2"]["conditions"][0]["reason"],
            "PoolExhausted"
        );
    }

    #[test]
    fn bound_claim_is_ready_without_message_in_both_lists() {
        let allocation = Allocation::new([10, 0, 0, 5], 24);
        for version in ContractVersion::ALL {
            let failed = ClaimConditions::failed(&HandlerError::PoolExhausted("none left".into()));
            for claim in [claim(), failed.apply_to(version, &claim(), now())] {
                let mut status = ClaimConditions::bound(POOL, &allocation)
                    .apply_to(version, &claim, now())
                    .status
                    .unwrap();
                let time = status.conditions[0].last_transition_time.clone();
                assert!(time.is_some());
                let ready = json!({"type": "Ready", "status": "True", "reason": "AddressAllocated", "message": "",
                                   "lastTransitionTime": time});
                assert_eq!(
                    json!(status.conditions_mut(version)),
                    json!([ready]),
                    "{version:?}"
                );
                let legacy = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
                assert_eq!(
                    json!(status.v1beta1_conditions_mut(version)),
                    json!([legacy]),
                    "{version:?}"
                );
            }
        }
    }

    #[test]
    fn message_only_difference_is_detected() {
        let exhausted =
            |text: &str| ClaimConditions::failed(&HandlerError::PoolExhausted(text.into()));
        for version in ContractVersion::ALL {
            let diff = |status: &ClaimConditions, claim: &IPAddressClaim| {
                status_diff(claim, &status.apply_to(version, claim, now()))
            };
            assert_eq!(diff(&exhausted("1 in use"), &claim()), StatusDiff::State);
            let written = exhausted("1 in use").apply_to(version, &claim(), now());
            assert_eq!(diff(&exhausted("1 in use"), &written), StatusDiff::None);
            assert_eq!(diff(&exhausted("2 in use"), &written), StatusDiff::Message);
            let failed = ClaimConditions::failed(&HandlerError::Permanent("1 in use".into()));
            assert_eq!(diff(&failed, &written), StatusDiff::State);
            let paused = ClaimConditions::waiting(&claim(), POOL, WaitReason::ClusterPaused, None);
            assert_eq!(diff(&paused, &written), StatusDiff::State);
        }
    }

    #[test]
    fn failure_message_is_that_of_the_api_server() {
        let status = kube::core::Status::failure("exceeded quota: few", "Forbidden").with_code(403);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let failed = CallError::Failed {
            operation: "create IPAddress c".to_owned(),
            source,
        };
        let refused = HandlerError::transient("the API server rejected the IPAddress", failed);
        let status = ClaimConditions::repeated_failure(&claim(), &refused);
        assert_eq!(status.reason, "AllocationFailed");
        assert_eq!(
            status.message,
            "the API server rejected the IPAddress: cannot create IPAddress c: exceeded quota: few"
        );
        let mut deleted = claim();
        deleted.metadata.deletion_timestamp = Some(now());
        assert_eq!(
            ClaimConditions::repeated_failure(&deleted, &refused).reason,
            "ReleaseFailed"
        );
    }

    #[test]
    fn deleting_claim_lists_foreign_finalizers() {
        let mut claim = claim();
        let all = [
            "example.com/b",
            "foregroundDeletion",
            names::RELEASE_ADDRESS,
            "example.com/a",
        ];
        claim.metadata.finalizers = Some(all.map(str::to_owned).into());
        let status = ClaimConditions::waiting(&claim, POOL, WaitReason::ForeignFinalizers, None);
        assert_eq!(foreign_finalizers(&claim), "example.com/a, example.com/b");
        assert!(
            status
                .message
                .ends_with("removed: example.com/a, example.com/b"),
            "{}",
            status.message
        );
        let status =
            ClaimConditions::terminating(&claim, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert!(
            status
                .message
                .contains("removed (or at 2026-01-01T00:00:00Z, because"),
            "{}",
            status.message
        );
        let status = ClaimConditions::released_early(&claim, POOL, EarlyRelease::TimedOut)
            .waiting_for_address(&address());
        assert!(
            status
                .message
                .contains("than InClusterIPPool n/p permits; a machine"),
            "{}",
            status.message
        );
        assert!(
            status
                .message
                .contains("on the claim: example.com/a, example.com/b; it is not free before"),
            "{}",
            status.message
        );
    }

    fn address() -> IPAddress {
        let mut address = IPAddress::default();
        address.metadata.name = Some("c".to_owned());
        let all = [names::PROTECT_ADDRESS, "example.com/d", "example.com/c"];
        address.metadata.finalizers = Some(all.map(str::to_owned).into());
        address
    }

    #[test]
    fn finalizers_of_the_address_are_named() {
        let blocked = ClaimConditions::blocked_by_address_finalizers(&address());
        assert_eq!(
            blocked.message,
            "the claim is being deleted; its address is released after these finalizers are removed from IPAddress c: \
             example.com/c, example.com/d"
        );
    }

    #[test]
    fn claim_of_a_deleted_pool_is_advised() {
        let waiting = ClaimConditions::waiting(&claim(), POOL, WaitReason::PoolDeleting, None);
        assert_eq!(
            waiting.message,
            "InClusterIPPool n/p is being deleted and does not allocate addresses; delete the claim, so that its \
             controller creates it with another pool"
        );
    }

    #[test]
    fn paused_condition_is_removed_on_bind() {
        let paused = ClaimConditions::waiting(&claim(), POOL, WaitReason::ClusterPaused, None);
        let written = paused.apply_to(ContractVersion::V1Beta2, &claim(), now());
        let allocation = Allocation::new([10, 0, 0, 5], 24);
        let bound = ClaimConditions::bound(POOL, &allocation).apply_to(
            ContractVersion::V1Beta2,
            &written,
            now(),
        );
        let status = bound.status.unwrap();
        assert_eq!(status.conditions.len(), 1);
        assert_eq!(status.conditions[0].status, "True");
        assert_eq!(status.address_ref.unwrap().name, "c");
    }
}
