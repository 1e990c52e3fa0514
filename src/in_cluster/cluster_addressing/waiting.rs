//! Wakes the requests to create Clusters that wait for their IPAddressClaims.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_provider::api::IPAddressClaim;
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The requests that wait, by the name of their Cluster.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests(Mutex<HashMap<NamespacedName, Weak<Notify>>>);

impl WaitingRequests {
    /// Returns what is notified when a claim of a Cluster is bound, or cannot be.
    pub(super) fn add(&self, cluster: NamespacedName) -> Arc<Notify> {
        let mut waiting = self.0.lock();
        // Requests that have ended.
        waiting.retain(|_, request| request.strong_count() > 0);
        let entry = waiting.entry(cluster).or_default();
        let request = entry.upgrade().unwrap_or_default();
        *entry = Arc::downgrade(&request);
        request
    }
}

impl EventHandler<IPAddressClaim> for WaitingRequests {
    fn apply(&self, claim: &IPAddressClaim) {
        let Some(cluster) = claim.cluster_name() else {
            return;
        };
        if claim.status.is_none() {
            return;
        }
        let cluster = NamespacedName::new(&claim.namespace().unwrap_or_default(), cluster);
        let request = self.0.lock().get(&cluster).and_then(Weak::upgrade);
        if let Some(request) = request {
            request.notify_one();
        }
    }

    fn delete(&self, _: &IPAddressClaim) {}

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    fn claim(cluster: &str, status: &Value) -> IPAddressClaim {
        let claim = json!({
            "metadata": {"name": "claim", "namespace": "n"}, "status": status,
            "spec": {"clusterName": cluster, "poolRef": {"apiGroup": "", "kind": "", "name": ""}},
        });
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn claims_with_a_status_wake_the_requests_of_their_cluster() {
        let requests = WaitingRequests::default();
        let alpha = requests.add(NamespacedName::new("n", "alpha"));
        requests.apply(&claim("alpha", &Value::Null));
        requests.apply(&claim("beta", &json!({})));
        assert_eq!(alpha.notified().now_or_never(), None);
        // Also if it does not wait at this moment.
        requests.apply(&claim("alpha", &json!({})));
        assert_eq!(alpha.notified().now_or_never(), Some(()));
        drop(alpha);
        let _beta = requests.add(NamespacedName::new("n", "beta"));
        assert_eq!(requests.0.lock().len(), 1, "a request that ended is gone");
    }
}
