//! Wait queues: claims that do not exist leave them, and turns that are not used are passed on.
//!
//! No event reports a claim that was removed while the watch was interrupted.

use std::sync::Arc;

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::advanced::{ClaimCache, Repair, Repaired};

use crate::in_cluster::context::Context;

/// Removes claims that do not exist, or that this process does not manage, from the wait queues.
pub(super) struct PruneWaitQueues {
    context: Arc<Context>,
    claims: ClaimCache,
}

impl Repair for PruneWaitQueues {
    const NAME: &'static str = "wait-queues";

    async fn pass(&mut self) -> Repaired {
        let may_wait = |claim: &NamespacedName| self.is_managed(claim);
        self.context
            .ledger
            .note(|ledger| ledger.prune_wait_queues(may_wait));
        Repaired::default()
    }
}

impl PruneWaitQueues {
    pub(super) fn new(context: Arc<Context>, claims: ClaimCache) -> Self {
        Self { context, claims }
    }

    fn is_managed(&self, claim: &NamespacedName) -> bool {
        let found = self.claims.get(claim.namespace(), claim.name());
        found.is_some_and(|found| found.is_managed)
    }
}
