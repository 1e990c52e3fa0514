//! Failures of a watch or another source: what they mean, how they are logged, and how long a watch
//! waits after them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::core::Status;
use kube::runtime::watcher;
use tracing::{debug, info, warn};

use crate::client::{error_chain, status_message};
use crate::health::ReadinessGate;
use crate::log_limit::RepetitionLimit;
use crate::retry::RetryPolicy;

/// How long the API server may not serve a kind that was listed before the process ends. The API
/// server may serve another version of it now, which a new process discovers.
const MAX_ABSENCE: Duration = Duration::from_mins(1);

/// The delays after failures of a watch.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(10),
};

/// How long a watch fails with transient errors before they are logged as warnings.
const TRANSIENT_FAILURE_GRACE: Duration = Duration::from_secs(10);

/// The code of the status for a kind that the API server does not serve.
const UNSERVED: u16 = 404;

/// Where a failure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The API server answered with this HTTP status code.
    ApiServer(u16),
    /// The connection, or a server that is expected to recover.
    Connection,
    /// What an administrator has to change.
    Configuration,
}

/// A failure of a source.
pub(super) struct Failure {
    origin: Origin,
    pub(super) text: String,
}

impl Failure {
    fn new(origin: Origin, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { origin, text }
    }

    pub(super) fn of(error: &watcher::Error) -> Self {
        let of_status =
            |status: &Status| Self::new(Origin::ApiServer(status.code), status_message(status));
        let of_connection = |error: &(dyn std::error::Error + 'static)| {
            Self::new(Origin::Connection, error_chain(error))
        };
        match error {
            watcher::Error::WatchError(status) => of_status(status),
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => match error {
                kube::Error::Api(status) => of_status(status),
                error => of_connection(error),
            },
            watcher::Error::NoResourceVersion => of_connection(error),
        }
    }

    /// Replaces the text of the API server by what to do, if it does not serve the kind.
    pub(super) fn explain_unserved(mut self, explanation: &str) -> Self {
        if self.origin == Origin::ApiServer(UNSERVED) {
            explanation.clone_into(&mut self.text);
        }
        self
    }

    /// The kind of failure, for metrics.
    fn reason(&self) -> &'static str {
        match self.origin {
            Origin::ApiServer(410) => "expired",
            Origin::ApiServer(403) => "forbidden",
            Origin::ApiServer(UNSERVED) => "not_found",
            Origin::ApiServer(429) => "throttled",
            Origin::ApiServer(_) => "server_error",
            Origin::Connection => "connection",
            Origin::Configuration => "configuration",
        }
    }

    /// Whether an administrator has to act, for example because the API server refuses the kind.
    fn is_refusal(&self) -> bool {
        matches!(
            self.origin,
            Origin::ApiServer(403 | UNSERVED) | Origin::Configuration
        )
    }

    /// Whether the watch cannot recover in this process.
    pub(super) fn is_permanent(&self, was_listed: bool, duration: Duration) -> bool {
        self.origin == Origin::ApiServer(UNSERVED) && was_listed && duration >= MAX_ABSENCE
    }

    /// Whether the failure needs no action: all failures except refusals, if they do not last. For
    /// example, the API server interrupts watches when it applies a new CustomResourceDefinition.
    fn is_transient(&self, duration: Duration) -> bool {
        !self.is_refusal() && duration < TRANSIENT_FAILURE_GRACE
    }
}

/// Reports the failures of one source: to the log, where one that lasts is repeated at a growing
/// interval only; to the metric of restarts; and to the [gate](ReadinessGate) of the source.
///
/// ```
/// use capi_ipam_controller::health::Health;
/// use capi_ipam_controller::watch::SourceFailures;
///
/// let health = Health::default();
/// let synced = health.register_watch("Setting");
/// let mut failures = SourceFailures::new("Setting", synced.clone());
/// failures.interrupted("connection refused");
/// assert_eq!(health.pending(), ["Setting: connection refused"]);
/// // The source delivers.
/// failures.ended();
/// synced.ready();
/// assert!(health.pending().is_empty());
/// ```
#[derive(Debug)]
pub struct SourceFailures {
    kind: Arc<str>,
    synced: ReadinessGate,
    streak: FailureStreak,
    log_limit: RepetitionLimit,
}

