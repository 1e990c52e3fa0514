//! Claims that were moved or restored to this cluster, and already had an address.
//!
//! `clusterctl move` and backup tools create a claim before its IPAddress and without its status.
//! If such a claim were served immediately, it would get a different address than its machine uses.
//! It therefore waits for its IPAddress to be restored, with a timeout. [`origin`] has the evidence
//! for a restore.
//!
//! A claim that was created with our finalizer, without such evidence, may have been copied, or
//! deployed from a repository, with the finalizer in its manifest. Its IPAddress is never restored.
//! It waits only as long as the second write of a restore may take, unless its Cluster is new in
//! this cluster too.
//!
//! A claim that gets a new address although it was restored, or may have been, reports it in a
//! condition: its machine may use another address. The condition is written before the address is
//! allocated, so that no interruption loses it.

mod origin;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use capi_ipam_controller::absence::Absence;
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_controller::{clock, finalizer};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use self::origin::{Origin, origin};
use crate::adapter::{Allocation, ProviderAdapter};
use crate::api::conditions::{self, Condition};
use crate::api::{ContractVersion, IPAddressClaim, names};
use crate::attempt_state::AttemptState;
use crate::claim_conditions::{ClaimConditions, condition, waits_for_free_address};
use crate::error::ReconcileError;
use crate::reconciler::{CONFLICT_RETRY_DELAY, ClaimReconciler};

/// How long a claim waits that was created with our finalizer, without further evidence that it was
/// moved. Tools that restore managed fields do so immediately after they create the object.
const UNCONFIRMED_RESTORE_TIMEOUT: Duration = Duration::from_secs(5);

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Decides whether a claim waits for its IPAddress to be restored. Call it only for a claim
    /// without an IPAddress that had our finalizer before this process could set it. Reads the
    /// claim. `None` if it is served, in its state after this.
    pub(super) async fn check_restore(
        &self,
        claim: &mut IPAddressClaim,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Option<Action>, ReconcileError> {
        let version = self.contract.ipam;
        let is_decided =
            waits_for_free_address(claim) || replaced_address(version, claim).is_some();
        if !finalizer::is_set(claim, names::RELEASE_ADDRESS) || is_decided {
            return Ok(None);
        }
        let claims = self.contract.claims_beside(claim);
        let Some(found) = claims.get_metadata(&claim.name_any()).await? else {
            return Ok(Some(Action::AwaitChange));
        };
        if found.uid != claim.metadata.uid {
            return Ok(None);
        }
        // The report of the wait replaces the older status, which may be the only evidence.
        let is_awaited = awaits_address(version, claim);
        let origin = if is_awaited {
            Origin::Elsewhere
        } else {
            origin(&found, claim.status.as_ref())
        };
        let timeout = self.options.restored_claim_timeout;
        let has_moved = match origin {
            Origin::Here => return Ok(None),
            Origin::Elsewhere => true,
            Origin::Unknown => self.clusters.may_have_moved_with(claim, Instant::now()),
        };
        let permitted = if has_moved {
            timeout
        } else {
            timeout.min(UNCONFIRMED_RESTORE_TIMEOUT)
        };
        let created = claim.metadata.creation_timestamp.as_ref();
        let absence = created.map_or(Absence::Deleted, |time| Absence::Restore(time.0));
        let Some(left) = absence.remaining(permitted, clock::now().0) else {
            return self
                .report_replaced_address(claim, replacement(origin))
                .await;
        };
        if !has_moved {
            return Ok(Some(Action::Requeue(left)));
        }
        let created = created.map_or(jiff::Timestamp::MAX, |time| time.0);
        let until = created
            .saturating_add(SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX));
        let status = ClaimConditions::awaiting_address(until.unwrap_or(jiff::Timestamp::MAX));
        let update = self.update_status(claim, &status, attempt, left);
        Ok(Some(update.await?))
    }

    /// Writes on the claim that it gets a new address, before one is allocated.
    async fn report_replaced_address(
        &self,
        claim: &mut IPAddressClaim,
        condition: Condition,
    ) -> Result<Option<Action>, ReconcileError> {
        let mut desired = claim.clone();
        set_restored(self.contract.ipam, &mut desired, condition, clock::now());
        match self.write_claim(claim, &desired).await {
            Ok(written) => {
                if let Some(written) = written {
                    *claim = written;
                }
                Ok(None)
            }
            // The change or the deletion of the claim triggers another reconcile.
            Err(error) if error.has_changed() => Ok(Some(Action::Requeue(CONFLICT_RETRY_DELAY))),
            Err(error) => Err(error.into()),
        }
    }
}

/// The condition of a claim that gets a new address although it was restored, or may have been.
fn replacement(origin: Origin) -> Condition {
    let advice = "a new address is allocated to it, and its machine may use another one: compare them, and replace the \
                  machine if they differ";
    let (reason, message) = match origin {
        Origin::Elsewhere => (
            conditions::ADDRESS_NOT_RESTORED,
            format!(
                "the claim was moved or restored to this cluster, and its IPAddress was not restored; {advice}"
            ),
        ),
        Origin::Here | Origin::Unknown => (
            conditions::FINALIZER_AT_CREATION,
            format!(
                "the claim was created with the finalizer {} and without its IPAddress, as a restored claim is; if it \
                 was restored: {advice}",
                names::RELEASE_ADDRESS
            ),
        ),
    };
    Condition::new(conditions::RESTORED_WITHOUT_ADDRESS, true, reason, message)
}

