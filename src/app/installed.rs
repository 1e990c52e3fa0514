//! The names of the installed objects, which are those of the manifests.

/// Namespace of the program.
pub(super) const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// Service of the webhooks.
pub(super) const WEBHOOK_SERVICE: &str = "capi-ipam-in-cluster-webhook-service";
/// The ValidatingWebhookConfiguration.
pub(super) const WEBHOOK_CONFIGURATION: &str = "capi-ipam-in-cluster-validating-webhook-configuration";
/// Secret of the self-managed certificate.
pub(super) const CERTIFICATE_SECRET: &str = "capi-ipam-in-cluster-webhook-self-managed-cert";
/// CustomResourceDefinitions with a conversion webhook.
pub(super) const CONVERTED_DEFINITIONS: &[&str] =
    &["globalinclusterippools.ipam.cluster.x-k8s.io", "inclusterippools.ipam.cluster.x-k8s.io"];

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use super::*;
    use crate::api::crds;

    #[test]
    fn converted_definitions_have_a_conversion_webhook() {
        let mut converted = Vec::new();
        for definition in crds::all().unwrap() {
            let webhook = definition.spec.conversion.as_ref().and_then(|conversion| conversion.webhook.as_ref());
            let config = webhook.and_then(|webhook| webhook.client_config.as_ref());
            if let Some(service) = config.and_then(|config| config.service.as_ref()) {
                assert_eq!((service.namespace.as_str(), service.name.as_str()), (NAMESPACE, WEBHOOK_SERVICE));
                converted.push(definition.name_any());
            }
        }
        assert_eq!(converted, CONVERTED_DEFINITIONS);
    }
}