impl SourceFailures {
    /// A source without failures. `kind` names its objects in logs.
    pub fn new(kind: impl Into<Arc<str>>, synced: ReadinessGate) -> Self {
        Self {
            kind: kind.into(),
            synced,
            streak: FailureStreak::default(),
            log_limit: RepetitionLimit::default(),
        }
    }

    /// Reports that the source was interrupted, or cannot be opened, and recovers without help.
    pub fn interrupted(&mut self, error: &str) {
        self.report(&Failure::new(Origin::Connection, error));
    }

    /// Reports that the source cannot be used before an administrator acts. The process is not
    /// ready if this lasts, and at once if the source was never listed.
    pub fn unusable(&mut self, error: &str) {
        self.report(&Failure::new(Origin::Configuration, error));
    }

    /// Reports that the source delivers again, if it has failed before.
    pub fn ended(&mut self) {
        if self.streak.end() {
            self.synced.accepted();
            if self.log_limit.end() {
                info!(kind = &*self.kind, "the kind is watched again");
            }
        }
    }

    /// Reports a failure. Returns how long the source has been refused without interruption.
    pub(super) fn report(&mut self, failure: &Failure) -> Duration {
        let duration = self.streak.record(Instant::now());
        self.log(failure, duration);
        self.synced.count_restart(failure.reason());
        if failure.is_refusal() {
            return self.synced.refused(&failure.text);
        }
        self.synced.failing(&failure.text);
        Duration::ZERO
    }

    /// Logs a failure. One that lasts is repeated at a growing interval only. `duration` is the time
    /// since the source last delivered.
    fn log(&self, failure: &Failure, duration: Duration) {
        let (kind, Failure { origin, text }) = (&*self.kind, failure);
        if *origin == Origin::ApiServer(410) {
            // This is normal: the kind is listed again.
            debug!(kind, "the resourceVersion has expired, listing again");
            return;
        }
        if failure.is_transient(duration) {
            if self.streak.count == 1 {
                info!(kind, error = text, "the watch is interrupted, retrying");
            } else {
                debug!(kind, error = text, "the watch is still interrupted");
            }
            return;
        }
        let Some(suppressed) = self.log_limit.allow(text, Instant::now()) else {
            return;
        };
        let message = match origin {
            Origin::ApiServer(403) => {
                "not allowed to list and watch; apply the ClusterRole of this version (config/rbac)"
            }
            Origin::ApiServer(UNSERVED) => "the kind is not served",
            Origin::Configuration => "the objects cannot be watched",
            _ => "the watch keeps failing, retrying",
        };
        let seconds = duration.as_secs();
        warn!(kind, error = text, seconds, suppressed, "{message}");
    }

    /// How long a watch waits after the last failure.
    pub(super) fn delay(&self) -> Duration {
        RETRY_POLICY.delay(self.streak.count)
    }
}

/// How long and how often a source has been failing.
#[derive(Debug, Default)]
struct FailureStreak {
    /// The times of the first and the last failure.
    times: Option<(Instant, Instant)>,
    /// Number of failures.
    count: u32,
}

impl FailureStreak {
    /// Records a failure. Returns the time since the first one. The streak ends after 30 s without
    /// a failure.
    fn record(&mut self, now: Instant) -> Duration {
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
    fn end(&mut self) -> bool {
        self.times.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(origin: Origin) -> Failure {
        Failure::new(origin, "")
    }

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
        for origin in [429, 500, 503]
            .map(Origin::ApiServer)
            .into_iter()
            .chain([Origin::Connection])
        {
            let failure = failure(origin);
            assert!(
                failure.is_transient(Duration::ZERO)
                    && !failure.is_transient(TRANSIENT_FAILURE_GRACE),
                "{origin:?}"
            );
        }
        for origin in [
            Origin::ApiServer(403),
            Origin::ApiServer(UNSERVED),
            Origin::Configuration,
        ] {
            assert!(!failure(origin).is_transient(Duration::ZERO), "{origin:?}");
        }
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
        let failure = |code| failure(Origin::ApiServer(code));
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
