//! Backoff of failing claims.
//!
//! If few claims fail, they are retried within seconds after the cause is solved. If thousands
//! fail, for example while a webhook of the cluster is down, the backoff grows with their number,
//! so that the total retry rate is constant.
//!
//! While the API server does not respond, the backoff is longer than that of the watches, so that
//! the watches have delivered all earlier writes before claims are retried.

use std::collections::HashSet;
use std::time::Duration;

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_controller::watch::Keyed;
use parking_lot::Mutex;

use crate::api::IPAddressClaim;
use crate::error::ReconcileError;

/// Backoff after the first failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
/// Maximum backoff if few claims fail.
const MAX_BACKOFF_FEW_CLAIMS: Duration = Duration::from_secs(10);
/// Maximum backoff if few claims fail and the API server does not respond.
const MAX_BACKOFF_UNANSWERED: Duration = Duration::from_secs(30);
/// Maximum backoff if few claims fail and the API server does not know the kind of the claims yet.
/// It takes up to 30 s.
const MAX_BACKOFF_KIND_UNKNOWN: Duration = Duration::from_secs(2);
/// Maximum backoff, however many claims fail.
const MAX_BACKOFF: Duration = Duration::from_mins(5);
/// Approximate limit of the total retry rate, however many claims fail.
const MAX_RETRIES_PER_SECOND: u32 = 100;

/// Tracks the claims whose last attempt failed, and computes their backoff.
#[derive(Default)]
pub(super) struct ClaimBackoff {
    /// The delays that the provider has chosen.
    policy: Option<RetryPolicy>,
    /// The failing claims.
    failing: Mutex<HashSet<NamespacedName>>,
}

impl ClaimBackoff {
    /// `policy` replaces the delays while few claims fail.
    pub(super) fn new(policy: Option<RetryPolicy>) -> Self {
        Self {
            policy,
            failing: Mutex::default(),
        }
    }

    /// Records that an attempt failed.
    pub(super) fn record_failure(&self, claim: &IPAddressClaim) {
        self.failing.lock().insert(claim.key());
    }

    /// Forgets the claim, after a successful attempt or its deletion.
    pub(super) fn forget(&self, claim: &IPAddressClaim) {
        let mut failing = self.failing.lock();
        if !failing.is_empty() {
            failing.remove(&claim.key());
        }
    }

    /// The delay of the next attempt at a claim, for the current number of failing claims.
    pub(super) fn delay(&self, failures: u32, error: &ReconcileError) -> Duration {
        let of_few = self.policy.unwrap_or_else(|| RetryPolicy {
            initial: INITIAL_BACKOFF,
            max: max_backoff_of_few(error),
        });
        let max = max_backoff(self.failing.lock().len(), of_few.max);
        RetryPolicy { max, ..of_few }.delay(failures)
    }
}

/// The maximum backoff while few claims fail.
fn max_backoff_of_few(error: &ReconcileError) -> Duration {
    if error.is_unanswered() {
        MAX_BACKOFF_UNANSWERED
    } else if error
        .failed_call()
        .is_some_and(CallError::is_owner_kind_unknown)
    {
        MAX_BACKOFF_KIND_UNKNOWN
    } else {
        MAX_BACKOFF_FEW_CLAIMS
    }
}

/// The maximum backoff of a claim while `failing` claims fail.
fn max_backoff(failing: usize, of_few: Duration) -> Duration {
    let count = u32::try_from(failing).unwrap_or(u32::MAX);
    let of_many = Duration::from_secs(1).saturating_mul(count) / MAX_RETRIES_PER_SECOND;
    of_many.min(MAX_BACKOFF).max(of_few)
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::client::CallError;

    use super::*;
    use crate::adapter::HandlerError;

    #[test]
    fn total_retry_rate_is_bounded() {
        for (failing, seconds) in [
            (0, 10),
            (1, 10),
            (1_000, 10),
            (5_000, 50),
            (30_000, 300),
            (usize::MAX, 300),
        ] {
            assert_eq!(
                max_backoff(failing, MAX_BACKOFF_FEW_CLAIMS),
                Duration::from_secs(seconds),
                "{failing}"
            );
        }
        assert_eq!(
            max_backoff(1, MAX_BACKOFF_UNANSWERED),
            Duration::from_secs(30)
        );
        assert_eq!(
            max_backoff(5_000, MAX_BACKOFF_UNANSWERED),
            Duration::from_secs(50)
        );
    }

    #[test]
    fn few_claims_are_retried_soon_after_an_api_server_start() {
        let delay_of = |message: &str| {
            let status = kube::core::Status::failure(message, "Forbidden").with_code(403);
            let source = Box::new(kube::Error::Api(Box::new(status)));
            let error = CallError::Failed {
                operation: "create IPAddress a".to_owned(),
                source,
            };
            let error = HandlerError::transient("the API server rejected the IPAddress", error);
            ClaimBackoff::default().delay(20, &error.into())
        };
        let unknown = "ipaddresses.ipam.cluster.x-k8s.io \"a\" is forbidden: cannot set blockOwnerDeletion in this case \
                       because cannot find RESTMapping for APIVersion ipam.cluster.x-k8s.io/v1beta2 Kind IPAddressClaim";
        assert!(delay_of(unknown) <= Duration::from_secs(2));
        assert!(delay_of("exceeded quota") > Duration::from_secs(2));
    }

    #[test]
    fn provider_chooses_the_delays_of_few_claims() {
        let policy = RetryPolicy {
            initial: Duration::from_secs(40),
            max: Duration::from_mins(10),
        };
        let (chosen, usual) = (ClaimBackoff::new(Some(policy)), ClaimBackoff::default());
        let error = || HandlerError::transient("no answer", "it is slow").into();
        for (failures, seconds) in [(1, 20), (20, 300)] {
            assert!(chosen.delay(failures, &error()) >= Duration::from_secs(seconds));
            assert!(usual.delay(failures, &error()) <= MAX_BACKOFF_FEW_CLAIMS);
        }
    }

    #[test]
    fn deleted_claim_is_forgotten() {
        let (backoff, mut claim) = (ClaimBackoff::default(), IPAddressClaim::default());
        claim.metadata.name = Some("a".to_owned());
        backoff.record_failure(&claim);
        backoff.record_failure(&claim);
        assert_eq!(backoff.failing.lock().len(), 1);
        backoff.forget(&claim);
        assert!(backoff.failing.lock().is_empty());
    }
}
