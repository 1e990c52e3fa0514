//! Writing what claims say, and what follows from a failure: condition, event, and when to try again.

use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, chain};
use capi_ipam_controller::controller::{Attempt, Outcome};
use capi_ipam_controller::{clock, patch};
use kube::ResourceExt;
use tracing::debug;

use crate::adapter::{HandlerError, ProviderAdapter};
use crate::api::IPAddressClaim;
use crate::decision::AddressState;
use crate::reconciler::{ClaimReconciler, ReconcileError};
use crate::report::Report;
use crate::rewrite::{MESSAGE_DELAY, MessageDelay, Rewrite};

/// How many attempts in a row fail before the claim says so. Fewer are common and pass.
const MAX_SILENT_FAILURES: u32 = 2;

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Has the claim's conditions say how it stands, with an event when that is news. Writes nothing when it is not.
    /// Returns after which time to report again, if a message waits to be rewritten.
    pub(super) async fn report(
        &self,
        claim: &IPAddressClaim,
        report: &Report,
        delay: &mut MessageDelay,
    ) -> Result<Option<Duration>, CallError> {
        let version = self.contract.ipam;
        match delay.decide(report.difference(version, claim), Instant::now()) {
            Rewrite::NotNeeded => return Ok(None),
            Rewrite::After(wait) => return Ok(Some(wait)),
            Rewrite::Now => {}
        }
        let namespace = claim.namespace().unwrap_or_default();
        let wanted = report.written_on(version, claim, clock::now());
        match patch::write(&self.contract.claims(&namespace), claim, &wanted).await {
            Ok(written) => written.iter().for_each(|claim| self.expect_write(claim)),
            // The change, or the deletion, of the claim has it reconciled again.
            Err(error) if error.is_conflict() || error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        }
        debug!(claim = claim.name_any(), namespace, reason = report.reason, message = report.message, "claim waits");
        self.events.warning(claim, &version, report.reason, "Allocate", &report.message);
        Ok(None)
    }

    /// What follows from a handler's refusal: condition, event, and when to ask again.
    pub(super) async fn refuse(
        &self,
        claim: &IPAddressClaim,
        attempt: &mut Attempt<MessageDelay>,
        error: HandlerError,
    ) -> Result<Outcome, ReconcileError> {
        if matches!(error, HandlerError::Transient { .. }) {
            return Err(error.into());
        }
        let mut wait = self.pause(&error);
        if let Some(current) = self.current(claim).await? {
            let again = self.report(&current, &Report::refused(&error), &mut attempt.state).await?;
            wait = again.map_or(wait, |again| again.min(wait));
        }
        Ok(Outcome::Yield(wait))
    }

    /// Reports a failed attempt on the claim, if several have failed in a row.
    pub(super) async fn report_failure(
        &self,
        claim: &IPAddressClaim,
        attempt: &mut Attempt<MessageDelay>,
        error: &ReconcileError,
    ) {
        if attempt.failures < MAX_SILENT_FAILURES || is_conflict(error) {
            return;
        }
        let report = Report::keeps_failing(claim, error);
        // A claim stays ready whose IPAddress is there and only cannot be repaired now.
        let is_served = claim.metadata.deletion_timestamp.is_none()
            && claim.bound_address().is_some()
            && self.addresses.state_for(claim) != AddressState::Absent;
        if is_served && !is_refusal(error) {
            if attempt.failures == MAX_SILENT_FAILURES {
                self.events.warning(claim, &self.contract.ipam, report.reason, "Allocate", &report.message);
            }
            return;
        }
        let reported = match self.current(claim).await {
            Ok(Some(current)) => self.report(&current, &report, &mut attempt.state).await.map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = reported {
            debug!(claim = claim.name_any(), error = chain(&error), "the failure cannot be reported now");
        }
    }

    /// Says what a claim that is being deleted waits for, once that has lasted.
    pub(super) async fn report_deletion(
        &self,
        claim: &IPAddressClaim,
        report: &Report,
        delay: &mut MessageDelay,
    ) -> Result<Outcome, ReconcileError> {
        if let Some(left) = unreported_deletion(claim, clock::now().0) {
            return Ok(Outcome::Yield(left));
        }
        let (again, wait) = (self.report(claim, report, delay).await?, self.adapter.resync());
        Ok(Outcome::Yield(again.map_or(wait, |again| again.min(wait))))
    }

    /// The claim as it is since our last write to it; `None` when it is another one now, or has been deleted meanwhile.
    async fn current(&self, claim: &IPAddressClaim) -> Result<Option<IPAddressClaim>, CallError> {
        if !self.is_outdated(claim) {
            return Ok(Some(claim.clone()));
        }
        let claims = self.contract.claims(&claim.namespace().unwrap_or_default());
        let is_same = |found: &IPAddressClaim| {
            let (found, claim) = (&found.metadata, &claim.metadata);
            found.uid == claim.uid && found.deletion_timestamp.is_some() == claim.deletion_timestamp.is_some()
        };
        Ok(claims.get(&claim.name_any()).await?.filter(is_same))
    }

    /// When to ask a handler again after that answer.
    pub(super) fn pause(&self, error: &HandlerError) -> Duration {
        match error {
            HandlerError::NotReady { after, .. } => *after,
            _ => self.adapter.resync(),
        }
    }
}

