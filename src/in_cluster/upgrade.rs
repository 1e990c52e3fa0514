//! Upgrade of stored pools.

use capi_ipam_api::installed::CONVERTED_DEFINITIONS;
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::upgrade::StoredVersions;
use tracing::warn;

/// Stores pools that are stored as v1alpha1 in the current version, and removes v1alpha1 from the
/// stored versions of the CustomResourceDefinitions. A release without v1alpha1 can be installed
/// only after that.
///
/// A failure does not prevent the start: all versions are still served. The next start runs the
/// step again.
pub(super) async fn run(manager: &Manager) {
    for &definition in CONVERTED_DEFINITIONS {
        let step = StoredVersions::new(manager.client.clone(), definition);
        if let Err(error) = manager.upgrade(&step).await {
            warn!(
                definition,
                error = error_chain(&error),
                "cannot upgrade stored pools; the next start tries again"
            );
        }
    }
}
