//! The names of the installed objects, which are those of the manifests.

/// Namespace of the program.
pub const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// Service of the webhooks.
pub const WEBHOOK_SERVICE: &str = "capi-ipam-in-cluster-webhook-service";
/// Path of the conversion webhook.
pub const CONVERSION_PATH: &str = "/convert";
/// The ValidatingWebhookConfiguration.
pub const WEBHOOK_CONFIGURATION: &str = "capi-ipam-in-cluster-validating-webhook-configuration";
/// The MutatingWebhookConfiguration, which is installed if Clusters get their addresses when they are
/// created. API servers call it before that of Cluster API, whose name follows in the alphabet.
pub const MUTATING_CONFIGURATION: &str = "capi-ipam-in-cluster-mutating-webhook-configuration";
/// Secret of the self-managed certificate.
pub const CERTIFICATE_SECRET: &str = "capi-ipam-in-cluster-webhook-self-managed-cert";
/// The CustomResourceDefinitions of the provider.
pub const DEFINITIONS: &[&str] = &[
    "globalinclusterippools.ipam.cluster.x-k8s.io",
    "globalinclusterprefixpools.ipam.cluster.x-k8s.io",
    "globalippoolsets.ipam.cluster.x-k8s.io",
    "inclusterippools.ipam.cluster.x-k8s.io",
    "inclusterprefixpools.ipam.cluster.x-k8s.io",
    "ipnetworks.ipam.cluster.x-k8s.io",
    "ippoolsets.ipam.cluster.x-k8s.io",
    "ipregistries.ipam.cluster.x-k8s.io",
    "ipreservations.ipam.cluster.x-k8s.io",
    "ipslices.ipam.cluster.x-k8s.io",
];
/// CustomResourceDefinitions with a conversion webhook.
pub const CONVERTED_DEFINITIONS: &[&str] = &[
    "globalinclusterippools.ipam.cluster.x-k8s.io",
    "inclusterippools.ipam.cluster.x-k8s.io",
];
