//! Which Clusters are paused, and which claims wait for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capi_ipam_controller::controller::Trigger;
use capi_ipam_controller::watch::Observer;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::api::{Cluster, IPAddressClaim};
use crate::decision::ClusterState;

/// Namespace and name of a Cluster, or of a claim.
type Key = (String, String);

/// How long ago a Cluster may have been created or unpaused that was moved or restored together with a claim.
const MAX_MOVE: Duration = Duration::from_mins(10);

/// The Clusters as last seen, and the claims that wait for one to appear or to go on.
pub(super) struct Clusters {
    state: Mutex<State>,
    waker: Trigger<IPAddressClaim>,
}

#[derive(Default)]
struct State {
    known: HashMap<Key, Known>,
    /// Names of claims in the Cluster's namespace.
    waiting: HashMap<Key, HashSet<String>>,
    /// The name of the Cluster that a claim waits for.
    awaited: HashMap<Key, String>,
    listed: HashSet<Key>,
}

/// What is known of a Cluster.
struct Known {
    paused: bool,
    /// In seconds since 1970.
    created: i64,
    /// When it was last seen to be unpaused.
    unpaused: Option<Instant>,
}

impl State {
    /// Notes that the claim waits for that Cluster, and for no other.
    fn wait(&mut self, claim: Key, cluster: Key) {
        if self.awaited.get(&claim) != Some(&cluster.1) {
            self.forget(&claim);
            self.awaited.insert(claim.clone(), cluster.1.clone());
        }
        self.waiting.entry(cluster).or_default().insert(claim.1);
    }

    /// The claim waits for no Cluster.
    fn forget(&mut self, claim: &Key) {
        let Some(cluster) = self.awaited.remove(claim) else { return };
        let cluster = (claim.0.clone(), cluster);
        let Some(names) = self.waiting.get_mut(&cluster) else { return };
        names.remove(&claim.1);
        if names.is_empty() {
            self.waiting.remove(&cluster);
        }
    }
}

