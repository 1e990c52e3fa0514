//! What the program keeps of a registry of blocks.

use capi_ipam_api::{IPRegistry, IPRegistrySpec, IPRegistryStatus, conditions};
use capi_ipam_provider::api::conditions::Condition;

/// A registry of blocks that management clusters share.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegistryRow {
    pub(crate) name: String,
    pub(crate) spec: IPRegistrySpec,
    pub(crate) status: IPRegistryStatus,
}

impl From<IPRegistry> for RegistryRow {
    fn from(registry: IPRegistry) -> Self {
        Self {
            name: registry.metadata.name.unwrap_or_default(),
            spec: registry.spec,
            status: registry.status.unwrap_or_default(),
        }
    }
}

impl RegistryRow {
    /// The identity of this management cluster in the registry, once it is known.
    pub(crate) fn cluster_id(&self) -> Option<&String> {
        self.spec
            .cluster_id
            .as_ref()
            .or(self.status.cluster_id.as_ref())
    }

    /// The condition `Ready`.
    pub(crate) fn ready(&self) -> Option<&Condition> {
        conditions::find(&self.status.conditions, conditions::READY)
    }
}
