//! When a Cluster is processed again after a failure.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use capi_ipam_api::ClusterAddressing;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_provider::api::AddressableCluster;
use parking_lot::Mutex;

use super::plan::Problem;

/// The first delay is that after a conflict with another write, whose event comes soon.
const RETRY_POLICY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(250),
    max: Duration::from_mins(5),
};

/// The Clusters whose last attempt failed, by ClusterAddressing and name of the Cluster. A change
/// of one of the two ends the delay.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<NamespacedName, HashMap<String, Failure>>>);

struct Failure {
    count: u32,
    until: Instant,
    states: States,
    problem: Problem,
}

/// The states of a ClusterAddressing and of a Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct States {
    generation: Option<i64>,
    cluster: Option<String>,
}

impl States {
    pub(super) fn of(addressing: &ClusterAddressing, cluster: &AddressableCluster) -> Self {
        Self {
            generation: addressing.metadata.generation,
            cluster: cluster.metadata.resource_version.clone(),
        }
    }
}

impl Failures {
    /// The problem of a Cluster that is not processed yet, and how long that lasts.
    pub(super) fn pending(
        &self,
        addressing: &NamespacedName,
        cluster: &str,
        states: &States,
        now: Instant,
    ) -> Option<(Problem, Duration)> {
        let failures = self.0.lock();
        let failure = failures.get(addressing)?.get(cluster)?;
        let left = failure.until.saturating_duration_since(now);
        let is_pending = failure.states == *states && !left.is_zero();
        is_pending.then(|| (failure.problem.clone(), left))
    }

    /// Records a failure. Returns the time until the next attempt.
    pub(super) fn record(
        &self,
        addressing: &NamespacedName,
        cluster: &str,
        states: States,
        problem: Problem,
        now: Instant,
    ) -> Duration {
        let mut failures = self.0.lock();
        let known = failures.entry(addressing.clone()).or_default();
        let before = known.get(cluster).map_or(0, |failure| failure.count);
        let count = before.saturating_add(1);
        let delay = RETRY_POLICY.delay(count);
        let failure = Failure {
            count,
            until: now.checked_add(delay).unwrap_or(now),
            states,
            problem,
        };
        known.insert(cluster.to_owned(), failure);
        delay
    }

    pub(super) fn end(&self, addressing: &NamespacedName, cluster: &str) {
        if let Some(known) = self.0.lock().get_mut(addressing) {
            known.remove(cluster);
        }
    }

    /// Forgets the Clusters that are not selected any more.
    pub(super) fn retain(&self, addressing: &NamespacedName, selected: &BTreeSet<String>) {
        let mut failures = self.0.lock();
        let Some(known) = failures.get_mut(addressing) else {
            return;
        };
        known.retain(|cluster, _| selected.contains(cluster));
        if known.is_empty() {
            failures.remove(addressing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(version: &str) -> States {
        States {
            generation: Some(1),
            cluster: Some(version.to_owned()),
        }
    }

    #[test]
    fn delay_grows_and_ends_with_a_change_or_a_success() {
        let (failures, now) = (Failures::default(), Instant::now());
        let key = NamespacedName::new("n", "bonn");
        let problem = Problem::new("DeliveryFailed", "refused");
        let fail = || failures.record(&key, "alpha", states("1"), problem.clone(), now);
        assert!(fail() <= Duration::from_millis(250));
        let delays: Vec<Duration> = (0..20).map(|_| fail()).collect();
        let last = *delays.last().unwrap();
        assert!(last >= Duration::from_mins(2), "{last:?}");
        let pending = |version: &str, now| failures.pending(&key, "alpha", &states(version), now);
        assert_eq!(pending("1", now), Some((problem.clone(), last)));
        assert_eq!(pending("1", now + last), None, "the delay is over");
        assert_eq!(pending("2", now), None, "the Cluster has changed");
        failures.end(&key, "alpha");
        assert_eq!(pending("1", now), None);
        assert!(fail() <= Duration::from_millis(250), "it begins again");
    }

    #[test]
    fn only_selected_clusters_are_kept() {
        let (failures, now) = (Failures::default(), Instant::now());
        let key = NamespacedName::new("n", "bonn");
        for cluster in ["alpha", "beta"] {
            let problem = Problem::new("DeliveryFailed", "refused");
            failures.record(&key, cluster, states("1"), problem, now);
        }
        failures.retain(&key, &BTreeSet::from(["alpha".to_owned()]));
        let is_known = |cluster: &str| failures.pending(&key, cluster, &states("1"), now).is_some();
        assert!(is_known("alpha") && !is_known("beta"));
        failures.retain(&key, &BTreeSet::new());
        assert!(failures.0.lock().is_empty());
    }
}
