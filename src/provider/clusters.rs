//! Which Clusters are paused, and which claims wait for them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;

use super::decision::ClusterState;
use crate::api::{Cluster, IPAddressClaim};
use crate::runtime::controller::Waker;
use crate::runtime::watch::Observer;

/// Namespace and name of a Cluster.
type Key = (String, String);

/// The Clusters as last seen, and the claims that wait for one to appear or to go on.
pub(super) struct Clusters {
    state: Mutex<State>,
    waker: Waker<IPAddressClaim>,
}

#[derive(Default)]
struct State {
    paused: HashMap<Key, bool>,
    /// Names of claims in the Cluster's namespace.
    waiting: HashMap<Key, HashSet<String>>,
    listed: HashSet<Key>,
}

impl Clusters {
    pub(super) fn new(waker: Waker<IPAddressClaim>) -> Self {
        Self { state: Mutex::default(), waker }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the claim's Cluster stands. A claim that has to wait for it is woken when that changes.
    pub(super) fn state_for(&self, claim: &IPAddressClaim) -> ClusterState {
        let Some(cluster) = claim.cluster_name() else { return ClusterState::None };
        let key = (claim.namespace().unwrap_or_default(), cluster.to_owned());
        let mut state = self.lock();
        let found = match state.paused.get(&key) {
            Some(false) => return ClusterState::Running,
            Some(true) => ClusterState::Paused,
            None => ClusterState::Missing,
        };
        state.waiting.entry(key).or_default().insert(claim.name_any());
        found
    }

    fn changed(&self, key: &Key) {
        let waiting = self.lock().waiting.remove(key);
        for name in waiting.into_iter().flatten() {
            self.waker.wake(Some(&key.0), &name);
        }
    }
}

fn key(cluster: &Cluster) -> Key {
    (cluster.namespace().unwrap_or_default(), cluster.name_any())
}

impl Observer<Cluster> for Clusters {
    fn listing(&self) {
        self.lock().listed.clear();
    }

    fn listed(&self) {
        let gone: Vec<Key> = {
            let mut state = self.lock();
            let listed = std::mem::take(&mut state.listed);
            state.paused.extract_if(|key, _| !listed.contains(key)).map(|(key, _)| key).collect()
        };
        for key in &gone {
            self.changed(key);
        }
    }

    fn applied(&self, cluster: &Cluster) {
        let key = key(cluster);
        let news = {
            let mut state = self.lock();
            state.listed.insert(key.clone());
            state.paused.insert(key.clone(), cluster.is_paused()) != Some(cluster.is_paused())
        };
        if news {
            self.changed(&key);
        }
    }

    fn deleted(&self, cluster: &Cluster) {
        let key = key(cluster);
        self.lock().paused.remove(&key);
        self.changed(&key);
    }
}
