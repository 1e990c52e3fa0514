//! The sweep: deletes IPAddresses whose claim no longer exists, and releases their addresses.
//!
//! They remain when somebody removes the finalizer of a claim, or when a restore contains them
//! without their claim. One that was restored waits for its claim as long as a restored claim waits
//! for its IPAddress. An IPAddress that a user created without a claim is reported and kept.
//! [`ReleaseAbandoned`](crate::advanced::ReleaseAbandoned) decides when and how many are deleted,
//! and [`UnclaimedAddresses`] which ones: live reads show that they have no claim, and the deletion
//! has the version that was read as precondition.
//!
//! Every process sweeps all namespaces, also those that it does not manage: it watches the claims
//! of all of them, and live reads decide.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::absence::Absence;
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::controller::Action;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::Keyed;
use capi_ipam_controller::{clock, finalizer};
use kube::ResourceExt;
use tracing::{debug, info, warn};

use crate::adapter::{ClaimHandler, HandlerError, ProviderAdapter};
use crate::api::{IPAddress, IPAddressClaim, PoolReference, Uid, conditions, names};
use crate::claim_cache::ClaimCache;
use crate::error::ReconcileError;
use crate::reconciler::ClaimReconciler;
use crate::repair::{AbandonedObjects, Found, Release};

/// The IPAddresses of one provider for which no claim of their name exists.
pub(crate) struct UnclaimedAddresses<A: ProviderAdapter> {
    reconciler: Arc<ClaimReconciler<A>>,
    claims: ClaimCache,
    /// Deleted IPAddresses whose addresses could not be released yet, and their former claims.
    unreleased: Vec<(Arc<IPAddressClaim>, IPAddress)>,
}

/// An IPAddress without a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnclaimedAddress {
    name: NamespacedName,
    pool: Arc<PoolReference>,
}

impl<A: ProviderAdapter> AbandonedObjects for UnclaimedAddresses<A> {
    const NAME: &'static str = "ipaddresses";
    type Object = UnclaimedAddress;
    /// A pool, as IPAddresses of a namespace refer to it.
    type Group = (String, Arc<PoolReference>);
    type Error = ReconcileError;

    /// Repeats the releases that have failed.
    async fn finish(&mut self) {
        for (claim, address) in std::mem::take(&mut self.unreleased) {
            self.release_address(claim, address).await;
        }
    }

    fn find(&self) -> Found<UnclaimedAddress> {
        let mut abandoned = Vec::new();
        let mut kept = Vec::new();
        for (address, origin) in self.unclaimed() {
            match origin {
                Origin::Provider => abandoned.push(address),
                // One that a provider created looks like this for a moment, before it is deleted.
                Origin::Manual => kept.push(address),
            }
        }
        Found { abandoned, kept }
    }

    fn group(&self, address: &UnclaimedAddress) -> Self::Group {
        let namespace = address.name.namespace().to_owned();
        (namespace, Arc::clone(&address.pool))
    }

    fn group_size(&self, (namespace, pool): &Self::Group) -> usize {
        self.reconciler.addresses.count(namespace, pool)
    }

    /// Deletes an IPAddress, and asks the provider to release its address.
    async fn release(&mut self, address: &UnclaimedAddress) -> Result<Release, ReconcileError> {
        let found = self.read(&address.name).await?;
        // Another one can have its name: that of a user, or of another pool.
        let Some(address) = found.filter(|found| is_of_provider(found, &address.pool)) else {
            return Ok(Release::Kept);
        };
        if let Some(left) = self.awaited(&address).await? {
            return Ok(Release::Awaits(left));
        }
        let claim = Arc::new(former_claim(&address));
        // Somebody who pauses a Cluster or a pool expects that nothing of it changes.
        if self.is_cluster_paused(&address).await? || self.is_pool_paused(&claim).await? {
            return Ok(Release::Kept);
        }
        // Last: a claim that was created since the first read adopts the IPAddress.
        let claims = self.reconciler.contract.claims_beside(&address);
        if claims.get_metadata(&address.name_any()).await?.is_some() {
            return Ok(Release::Kept);
        }
        // With the version that was read: a claim may have been created since, and have adopted the
        // IPAddress.
        if !self.reconciler.remove_address(&address).await? {
            return Ok(Release::Kept);
        }
        self.report_deletion(&address);
        // At once: if the process ends before, the address is left to other repairs. So is that of
        // an IPAddress without an owner: what was allocated is known by the uid of the claim.
        if has_uid(&claim) {
            self.release_address(claim, address).await;
        }
        Ok(Release::Done)
    }

