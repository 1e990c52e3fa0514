//! An IPAM provider whose pools are in etcd: an example of a backend outside of Kubernetes.
//!
//! Two keys record an allocation: the address with the uid of the claim, and the uid with the
//! address. A transaction writes both, if neither exists. So an address is allocated once, by any
//! number of providers, and a repeated call for a claim returns its address, also after an answer
//! was lost. A release leaves a tombstone, which rejects an allocation that arrives later. Run
//! `etcd-provider --help` for the flags.

mod provider;
mod store;

use std::process::ExitCode;
use std::time::Duration;

use capi_ipam_provider::advanced::ClaimOptions;
use capi_ipam_provider::controller::options::parse_duration;
use capi_ipam_provider::prelude::*;

use self::provider::EtcdProvider;
use self::store::Store;

/// The flags of the program, beside those of every manager.
#[derive(clap::Args)]
struct Flags {
    /// URL of etcd. Repeatable.
    #[arg(long, required = true)]
    etcd_endpoint: Vec<String>,

    /// In which time every bound claim is verified once; 0s disables.
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    verify_interval: Duration,
}

fn main() -> ExitCode {
    manager::run(
        Identity::new("etcd-provider", env!("CARGO_PKG_VERSION")),
        async |manager, flags: &Flags| {
            let provider = EtcdProvider {
                store: Store::connect(&flags.etcd_endpoint).await?,
            };
            let verify_interval =
                Some(flags.verify_interval).filter(|interval| !interval.is_zero());
            let options = ClaimOptions {
                verify_interval,
                ..ClaimOptions::default()
            };
            let builder = ClaimReconciler::builder(manager).options(options);
            builder
                .build(async |setup| Ok(WatchedPools::new(setup, provider).await))
                .await
        },
    )
}
