//! Claims for pools of a kind that the API server does not serve, such as one with a wrong name. No
//! provider reports them, so a metric counts them.

use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::discovery::is_served;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use tracing::debug;

use crate::adapter::PoolKind;
use crate::claim_cache::ClaimCache;

const INTERVAL: Duration = Duration::from_mins(1);

/// Number of kinds that one pass looks up. Claims of others count as served.
const MAX_KINDS: usize = 20;

/// Counts the claims whose kind of pool is not served.
pub(super) struct CountUnservedKinds {
    pub(super) claims: ClaimCache,
    pub(super) pools: Vec<PoolKind>,
    pub(super) client: Client,
    pub(super) count: Gauge,
}

impl BackgroundTask for CountUnservedKinds {
    async fn run_once(&mut self) -> NextRun {
        let mut unserved = 0_i64;
        let waiting = self.claims.waiting_for_other_kinds(&self.pools);
        for ((group, kind), count) in waiting.into_iter().take(MAX_KINDS) {
            match is_served(&self.client, &group, &kind).await {
                Ok(true) => {}
                Ok(false) => unserved = unserved.saturating_add(count),
                Err(error) => {
                    let error = error_chain(&error);
                    debug!(error, "cannot find out which kinds are served, will retry");
                    return NextRun::After(INTERVAL);
                }
            }
        }
        self.count.set(unserved);
        NextRun::After(INTERVAL)
    }
}
