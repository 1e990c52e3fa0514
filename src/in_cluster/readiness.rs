//! The metric of the objects that are not ready.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_controller::controller::{Cached, Store};
use capi_ipam_controller::metrics::{Description, Metrics};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::gauges::encode;

pub(super) const NOT_READY: Description = Description {
    name: "capi_ipam_not_ready",
    kind: "gauge",
    labels: &["kind", "namespace", "name", "reason"],
    help: "1 for each pool, set of pools, network, registry and ClusterAddressing whose condition Ready is False, by its reason",
};

/// An object that is not ready.
struct Row {
    kind: &'static str,
    namespace: String,
    name: String,
    reason: String,
}

/// Returns the objects of a kind that are not ready.
type Find = dyn Fn() -> Vec<Row> + Send + Sync;

/// The caches of all kinds with a condition `Ready`. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Readiness(Arc<Mutex<Vec<Box<Find>>>>);

impl Readiness {
    /// Registers the metric.
    pub(super) fn register(metrics: &Metrics) -> Self {
        let readiness = Self::default();
        metrics.register_collector(readiness.clone());
        readiness
    }

    /// Adds the objects of a kind.
    pub(super) fn add<K: Send + Sync + 'static>(
        &self,
        kind: &'static str,
        store: Store<K, Infallible>,
        conditions_of: fn(&K) -> &[Condition],
    ) {
        let find = move || {
            store.filter_map(|namespace, name, cached| {
                let Cached::Full(object) = cached else {
                    return None;
                };
                let conditions = conditions_of(object);
                let ready = conditions::find(conditions, conditions::READY)?;
                (ready.status == "False").then(|| Row {
                    kind,
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    reason: ready.reason().to_owned(),
                })
            })
        };
        self.0.lock().push(Box::new(find));
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Readiness")
    }
}

impl Collector for Readiness {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let found: Vec<Row> = self.0.lock().iter().flat_map(|find| find()).collect();
        let rows = found.iter().map(|row| {
            let labels = vec![
                ("kind", row.kind),
                ("namespace", &*row.namespace),
                ("name", &*row.name),
                ("reason", &*row.reason),
            ];
            (labels, 1)
        });
        encode(&mut encoder, &NOT_READY, rows)
    }
}