    async fn report(&self, address: &UnclaimedAddress) -> Result<(), ReconcileError> {
        let (namespace, name) = address.name.parts();
        // The process that manages the namespace reports it.
        if !self.claims.selection.includes_namespace(Some(namespace)) {
            return Ok(());
        }
        let Some(address) = self.read(&address.name).await? else {
            return Ok(());
        };
        let value = &address.spec.address;
        let message = format!(
            "no IPAddressClaim {name} exists: {value} counts as in use and is not allocated; delete this IPAddress to \
             release it"
        );
        warn!(
            namespace,
            address = name,
            value,
            "IPAddress has no claim and is kept"
        );
        self.reconciler.events.warning(
            &address,
            &self.reconciler.contract.ipam,
            conditions::NO_CLAIM,
            "Inspect",
            &message,
        );
        Ok(())
    }
}

impl<A: ProviderAdapter> UnclaimedAddresses<A> {
    pub(crate) fn new(reconciler: Arc<ClaimReconciler<A>>, claims: ClaimCache) -> Self {
        Self {
            reconciler,
            claims,
            unreleased: Vec::new(),
        }
    }

    /// The IPAddresses of this provider for which no claim of their name is cached.
    fn unclaimed(&self) -> Vec<(UnclaimedAddress, Origin)> {
        let pools = &self.reconciler.filter.pools;
        let addresses = &self.reconciler.addresses;
        addresses.filter_map(|(namespace, name, record)| {
            let is_ours = pools.iter().any(|kind| kind.matches(&record.pool));
            if !is_ours || self.claims.get(namespace, name).is_some() {
                return None;
            }
            let origin = origin(record.protected, record.deleting, record.claim.is_some())?;
            let address = UnclaimedAddress {
                name: NamespacedName::new(namespace, name),
                pool: Arc::clone(&record.pool),
            };
            Some((address, origin))
        })
    }

    async fn read(&self, address: &NamespacedName) -> Result<Option<IPAddress>, CallError> {
        let (namespace, name) = address.parts();
        self.reconciler
            .contract
            .addresses(namespace)
            .get(name)
            .await
    }

    /// How long the claim of an IPAddress may still be restored; `None` if it is not awaited.
    async fn awaited(&self, address: &IPAddress) -> Result<Option<Duration>, CallError> {
        // The garbage collector deletes a restored IPAddress whose owner has another uid. Without
        // an owner, a user has deleted it, to release it.
        if address.metadata.deletion_timestamp.is_some() && address.claim_uid().is_none() {
            return Ok(None);
        }
        let namespace = address.namespace().unwrap_or_default();
        let name = address.name_any();
        let addresses = self.reconciler.contract.addresses(&namespace);
        let Some(found) = addresses.get_metadata(&name).await? else {
            return Ok(None);
        };
        let timeout = self.reconciler.options.restored_claim_timeout;
        let left = Absence::of(&found, None).remaining(timeout, clock::now().0);
        if let Some(left) = left {
            info!(
                namespace,
                address = name,
                value = address.spec.address,
                seconds = left.as_secs(),
                "IPAddress was restored or moved, and waits for its claim"
            );
        }
        Ok(left)
    }

    async fn is_cluster_paused(&self, address: &IPAddress) -> Result<bool, CallError> {
        let Some(name) = address.labels().get(names::CLUSTER_NAME_LABEL) else {
            return Ok(false);
        };
        let namespace = address.namespace().unwrap_or_default();
        let clusters = self.reconciler.contract.clusters(&namespace);
        let cluster = clusters.get(name).await?;
        Ok(cluster.is_some_and(|cluster| cluster.is_paused()))
    }

