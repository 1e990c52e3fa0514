//! IPAddresses that may still come: creations of which it is not known what became of them.
//!
//! A creation that got no answer may be applied later than anything that was written since, also after its claim's address
//! was taken back. Then the answer to the deletion does not show that there is no IPAddress; only a read does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, REQUEST_TIMEOUT};

use crate::api::{IPAddressClaim, Uid};

/// How long after it was sent a creation may be applied. The API server gives up at the deadline that it was told; the
/// rest is for what lies between.
const CREATE_EXPIRY: Duration = REQUEST_TIMEOUT.saturating_mul(3);

/// The claims whose IPAddress may still come.
#[derive(Debug)]
pub(super) struct PendingCreates {
    /// What a manager sent that worked here before is not known.
    since: Instant,
    sent: Mutex<HashMap<Uid, Instant>>,
}

impl PendingCreates {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, sent: Mutex::default() }
    }

    /// Carries out the creation of the claim's IPAddress. It is noted before it is sent, for whoever waits for the answer may
    /// be broken off, and forgotten when it is known what became of it; one that was sent before without an answer is not.
    pub(super) async fn track<T>(
        &self,
        claim: &IPAddressClaim,
        creation: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let claim = uid(claim);
        let is_first = self.note(claim, Instant::now());
        let created = creation.await;
        if is_first && !created.as_ref().is_err_and(CallError::outcome_is_unknown) {
            self.lock().remove(&claim);
        }
        created
    }

    /// Returns whether none was noted for that claim.
    fn note(&self, claim: Uid, now: Instant) -> bool {
        let mut sent = self.lock();
        // What is over is dropped, now and then.
        if sent.len() >= 1024 && sent.len().is_power_of_two() {
            sent.retain(|_, at| now.saturating_duration_since(*at) < CREATE_EXPIRY);
        }
        sent.insert(claim, now).is_none()
    }

    /// Whether an IPAddress may still come for the claim.
    pub(super) fn may_still_apply(&self, claim: &IPAddressClaim, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < CREATE_EXPIRY;
        is_recent(self.since) || self.lock().get(&uid(claim)).is_some_and(|at| is_recent(*at))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uid, Instant>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn uid(claim: &IPAddressClaim) -> Uid {
    Uid::of(claim.metadata.uid.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn claim(uid: &str) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.uid = Some(uid.to_owned());
        claim
    }

    #[tokio::test]
    async fn what_got_no_answer_may_come_for_a_while() {
        let long_ago = Instant::now().checked_sub(CREATE_EXPIRY).unwrap();
        let (late, a, b) = (PendingCreates::new(long_ago), claim("a"), claim("b"));
        let unknown = || async { Err::<(), _>(CallError::TimedOut { operation: "test".to_owned() }) };
        late.track(&a, async { Ok(()) }).await.unwrap();
        assert!(!late.may_still_apply(&a, Instant::now()));
        // The first gets no answer, the second does.
        late.track(&a, unknown()).await.unwrap_err();
        late.track(&a, async { Ok(()) }).await.unwrap();
        let now = Instant::now();
        assert!(late.may_still_apply(&a, now) && !late.may_still_apply(&b, now));
        assert!(!late.may_still_apply(&a, now + CREATE_EXPIRY));
    }

    #[tokio::test]
    async fn what_was_broken_off_may_come() {
        let late = PendingCreates::new(Instant::now().checked_sub(CREATE_EXPIRY).unwrap());
        let never = late.track(&claim("a"), std::future::pending::<Result<(), CallError>>()).now_or_never();
        assert!(never.is_none() && late.may_still_apply(&claim("a"), Instant::now()));
    }

    #[test]
    fn what_was_sent_by_who_worked_here_before_may_come_for_a_while() {
        let start = Instant::now();
        let late = PendingCreates::new(start);
        assert!(late.may_still_apply(&claim("a"), start + CREATE_EXPIRY / 2) && !late.may_still_apply(&claim("a"), start + CREATE_EXPIRY));
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let start = Instant::now();
        let late = PendingCreates::new(start);
        for number in 0..1024 {
            late.note(uid(&claim(&number.to_string())), start);
        }
        late.note(uid(&claim("new")), start + CREATE_EXPIRY);
        assert_eq!(late.lock().len(), 1);
    }
}
