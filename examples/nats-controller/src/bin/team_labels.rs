//! A controller of a kind of Kubernetes: each namespace gets the label `example.com/team` from its
//! annotation of this name.

use std::process::ExitCode;
use std::sync::Arc;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::controller::{Action, reconcile_fn};
use capi_ipam_controller::manager::{self, Identity};
use capi_ipam_controller::patch;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt};

const TEAM: &str = "example.com/team";

/// Writes the label of a namespace, if it has to be changed.
async fn label(
    namespaces: &ResourceClient<Namespace>,
    namespace: &Namespace,
) -> Result<Action, CallError> {
    let mut changed = namespace.clone();
    match namespace.annotations().get(TEAM) {
        Some(team) => changed.labels_mut().insert(TEAM.to_owned(), team.clone()),
        None => changed.labels_mut().remove(TEAM),
    };
    patch::write(namespaces, namespace, &changed).await?;
    Ok(Action::AwaitChange)
}

fn main() -> ExitCode {
    let identity = Identity::new("team-labels", env!("CARGO_PKG_VERSION"));
    manager::main(identity, async |manager| {
        let namespaces = ResourceClient::new(Api::all(manager.client.clone()), &());
        let watch = manager.watch(Api::all(manager.client.clone()));
        let reconciler = reconcile_fn(move |namespace: Arc<Namespace>| {
            let namespaces = namespaces.clone();
            async move { label(&namespaces, &namespace).await }
        });
        manager.run("namespaces", watch, reconciler);
        Ok(())
    })
}