    /// Whether the pool of the former claim is paused. One that does not exist or cannot be used is
    /// not.
    async fn is_pool_paused(&self, claim: &Arc<IPAddressClaim>) -> Result<bool, HandlerError> {
        let mut pool = self.reconciler.handler_of(claim).fetch_pool().await;
        if matches!(pool, Err(HandlerError::RetryAfter { .. })) {
            // A handler may report a pool that is not cached as missing only at the second lookup.
            pool = self.reconciler.handler_of(claim).fetch_pool().await;
        }
        match pool {
            Ok(pool) => Ok(pool.paused),
            Err(HandlerError::PoolNotFound(_) | HandlerError::PoolNotReady(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Releases the address of a deleted IPAddress. A failed release is repeated in the next pass.
    async fn release_address(&mut self, claim: Arc<IPAddressClaim>, address: IPAddress) {
        let mut handler = self.reconciler.handler_of(&claim);
        handler.address_deleted(&address);
        match self.reconciler.clean_up_if_gone(&claim, &mut handler).await {
            Ok(None | Some(Action::AwaitChange)) => {}
            Ok(Some(Action::Requeue(_))) => self.unreleased.push((claim, address)),
            Err(error) => {
                let claim_name = claim.name_any();
                debug!(
                    claim = claim_name,
                    error = error_chain(&error),
                    "cannot release an address, will retry"
                );
                self.unreleased.push((claim, address));
            }
        }
    }

    /// Reports that an IPAddress is deleted.
    fn report_deletion(&self, address: &IPAddress) {
        let namespace = address.namespace().unwrap_or_default();
        let name = address.name_any();
        let value = &address.spec.address;
        info!(
            namespace,
            address = name,
            value,
            "deleted an IPAddress without a claim"
        );
        let message =
            format!("no IPAddressClaim {name} exists: deleted the IPAddress that held {value}");
        self.reconciler.events.normal(
            address,
            &self.reconciler.contract.ipam,
            conditions::ORPHAN_FREED,
            "Sweep",
            &message,
        );
    }
}

/// Who created an IPAddress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A provider, for a claim: it has the finalizer of the provider, or a claim as owner.
    Provider,
    /// A user: it has neither.
    Manual,
}

/// `None` if it is unknown who created an IPAddress: it is being deleted and no longer has the
/// finalizer of the provider.
fn origin(is_protected: bool, is_deleted: bool, has_owner: bool) -> Option<Origin> {
    match (is_protected, is_deleted, has_owner) {
        (true, ..) | (false, false, true) => Some(Origin::Provider),
        (false, true, _) => None,
        (false, false, false) => Some(Origin::Manual),
    }
}

/// Whether a provider created an IPAddress, from this pool.
fn is_of_provider(address: &IPAddress, pool: &PoolReference) -> bool {
    let is_protected = finalizer::is_set(address, names::PROTECT_ADDRESS);
    let has_owner = address.claim_uid().is_some();
    origin(is_protected, address.is_deleting(), has_owner) == Some(Origin::Provider)
        && address.spec.pool_ref == *pool
}

/// Whether a former claim can have an address. The API server assigns UUIDs: an owner with another
/// text as uid was no claim, and nothing was allocated for it.
fn has_uid(claim: &IPAddressClaim) -> bool {
    let uid = claim.metadata.uid.as_deref();
    uid.and_then(Uid::parse).is_some()
}

/// The claim for which an IPAddress was created, as far as the IPAddress shows it.
fn former_claim(address: &IPAddress) -> IPAddressClaim {
    let mut claim = IPAddressClaim::default();
    claim.metadata.namespace = address.namespace();
    claim.metadata.name = Some(address.name_any());
    claim.metadata.uid = address.claim_uid().map(str::to_owned);
    claim.spec.pool_ref = address.spec.pool_ref.clone();
    claim
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UUID: &str = "6101ef08-5b98-40af-8a1f-bc85701b2e47";

    fn pool(name: &str) -> PoolReference {
        let pool = json!({ "apiGroup": "example.com", "kind": "MemoryPool", "name": name });
        serde_json::from_value(pool).unwrap()
    }

    /// An IPAddress of the pool `a`, owned by a claim with this uid.
    fn address(uid: &str) -> IPAddress {
        let address = json!({
            "metadata": {
                "namespace": "n", "name": "vm", "finalizers": [names::PROTECT_ADDRESS],
                "ownerReferences": [{ "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
                                      "kind": "IPAddressClaim", "name": "vm", "uid": uid }],
            },
            "spec": { "address": "10.0.0.1", "prefix": 24, "claimRef": { "name": "vm" },
                      "poolRef": { "apiGroup": "example.com", "kind": "MemoryPool", "name": "a" } },
        });
        serde_json::from_value(address).unwrap()
    }

    #[test]
    fn address_of_another_pool_with_the_name_is_kept() {
        assert!(is_of_provider(&address(UUID), &pool("a")));
        assert!(!is_of_provider(&address(UUID), &pool("b")));
        let mut manual = address(UUID);
        manual.metadata.finalizers = None;
        manual.metadata.owner_references = None;
        assert!(!is_of_provider(&manual, &pool("a")));
    }

    #[test]
    fn nothing_is_released_for_an_owner_without_a_uuid() {
        assert!(has_uid(&former_claim(&address(UUID))));
        assert!(!has_uid(&former_claim(&address("other"))));
    }

    #[test]
    fn address_in_deletion_without_finalizer_has_no_known_origin() {
        assert_eq!(origin(true, true, false), Some(Origin::Provider));
        assert_eq!(origin(false, false, true), Some(Origin::Provider));
        assert_eq!(origin(false, false, false), Some(Origin::Manual));
        assert_eq!(origin(false, true, true), None);
    }
}
