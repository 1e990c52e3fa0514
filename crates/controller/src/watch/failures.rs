//! Failures of a watch: what they mean, how they are logged, and how long the watch waits after
//! them.

use std::time::{Duration, Instant};

use kube::core::Status;
use kube::runtime::watcher;
use tracing::{debug, info, warn};

use crate::client::{error_chain, status_message};
use crate::log_limit::RepetitionLimit;
use crate::retry::RetryPolicy;

/// How long the API server may not serve a kind that was listed before the process ends. The API
/// server may serve another version of it now, which a new process discovers.
const MAX_ABSENCE: Duration = Duration::from_mins(1);

/// The delays after failures.
pub(super) const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(10),
};

/// How long a watch fails with transient errors before they are logged as warnings.
const TRANSIENT_FAILURE_GRACE: Duration = Duration::from_secs(10);

/// The code of the status for a kind that the API server does not serve.
const UNSERVED: u16 = 404;

/// A failure of a watch.
pub(super) struct Failure {
    /// The HTTP status code, if the API server answered.
    code: Option<u16>,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn of(error: &watcher::Error) -> Self {
        let of_status = |status: &Status| Self {
            code: Some(status.code),
            text: status_message(status),
        };
        match error {
            watcher::Error::WatchError(status) => of_status(status),
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match error {
                kube::Error::Api(status) => of_status(status),
                error => Self {
                    code: None,
                    text: error_chain(error),
                },
            },
            watcher::Error::NoResourceVersion => Self {
                code: None,
                text: error_chain(error),
            },
        }
    }

    /// Replaces the text of the API server by what to do, if it does not serve the kind.
    pub(super) fn explain_unserved(mut self, explanation: &str) -> Self {
        if self.code == Some(UNSERVED) {
            explanation.clone_into(&mut self.text);
        }
        self
    }

    /// The kind of failure, for metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self.code {
            Some(410) => "expired",
            Some(403) => "forbidden",
            Some(UNSERVED) => "not_found",
            Some(429) => "throttled",
            Some(_) => "server_error",
            None => "connection",
        }
    }

    /// Whether the API server refuses the kind, so that an administrator has to act.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.code, Some(403 | UNSERVED))
    }

    /// Whether the watch cannot recover in this process.
    pub(super) fn is_permanent(&self, was_listed: bool, duration: Duration) -> bool {
        self.code == Some(UNSERVED) && was_listed && duration >= MAX_ABSENCE
    }
}

/// How long and how often a watch has been failing.
#[derive(Default)]
pub(super) struct FailureStreak {
    /// The times of the first and the last failure.
    times: Option<(Instant, Instant)>,
    /// Number of failures.
    pub(super) count: u32,
}

impl FailureStreak {
    /// Records a failure. Returns the time since the first one. The streak ends after 30 s without
    /// a failure.
    pub(super) fn record(&mut self, now: Instant) -> Duration {
        let is_recent = |(_, last): &(Instant, Instant)| {
            now.saturating_duration_since(*last) < TRANSIENT_FAILURE_GRACE * 3
        };
        let (first, count) = self
            .times
            .filter(is_recent)
            .map_or((now, 0), |(first, _)| (first, self.count));
        self.times = Some((first, now));
        self.count = count.saturating_add(1);
        now.saturating_duration_since(first)
    }

    /// Ends the streak after a success. Returns whether there was one.
    pub(super) fn end(&mut self) -> bool {
        self.times.take().is_some()
    }
}

/// Logs a failure. One that lasts is repeated at a growing interval only, see `limit`.
pub(super) fn log_failure(
    kind: &str,
    Failure { code, text }: &Failure,
    duration: Duration,
    limit: &RepetitionLimit,
) {
    if *code == Some(410) {
        // This is normal: the kind is listed again.
        debug!(kind, "the resourceVersion has expired, listing again");
        return;
    }
    if is_transient(*code, duration) {
        info!(kind, error = text, "the watch is interrupted, retrying");
        return;
    }
    let Some(suppressed) = limit.allow(text, Instant::now()) else {
        return;
    };
    match code {
        Some(403) => warn!(
            kind,
            error = text,
            suppressed,
            "not allowed to list and watch; apply the ClusterRole of this version (config/rbac)"
        ),
        Some(UNSERVED) => warn!(kind, error = text, suppressed, "the kind is not served"),
        _ => warn!(
            kind,
            error = text,
            seconds = duration.as_secs(),
            suppressed,
            "the watch keeps failing, retrying"
        ),
    }
}

/// Logs that a failure which was logged has ended.
pub(super) fn log_recovery(kind: &str, limit: &RepetitionLimit) {
    if limit.end() {
        info!(kind, "the kind is watched again");
    }
}

/// Whether a failure needs no action: all failures except those of permissions and definitions, if
/// they do not last. For example, the API server interrupts watches when it applies a new
/// CustomResourceDefinition.
fn is_transient(code: Option<u16>, duration: Duration) -> bool {
    !matches!(code, Some(403 | UNSERVED)) && duration < TRANSIENT_FAILURE_GRACE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_streak_starts_at_the_first_failure() {
        let (mut streak, now) = (FailureStreak::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(
            [0, 8, 20].map(|at| streak.record(after(at)).as_secs()),
            [0, 8, 20]
        );
        assert_eq!(
            streak.record(after(60)),
            Duration::ZERO,
            "the streak has ended"
        );
        assert!(streak.end() && !streak.end());
        assert_eq!(streak.record(after(61)), Duration::ZERO);
    }

    #[test]
    fn only_lasting_failures_are_warnings() {
        for code in [None, Some(429), Some(500), Some(503)] {
            assert!(
                is_transient(code, Duration::ZERO) && !is_transient(code, TRANSIENT_FAILURE_GRACE),
                "{code:?}"
            );
        }
        assert!(
            !is_transient(Some(403), Duration::ZERO)
                && !is_transient(Some(UNSERVED), Duration::ZERO)
        );
        let status =
            Status::failure("storage is (re)initializing", "TooManyRequests").with_code(429);
        let error = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
        assert_eq!(
            Failure::of(&error).text,
            "storage is (re)initializing (429 TooManyRequests)"
        );
    }

    #[test]
    fn lasting_404_of_a_listed_kind_is_permanent() {
        let failure = |code| Failure {
            code: Some(code),
            text: String::new(),
        };
        assert!(failure(404).is_permanent(true, MAX_ABSENCE));
        assert!(
            !failure(404).is_permanent(true, MAX_ABSENCE / 2),
            "its definition may be replaced at the moment"
        );
        assert!(
            !failure(404).is_permanent(false, MAX_ABSENCE),
            "it may be installed later"
        );
        assert!(
            !failure(403).is_permanent(true, MAX_ABSENCE),
            "it may be allowed later"
        );
    }

    #[test]
    fn delay_is_reset_by_a_success() {
        let (mut streak, now) = (FailureStreak::default(), Instant::now());
        let mut fails = || {
            streak.record(now);
            RETRY_POLICY.delay(streak.count)
        };
        let last = (0..10).map(|_| fails()).last().unwrap();
        assert!(last >= Duration::from_secs(5), "{last:?}");
        streak.end();
        streak.record(now);
        assert!(RETRY_POLICY.delay(streak.count) <= Duration::from_millis(200));
        streak.record(now);
        assert!(RETRY_POLICY.delay(streak.count) >= Duration::from_millis(200));
    }
}
