//! Writes the conditions of claims, and handles errors: condition, event, and delay before the next
//! attempt.

use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::clock;
use capi_ipam_controller::controller::{Action, Attempt};
use capi_ipam_controller::watch::Keyed;
use capi_ipam_protocol::decision::AddressState;
use kube::ResourceExt;
use tracing::{debug, info};

use crate::adapter::{HandlerError, ProviderAdapter};
use crate::api::IPAddressClaim;
use crate::attempt_state::{AttemptState, MAX_UNREPORTED_FAILURES, MESSAGE_DEBOUNCE, StatusDiff};
use crate::claim_conditions::{ClaimConditions, status_diff};
use crate::error::ReconcileError;
use crate::reconciler::ClaimReconciler;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Writes the conditions of the claim and publishes an event, unless the conditions are up to
    /// date. Returns when the claim is reconciled again: after `wait`, or earlier if the message is
    /// debounced.
    pub(super) async fn update_status(
        &self,
        claim: &IPAddressClaim,
        status: &ClaimConditions,
        attempt: &mut Attempt<AttemptState>,
        wait: Duration,
    ) -> Result<Action, CallError> {
        let version = self.contract.ipam;
        // Without what the API server does not store, or the difference would never become empty.
        let desired = status.apply_to(version, claim, clock::now());
        let desired = self.contract.claims_beside(claim).storable(claim, desired);
        let diff = status_diff(claim, &desired);
        if let Some(left) = attempt.state.message_delay(diff, Instant::now()) {
            return Ok(Action::Requeue(left.min(wait)));
        }
        match self.write_claim(claim, &desired).await {
            Ok(Some(_)) => {}
            // The API server would store nothing of what differs.
            Ok(None) => return Ok(Action::Requeue(wait)),
            // The change or the deletion of the claim triggers another reconcile.
            Err(error) if error.has_changed() => return Ok(Action::Requeue(wait)),
            Err(error) => return Err(error),
        }
        if diff == StatusDiff::State {
            self.log_not_ready(claim, status);
        }
        self.metrics.record_failure(status.reason);
        self.events
            .warning(claim, &version, status.reason, "Allocate", &status.message);
        Ok(Action::Requeue(wait))
    }

    /// Logs that a claim is no longer ready, or for another reason. Many claims can wait for one
    /// pool: the log has the first one with each reason, and others at a growing interval.
    fn log_not_ready(&self, claim: &IPAddressClaim, status: &ClaimConditions) {
        let pool = self.filter.pool_name(claim);
        let reason = status.reason;
        let problem = format!("{reason} {pool}");
        let claim = claim.key().to_string();
        let details = &status.message;
        match self.waiting_log.allow(&problem, Instant::now()) {
            Some(others) => info!(claim, pool, reason, details, others, "claim is not ready"),
            None => debug!(claim, pool, reason, details, "claim is not ready"),
        }
    }

    /// Handles the result of an attempt to bind a claim. After an error of the handler: condition,
    /// event, and delay before the next attempt.
    pub(super) async fn handle_bound(
        &self,
        claim: &IPAddressClaim,
        attempt: &mut Attempt<AttemptState>,
        bound: Result<Action, ReconcileError>,
    ) -> Result<Action, ReconcileError> {
        let Err(ReconcileError::Handler(error)) = bound else {
            return bound;
        };
        let status = ClaimConditions::failed(&error);
        self.wait(claim, Some(status), attempt, Some(error)).await
    }

    /// Reports why a claim waits, if that is to be reported. `error` is that of the handler.
    pub(super) async fn wait(
        &self,
        claim: &IPAddressClaim,
        status: Option<ClaimConditions>,
        attempt: &mut Attempt<AttemptState>,
        error: Option<HandlerError>,
    ) -> Result<Action, ReconcileError> {
        let wait = self.retry_delay(error.as_ref());
        let is_reported = match error {
            Some(error @ (HandlerError::Transient { .. } | HandlerError::Conflict(_))) => {
                return Err(error.into());
            }
            Some(HandlerError::RetryAfter { after, .. }) => {
                attempt.state.record_not_ready(after, Instant::now())
            }
            Some(_) => {
                attempt.state.record_ready();
                true
            }
            None => true,
        };
        match status.filter(|_| is_reported) {
            Some(status) => Ok(self.report(claim, &status, attempt, wait).await?),
            None => Ok(Action::Requeue(wait)),
        }
    }

    /// [Updates](Self::update_status) the status of a claim that this process may have written
    /// since.
    async fn report(
        &self,
        claim: &IPAddressClaim,
        status: &ClaimConditions,
        attempt: &mut Attempt<AttemptState>,
        wait: Duration,
    ) -> Result<Action, CallError> {
        let Some(current) = self.latest(claim).await? else {
            return Ok(Action::Requeue(wait));
        };
        self.update_status(&current, status, attempt, wait).await
    }

    /// Reports on the claim that attempts keep failing, the last one with `error`.
    pub(super) async fn report_failure(
        &self,
        claim: &IPAddressClaim,
        attempt: &mut Attempt<AttemptState>,
        error: &ReconcileError,
    ) {
        let early = self.failed_early_release(claim, error);
        let status = early.unwrap_or_else(|| ClaimConditions::repeated_failure(claim, error));
        // A bound claim stays ready if its IPAddress exists and only its repair fails.
        let is_usable = !claim.is_deleting()
            && claim.bound_address().is_some()
            && self.addresses.state_for(claim) != AddressState::Absent;
        let is_rejected = error.failed_call().is_some_and(CallError::is_rejected);
        if is_usable && !is_rejected {
            if attempt.failures == MAX_UNREPORTED_FAILURES {
                self.events.warning(
                    claim,
                    &self.contract.ipam,
                    status.reason,
                    "Allocate",
                    &status.message,
                );
            }
            return;
        }
        let report = self.report(claim, &status, attempt, Duration::ZERO);
        if let Err(error) = report.await {
            debug!(
                claim = claim.name_any(),
                error = error_chain(&error),
                "cannot report the failure on the claim"
            );
        }
    }

    /// Reports what blocks the deletion of a claim, unless the deletion just started. The claim is
    /// reconciled again after `wait` at the latest.
    pub(super) async fn report_blocked_deletion(
        &self,
        claim: &IPAddressClaim,
        status: &ClaimConditions,
        attempt: &mut Attempt<AttemptState>,
        wait: Duration,
    ) -> Result<Action, ReconcileError> {
        if let Some(left) = unreported_deletion(claim, clock::now().0) {
            return Ok(Action::Requeue(left.min(wait)));
        }
        Ok(self.update_status(claim, status, attempt, wait).await?)
    }

    /// Returns the claim, read again if this process wrote it since; `None` if it was deleted or
    /// recreated.
    async fn latest(&self, claim: &IPAddressClaim) -> Result<Option<IPAddressClaim>, CallError> {
        if !self.is_stale(claim) {
            return Ok(Some(claim.clone()));
        }
        let claims = self.contract.claims_beside(claim);
        let is_same = |found: &IPAddressClaim| {
            let (found, claim) = (&found.metadata, &claim.metadata);
            found.uid == claim.uid
                && found.deletion_timestamp.is_some() == claim.deletion_timestamp.is_some()
        };
        Ok(claims.get(&claim.name_any()).await?.filter(is_same))
    }

    /// The delay before the handler is called again, possibly after an error.
    pub(super) fn retry_delay(&self, error: Option<&HandlerError>) -> Duration {
        match error {
            Some(HandlerError::RetryAfter { after, .. }) => *after,
            _ => self.options.resync_interval,
        }
    }
}

/// How long to wait before a blocked deletion is reported, since most deletions end immediately.
/// `None` if it is due.
fn unreported_deletion(claim: &IPAddressClaim, now: jiff::Timestamp) -> Option<Duration> {
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let lasted = Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    Some(MESSAGE_DEBOUNCE.saturating_sub(lasted)).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn blocked_deletion_is_reported_after_a_delay() {
        let at = |text: &str| -> jiff::Timestamp { text.parse().unwrap() };
        let mut claim = IPAddressClaim::default();
        claim.metadata.deletion_timestamp = Some(Time(at("2026-01-01T00:00:00Z")));
        let left = |now: &str| unreported_deletion(&claim, at(now)).map(|left| left.as_secs());
        assert_eq!(left("2026-01-01T00:00:02Z"), Some(3));
        assert_eq!(left("2026-01-01T00:00:05Z"), None);
        // The clock of the API server is ahead.
        assert_eq!(left("2025-12-31T23:00:00Z"), Some(5));
    }
}
