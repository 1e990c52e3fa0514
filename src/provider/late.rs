//! IPAddresses that may still come: creations of which it is not known what became of them.
//!
//! A creation that got no answer may be applied later than anything that was written since, also after its claim's address
//! was taken back. Then the answer to the deletion does not show that there is no IPAddress; only a read does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{IPAddressClaim, Uid};
use crate::runtime::client::DEADLINE;

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

    /// An IPAddress is about to be created for the claim. Noted before it is sent, for whoever waits for the answer may be
    /// broken off; it counts as open until it is [`Self::answered`].
    pub(super) fn sending(&self, claim: &IPAddressClaim, now: Instant) -> Sent {
        let claim = uid(claim);
        let mut sent = self.lock();
        // What is over is dropped, now and then.
        if sent.len() >= 1024 && sent.len().is_power_of_two() {
            sent.retain(|_, at| now.saturating_duration_since(*at) < LATEST);
        }
        Sent { claim, is_first: sent.insert(claim, now).is_none() }
    }

    /// It is known what became of it. One that was sent before and got no answer is still open.
    pub(super) fn answered(&self, sent: &Sent) {
        if sent.is_first {
            self.lock().remove(&sent.claim);
        }
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

/// A creation without an answer yet.
pub(super) struct Sent {
    claim: Uid,
    is_first: bool,
}

fn uid(claim: &IPAddressClaim) -> Uid {
    Uid::of(claim.metadata.uid.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(uid: &str) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.uid = Some(uid.to_owned());
        claim
    }

    #[test]
    fn what_got_no_answer_may_come_for_a_while() {
        let start = Instant::now();
        let (late, now) = (LateCreations::new(start), start + LATEST);
        let (a, b) = (claim("a"), claim("b"));
        late.answered(&late.sending(&a, now));
        assert!(!late.may_come(&a, now));
        // The first gets no answer, the second does.
        let _ = late.sending(&a, now);
        late.answered(&late.sending(&a, now));
        assert!(late.may_come(&a, now) && !late.may_come(&b, now));
        assert!(!late.may_come(&a, now + LATEST));
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
            let _ = late.sending(&claim(&number.to_string()), start);
        }
        let _ = late.sending(&claim("new"), start + LATEST);
        assert_eq!(late.lock().len(), 1);
    }
}
