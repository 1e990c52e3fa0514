//! Which bound claims are verified when: whether the provider still has the address of the claim
//! allocated to it.
//!
//! Every claim is verified once in an interval. The claims are spread evenly over the interval, in
//! the order of their uids, so that the time between two verifications of a claim hardly depends on
//! how many others there are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::api::{IPAddressClaim, Uid};
use crate::claim_cache::ClaimCache;

/// The bound claims that have to be verified now.
#[derive(Default)]
pub(super) struct Verification {
    due: Mutex<HashSet<Uid>>,
}

impl Verification {
    /// Returns whether the claim has to be verified.
    pub(super) fn is_due(&self, claim: Uid) -> bool {
        self.due.lock().contains(&claim)
    }

    /// Returns whether the claim has to be verified, and marks it as verified.
    pub(super) fn take(&self, claim: &IPAddressClaim) -> bool {
        claim
            .metadata
            .uid
            .as_deref()
            .is_some_and(|uid| self.due.lock().remove(&Uid::of(uid)))
    }
}

/// Enqueues each bound claim once in every interval.
pub(super) struct VerifyBound {
    pub(super) interval: Duration,
    pub(super) claims: ClaimCache,
    pub(super) trigger: Trigger<IPAddressClaim>,
    pub(super) due: Arc<Verification>,
}

impl BackgroundTask for VerifyBound {
    async fn run_once(&mut self) -> NextRun {
        let (begun, mut bound) = (Instant::now(), self.claims.bound());
        bound.sort_unstable();
        // Claims that were deleted before they were verified.
        self.due.due.lock().clear();
        let count = u32::try_from(bound.len()).unwrap_or(u32::MAX);
        for (number, (uid, claim)) in (0..).zip(bound) {
            sleep_until(begun + share(self.interval, number, count)).await;
            self.due.due.lock().insert(uid);
            self.trigger.enqueue(claim);
        }
        NextRun::After(self.interval.saturating_sub(begun.elapsed()))
    }
}

/// The time after the begin of an interval at which the claim of this number is due.
fn share(interval: Duration, number: u32, count: u32) -> Duration {
    interval.mul_f64(f64::from(number) / f64::from(count.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_spread_evenly() {
        let seconds = |number, count| share(Duration::from_hours(1), number, count).as_secs();
        assert_eq!(
            [0, 1, 5_000, 9_999].map(|number| seconds(number, 10_000)),
            [0, 0, 1_800, 3_599]
        );
        assert_eq!((seconds(0, 1), seconds(0, 0)), (0, 0));
    }

    #[test]
    fn claim_is_verified_once() {
        let (verification, uid) = (
            Verification::default(),
            "6101ef08-5b98-40af-8a1f-bc85701b2e47",
        );
        let mut claim = IPAddressClaim::default();
        claim.metadata.uid = Some(uid.to_owned());
        assert!(!verification.take(&claim));
        verification.due.lock().insert(Uid::of(uid));
        assert!(verification.is_due(Uid::of(uid)) && verification.take(&claim));
        assert!(!verification.is_due(Uid::of(uid)) && !verification.take(&claim));
    }
}
