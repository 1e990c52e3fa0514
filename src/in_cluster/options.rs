//! The flags of the in-cluster provider.

use std::path::PathBuf;
use std::time::Duration;

use capi_ipam_controller::options::{parse_bool, parse_duration, parse_interval};
use capi_ipam_provider::advanced::SweepOptions;
use clap::Args;

use super::metrics::PoolMetricsMode;

/// Flags of the in-cluster provider.
#[derive(Args, Clone, Debug)]
pub struct InClusterOptions {
    /// How often to search for abandoned addresses.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_interval)]
    pub sweep_interval: Duration,

    /// How long an address must be abandoned before it is released, and how long a Cluster must be
    /// gone before the addresses of its ClusterAddressing are.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration)]
    pub sweep_grace: Duration,

    /// Only report abandoned addresses, and release none.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL", value_parser = parse_bool)]
    pub sweep_report_only: bool,

    /// How often the addresses of claims are compared with those of their Machines, for pools with
    /// spec.reclaim.verify.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_interval)]
    pub verify_interval: Duration,

    /// Which pools have metrics: all or none.
    #[arg(long, value_name = "POOLS", default_value = "all", value_enum)]
    pub pool_metrics: PoolMetricsMode,

    /// Allocate addresses for the Clusters that ClusterAddressings select. It needs the permissions
    /// of config/cluster-addressing.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL", value_parser = parse_bool)]
    pub cluster_addressing: bool,

    /// Create a DNSEndpoint of ExternalDNS for each IPAddress of a pool with spec.dns. It needs the
    /// permissions of config/dns-endpoints.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL", value_parser = parse_bool)]
    pub dns_endpoints: bool,

    /// Export the addresses that each pool needs for the Machines of rollouts, as a metric. It needs
    /// the permissions of config/rollout-metrics.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL", value_parser = parse_bool)]
    pub rollout_metrics: bool,

    /// How long a moved or restored claim waits for its IPAddress to be restored.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub restored_claim_timeout: Duration,

    /// File to which a JSON line is appended for each allocation, adoption, release and change of
    /// scope of an address; - for the standard output.
    #[arg(long, value_name = "FILE")]
    pub allocation_log: Option<PathBuf>,
}

impl InClusterOptions {
    /// How abandoned addresses and reservations are released.
    pub(super) fn sweep(&self) -> SweepOptions {
        SweepOptions {
            interval: self.sweep_interval,
            grace: self.sweep_grace,
            report_only: self.sweep_report_only,
        }
    }
}
