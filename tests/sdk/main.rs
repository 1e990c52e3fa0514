//! The SDK against a real API server, with small programs that run in this process. All tests share
//! one control plane, and use separate namespaces or kinds.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod chains;
mod claims;
mod controllers;
mod environment;
mod finalized;
mod imports;
mod interrupt;
mod lifecycle;
mod metrics;
mod patching;
mod pools;
mod program;
mod protected_pools;
mod references;
mod reported;
mod sources;
mod sweep;
mod upgrade;

use std::sync::OnceLock;

use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;

/// The control plane that all tests share. Never dropped: its processes end with the test process.
fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceLock<ControlPlane> = OnceLock::new();
    SHARED.get_or_init(|| ControlPlane::start(Options::default()))
}

/// A consumer in its own namespace, as the administrator.
async fn consumer() -> Consumer {
    Consumer::with_client(patching::client().await).await
}

/// The ConfigMaps of the namespace.
fn config_maps(consumer: &Consumer) -> ResourceClient<ConfigMap> {
    let api = Api::namespaced(consumer.client.clone(), &consumer.namespace);
    ResourceClient::new(api, &())
}
