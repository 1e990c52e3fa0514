//! The early release of a claim that is being deleted: its address is released although finalizers
//! of other controllers are left on the claim.
//!
//! Such a finalizer means that a machine may still use the address, so by default nothing is
//! released early. Two settings permit it: the annotation `release-now` with the uid of one claim,
//! and a time that a pool permits for all its claims
//! ([`PoolView::release_terminating_after`](crate::advanced::PoolView::release_terminating_after)).
//! The finalizers of other controllers are never removed. Before the first write a condition and an
//! event name them.

use std::collections::HashMap;
use std::time::Duration;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::clock;
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::watch::{EventHandler, Invalid, Keyed};
use capi_ipam_protocol::decision::{ClaimView, EarlyRelease};
use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tracing::info;

use crate::adapter::{HandlerError, PoolView, ProviderAdapter};
use crate::api::conditions;
use crate::api::{ContractVersion, IPAddressClaim, Uid, names};
use crate::attempt_state::AttemptState;
use crate::claim_conditions::ClaimConditions;
use crate::contract::uid_of;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::reconciler::ClaimReconciler;

/// Kubernetes stores times in whole seconds: the deletion may have started up to a second after
/// `deletionTimestamp`.
const PRECISION: SignedDuration = SignedDuration::from_secs(1);

/// Why the annotation `release-now` of a claim has no effect; `None` if it has one, or if there is
/// no annotation.
fn ignored_request(claim: &IPAddressClaim) -> Option<String> {
    let annotation = names::RELEASE_NOW_ANNOTATION;
    let value = claim.metadata.annotations.as_ref()?.get(annotation)?;
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let why = match (claim.is_deleting(), value == uid) {
        (true, true) => return None,
        (true, false) => {
            format!("its value is not the uid of the claim, which is {uid}")
        }
        (false, true) => {
            "the claim is not being deleted; remove the annotation, or the address is \
                          released as soon as the claim is deleted, even if a machine still uses it"
                .to_owned()
        }
        (false, false) => "the claim is not being deleted".to_owned(),
    };
    Some(format!("the annotation {annotation} has no effect: {why}"))
}

/// Whether a user requests the early release of this claim.
fn is_requested(claim: &IPAddressClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(names::RELEASE_NOW_ANNOTATION))
        && ignored_request(claim).is_none()
}

/// When a claim that is being deleted has been terminating for `limit`.
fn deadline(claim: &IPAddressClaim, limit: Duration) -> Option<Timestamp> {
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let limit = SignedDuration::try_from(limit)
        .unwrap_or(SignedDuration::MAX)
        .saturating_add(PRECISION);
    Some(deleted.checked_add(limit).unwrap_or(Timestamp::MAX))
}

fn left_until(deadline: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(deadline.duration_since(now)).unwrap_or_default()
}

/// When the address of a claim that is being deleted is released at the latest.
#[derive(Clone, Copy)]
pub(super) struct ReleaseTime {
    /// As the condition of the claim shows it.
    pub(super) at: Timestamp,
    /// How long that is from now.
    pub(super) left: Duration,
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// The early release that a user requests for a claim.
    pub(super) fn requested_release(claim: &IPAddressClaim) -> EarlyRelease {
        if is_requested(claim) {
            EarlyRelease::Requested
        } else {
            EarlyRelease::No
        }
    }

    /// Completes the view of a claim with the time that its pool permits. Returns when this time is
    /// over, if other controllers keep the claim and the pool limits the time.
    ///
    /// The time is over only if the clock of the API server says so as well: it set
    /// `deletionTimestamp`, and an address is not released early because the clock of this machine
    /// is wrong.
    pub(super) async fn observe_time_limit(
        &self,
        claim: &IPAddressClaim,
        pool: &PoolView,
        view: &mut ClaimView,
    ) -> Result<Option<ReleaseTime>, CallError> {
        let is_kept = view.deleting && view.has_finalizer && view.has_foreign_finalizers;
        let Some(limit) = pool.release_terminating_after.filter(|_| is_kept) else {
            return Ok(None);
        };
        if view.early_release != EarlyRelease::No {
            return Ok(None);
        }
        let Some(at) = deadline(claim, limit) else {
            return Ok(None);
        };
        let mut left = left_until(at, clock::now().0);
        if left.is_zero() {
            left = left_until(at, self.contract.server_now().await?);
        }
        if left.is_zero() {
            view.early_release = EarlyRelease::TimedOut;
        }
        Ok(Some(ReleaseTime { at, left }))
    }

    /// Reports that other controllers keep the claim. It is reconciled again when the time of its
    /// pool is over.
    pub(super) async fn wait_for_finalizers(
        &self,
        claim: &IPAddressClaim,
        error: Option<HandlerError>,
        time: Option<ReleaseTime>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        let status = ClaimConditions::terminating(claim, time.map(|time| time.at));
        let wait = self.retry_delay(error.as_ref());
        let wait = wait.min(self.options.resync_interval);
        let wait = time.map_or(wait, |time| time.left.min(wait));
        self.report_blocked_deletion(claim, &status, attempt, wait)
            .await
    }