/// The condition of a claim that gets, or got, a new address although it was restored, or may have
/// been.
pub(super) fn replaced_address(
    version: ContractVersion,
    claim: &IPAddressClaim,
) -> Option<&Condition> {
    restore_condition(version, claim).filter(|condition| condition.status == "True")
}

/// Whether the claim was found to be restored, and waits for its IPAddress. `Ready` can have
/// another reason since, such as that its pool is paused.
fn awaits_address(version: ContractVersion, claim: &IPAddressClaim) -> bool {
    restore_condition(version, claim).is_some_and(|condition| condition.status == "False")
}

fn restore_condition(version: ContractVersion, claim: &IPAddressClaim) -> Option<&Condition> {
    condition(version, claim, conditions::RESTORED_WITHOUT_ADDRESS)
}

/// Reports on a claim that waits for its IPAddress, and whose finalizer a user removed, that it
/// gets a new address: the user accepts one, but its machine may use another.
pub(super) fn end_wait(version: ContractVersion, claim: &mut IPAddressClaim, now: Time) {
    if awaits_address(version, claim) {
        set_restored(version, claim, replacement(Origin::Elsewhere), now);
    }
}

fn set_restored(
    version: ContractVersion,
    claim: &mut IPAddressClaim,
    condition: Condition,
    now: Time,
) {
    let condition = condition.with_observed_generation(claim.metadata.generation);
    let status = claim.status.get_or_insert_default();
    conditions::set(status.conditions_mut(version), condition, now);
}

/// Whether a user has chosen the address of a claim, by a reservation or by the annotation of the
/// claim. Then it is the one that its machine has.
pub(super) fn is_chosen(claim: &IPAddressClaim, allocation: &Allocation) -> bool {
    let requested = claim.requested_address();
    // A prefix, or an address with the length of its subnet.
    let requested = requested.and_then(|text| text.split('/').next());
    let requested = requested.and_then(|text| text.trim().parse::<IpAddr>().ok());
    allocation.is_promised
        || requested
            .is_some_and(|requested| requested.to_canonical() == allocation.address.to_canonical())
}

/// Removes the report of a claim that has the address that it had before the restore.
pub(super) fn confirm_restored(version: ContractVersion, claim: &mut IPAddressClaim) {
    if let Some(status) = claim.status.as_mut() {
        conditions::remove(
            status.conditions_mut(version),
            conditions::RESTORED_WITHOUT_ADDRESS,
        );
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_protocol::decision::WaitReason;
    use serde_json::json;

    use super::*;

    fn claim(status: &serde_json::Value) -> IPAddressClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"poolRef": {"kind": "Pool", "name": "p"}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn replaced_address_is_reported_until_it_is_restored() {
        let version = ContractVersion::V1Beta2;
        let reason = |claim: &IPAddressClaim| replaced_address(version, claim)?.reason.clone();
        let mut other = claim(
            &json!({"conditions": [{"type": "Ready", "status": "False", "reason": "PoolNotReady"}]}),
        );
        end_wait(version, &mut other, clock::now());
        assert_eq!(reason(&other), None);
        let mut replaced = waiting(version, &other);
        assert_eq!(reason(&replaced), None);
        end_wait(version, &mut replaced, clock::now());
        assert_eq!(reason(&replaced).as_deref(), Some("AddressNotRestored"));
        confirm_restored(version, &mut replaced);
        assert_eq!(reason(&replaced), None);
        assert_eq!(
            replacement(Origin::Unknown).reason.as_deref(),
            Some("FinalizerAtCreation")
        );
    }

    fn waiting(version: ContractVersion, claim: &IPAddressClaim) -> IPAddressClaim {
        let status = ClaimConditions::awaiting_address("2026-01-01T01:00:00Z".parse().unwrap());
        status.apply_to(version, claim, clock::now())
    }

    #[test]
    fn address_is_chosen_by_a_reservation_or_by_a_request() {
        let mut restored = claim(&json!({}));
        let allocation = Allocation::new([10, 0, 0, 7], 24);
        assert!(!is_chosen(&restored, &allocation));
        let promised = Allocation {
            is_promised: true,
            ..allocation.clone()
        };
        assert!(is_chosen(&restored, &promised));
        for (text, is_requested) in [("10.0.0.7", true), ("10.0.0.8", false), ("x", false)] {
            restored
                .annotations_mut()
                .insert(names::REQUESTED_ADDRESS.to_owned(), text.to_owned());
            assert_eq!(is_chosen(&restored, &allocation), is_requested, "{text}");
        }
    }

    /// The status that shows the restore is replaced by the report of the wait, and that one by
    /// others.
    #[test]
    fn claim_that_waits_for_its_address_keeps_waiting() {
        for version in ContractVersion::ALL {
            let before = claim(&json!({"addressRef": {"name": "c"}}));
            assert!(!awaits_address(version, &before));
            let waiting = waiting(version, &before);
            assert!(awaits_address(version, &waiting));
            let paused =
                ClaimConditions::waiting(&waiting, "Pool n/p", WaitReason::PoolPaused, None);
            let mut paused = paused.apply_to(version, &waiting, clock::now());
            assert!(awaits_address(version, &paused));
            confirm_restored(version, &mut paused);
            assert!(!awaits_address(version, &paused));
        }
    }
}
