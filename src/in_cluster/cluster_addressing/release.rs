//! Releases the IPAddressClaims of Clusters that are gone, and those that a Cluster does not use.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use capi_ipam_api::{conditions, names};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::api::names::CLUSTER_REQUESTED;
use capi_ipam_provider::api::{AddressableCluster, IPAddressClaim, Uid};
use futures::future::join_all;
use kube::core::{ObjectMeta, Selector, SelectorExt as _};
use kube::{Resource as _, ResourceExt};
use parking_lot::Mutex;
use tracing::warn;

use super::plan::{ItemClaim, Problem, UnusedClaim, addressing_of, is_claim_of, owner};
use super::record::has_record;
use super::{AddressingReconciler, CHECK_INTERVAL};

/// How long after the grace period an absence is forgotten: then its claim is gone, too.
const RETENTION: Duration = Duration::from_hours(1);

/// How long a request to create a Cluster can take: the default of the API server is 60 s.
const MAX_REQUEST: Duration = Duration::from_secs(65);

/// When this process first found that a claim may not be needed.
pub(super) struct Absences {
    grace: Duration,
    /// When the Cluster of each claim was first found absent. A Cluster that is created again or
    /// restored is absent for a moment, and keeps its addresses.
    since: Mutex<HashMap<Uid, Instant>>,
    /// When the last request to create the Cluster of a claim was first seen.
    requests: Mutex<HashMap<Uid, (String, Instant)>>,
}

impl Absences {
    /// `grace` is how long a Cluster has to be absent before its claims are released.
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            grace,
            since: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// Records that the Cluster of a claim is absent. Returns how long the claim is still kept.
    fn record(&self, claim: Uid, now: Instant) -> Duration {
        let limit = self.grace.saturating_add(RETENTION);
        let mut since = self.since.lock();
        since.retain(|_, first| now.saturating_duration_since(*first) < limit);
        let first = *since.entry(claim).or_insert(now);
        self.grace
            .saturating_sub(now.saturating_duration_since(first))
    }

    /// Returns how long the last request to create a Cluster with the address of this claim can
    /// still succeed, whatever became of other Clusters of the name.
    fn left_of_request(&self, claim: Uid, request: Option<&str>, now: Instant) -> Duration {
        let Some(request) = request else {
            return Duration::ZERO;
        };
        let mut requests = self.requests.lock();
        requests.retain(|_, (_, first)| now.saturating_duration_since(*first) < RETENTION);
        let new = || (request.to_owned(), now);
        let seen = requests.entry(claim).or_insert_with(new);
        if seen.0 != request {
            *seen = new();
        }
        MAX_REQUEST.saturating_sub(now.saturating_duration_since(seen.1))
    }

    /// Records that the Cluster of a claim exists, or that the claim is released.
    fn end(&self, claim: Uid) {
        self.since.lock().remove(&claim);
    }
}

/// The claims of a ClusterAddressing whose Clusters exist, and those that are not released yet.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// The number of claims that are kept.
    pub(super) kept: usize,
    /// When the others are checked again.
    pub(super) retry: Option<Duration>,
    /// Why a claim cannot be released. It does not delay the others.
    pub(super) failure: Option<CallError>,
}

/// What becomes of a claim.
enum Fate {
    Kept,
    Released,
    /// It is checked again after this time.
    Unneeded(Duration),
}

impl AddressingReconciler {
    /// Releases the claims of a ClusterAddressing, which may not exist, whose Cluster is gone, as
    /// live reads show at the beginning and at the end of the grace period. `selector` is that of
    /// the ClusterAddressing, unless it does not exist or is not valid.
    pub(super) async fn release_claims(
        &self,
        addressing: &NamespacedName,
        selector: Option<&Selector>,
    ) -> Claims {
        let ours = self.claims.select(addressing.namespace(), |claim| {
            addressing_of(claim) == Some(addressing.name())
                && finalizer::is_set(claim, names::PROTECT_CLUSTER_ADDRESS)
        });
        let mut result = Claims::default();
        for claim in ours {
            match self.release_if_unneeded(&claim, selector).await {
                Ok(Fate::Kept) => result.kept = result.kept.saturating_add(1),
                Ok(Fate::Released) => {}
                Ok(Fate::Unneeded(left)) => {
                    result.retry = Some(result.retry.map_or(left, |retry| retry.min(left)));
                }
                Err(error) => {
                    // It may be in use.
                    result.kept = result.kept.saturating_add(1);
                    result.failure = result.failure.or(Some(error));
                }
            }
        }
        result
    }

