//! Releases the IPAddressClaims of Clusters that are gone.

use std::time::Duration;

use capi_ipam_api::{ClusterAddressing, names};
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::{clock, finalizer};
use capi_ipam_provider::api::IPAddressClaim;
use kube::{Resource as _, ResourceExt};

use super::AddressingReconciler;
use super::plan::{is_claim_of, owner};

/// How long after its creation the claim of a Cluster that does not exist is kept: the Cluster may
/// be created or restored later than its claim.
const MIN_AGE: Duration = Duration::from_mins(1);

/// The claims of a ClusterAddressing whose Clusters exist, and those that are not released yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Claims {
    /// The number of claims that are kept.
    pub(super) kept: usize,
    /// When the others are checked again.
    pub(super) retry: Option<Duration>,
}

impl AddressingReconciler {
    /// Releases the claims of a ClusterAddressing whose Cluster is gone, as live reads show.
    pub(super) async fn release_claims(
        &self,
        addressing: &ClusterAddressing,
    ) -> Result<Claims, CallError> {
        let namespace = addressing.namespace().unwrap_or_default();
        let ours = self.claims.select(&namespace, |claim| {
            is_of(claim, addressing) && finalizer::is_set(claim, names::PROTECT_CLUSTER_ADDRESS)
        });
        let mut result = Claims::default();
        for claim in ours {
            if self.has_cluster(addressing, &claim).await? {
                result.kept = result.kept.saturating_add(1);
                continue;
            }
            let age = age(&claim);
            if claim.metadata.deletion_timestamp.is_none() && age < MIN_AGE {
                let wait = MIN_AGE.saturating_sub(age);
                result.retry = Some(result.retry.map_or(wait, |retry| retry.min(wait)));
                continue;
            }
            self.release(&namespace, &claim).await?;
        }
        Ok(result)
    }

    /// Deletes a claim, and then removes its finalizer.
    async fn release(&self, namespace: &str, claim: &IPAddressClaim) -> Result<(), CallError> {
        let claims = self.contract.claims(namespace);
        if claim.metadata.deletion_timestamp.is_none() {
            // Its event follows.
            let uid = claim.uid().unwrap_or_default();
            claims.delete(&claim.name_any(), &uid).await?;
            return Ok(());
        }
        match finalizer::remove(&claims, claim, names::PROTECT_CLUSTER_ADDRESS).await {
            Ok(left) => self.claims.record(&left),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the Cluster exists for which a claim was created.
    async fn has_cluster(
        &self,
        addressing: &ClusterAddressing,
        claim: &IPAddressClaim,
    ) -> Result<bool, CallError> {
        let namespace = claim.namespace().unwrap_or_default();
        let of_claim = claim.cluster_name().unwrap_or_default();
        let name = owner(claim).map_or(of_claim, |owner| owner.name.as_str());
        if let Some(cluster) = self.clusters.get(&namespace, name)
            && is_claim_of(claim, &cluster.metadata, addressing)
        {
            return Ok(true);
        }
        let clusters = self.addressable_clusters(&namespace);
        let found = clusters.get_maybe_invalid(name).await?;
        Ok(found.is_some_and(|found| is_claim_of(claim, found.meta(), addressing)))
    }

    /// Whether a live list shows a claim of a ClusterAddressing with the finalizer.
    pub(super) async fn has_claims(
        &self,
        addressing: &ClusterAddressing,
    ) -> Result<bool, CallError> {
        let namespace = addressing.namespace().unwrap_or_default();
        let selector = format!(
            "{}={}",
            names::CLUSTER_ADDRESSING_LABEL,
            addressing.name_any()
        );
        let claims = self.contract.claims(&namespace).with_labels(&selector);
        let mut found = false;
        claims
            .for_each_page(|page| {
                found |= page
                    .iter()
                    .any(|claim| finalizer::is_set(claim, names::PROTECT_CLUSTER_ADDRESS));
            })
            .await?;
        Ok(found)
    }
}

fn is_of(claim: &IPAddressClaim, addressing: &ClusterAddressing) -> bool {
    let label = claim.labels().get(names::CLUSTER_ADDRESSING_LABEL);
    label.map(String::as_str) == addressing.metadata.name.as_deref()
}

/// The time since the creation of a claim.
fn age(claim: &IPAddressClaim) -> Duration {
    let Some(created) = &claim.metadata.creation_timestamp else {
        return Duration::ZERO;
    };
    let age = clock::timestamp().duration_since(created.0);
    Duration::try_from(age).unwrap_or_default()
}