    /// Reports which finalizers are passed over, and releases the address once the claim shows the
    /// report.
    pub(super) async fn release_early(
        &self,
        claim: &IPAddressClaim,
        reason: EarlyRelease,
        handler: &mut Guarded<A::Handler>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        let status = ClaimConditions::released_early(claim, &self.filter.pool_name(claim), reason);
        if !self.reports_early_release(claim) {
            // The watch event of the written status triggers the release.
            let update = self.update_status(claim, &status, attempt, EXPECTATION_TTL);
            return Ok(update.await?);
        }
        info!(
            namespace = claim.metadata.namespace,
            claim = claim.metadata.name,
            details = status.message,
            "releasing the address of a claim that has finalizers of other controllers"
        );
        self.release(claim, handler, attempt, Some(&status)).await
    }

    /// The status of a claim whose early release was reported and keeps failing. `None` for other
    /// claims.
    pub(super) fn failed_early_release(
        &self,
        claim: &IPAddressClaim,
        error: &ReconcileError,
    ) -> Option<ClaimConditions> {
        let message = self
            .ready_condition(claim)?
            .message
            .as_deref()
            .filter(|_| self.reports_early_release(claim))?;
        Some(ClaimConditions::failed_early_release(message, error))
    }

    pub(super) fn reports_early_release(&self, claim: &IPAddressClaim) -> bool {
        let ready = self.ready_condition(claim);
        ready.is_some_and(|ready| ready.reason() == conditions::RELEASED_EARLY)
    }
}

/// Publishes one event for each annotation `release-now` that has no effect, and for claims that
/// cannot be decoded.
pub(super) struct ReleaseRequestEvents {
    pub(super) version: ContractVersion,
    pub(super) events: EventPublisher,
    /// The last message about each claim.
    pub(super) reported: Mutex<HashMap<Uid, String>>,
}

impl EventHandler<IPAddressClaim> for ReleaseRequestEvents {
    fn apply(&self, claim: &IPAddressClaim) {
        let uid = uid_of(claim);
        let mut reported = self.reported.lock();
        let Some(message) = ignored_request(claim) else {
            reported.remove(&uid);
            return;
        };
        if reported.get(&uid) != Some(&message) {
            let reason = conditions::RELEASE_REQUEST_IGNORED;
            self.events
                .warning(claim, &self.version, reason, "Release", &message);
            reported.insert(uid, message);
        }
    }

    fn delete(&self, claim: &IPAddressClaim) {
        self.reported.lock().remove(&uid_of(claim));
    }

    fn apply_invalid(&self, claim: &Invalid) {
        let message = format!(
            "the claim cannot be decoded, and is served as it was before: {}; correct it",
            claim.error
        );
        let claim = IPAddressClaim {
            metadata: ObjectMeta::clone(&claim.metadata),
            ..IPAddressClaim::default()
        };
        let reason = conditions::UNDECODABLE;
        self.events
            .warning(&claim, &self.version, reason, "Inspect", &message);
    }

    /// The controller reports the last known state as deleted.
    fn delete_invalid(&self, _: &Invalid) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "6101ef08-5b98-40af-8a1f-bc85701b2e47";

    fn claim(deleted: Option<&str>, request: Option<&str>) -> IPAddressClaim {
        let annotations = request.map(|value| json!({ names::RELEASE_NOW_ANNOTATION: value }));
        serde_json::from_value(json!({
            "metadata": {"name": "c", "uid": UID, "deletionTimestamp": deleted, "annotations": annotations,
                "finalizers": ["example.com/b", names::RELEASE_ADDRESS, "foregroundDeletion", "example.com/a"]},
            "spec": {"poolRef": {"kind": "Pool", "name": "p"}},
        }))
        .unwrap()
    }

    #[test]
    fn request_needs_deletion_and_uid() {
        let deleted = Some("2026-01-01T00:00:00Z");
        let why = |deleted, request| {
            let claim = claim(deleted, request);
            let ignored = ignored_request(&claim);
            let is_effective = request.is_some() && ignored.is_none();
            assert_eq!(is_requested(&claim), is_effective);
            ignored.unwrap_or_default()
        };
        assert_eq!(why(deleted, Some(UID)), "");
        assert_eq!(why(deleted, None), "");
        assert_eq!(why(None, None), "");
        for other in ["", "true", "0001ef08-5b98-00af-8a1f-0085701b2e47"] {
            assert!(why(deleted, Some(other)).contains("is not the uid of the claim"));
            assert!(why(None, Some(other)).ends_with("the claim is not being deleted"));
        }
        assert!(why(None, Some(UID)).contains("remove the annotation"));
    }

    #[test]
    fn deadline_rounds_up_and_never_overflows() {
        let claim = claim(Some("2026-01-01T00:00:00Z"), None);
        let at = |seconds| deadline(&claim, Duration::from_secs(seconds)).unwrap();
        assert_eq!(at(60).to_string(), "2026-01-01T00:01:01Z");
        assert_eq!(at(u64::MAX), Timestamp::MAX);
        let now = "2026-01-01T00:01:00.5Z".parse().unwrap();
        assert_eq!(left_until(at(60), now), Duration::from_millis(500));
        assert_eq!(
            left_until(at(60), "2026-01-01T00:01:01Z".parse().unwrap()),
            Duration::ZERO
        );
        assert_eq!(
            left_until(at(60), "2027-01-01T00:00:00Z".parse().unwrap()),
            Duration::ZERO
        );
    }
}
