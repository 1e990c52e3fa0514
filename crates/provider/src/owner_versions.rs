//! Owner references in an old version of the contract.
//!
//! The Go provider 1.0 wrote owner references to claims in `v1beta1`, and so did this one where
//! only that version was served. When the API server no longer serves the version, the garbage
//! collector cannot resolve them. They are therefore rewritten while both versions are served: in
//! the background, a few in a second, one write for each IPAddress. Nothing else of the IPAddress
//! is changed. The Go provider compares owners without their versions.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::Keyed;
use capi_ipam_controller::{finalizer, patch};
use tracing::{debug, info};

use crate::adapter::ProviderAdapter;
use crate::api::{ContractVersion, IPAddress, is_claim_owner, names};
use crate::contract::api_version;
use crate::reconciler::ClaimReconciler;

/// The time between two passes. IPAddresses that cannot be written in one, such as those of a
/// paused Cluster, are written in a later one.
const PASS_INTERVAL: Duration = Duration::from_mins(10);
/// The time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Rewrites owner references in an old version.
pub(super) struct UpgradeOwners<A: ProviderAdapter>(pub(super) Arc<ClaimReconciler<A>>);

impl<A: ProviderAdapter> BackgroundTask for UpgradeOwners<A> {
    async fn run_once(&mut self) -> NextRun {
        let mut count = 0_usize;
        for key in self.0.outdated_owners() {
            match self.0.upgrade_owner_reference(&key).await {
                Ok(is_written) => count = count.saturating_add(usize::from(is_written)),
                Err(error) => {
                    debug!(address = ?key, error = error_chain(&error), "cannot rewrite the owner reference");
                }
            }
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
        if count > 0 {
            let version = self.0.contract.ipam.as_str();
            info!(count, version, "rewrote owner references of IPAddresses");
        }
        NextRun::After(PASS_INTERVAL)
    }
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// The IPAddresses whose owner reference is in an older version than the one in use.
    fn outdated_owners(&self) -> Vec<NamespacedName> {
        let version = self.contract.ipam;
        self.addresses.filter_map(|(namespace, name, record)| {
            let is_outdated = record
                .owner_version
                .is_some_and(|owner| is_older(owner, version));
            (is_outdated && !record.deleting).then(|| NamespacedName::new(namespace, name))
        })
    }

    /// Rewrites the owner reference of an IPAddress, unless its claim is not reconciled here, is
    /// paused or is being deleted. Returns whether it was written.
    async fn upgrade_owner_reference(&self, address: &NamespacedName) -> Result<bool, CallError> {
        let (namespace, name) = address.parts();
        let Some(claim) = self.contract.claims(namespace).get(name).await? else {
            return Ok(false);
        };
        if !self.filter.matches(&claim)
            || claim.is_deleting()
            || !self.clusters.permits_changes(&claim)
        {
            return Ok(false);
        }
        let addresses = self.contract.addresses(namespace);
        let Some(address) = addresses.get(name).await? else {
            return Ok(false);
        };
        let is_ours = address.claim_uid() == claim.metadata.uid.as_deref()
            && finalizer::is_set(&address, names::PROTECT_ADDRESS)
            && !address.is_deleting();
        if !is_ours {
            return Ok(false);
        }
        let desired = with_owner_version(self.contract.ipam, &address);
        match patch::write(&addresses, &address, &desired).await {
            Ok(written) => {
                written
                    .iter()
                    .for_each(|written| self.addresses.insert(written));
                Ok(written.is_some())
            }
            // The next pass reads it again.
            Err(error) if error.has_changed() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a version is older than the one in use. A newer one is not replaced: another process may
/// have discovered it.
fn is_older(version: ContractVersion, current: ContractVersion) -> bool {
    version == ContractVersion::V1Beta1 && current == ContractVersion::V1Beta2
}

/// The IPAddress with its claim as owner in this version.
fn with_owner_version(version: ContractVersion, address: &IPAddress) -> IPAddress {
    let mut desired = address.clone();
    for owner in desired.metadata.owner_references.iter_mut().flatten() {
        if is_claim_owner(owner) {
            owner.api_version = api_version(version);
        }
    }
    desired
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_version_of_the_claim_changes() {
        let owner = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "a", "uid": kind});
        let address = |claim: &str| -> IPAddress {
            let owners = [
                owner(claim, "IPAddressClaim"),
                owner("ipam.cluster.x-k8s.io/v1alpha2", "InClusterIPPool"),
                owner("example.com/v1beta1", "IPAddressClaim"),
            ];
            serde_json::from_value(json!({
                "metadata": {"name": "a", "ownerReferences": owners, "finalizers": ["example.com/other"]},
                "spec": {"claimRef": {"name": "a"}, "poolRef": {"kind": "P", "name": "p"}, "address": "10.0.0.1",
                         "prefix": 24},
            }))
            .unwrap()
        };
        let (old, new) = (
            address("ipam.cluster.x-k8s.io/v1beta1"),
            address("ipam.cluster.x-k8s.io/v1beta2"),
        );
        assert_eq!(with_owner_version(ContractVersion::V1Beta2, &old), new);
        assert_eq!(with_owner_version(ContractVersion::V1Beta2, &new), new);
    }

    #[test]
    fn newer_version_is_kept() {
        let (old, new) = (ContractVersion::V1Beta1, ContractVersion::V1Beta2);
        assert!(
            is_older(old, new) && !is_older(new, old) && !is_older(new, new) && !is_older(old, old)
        );
    }
}
