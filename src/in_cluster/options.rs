//! The flags that the in-cluster provider has beside those of every manager.

use std::time::Duration;

use capi_ipam_controller::options::duration;
use clap::Args;

/// Flags of the in-cluster provider.
#[derive(Args, Clone, Debug)]
pub struct InClusterOptions {
    /// How often to look for addresses that nobody holds any more.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub sweep_interval: Duration,

    /// How long an address has to look abandoned before it is freed.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    pub sweep_grace: Duration,

    /// How long a claim that was moved or restored here waits for the address that it had.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub restored_claim_timeout: Duration,
}