impl Clusters {
    pub(super) fn new(waker: Trigger<IPAddressClaim>) -> Self {
        Self { state: Mutex::default(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the claim's Cluster stands. A claim that has to wait for it is woken when that changes.
    pub(super) fn state_for(&self, claim: &IPAddressClaim) -> ClusterState {
        let Some(cluster) = claim.cluster_name() else { return ClusterState::None };
        let cluster = (claim.namespace().unwrap_or_default(), cluster.to_owned());
        let mut state = self.lock();
        let found = match state.known.get(&cluster) {
            Some(known) if !known.paused => return ClusterState::Running,
            Some(_) => ClusterState::Paused,
            None => ClusterState::Missing,
        };
        state.wait(key(&claim.metadata), cluster);
        found
    }

    /// Whether the claim's Cluster may have been moved or restored here together with the claim: it was created or unpaused
    /// not long before.
    pub(super) fn may_have_moved_with(&self, claim: &IPAddressClaim, now: Instant) -> bool {
        let Some(cluster) = claim.cluster_name() else { return false };
        let state = self.lock();
        let Some(known) = state.known.get(&(claim.namespace().unwrap_or_default(), cluster.to_owned())) else {
            return false;
        };
        let recently_created = known.created.saturating_add_unsigned(MAX_MOVE.as_secs()) >= created(&claim.metadata);
        let recently_unpaused = known.unpaused.is_some_and(|at| now.saturating_duration_since(at) < MAX_MOVE);
        known.paused || recently_created || recently_unpaused
    }

    fn changed(&self, cluster: &Key) {
        let waiting = {
            let mut state = self.lock();
            let names = state.waiting.remove(cluster).unwrap_or_default();
            for name in &names {
                state.awaited.remove(&(cluster.0.clone(), name.clone()));
            }
            names
        };
        for name in waiting {
            self.waker.wake(Some(&cluster.0), &name);
        }
    }
}

fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

impl Observer<Cluster> for Clusters {
    fn listing(&self) {
        self.lock().listed.clear();
    }

    fn listed(&self) {
        let gone: Vec<Key> = {
            let mut state = self.lock();
            let listed = std::mem::take(&mut state.listed);
            state.known.extract_if(|key, _| !listed.contains(key)).map(|(key, _)| key).collect()
        };
        for key in &gone {
            self.changed(key);
        }
    }

    fn applied(&self, cluster: &Cluster) {
        let key = key(&cluster.metadata);
        let paused = cluster.is_paused();
        let is_news = {
            let mut state = self.lock();
            state.listed.insert(key.clone());
            let before = state.known.get(&key).map(|known| (known.paused, known.unpaused));
            let unpaused = match before {
                Some((true, _)) if !paused => Some(Instant::now()),
                before => before.and_then(|(_, unpaused)| unpaused),
            };
            state.known.insert(key.clone(), Known { paused, created: created(&cluster.metadata), unpaused });
            before.map(|(paused, _)| paused) != Some(paused)
        };
        if is_news {
            self.changed(&key);
        }
    }

    fn deleted(&self, cluster: &Cluster) {
        let key = key(&cluster.metadata);
        self.lock().known.remove(&key);
        self.changed(&key);
    }
}

impl Observer<IPAddressClaim> for Clusters {
    fn listed(&self) {
        // Claims that are gone since the last listing are nowhere named. Those that are there wait again.
        let waiting: Vec<Key> = self.lock().waiting.keys().cloned().collect();
        for cluster in &waiting {
            self.changed(cluster);
        }
    }

    fn applied(&self, _: &IPAddressClaim) {}

    fn deleted(&self, claim: &IPAddressClaim) {
        let mut state = self.lock();
        if !state.awaited.is_empty() {
            state.forget(&key(&claim.metadata));
        }
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::controller::ControllerBuilder;
    use serde_json::json;

    use crate::api::ContractVersion;
    use super::*;

    fn clusters() -> Clusters {
        Clusters::new(ControllerBuilder::<_, ()>::new("claims", ContractVersion::V1Beta2).waker())
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

    #[test]
    fn claims_that_are_gone_are_forgotten() {
        let clusters = clusters();
        let size = || {
            let state = clusters.lock();
            (state.waiting.values().map(HashSet::len).sum::<usize>(), state.awaited.len(), state.waiting.len())
        };
        let (a, b) = (claim("a", "missing"), claim("b", "missing"));
        assert_eq!([&a, &b].map(|claim| clusters.state_for(claim)), [ClusterState::Missing; 2]);
        assert_eq!(size(), (2, 2, 1));
        // Its label has been changed.
        clusters.state_for(&claim("a", "other"));
        assert_eq!(size(), (2, 2, 2));
        clusters.deleted(&a);
        assert_eq!(size(), (1, 1, 1));
        clusters.deleted(&b);
        clusters.deleted(&b);
        assert_eq!(size(), (0, 0, 0));
        // One that is gone unseen.
        clusters.state_for(&a);
        Observer::<IPAddressClaim>::listed(&clusters);
        assert_eq!(size(), (0, 0, 0));
    }

    #[test]
    fn a_new_or_just_unpaused_cluster_may_have_moved_with_a_claim() {
        let (clusters, claim) = (clusters(), claim("a", "alpha"));
        let moved = |after| clusters.may_have_moved_with(&claim, Instant::now() + after);
        assert!(!moved(Duration::ZERO));
        clusters.applied(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        assert!(!moved(Duration::ZERO));
        clusters.applied(&cluster("alpha", "2026-01-01T11:45:00Z", true));
        assert!(moved(Duration::ZERO));
        clusters.applied(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        clusters.applied(&cluster("alpha", "2026-01-01T11:45:00Z", false));
        assert!(moved(Duration::ZERO) && !moved(MAX_MOVE));
        for created in ["2026-01-01T11:55:00Z", "2026-01-01T12:30:00Z"] {
            clusters.deleted(&cluster("alpha", created, false));
            clusters.applied(&cluster("alpha", created, false));
            assert!(moved(MAX_MOVE));
        }
    }
}
