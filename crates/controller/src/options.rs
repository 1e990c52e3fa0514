//! The flags that every manager has. Their names are those of Cluster API's managers where these have one.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::diagnostics::DiagnosticsOptions;
use crate::logging::LogFormat;

/// Flags of a manager.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Kubeconfig of the API server; by default KUBECONFIG, ~/.kube/config or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Serve only claims and pools of this namespace, and global pools; by default those of all namespaces.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub namespace: String,

    /// Serve only claims and pools whose label cluster.x-k8s.io/watch-filter has this value.
    #[arg(long, value_name = "VALUE", default_value = "")]
    pub watch_filter: String,

    /// How many claims are worked on at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrency: u16,

    /// Take part in leader election, so that of several managers one works.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,

    /// Namespace of the lease; by default that of the pod or of the kubeconfig's context.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub leader_election_namespace: String,

    /// How long others wait before they take over a lease that is not renewed.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,

    /// How long the leader tries to renew its lease before it gives up.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,

    /// How long to wait between attempts to get or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,

    /// Where to serve the probes /healthz, /readyz and /readyz/caches; 0 for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Where metrics are served, and to whom.
    #[command(flatten)]
    pub diagnostics: DiagnosticsOptions,

    /// Format of the log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// What to log: error, warn, info, debug or trace, or levels by module as in info,capi_ipam=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
}

/// Why flags do not go together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The three durations of leader election are in the wrong order.
    #[error(
        "--leader-elect-retry-period ({retry:?}) must be shorter than --leader-elect-renew-deadline ({renew:?}), \
         and that shorter than --leader-elect-lease-duration ({lease:?})"
    )]
    LeaseTimes {
        /// Retry period.
        retry: Duration,
        /// Renew deadline.
        renew: Duration,
        /// Lease duration.
        lease: Duration,
    },
}

impl Options {
    /// Checks what one flag alone cannot tell.
    pub fn check(&self) -> Result<(), OptionsError> {
        let (retry, renew, lease) =
            (self.leader_elect_retry_period, self.leader_elect_renew_deadline, self.leader_elect_lease_duration);
        if Duration::ZERO < retry && retry < renew && renew < lease {
            return Ok(());
        }
        Err(OptionsError::LeaseTimes { retry, renew, lease })
    }
}

/// Reads a duration as Go's flags write it: `15s`, `1m30s`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write for example 15s, 1m30s or 500ms");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, tail) = rest.split_at_checked(digits).ok_or_else(wrong)?;
        let units = tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(units).ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = match unit {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(3600).map(Duration::from_secs),
            _ => None,
        };
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "15", "s", "1x", "-1s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