/// How much longer a deletion is left unreported: most end at once. `None` when it has lasted.
fn unreported_deletion(claim: &IPAddressClaim, now: jiff::Timestamp) -> Option<Duration> {
    let deleted = claim.metadata.deletion_timestamp.as_ref()?.0;
    let lasted = Duration::try_from(now.duration_since(deleted)).unwrap_or_default();
    Some(MESSAGE_DELAY.saturating_sub(lasted)).filter(|left| !left.is_zero())
}

/// The call that failed, be it our own or the handler's.
fn failed_call(error: &ReconcileError) -> Option<&CallError> {
    match error {
        ReconcileError::Call(error) => Some(error),
        ReconcileError::Handler(HandlerError::Transient { source, .. }) => source.downcast_ref(),
        ReconcileError::Handler(_) => None,
    }
}

fn is_conflict(error: &ReconcileError) -> bool {
    failed_call(error).is_some_and(CallError::is_conflict)
}

/// Whether the API server did not answer, so that it cannot be reached or is overloaded.
pub(super) fn is_without_answer(error: &ReconcileError) -> bool {
    match failed_call(error) {
        Some(CallError::TimedOut { .. }) => true,
        Some(CallError::Failed { source, .. }) => !matches!(source.as_ref(), kube::Error::Api(_)),
        _ => false,
    }
}

/// Whether the API server refuses what is asked, which lasts until somebody changes something.
fn is_refusal(error: &ReconcileError) -> bool {
    failed_call(error).is_some_and(|error| error.is_invalid() || error.is_forbidden())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn a_deletion_is_reported_once_it_has_lasted() {
        let at = |text: &str| -> jiff::Timestamp { text.parse().unwrap() };
        let mut claim = IPAddressClaim::default();
        claim.metadata.deletion_timestamp = Some(Time(at("2026-01-01T00:00:00Z")));
        let left = |now: &str| unreported_deletion(&claim, at(now)).map(|left| left.as_secs());
        assert_eq!(left("2026-01-01T00:00:02Z"), Some(3));
        assert_eq!(left("2026-01-01T00:00:05Z"), None);
        // The clock of the API server is ahead.
        assert_eq!(left("2025-12-31T23:00:00Z"), Some(5));
    }

    #[test]
    fn a_conflict_of_a_handler_is_no_failure_to_report() {
        let failed = |code, reason| {
            let status = kube::core::Status::failure("text", reason).with_code(code);
            let source = Box::new(kube::Error::Api(Box::new(status)));
            let error = CallError::Failed { operation: "test".to_owned(), source };
            ReconcileError::from(HandlerError::transient("it failed", error))
        };
        assert!(is_conflict(&failed(409, "Conflict")) && !is_conflict(&failed(422, "Invalid")));
        assert!(!is_without_answer(&failed(500, "InternalError")));
        assert!(is_without_answer(&CallError::TimedOut { operation: "test".to_owned() }.into()));
        assert!(is_refusal(&failed(422, "Invalid")) && !is_refusal(&failed(500, "InternalError")));
    }
}
