//! The manifest of the provider and the logs of its managers, as parts of repairs.

use super::snapshot::{DeploymentRow, Snapshot, WebhookMode};

/// What applies the manifest again. The manifest of the other source of certificates would replace
/// the arguments of the Deployment, and its webhooks would have no certificate.
pub(super) fn apply_again(snapshot: &Snapshot) -> String {
    let mode = snapshot.deployments.seen().first().map(|it| it.webhooks);
    match mode {
        Some(mode) => format!("apply the manifest that you installed: {}", command(mode)),
        None => format!(
            "apply the manifest that you installed, for example: {}",
            command(WebhookMode::Files)
        ),
    }
}

/// What applies the manifest of this Deployment again.
pub(super) fn apply_for(deployment: &DeploymentRow) -> String {
    format!(
        "apply the manifest that you installed: {}",
        command(deployment.webhooks)
    )
}

/// The command that shows the logs of the managers in a namespace.
pub(super) fn logs(namespace: &str) -> String {
    format!(
        "kubectl logs --namespace {namespace} --selector cluster.x-k8s.io/provider=ipam-in-cluster --tail=-1"
    )
}

/// The command that applies a manifest. With server-side apply, an edit makes its field manager the
/// owner of the fields that it changes. Without `--force-conflicts`, the command fails with a conflict
/// for these fields.
fn command(mode: WebhookMode) -> String {
    let file = match mode {
        WebhookMode::SelfManaged => "install-without-cert-manager.yaml",
        WebhookMode::Files | WebhookMode::Off => "install.yaml",
    };
    format!("kubectl apply --server-side --force-conflicts --filename manifests/{file}")
}