    async fn release_if_unneeded(
        &self,
        claim: &IPAddressClaim,
        selector: Option<&Selector>,
    ) -> Result<Fate, CallError> {
        let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
        if self.has_cluster(claim, selector).await? {
            self.absences.end(uid);
            return Ok(Fate::Kept);
        }
        let left = self.absences.record(uid, Instant::now());
        let mut left = left.max(self.left_of_request(claim));
        // What cannot be decoded at present cannot be written.
        let namespace = claim.namespace().unwrap_or_default();
        if !self.claims.is_current(&namespace, &claim.name_any()) {
            left = left.max(CHECK_INTERVAL);
        }
        if !left.is_zero() {
            return Ok(Fate::Unneeded(left));
        }
        self.release(claim).await?;
        Ok(Fate::Released)
    }

    /// Releases the claims of ClusterAddressings that do not exist, at this interval, from the moment
    /// when everything is listed.
    pub(super) async fn run_release_of_orphans(
        &self,
        listed: &[ReadinessGate],
        interval: Duration,
    ) {
        join_all(listed.iter().map(ReadinessGate::wait)).await;
        loop {
            self.release_orphans().await;
            tokio::time::sleep(interval).await;
        }
    }

    /// Releases the claims of ClusterAddressings that do not exist: somebody has removed their
    /// finalizer.
    async fn release_orphans(&self) {
        let claims = self.claims.all();
        let included = claims
            .iter()
            .filter(|claim| self.selection.includes::<IPAddressClaim>(claim));
        let key = |claim: &IPAddressClaim| {
            let namespace = claim.namespace().unwrap_or_default();
            NamespacedName::new(&namespace, addressing_of(claim).unwrap_or_default())
        };
        let addressings: BTreeSet<NamespacedName> = included.map(|claim| key(claim)).collect();
        for addressing in addressings {
            if self
                .store
                .get(Some(addressing.namespace()), addressing.name())
                .is_some()
            {
                continue;
            }
            if let Some(error) = self.release_claims(&addressing, None).await.failure {
                warn!(
                    %addressing, error = error_chain(&error),
                    "cannot release the claims of a ClusterAddressing that does not exist, will retry"
                );
            }
        }
    }

    /// How long a request to create a Cluster with the address of a claim can still succeed.
    fn left_of_request(&self, claim: &IPAddressClaim) -> Duration {
        let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
        let request = claim.annotations().get(CLUSTER_REQUESTED);
        let request = request.map(String::as_str);
        self.absences.left_of_request(uid, request, Instant::now())
    }

