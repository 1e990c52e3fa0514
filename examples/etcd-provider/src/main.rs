//! An IPAM provider whose pools are in etcd: an example of a backend outside of Kubernetes.
//!
//! Two keys record an allocation: the address with the uid of the claim, and the uid with the
//! address. A transaction writes both, if neither exists. So an address is allocated once, by any
//! number of providers, and a repeated call for a claim returns its address, also after an answer
//! was lost. A release leaves a tombstone, which rejects an allocation that arrives later. Run
//! `etcd-provider --help` for the flags.

mod provider;
mod store;
mod vlans;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_provider::advanced::ClaimOptions;
use capi_ipam_provider::controller::options::parse_duration;
use capi_ipam_provider::controller::retry::RetryPolicy;
use capi_ipam_provider::prelude::*;

use self::provider::EtcdProvider;
use self::store::Store;
use self::vlans::Vlans;

/// How many claims use etcd at the same time at most.
const MAX_CONCURRENT_CLAIMS: u16 = 8;

/// The delays after failed requests: etcd may be electing a leader.
const RETRY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(5),
};

/// Upper bounds of the durations of reconciles in the metrics, in seconds.
const BUCKETS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

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
        Identity::new("etcd-provider", env!("CARGO_PKG_VERSION"))
            .with_metrics("etcd_provider", BUCKETS),
        async |manager, flags: &Flags| {
            let connect = Store::connect(&flags.etcd_endpoint);
            let connection = "the connection to etcd";
            let store = Arc::new(manager.initialize(connection, connect).await?);
            let to_close = Arc::clone(&store);
            manager.on_stop(connection, async move {
                to_close.close();
                Ok(())
            });
            let vlans = Vlans::start(manager);
            let provider = EtcdProvider {
                store,
                vlans: vlans.clone(),
            };
            let verify_interval =
                Some(flags.verify_interval).filter(|interval| !interval.is_zero());
            let options = ClaimOptions {
                verify_interval,
                retry: Some(RETRY),
                concurrency: Some(MAX_CONCURRENT_CLAIMS),
                ..ClaimOptions::default()
            };
            let builder = ClaimReconciler::builder(manager).options(options);
            builder
                .controller(|claims| claims.wait_for(vlans.synced))
                .build(async |setup| Ok(WatchedPools::new(setup, provider).await))
                .await
        },
    )
}
