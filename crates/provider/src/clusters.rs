//! An index of Clusters: whether they exist and are paused, and which claims wait for them.

use std::time::{Duration, Instant};

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::{Keyed, ObservedCache};
use capi_ipam_protocol::decision::ClusterState;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::api::{Cluster, IPAddressClaim, is_paused, names};
use crate::contract::namespace_of;
use crate::waiting_claims::{WaitingClaims, created};

/// Maximum time between the creation or unpausing of a moved or restored Cluster and the creation
/// of its claims.
const MOVE_WINDOW: Duration = Duration::from_mins(10);

/// The last seen state of the Clusters, and the claims that wait for a Cluster to be created or
/// unpaused.
pub(super) struct Clusters {
    state: Mutex<State>,
    trigger: Trigger<IPAddressClaim>,
}

#[derive(Default)]
struct State {
    clusters: Observed<ClusterInfo>,
    waiting: WaitingClaims,
}

/// The cached properties of a Cluster.
pub(super) struct ClusterInfo {
    paused: bool,
    /// Creation time in seconds since 1970.
    created: i64,
    /// When this process last saw it being unpaused.
    unpaused: Option<Instant>,
}

impl State {
    fn state_of(&self, cluster: &NamespacedName) -> ClusterState {
        match self.clusters.get(cluster.namespace(), cluster.name()) {
            Some(known) if known.paused => ClusterState::Paused,
            Some(_) => ClusterState::Running,
            None => ClusterState::Missing,
        }
    }
}

impl Clusters {
    pub(super) fn new(trigger: Trigger<IPAddressClaim>) -> Self {
        Self {
            state: Mutex::default(),
            trigger,
        }
    }

    /// Returns the state of the Cluster of the claim.
    pub(super) fn state_for(&self, claim: &IPAddressClaim) -> ClusterState {
        let state = cluster_of(claim).map(|cluster| self.state.lock().state_of(&cluster));
        without_requested(claim, state)
    }

    /// Whether the claim may be changed: it is not paused, and its Cluster, if it has one, exists and
    /// is not paused.
    pub(super) fn permits_changes(&self, claim: &IPAddressClaim) -> bool {
        let state = self.state_for(claim);
        !is_paused(&claim.metadata) && matches!(state, ClusterState::None | ClusterState::Running)
    }

    /// As [`Self::state_for`]. If the Cluster is missing or paused, the claim waits for it, and is
    /// enqueued when this changes.
    pub(super) fn state_or_wait(&self, claim: &IPAddressClaim) -> ClusterState {
        let Some(cluster) = cluster_of(claim) else {
            return ClusterState::None;
        };
        let mut state = self.state.lock();
        let found = state.state_of(&cluster);
        if found != ClusterState::Running {
            state.waiting.add(&claim.metadata, &cluster);
        }
        without_requested(claim, Some(found))
    }

    /// The claim waits for its Cluster, and is enqueued when its state changes.
    pub(super) fn wait(&self, claim: &IPAddressClaim) {
        if let Some(cluster) = cluster_of(claim) {
            self.state.lock().waiting.add(&claim.metadata, &cluster);
        }
    }

    /// Returns whether the Cluster of the claim may have been moved or restored together with the
    /// claim: it is paused, or was created or unpaused shortly before.
    pub(super) fn may_have_moved_with(&self, claim: &IPAddressClaim, now: Instant) -> bool {
        let Some(cluster) = claim.cluster_name() else {
            return false;
        };
        let state = self.state.lock();
        let Some(known) = state.clusters.get(namespace_of(claim), cluster) else {
            return false;
        };
        let recently_created = known.created.saturating_add_unsigned(MOVE_WINDOW.as_secs())
            >= created(&claim.metadata);
        let recently_unpaused = known
            .unpaused
            .is_some_and(|at| now.saturating_duration_since(at) < MOVE_WINDOW);
        known.paused || recently_created || recently_unpaused
    }

    /// The claim is deleted.
    pub(super) fn forget(&self, claim: &IPAddressClaim) {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() {
            state.waiting.remove(&claim.key());
        }
    }

