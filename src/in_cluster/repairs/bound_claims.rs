//! The claims that keep their address: those that are bound, and those that own an IPAddress.

use std::time::Duration;

use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::advanced::{ClaimCache, ClaimSnapshot};

/// Looks up claims that are bound and keep their address, as far as the cache of claims shows.
#[derive(Clone)]
pub(super) struct BoundClaims {
    claims: ClaimCache,
    grace: Duration,
}

impl BoundClaims {
    /// `grace` is how long the release of a deleted claim may take.
    pub(super) fn new(claims: ClaimCache, grace: Duration) -> Self {
        Self { claims, grace }
    }

    /// The claim of this name, if it is bound and keeps its address.
    pub(super) fn get(&self, claim: &NamespacedName) -> Option<ClaimSnapshot> {
        let found = self.claims.get(claim.namespace(), claim.name())?;
        let keeps_address = found.bound && !self.was_recently_deleted(&found);
        keeps_address.then_some(found)
    }

    /// As [`Self::get`], if this process manages the claim.
    pub(super) fn get_managed(&self, claim: &NamespacedName) -> Option<ClaimSnapshot> {
        self.get(claim).filter(|found| found.is_managed)
    }

    /// The claim of this name, bound or not, if this process manages it and it is not being
    /// released. Another provider may have created its IPAddress and stopped before the claim was
    /// bound.
    pub(super) fn get_user(&self, claim: &NamespacedName) -> Option<ClaimSnapshot> {
        let found = self.claims.get(claim.namespace(), claim.name())?;
        let is_user = found.is_managed && !self.was_recently_deleted(&found);
        is_user.then_some(found)
    }

    /// Whether the deletion of a claim started less than the grace period ago: its address may be
    /// released any moment.
    fn was_recently_deleted(&self, claim: &ClaimSnapshot) -> bool {
        let Some(deleted) = &claim.deleted else {
            return false;
        };
        let since = clock::now().0.duration_since(deleted.0);
        since.is_negative() || since.unsigned_abs() < self.grace
    }
}
