//! A registry of either backend.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::watch::EventHandler;

use crate::backend::{Backend, Created, RegistryError};
use crate::entry::Entry;
use crate::kubernetes::KubernetesRegistry;
#[cfg(feature = "nats")]
use crate::nats::NatsRegistry;
use crate::record::Record;
use crate::source::RecordSource;

/// A registry of either backend.
#[derive(Clone, Debug)]
pub enum Registry {
    /// A bucket of NATS JetStream.
    #[cfg(feature = "nats")]
    Nats(NatsRegistry),
    /// Another API server.
    Kubernetes(KubernetesRegistry),
}

/// Calls a method of the backend.
macro_rules! dispatch {
    ($registry:ident, $backend:ident => $call:expr) => {
        match $registry {
            #[cfg(feature = "nats")]
            Self::Nats($backend) => $call,
            Self::Kubernetes($backend) => $call,
        }
    };
}

impl Backend for Registry {
    fn source(
        &self,
        handler: Arc<dyn EventHandler<Entry>>,
        synced: ReadinessGate,
    ) -> Result<RecordSource, RegistryError> {
        dispatch!(self, backend => backend.source(handler, synced))
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        dispatch!(self, backend => backend.read(key).await)
    }

    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
        dispatch!(self, backend => backend.create(key, record).await)
    }

    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError> {
        dispatch!(self, backend => backend.update(held, record).await)
    }

    async fn delete(&self, held: &Entry) -> Result<(), RegistryError> {
        dispatch!(self, backend => backend.delete(held).await)
    }

    async fn check(&self) -> Result<(), RegistryError> {
        dispatch!(self, backend => backend.check().await)
    }

    fn settle_time(&self) -> Duration {
        dispatch!(self, backend => backend.settle_time())
    }
}