    fn wake_waiting(&self, cluster: &NamespacedName) {
        let waiting = self.state.lock().waiting.take(cluster);
        for claim in waiting {
            self.trigger.enqueue(claim);
        }
    }
}

/// The state of the Cluster of a claim: none if the claim has no Cluster, or is for a Cluster that is
/// being created, and so does not own the claim yet.
pub(super) fn without_requested(
    claim: &IPAddressClaim,
    state: Option<ClusterState>,
) -> ClusterState {
    let mut owners = claim.owner_references().iter();
    let is_requested = claim.annotations().contains_key(names::CLUSTER_REQUESTED)
        && !owners.any(|owner| owner.kind == "Cluster");
    match state {
        None => ClusterState::None,
        Some(ClusterState::Missing) if is_requested => ClusterState::None,
        Some(state) => state,
    }
}

fn cluster_of(claim: &IPAddressClaim) -> Option<NamespacedName> {
    Some(NamespacedName::new(
        namespace_of(claim),
        claim.cluster_name()?,
    ))
}

impl ObservedCache for Clusters {
    type Object = Cluster;
    type Value = ClusterInfo;

    fn observed(&self) -> MappedMutexGuard<'_, Observed<ClusterInfo>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.clusters)
    }

    fn see(&self, cluster: &Cluster) {
        let key = cluster.key();
        let (paused, now) = (cluster.is_paused(), Instant::now());
        let mut clusters = self.observed();
        let before = clusters.get(key.namespace(), key.name());
        let unpaused = match before {
            Some(before) if before.paused && !paused => Some(now),
            before => before.and_then(|before| before.unpaused),
        };
        let info = ClusterInfo {
            paused,
            created: created(&cluster.metadata),
            unpaused,
        };
        let change = clusters.see(Origin::Watch, &cluster.metadata, info, now);
        drop(clusters);
        if change.is_some_and(|change| change.before.map(|before| before.paused) != Some(paused)) {
            self.wake_waiting(&key);
        }
    }

    fn removed(&self, cluster: &NamespacedName, _: Option<ClusterInfo>) {
        self.wake_waiting(cluster);
    }

    /// What was known of the Cluster stays valid. One of which nothing is known counts as paused:
    /// nothing of it may change.
    fn see_undecodable(&self, metadata: &ObjectMeta) {
        let (key, now) = (NamespacedName::of(metadata), Instant::now());
        let mut clusters = self.observed();
        clusters.see_undecodable(Origin::Watch, metadata, now);
        if clusters.get(key.namespace(), key.name()).is_none() {
            let info = ClusterInfo {
                paused: true,
                created: created(metadata),
                unpaused: None,
            };
            clusters.see(Origin::Watch, metadata, info, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use std::sync::Arc;

    use capi_ipam_controller::controller::ControllerBuilder;
    use serde_json::json;

    use capi_ipam_controller::watch::{EventHandler, Invalid};

    use super::*;
    use crate::claim_cache::CompactClaim;

    fn clusters() -> Clusters {
        Clusters::new(ControllerBuilder::<_, ()>::new("claims").trigger())
    }

    fn claim(name: &str, cluster: &str) -> IPAddressClaim {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "creationTimestamp": "2026-01-01T12:00:00Z"},
            "spec": {"clusterName": cluster, "poolRef": {"kind": "Pool", "name": "p"}}}))
        .unwrap()
    }

    fn cluster(name: &str, created: &str, paused: bool) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "creationTimestamp": created}, "spec": {"paused": paused}}))
        .unwrap()
    }

    /// The claim after it was cached in compact form.
    fn expanded(claim: &IPAddressClaim) -> IPAddressClaim {
        let mut bound = claim.clone();
        bound.metadata.uid = Some("6101ef08-5b98-40af-8a1f-bc85701b2e47".to_owned());
        let compact =
            CompactClaim::of(&bound, Arc::new(claim.spec.pool_ref.clone()), false).unwrap();
        compact.expand(&NamespacedName::of(&claim.metadata))
    }

    #[test]
    fn deleted_claims_are_removed() {
        let clusters = clusters();
        let take = |cluster: &str| {
            clusters
                .state
                .lock()
                .waiting
                .take(&NamespacedName::new("n", cluster))
        };
        let (a, b) = (claim("a", "missing"), claim("b", "missing"));
        assert_eq!(
            [&a, &b].map(|claim| clusters.state_or_wait(claim)),
            [ClusterState::Missing; 2]
        );
        // Its label changed.
        clusters.state_or_wait(&claim("a", "other"));
        clusters.forget(&b);
        clusters.forget(&b);
        assert_eq!(
            (take("missing"), take("other")),
            (vec![], vec![NamespacedName::new("n", "a")])
        );
        // A claim deleted while the watch was interrupted, which was cached in compact form.
        clusters.state_or_wait(&a);
        clusters.forget(&expanded(&a));
        assert!(clusters.state.lock().waiting.is_empty());
    }

    #[test]
    fn claim_of_a_requested_cluster_does_not_wait_for_it() {
        let all = clusters();
        let mut claim = claim("a", "alpha");
        let value = ("1".to_owned(), names::CLUSTER_REQUESTED.to_owned());
        claim.annotations_mut().insert(value.1, value.0);
        assert_eq!(all.state_or_wait(&claim), ClusterState::None);
        assert_eq!(all.state_for(&claim), ClusterState::None);
        // It is enqueued when the Cluster exists, and the Cluster can pause it.
        let waiting = NamespacedName::new("n", "alpha");
        assert_eq!(all.state.lock().waiting.take(&waiting).len(), 1);
        let handler: &dyn EventHandler<Cluster> = &all;
        handler.apply(&cluster("alpha", "2026-01-01T11:45:00Z", true));
        assert_eq!(all.state_for(&claim), ClusterState::Paused);
        // A claim with an owner waits for it, for example after a restore.
        handler.delete(&cluster("alpha", "2026-01-01T11:45:00Z", true));
        assert_eq!(all.state_for(&claim), ClusterState::None);
        claim.owner_references_mut().push(OwnerReference {
            kind: "Cluster".to_owned(),
            ..OwnerReference::default()
        });
        assert_eq!(all.state_for(&claim), ClusterState::Missing);
    }

    #[test]
    fn undecodable_cluster_exists_and_stays_as_it_was() {
        let (all, claim) = (clusters(), claim("a", "alpha"));
        let clusters: &dyn EventHandler<Cluster> = &all;
        let undecodable = || Invalid {
            spec: serde_json::Value::Null,
            error: String::new(),
            metadata: Box::new(cluster("alpha", "2026-01-01T11:45:00Z", false).metadata),
        };
        clusters.init();
        clusters.apply_invalid(&undecodable());
        clusters.init_done();
        assert_eq!(all.state_for(&claim), ClusterState::Paused);
        clusters.apply(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        clusters.init();
        clusters.apply_invalid(&undecodable());
        clusters.init_done();
        assert_eq!(all.state_for(&claim), ClusterState::Running);
        clusters.delete_invalid(&undecodable());
        assert_eq!(all.state_for(&claim), ClusterState::Missing);
    }

    #[test]
    fn recent_or_just_unpaused_cluster_may_be_moved() {
        let (clusters, claim) = (clusters(), claim("a", "alpha"));
        let moved = |after| clusters.may_have_moved_with(&claim, Instant::now() + after);
        assert!(!moved(Duration::ZERO));
        clusters.apply(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        assert!(!moved(Duration::ZERO));
        clusters.apply(&cluster("alpha", "2026-01-01T11:45:00Z", true));
        assert!(moved(Duration::ZERO));
        clusters.apply(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        clusters.apply(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        assert!(moved(Duration::ZERO) && !moved(MOVE_WINDOW));
        for created in ["2026-01-01T11:55:00Z", "2026-01-01T12:30:00Z"] {
            clusters.delete(&cluster("alpha", created, false));
            clusters.apply(&cluster("alpha", created, false));
            assert!(moved(MOVE_WINDOW));
        }
    }
}
