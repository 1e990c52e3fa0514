//! Requests to create an IPAddress whose outcome is unknown.
//!
//! A create request without a response may be applied later than any subsequent write, also after
//! the address of its claim was released. In this case the response to the deletion does not prove
//! that no IPAddress exists; only a read does.

use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, REQUEST_TIMEOUT};
use capi_ipam_controller::expiring_map::ExpiringMap;
use parking_lot::Mutex;

use crate::api::{IPAddressClaim, PoolReference, Uid};
use crate::contract::uid_of;

/// How long after it was sent a create request may be applied. The API server stops at the timeout
/// of the request; the rest is a margin for the network and for proxies.
const CREATE_EXPIRY: Duration = REQUEST_TIMEOUT.saturating_mul(3);

/// The claims whose IPAddress may still be created.
pub(super) struct PendingCreates {
    /// The start of this process. The requests of earlier processes are unknown.
    started: Instant,
    /// The namespace and the pool of each claim.
    sent: Mutex<ExpiringMap<Uid, (String, PoolReference)>>,
}

impl PendingCreates {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            started: now,
            sent: Mutex::default(),
        }
    }

    /// Sends the request that creates the IPAddress of the claim. The request is recorded before it
    /// is sent, since this future may be dropped, and removed once its outcome is known. An earlier
    /// request without an outcome is not removed.
    pub(super) async fn track<T>(
        &self,
        claim: &IPAddressClaim,
        creation: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let namespace = claim.metadata.namespace.clone().unwrap_or_default();
        let pool = (namespace, claim.spec.pool_ref.clone());
        let claim = uid_of(claim);
        let is_first = self
            .sent
            .lock()
            .insert(claim, pool, CREATE_EXPIRY, Instant::now())
            .is_none();
        let created = creation.await;
        if is_first && !created.as_ref().is_err_and(CallError::outcome_is_unknown) {
            self.sent.lock().remove(&claim);
        }
        created
    }

    /// Returns whether an IPAddress of the claim may still be created.
    pub(super) fn may_still_apply(&self, claim: &IPAddressClaim, now: Instant) -> bool {
        self.is_new_process(now) || self.sent.lock().get(&uid_of(claim), now).is_some()
    }

    /// Returns whether an IPAddress of a pool may still be created. `is_of_pool` is called with the
    /// namespace and the pool of claims.
    pub(super) fn may_still_apply_to(
        &self,
        is_of_pool: impl Fn(&str, &PoolReference) -> bool,
        now: Instant,
    ) -> bool {
        let sent = self.sent.lock();
        let mut pools = sent.values(now);
        self.is_new_process(now) || pools.any(|(namespace, pool)| is_of_pool(namespace, pool))
    }

    /// Whether requests of an earlier process may still be applied.
    fn is_new_process(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.started) < CREATE_EXPIRY
    }
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
    async fn request_without_response_may_apply_until_expiry() {
        let long_ago = Instant::now().checked_sub(CREATE_EXPIRY).unwrap();
        let (creates, a, b) = (PendingCreates::new(long_ago), claim("a"), claim("b"));
        let unknown = || async {
            Err::<(), _>(CallError::TimedOut {
                operation: "test".to_owned(),
            })
        };
        creates.track(&a, async { Ok(()) }).await.unwrap();
        assert!(!creates.may_still_apply(&a, Instant::now()));
        // The first request gets no response, the second one does.
        creates.track(&a, unknown()).await.unwrap_err();
        creates.track(&a, async { Ok(()) }).await.unwrap();
        let now = Instant::now();
        assert!(creates.may_still_apply(&a, now) && !creates.may_still_apply(&b, now));
        assert!(!creates.may_still_apply(&a, now + CREATE_EXPIRY));
        assert!(creates.may_still_apply_to(|_, _| true, now));
        assert!(!creates.may_still_apply_to(|_, _| false, now));
        assert!(!creates.may_still_apply_to(|_, _| true, now + CREATE_EXPIRY));
    }

    #[tokio::test]
    async fn dropped_request_may_still_apply() {
        let creates = PendingCreates::new(Instant::now().checked_sub(CREATE_EXPIRY).unwrap());
        let never = creates
            .track(&claim("a"), std::future::pending::<Result<(), CallError>>())
            .now_or_never();
        assert!(never.is_none() && creates.may_still_apply(&claim("a"), Instant::now()));
    }

    #[test]
    fn requests_of_earlier_processes_may_apply_until_expiry() {
        let start = Instant::now();
        let creates = PendingCreates::new(start);
        let may_still_apply = |after| creates.may_still_apply(&claim("a"), start + after);
        assert!(may_still_apply(CREATE_EXPIRY / 2) && !may_still_apply(CREATE_EXPIRY));
    }
}
