//! What is known of each registry, and its state as metrics. A scrape reads it, so it is never out of date.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{IPRegistry, IPRegistrySpec};
use capi_ipam_controller::metrics::{Description, Metrics};
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::open_registry::OpenRegistry;
use super::running::Running;

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

/// A registry as it was reconciled last.
#[derive(Debug)]
pub(super) struct Known {
    /// When it was reconciled for the first time.
    pub(super) since: Instant,
    uid: Option<String>,
    generation: Option<i64>,
    spec: IPRegistrySpec,
    /// What runs for it, with the present settings or with earlier ones.
    pub(super) running: Option<Running>,
    /// Whether it is open with the present settings.
    pub(super) is_open: bool,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            uid: None,
            generation: None,
            spec: IPRegistrySpec::default(),
            running: None,
            is_open: false,
        }
    }
}

impl Known {
    /// Records the present state. Returns whether the registry has another specification than with the
    /// same generation before: a definition has lost fields.
    pub(super) fn has_lost_fields(&mut self, registry: &IPRegistry) -> bool {
        let metadata = &registry.metadata;
        let is_same_spec = metadata.generation.is_some()
            && self.generation == metadata.generation
            && self.uid == metadata.uid;
        if is_same_spec {
            return self.spec != registry.spec;
        }
        self.uid.clone_from(&metadata.uid);
        self.generation = metadata.generation;
        self.spec = registry.spec.clone();
        false
    }
}

/// All registries by name. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct RegistryStates(Arc<Mutex<BTreeMap<String, Known>>>);

impl RegistryStates {
    /// Registers the metrics.
    pub(super) fn register(metrics: &Metrics) -> Self {
        let states = Self::default();
        metrics.register_collector(states.clone());
        states
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock()
    }

    /// Encodes a gauge with the value 0 or 1 for each registry; 0 for one that cannot be opened.
    fn encode_flag(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        description: &Description,
        is_set: impl Fn(&OpenRegistry) -> bool,
    ) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            description.name,
            description.help,
            None,
            MetricType::Gauge,
        )?;
        for (name, known) in self.lock().iter() {
            let running = known.running.as_ref().filter(|_| known.is_open);
            let is_set = running.is_some_and(|running| is_set(&running.registry));
            let labels = [("registry", name.as_str())];
            ConstGauge::new(i64::from(is_set)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for RegistryStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_flag(&mut encoder, &UP, OpenRegistry::is_available)?;
        self.encode_flag(&mut encoder, &CLUSTER_ID_IN_USE, OpenRegistry::is_suspended)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definition_without_fields_is_noticed() {
        let registry = |generation: i64, spec: serde_json::Value| -> IPRegistry {
            let metadata = json!({"name": "site", "uid": "a", "generation": generation});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let named = json!({"clusterID": "west"});
        let mut seen = Known::default();
        assert!(!seen.has_lost_fields(&registry(1, named.clone())));
        assert!(!seen.has_lost_fields(&registry(1, named.clone())));
        assert!(seen.has_lost_fields(&registry(1, json!({}))));
        // It was edited.
        assert!(!seen.has_lost_fields(&registry(2, json!({}))));
    }
}
