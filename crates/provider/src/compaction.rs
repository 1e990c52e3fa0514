//! Which claims are cached in compact form, and when such a claim needs a reconcile after all.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::controller::{Cached, Compaction};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_protocol::decision::AddressState;
#[cfg(doc)]
use capi_ipam_protocol::decision::decide;

use crate::adapter::ProviderAdapter;
use crate::api::IPAddressClaim;
use crate::claim_cache::CompactClaim;
use crate::metrics::state_of;
use crate::reconciler::ClaimReconciler;

impl<A: ProviderAdapter> Compaction<IPAddressClaim> for ClaimReconciler<A> {
    type Compact = CompactClaim;

    fn compact(&self, claim: &IPAddressClaim) -> Option<CompactClaim> {
        let is_managed = self.filter.matches(claim);
        // A later state follows, or its condition Ready has to be corrected.
        if is_managed && (self.is_stale(claim) || self.reports_not_ready(claim)) {
            return None;
        }
        let pool = self.addresses.intern(&claim.spec.pool_ref);
        CompactClaim::of(claim, pool, is_managed)
    }

    /// Consistent with [`decide`]: a bound claim with a valid IPAddress needs no action.
    fn needs_reconcile(&self, name: &NamespacedName, claim: &CompactClaim) -> bool {
        if !claim.is_managed {
            return false;
        }
        let index = &self.addresses;
        match index.state_of(name, Some(claim.uid), &claim.pool) {
            AddressState::Absent | AddressState::Invalid => true,
            AddressState::Valid | AddressState::Deleting => self
                .verification
                .as_ref()
                .is_some_and(|verification| verification.is_due(claim.uid)),
        }
    }

    async fn fetch(&self, name: &NamespacedName) -> Result<Option<IPAddressClaim>, CallError> {
        let claims = self.contract.claims(name.namespace());
        claims.get(name.name()).await
    }

    fn expand(&self, name: &NamespacedName, claim: &CompactClaim) -> Option<IPAddressClaim> {
        claim.is_managed.then(|| claim.expand(name))
    }

    fn cached(
        &self,
        before: Option<&Cached<IPAddressClaim, CompactClaim>>,
        after: Option<&Cached<IPAddressClaim, CompactClaim>>,
    ) {
        let state = |cached: Option<&_>| cached.and_then(|cached| state_of(&self.filter, cached));
        self.metrics.count(state(before), state(after));
    }
}
