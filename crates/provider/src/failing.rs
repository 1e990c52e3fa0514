//! The claims whose last attempt failed, and how often they are retried.
//!
//! A few claims recover within seconds once the cause of their failure is gone. Where thousands fail, as while a webhook of
//! the API server is down, the waits grow with their number, so that the rate of all retries stays the same.
//!
//! While the API server itself does not answer the waits are longer than those of the watches: what it has applied before
//! is then known when claims are retried.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_controller::watch::Observer;
use kube::ResourceExt;

use crate::api::IPAddressClaim;

/// Wait after the first failure.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait of one of few failing claims.
const MAX_WAIT_OF_FEW: Duration = Duration::from_secs(10);
/// The longest wait of one of few failing claims while the API server does not answer.
const MAX_WAIT_WITHOUT_ANSWER: Duration = Duration::from_secs(30);
/// No wait is longer, however many claims fail.
const MAX_WAIT: Duration = Duration::from_mins(5);
/// How many retries are made in a second, about, however many claims fail.
const MAX_RETRIES_PER_SECOND: u32 = 100;

/// The claims whose last attempt failed.
#[derive(Debug, Default)]
pub(super) struct FailingClaims {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Their namespaces and names.
    keys: HashSet<(String, String)>,
    /// The last failure was that the API server did not answer.
    without_answer: bool,
}

impl FailingClaims {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last attempt at the claim failed; `without_answer` says that it was for want of an answer of the API server.
    pub(super) fn insert(&self, claim: &IPAddressClaim, without_answer: bool) {
        let mut state = self.lock();
        state.keys.insert(key(claim));
        state.without_answer = without_answer;
    }

    /// The last attempt at the claim did not fail, or the claim is gone.
    pub(super) fn remove(&self, claim: &IPAddressClaim) {
        let mut state = self.lock();
        if !state.keys.is_empty() {
            state.keys.remove(&key(claim));
        }
    }

    /// When to retry, as many claims fail now.
    pub(super) fn retry_policy(&self) -> RetryPolicy {
        let state = self.lock();
        RetryPolicy::Exponential { first: FIRST_WAIT, longest: max_wait(state.keys.len(), state.without_answer) }
    }
}

fn key(claim: &IPAddressClaim) -> (String, String) {
    (claim.namespace().unwrap_or_default(), claim.name_any())
}

/// The longest wait between two attempts at a claim while that number of claims fails.
fn max_wait(failing: usize, without_answer: bool) -> Duration {
    let count = u32::try_from(failing).unwrap_or(u32::MAX);
    let of_few = if without_answer { MAX_WAIT_WITHOUT_ANSWER } else { MAX_WAIT_OF_FEW };
    (Duration::from_secs(1).saturating_mul(count) / MAX_RETRIES_PER_SECOND).clamp(of_few, MAX_WAIT)
}

impl Observer<IPAddressClaim> for FailingClaims {
    fn applied(&self, _: &IPAddressClaim) {}

    fn deleted(&self, claim: &IPAddressClaim) {
        self.remove(claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_of_many_failing_claims_keep_their_total_rate() {
        for (failing, seconds) in [(0, 10), (1, 10), (1_000, 10), (5_000, 50), (30_000, 300), (usize::MAX, 300)] {
            assert_eq!(max_wait(failing, false), Duration::from_secs(seconds), "{failing}");
        }
        assert_eq!(max_wait(1, true), Duration::from_secs(30));
        assert_eq!(max_wait(5_000, true), Duration::from_secs(50));
    }

    #[test]
    fn a_deleted_claim_no_longer_counts() {
        let (failing, mut claim) = (FailingClaims::default(), IPAddressClaim::default());
        claim.metadata.name = Some("a".to_owned());
        failing.insert(&claim, false);
        failing.insert(&claim, false);
        assert_eq!(failing.lock().keys.len(), 1);
        failing.deleted(&claim);
        assert!(failing.lock().keys.is_empty());
    }
}
