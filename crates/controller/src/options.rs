//! The flags of every manager. They have the names of the flags of Cluster API's managers where
//! these exist.

mod selector;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::core::Selector;

pub use self::selector::parse_selector;
use crate::diagnostics::DiagnosticsOptions;
pub use crate::flag_values::{parse_bool, parse_duration, parse_interval, parse_path, parse_port};
use crate::logging::LogFormat;
use crate::traces::TraceOptions;

/// The flags of a manager.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Kubeconfig of the API server; by default KUBECONFIG, ~/.kube/config or the pod's service
    /// account.
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    pub kubeconfig: Option<PathBuf>,

    /// Serve only claims and pools of this namespace, and global pools; by default those of all
    /// namespaces. Repeatable.
    #[arg(long = "namespace", value_name = "NAME")]
    pub namespaces: Vec<String>,

    /// Serve only claims and pools whose label cluster.x-k8s.io/watch-filter has this value.
    #[arg(long, value_name = "VALUE", default_value = "")]
    pub watch_filter: String,

    /// Serve only claims and pools whose labels match this selector, such as team=a,stage!=test.
    #[arg(long, value_name = "SELECTOR", default_value = "", value_parser = parse_selector)]
    pub selector: Selector,

    /// Number of claims that are reconciled concurrently.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrency: u16,

    /// Use leader election: one replica is active, the others are standbys.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL", value_parser = parse_bool)]
    pub leader_elect: bool,

    /// Namespace of the lease; by default that of the pod or of the kubeconfig's context.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub leader_election_namespace: String,

    /// Time after which a standby takes over a lease that is not renewed.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub leader_elect_lease_duration: Duration,

    /// Time for which the leader retries to renew its lease before the process ends.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub leader_elect_renew_deadline: Duration,

    /// Time between two attempts to acquire or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub leader_elect_retry_period: Duration,

    /// Address for the probes /healthz, /readyz and /readyz/caches; 0 disables.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// The flags for metrics.
    #[command(flatten)]
    pub diagnostics: DiagnosticsOptions,

    /// Format of the log.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,

    /// Log level: error, warn, info, debug or trace; or levels by module, such as
    /// info,capi_ipam=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,

    /// The flags for traces.
    #[command(flatten)]
    pub traces: TraceOptions,
}

/// Why the flags contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The three durations of leader election are in the wrong order.
    #[error(
        "--leader-elect-retry-period ({retry:?}) must be shorter than --leader-elect-renew-deadline ({renew:?}), \
         and that shorter than --leader-elect-lease-duration ({lease:?})"
    )]
    LeaseTimes {
        /// Value of `--leader-elect-retry-period`.
        retry: Duration,
        /// Value of `--leader-elect-renew-deadline`.
        renew: Duration,
        /// Value of `--leader-elect-lease-duration`.
        lease: Duration,
    },
}

impl Options {
    /// The namespaces of the flag `--namespace`; empty for all. An empty value of the flag has no
    /// effect.
    pub fn selected_namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces
            .iter()
            .map(String::as_str)
            .filter(|namespace| !namespace.is_empty())
    }

    /// The namespace to watch: the selected one, or an empty text for all namespaces. With several
    /// namespaces there is one watch of all of them, whose objects have to be filtered.
    pub fn watched_namespace(&self) -> &str {
        let mut selected = self.selected_namespaces();
        let first = selected.next().unwrap_or_default();
        if selected.all(|other| other == first) {
            first
        } else {
            ""
        }
    }

    /// Checks the flags that depend on each other.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let (retry, renew, lease) = (
            self.leader_elect_retry_period,
            self.leader_elect_renew_deadline,
            self.leader_elect_lease_duration,
        );
        if Duration::ZERO < retry && retry < renew && renew < lease {
            return Ok(());
        }
        Err(OptionsError::LeaseTimes {
            retry,
            renew,
            lease,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &[&str]) -> Options {
        Flags::try_parse_from(["test"].iter().chain(arguments))
            .unwrap()
            .options
    }

    #[test]
    fn namespace_is_repeatable() {
        for (arguments, selected, watched) in [
            (&[][..], &[][..], ""),
            (&["--namespace="], &[], ""),
            (&["--namespace=a"], &["a"], "a"),
            (
                &["--namespace=", "--namespace", "a", "--namespace=a"],
                &["a", "a"],
                "a",
            ),
            (&["--namespace=a", "--namespace=b"], &["a", "b"], ""),
        ] {
            let options = options(arguments);
            assert_eq!(options.selected_namespaces().collect::<Vec<_>>(), selected);
            assert_eq!(options.watched_namespace(), watched);
        }
        assert_eq!(
            options(&["--watch-filter=a", "--watch-filter=b"]).watch_filter,
            "b"
        );
        assert!(
            options(&[]).selector.selects_all()
                && !options(&["--selector=a in (b,c)"]).selector.selects_all()
        );
    }

    #[test]
    fn values_have_the_format_of_go() {
        for (argument, leader_elect) in [
            ("--leader-elect", true),
            ("--leader-elect=T", true),
            ("--leader-elect=0", false),
        ] {
            assert_eq!(
                options(&[argument]).leader_elect,
                leader_elect,
                "{argument}"
            );
        }
        assert!(Flags::try_parse_from(["test", "--leader-elect=yes"]).is_err());
        let lease = options(&["--leader-elect-lease-duration=1.5m"]).leader_elect_lease_duration;
        assert_eq!(lease, Duration::from_secs(90));
        assert_eq!(
            options(&["--kubeconfig="]).kubeconfig.as_deref(),
            Some(std::path::Path::new(""))
        );
    }
}
