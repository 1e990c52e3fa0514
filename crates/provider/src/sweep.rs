//! The sweep: deletes IPAddresses whose claim no longer exists, and releases their addresses.
//!
//! They remain when somebody removes the finalizer of a claim, or when a restore contains them
//! without their claim. One that was restored waits for its claim as long as a restored claim waits
//! for its IPAddress. An IPAddress that a user created without a claim is reported and kept.
//! [`ReleaseAbandoned`] decides when and how many are deleted, and [`UnclaimedAddresses`] which
//! ones: live reads show that they have no claim, and the deletion has the version that was read as
//! precondition.
//!
//! Every process sweeps all namespaces, also those that it does not manage: it watches the claims
//! of all of them, and live reads decide.

mod origin;
mod unclaimed;

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::manager::{BackgroundTask, NextRun};

use self::unclaimed::UnclaimedAddresses;
use crate::adapter::ProviderAdapter;
use crate::claim_cache::ClaimCache;
use crate::options::SweepOptions;
use crate::reconciler::ClaimReconciler;
use crate::repair::{AbandonedObjects, ReleaseAbandoned, run_repair};

/// The sweep of one provider.
pub(super) struct Sweep<A: ProviderAdapter> {
    addresses: ReleaseAbandoned<UnclaimedAddresses<A>>,
    interval: Duration,
}

impl<A: ProviderAdapter> BackgroundTask for Sweep<A> {
    async fn run_once(&mut self) -> NextRun {
        run_repair(&mut self.addresses).await;
        NextRun::After(self.interval)
    }
}

impl<A: ProviderAdapter> Sweep<A> {
    pub(super) fn new(
        reconciler: Arc<ClaimReconciler<A>>,
        claims: ClaimCache,
        options: SweepOptions,
    ) -> Self {
        let resource = UnclaimedAddresses::<A>::NAME;
        let deleted = reconciler.metrics.orphans_freed(resource);
        let addresses = UnclaimedAddresses::new(reconciler, claims);
        Self {
            addresses: ReleaseAbandoned::new(addresses, options, deleted),
            interval: options.interval,
        }
    }
}
