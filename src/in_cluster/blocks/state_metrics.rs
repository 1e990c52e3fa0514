//! The state of each registry as metrics. A scrape reads it, so it is never out of date.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use capi_ipam_controller::metrics::{Description, Metrics};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::open_registry::OpenRegistry;

pub(super) const UP: Description = Description {
    name: "capi_ipam_registry_up",
    kind: "gauge",
    labels: &["registry"],
    help: "Whether a registry can be reached and its records are listed (1) or not (0)",
};

pub(super) const CLUSTER_ID_IN_USE: Description = Description {
    name: "capi_ipam_registry_cluster_id_in_use",
    kind: "gauge",
    labels: &["registry"],
    help: "Whether another process writes with the clusterID of this management cluster (1) or not (0)",
};

/// All registries by name, `None` for one that cannot be opened.
type Registries = BTreeMap<String, Option<Arc<OpenRegistry>>>;

/// All registries. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct RegistryStates {
    registries: Arc<Mutex<Registries>>,
}

impl RegistryStates {
    /// Registers the metrics.
    pub(super) fn register(metrics: &Metrics) -> Self {
        let states = Self::default();
        metrics.register_collector(states.clone());
        states
    }

    /// Records a registry; `None` if it cannot be opened.
    pub(super) fn insert(&self, name: &str, opened: Option<Arc<OpenRegistry>>) {
        self.registries.lock().insert(name.to_owned(), opened);
    }

    /// Removes a registry that was deleted.
    pub(super) fn remove(&self, name: &str) {
        self.registries.lock().remove(name);
    }
}

impl Collector for RegistryStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let registries = self.registries.lock().clone();
        encode_flag(&mut encoder, &UP, &registries, OpenRegistry::is_available)?;
        let is_in_use = OpenRegistry::is_suspended;
        encode_flag(&mut encoder, &CLUSTER_ID_IN_USE, &registries, is_in_use)
    }
}

/// Encodes a gauge with the value 0 or 1 for each registry; 0 for one that cannot be opened.
fn encode_flag(
    encoder: &mut DescriptorEncoder<'_>,
    description: &Description,
    registries: &Registries,
    is_set: impl Fn(&OpenRegistry) -> bool,
) -> Result<(), fmt::Error> {
    let mut family =
        encoder.encode_descriptor(description.name, description.help, None, MetricType::Gauge)?;
    for (registry, opened) in registries {
        let is_set = match opened {
            Some(opened) => is_set(opened),
            None => false,
        };
        let labels = [("registry", registry.as_str())];
        ConstGauge::new(i64::from(is_set)).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
