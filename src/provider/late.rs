//! IPAddresses that may still come: creations of which it is not known what became of them.
//!
//! A creation that got no answer may be applied later than anything that was written since, also after its claim's address
//! was taken back. Then the answer to the deletion does not show that there is no IPAddress; only a read does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{IPAddressClaim, Uid};
use crate::runtime::client::{CallError, DEADLINE};

/// How long after it was sent a creation may be applied. The API server gives up at the deadline that it was told; the
/// rest is for what lies between.
const LATEST: Duration = DEADLINE.saturating_mul(3);

/// The claims whose IPAddress may still come.
#[derive(Debug)]
pub(super) struct LateCreations {
    /// What a manager sent that worked here before is not known.
    since: Instant,
    sent: Mutex<HashMap<Uid, Instant>>,
}

impl LateCreations {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, sent: Mutex::default() }
    }

    /// Carries out the creation of the claim's IPAddress. It is noted before it is sent, for whoever waits for the answer may
    /// be broken off, and forgotten when it is known what became of it; one that was sent before without an answer is not.
    pub(super) async fn watch_over<T>(
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
            sent.retain(|_, at| now.saturating_duration_since(*at) < LATEST);
        }
        sent.insert(claim, now).is_none()
    }

    /// Whether an IPAddress may still come for the claim.
    pub(super) fn may_come(&self, claim: &IPAddressClaim, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < LATEST;
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
    use super::*;
    use futures::FutureExt;

    fn claim(uid: &str) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.uid = Some(uid.to_owned());
        claim
    }

    #[tokio::test]
    async fn what_got_no_answer_may_come_for_a_while() {
        let long_ago = Instant::now().checked_sub(LATEST).unwrap();
        let (late, a, b) = (LateCreations::new(long_ago), claim("a"), claim("b"));
        let unknown = || async { Err::<(), _>(CallError::TimedOut { operation: "test".to_owned() }) };
        late.watch_over(&a, async { Ok(()) }).await.unwrap();
        assert!(!late.may_come(&a, Instant::now()));
        // The first gets no answer, the second does.
        late.watch_over(&a, unknown()).await.unwrap_err();
        late.watch_over(&a, async { Ok(()) }).await.unwrap();
        let now = Instant::now();
        assert!(late.may_come(&a, now) && !late.may_come(&b, now));
        assert!(!late.may_come(&a, now + LATEST));
    }

    #[tokio::test]
    async fn what_was_broken_off_may_come() {
        let late = LateCreations::new(Instant::now().checked_sub(LATEST).unwrap());
        let never = late.watch_over(&claim("a"), std::future::pending::<Result<(), CallError>>()).now_or_never();
        assert!(never.is_none() && late.may_come(&claim("a"), Instant::now()));
    }

    #[test]
    fn what_was_sent_by_who_worked_here_before_may_come_for_a_while() {
        let start = Instant::now();
        let late = LateCreations::new(start);
        assert!(late.may_come(&claim("a"), start + LATEST / 2) && !late.may_come(&claim("a"), start + LATEST));
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let start = Instant::now();
        let late = LateCreations::new(start);
        for number in 0..1024 {
            late.note(uid(&claim(&number.to_string())), start);
        }
        late.note(uid(&claim("new")), start + LATEST);
        assert_eq!(late.lock().len(), 1);
    }
}