    /// Releases a claim that a Cluster does not use, if live reads show that the Cluster has not
    /// changed, and that no ConfigMap has the address. Returns why the Cluster does not have its
    /// addresses, and when the claim can be released.
    pub(super) async fn release_unused(
        &self,
        cluster: &AddressableCluster,
        unused: &UnusedClaim,
    ) -> Result<(Problem, Option<Duration>), CallError> {
        let UnusedClaim { claim, config_maps } = unused;
        let name = claim.name_any();
        let namespace = claim.namespace().unwrap_or_default();
        let clusters = self.addressable_clusters(&namespace);
        let current = clusters.get(&cluster.name_any()).await?;
        let is_unchanged = current.is_some_and(|current| {
            current.metadata.uid == cluster.metadata.uid
                && current.metadata.annotations == cluster.metadata.annotations
                && current.spec == cluster.spec
        });
        if !is_unchanged {
            // Its event follows.
            let why = "the Cluster has changed meanwhile";
            return Ok((Problem::new(conditions::ADDRESSES_PENDING, why), None));
        }
        let client = self.config_maps(&namespace);
        for config_map in config_maps {
            let found = client.get_maybe_invalid(config_map).await?;
            let is_of_cluster = found.is_some_and(|found| {
                let mut owners = found.meta().owner_references.iter().flatten();
                owners.any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref())
            });
            if is_of_cluster {
                let why = format!(
                    "it is not used, and ConfigMap {config_map} can have its address; delete the ConfigMap, and the \
                     claim is released"
                );
                let reason = conditions::DELIVERY_FAILED;
                return Ok((Problem::of_claim(reason, &name, &why), None));
            }
        }
        let left = self.left_of_request(claim);
        let why = if left.is_zero() {
            self.release(claim).await?;
            "it is not used, and is released"
        } else {
            "it is not used, and is released when no earlier request to create the Cluster can succeed"
        };
        let problem = Problem::of_claim(conditions::ADDRESSES_PENDING, &name, why);
        Ok((problem, (!left.is_zero()).then_some(left)))
    }

    /// Deletes a claim that has not changed. If it is being deleted already, removes its finalizer.
    async fn release(&self, claim: &IPAddressClaim) -> Result<(), CallError> {
        let metadata = &claim.metadata;
        let claims = self
            .contract
            .claims(metadata.namespace.as_deref().unwrap_or_default());
        if metadata.deletion_timestamp.is_none() {
            // Its event follows, and then its finalizer is removed.
            let uid = metadata.uid.as_deref().unwrap_or_default();
            let version = metadata.resource_version.as_deref().unwrap_or_default();
            claims
                .delete_unchanged(&claim.name_any(), uid, version)
                .await?;
            return Ok(());
        }
        match finalizer::remove(&claims, claim, names::PROTECT_CLUSTER_ADDRESS).await {
            Ok(left) => self.claims.record(&left),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        self.absences
            .end(Uid::of(metadata.uid.as_deref().unwrap_or_default()));
        Ok(())
    }

    /// Whether the Cluster exists for which a claim was created. If the request to create it was
    /// refused, that is not another one of the name, which is not selected.
    async fn has_cluster(
        &self,
        claim: &IPAddressClaim,
        selector: Option<&Selector>,
    ) -> Result<bool, CallError> {
        let is_of_cluster = |cluster: &ObjectMeta| {
            let has_record = has_record(cluster, addressing_of(claim).unwrap_or_default());
            let labels = cluster.labels.clone().unwrap_or_default();
            let is_selected = selector.is_none_or(|selector| selector.matches(&labels));
            is_claim_of(claim, cluster) && (owner(claim).is_some() || has_record || is_selected)
        };
        let namespace = claim.namespace().unwrap_or_default();
        let of_claim = claim.cluster_name().unwrap_or_default();
        let name = owner(claim).map_or(of_claim, |owner| owner.name.as_str());
        if let Some(cluster) = self.clusters.get(&namespace, name)
            && is_of_cluster(&cluster.metadata)
        {
            return Ok(true);
        }
        let clusters = self.addressable_clusters(&namespace);
        let Some(found) = clusters.get_maybe_invalid(name).await? else {
            return Ok(false);
        };
        if is_of_cluster(found.meta()) {
            return Ok(true);
        }
        let Ok(cluster) = found.0 else {
            // It can have the address.
            return Ok(true);
        };
        self.is_address_in(claim, &cluster).await
    }

    /// Whether a Cluster of the name can have the address of a claim: it was created again with the
    /// address, and without the annotation.
    async fn is_address_in(
        &self,
        claim: &IPAddressClaim,
        cluster: &AddressableCluster,
    ) -> Result<bool, CallError> {
        let Some(address) = claim.bound_address() else {
            return Ok(false);
        };
        let addresses = self
            .contract
            .addresses(&claim.namespace().unwrap_or_default());
        let known = ItemClaim {
            claim: claim.clone(),
            address: addresses.get(address).await?,
        };
        Ok(known.may_be_used_by(cluster))
    }

    /// Whether a live list shows a claim of a ClusterAddressing with the finalizer.
    pub(super) async fn has_claims(&self, addressing: &NamespacedName) -> Result<bool, CallError> {
        let selector = format!("{}={}", names::CLUSTER_ADDRESSING_LABEL, addressing.name());
        let claims = self
            .contract
            .claims(addressing.namespace())
            .with_labels(&selector);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_counts_from_the_first_absence() {
        let absences = Absences::new(Duration::from_mins(1));
        let (claim, start) = (Uid::of("claim"), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(absences.record(claim, start), Duration::from_mins(1));
        assert_eq!(absences.record(claim, after(50)), Duration::from_secs(10));
        assert!(absences.record(claim, after(60)).is_zero());
        // The Cluster exists again.
        absences.end(claim);
        assert_eq!(absences.record(claim, after(61)), Duration::from_mins(1));
        let other = Uid::of("other");
        assert_eq!(absences.record(other, after(90)), Duration::from_mins(1));
    }

    #[test]
    fn request_to_create_the_cluster_keeps_the_claim() {
        let absences = Absences::new(Duration::from_secs(1));
        let (claim, start) = (Uid::of("claim"), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let left = |request, now| absences.left_of_request(claim, request, now);
        assert_eq!(left(Some("1"), start), MAX_REQUEST);
        assert_eq!(left(Some("1"), after(60)), Duration::from_secs(5));
        // Somebody tries again.
        assert_eq!(left(Some("2"), after(64)), MAX_REQUEST);
        // Another request has created the Cluster meanwhile, and it was deleted.
        absences.end(claim);
        assert_eq!(left(Some("2"), after(64 + 60)), Duration::from_secs(5));
        assert!(left(Some("2"), after(64 + 65)).is_zero());
        assert!(left(None, after(64)).is_zero());
    }

    #[test]
    fn old_absences_are_forgotten() {
        let absences = Absences::new(Duration::from_mins(1));
        let start = Instant::now();
        absences.record(Uid::of("gone"), start);
        let later = start + Duration::from_mins(1) + RETENTION;
        absences.record(Uid::of("claim"), later);
        assert_eq!(absences.since.lock().len(), 1);
    }
}
