//! The names of the installed objects, which are those of the manifests.

/// Namespace of the program.
pub(crate) const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// Service of the webhooks.
pub(crate) const WEBHOOK_SERVICE: &str = "capi-ipam-in-cluster-webhook-service";
/// Path of the conversion webhook.
pub(crate) const CONVERSION_PATH: &str = "/convert";
/// The ValidatingWebhookConfiguration.
pub(crate) const WEBHOOK_CONFIGURATION: &str = "capi-ipam-in-cluster-validating-webhook-configuration";
/// Secret of the self-managed certificate.
pub(crate) const CERTIFICATE_SECRET: &str = "capi-ipam-in-cluster-webhook-self-managed-cert";
/// CustomResourceDefinitions with a conversion webhook.
pub(crate) const CONVERTED_DEFINITIONS: &[&str] =
    &["globalinclusterippools.ipam.cluster.x-k8s.io", "inclusterippools.ipam.cluster.x-k8s.io"];
