//! What the manifests call the objects that the program is installed with.

/// Namespace of the program.
pub(super) const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// Service in front of the webhooks.
pub(super) const WEBHOOK_SERVICE: &str = "capi-ipam-in-cluster-webhook-service";
/// The ValidatingWebhookConfiguration.
pub(super) const WEBHOOK_CONFIGURATION: &str = "capi-ipam-in-cluster-validating-webhook-configuration";
/// Secret with the certificate that the manager makes itself.
pub(super) const CERTIFICATE_SECRET: &str = "capi-ipam-in-cluster-webhook-self-managed-cert";
/// Definitions of the kinds that a webhook converts.
pub(super) const CONVERTED_DEFINITIONS: &[&str] =
    &["globalinclusterippools.ipam.cluster.x-k8s.io", "inclusterippools.ipam.cluster.x-k8s.io"];

#[cfg(test)]
mod tests {
    use kube::ResourceExt;

    use crate::api::crds;
    use super::*;

    #[test]
    fn the_converted_kinds_are_those_whose_definitions_say_so() {
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
