//! Writes the CA bundle to the objects from which API servers read it: the
//! ValidatingWebhookConfiguration, and the CustomResourceDefinitions with a conversion webhook.
//!
//! The bundle is read from the Secret *after* the target object, and the write has the
//! resourceVersion of the target as a precondition. So a slow replica never overwrites a newer
//! bundle with an older one.

use std::fmt::Debug;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::patch::{set, with_preconditions};
use json_patch::PatchOperation;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Prefix of the annotations that make cert-manager inject the CA bundle.
const CERT_MANAGER_PREFIX: &str = "cert-manager.io/inject-";

/// The Service of the webhooks.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The objects that refer to the webhooks.
pub(super) struct Targets {
    configurations: ResourceClient<ValidatingWebhookConfiguration>,
    definitions: ResourceClient<CustomResourceDefinition>,
    service: Service,
    names: Vec<Name>,
}

/// Kind and name of a target.
#[derive(Clone, Debug)]
enum Name {
    Configuration(String),
    Definition(String),
}

/// A target that was read.
pub(super) enum Target {
    Configuration(Box<ValidatingWebhookConfiguration>),
    Definition(Box<CustomResourceDefinition>),
}

/// Why the CA bundle cannot be injected.
#[derive(Debug, thiserror::Error)]
pub(super) enum InjectError {
    /// The target cannot be read or written.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The target does not exist.
    #[error("there is no {0}; install the manifests of the provider")]
    Missing(String),
}

/// The client configuration of a webhook.
struct WebhookRef<'a> {
    path: Vec<String>,
    service: Option<(&'a str, &'a str)>,
    has_url: bool,
    bundle: Option<&'a ByteString>,
}

impl Targets {
    /// The targets of these names. Only webhooks that refer to `service` or to a URL are written.
    pub(super) fn new(
        client: &Client,
        service: Service,
        configuration: &str,
        definitions: &[String],
    ) -> Self {
        let definition_names = definitions.iter().cloned().map(Name::Definition);
        Self {
            configurations: ResourceClient::new(Api::all(client.clone()), &()),
            definitions: ResourceClient::new(Api::all(client.clone()), &()),
            service,
            names: [Name::Configuration(configuration.to_owned())]
                .into_iter()
                .chain(definition_names)
                .collect(),
        }
    }

    /// Reads all targets.
    pub(super) async fn read(&self) -> Vec<Result<Target, InjectError>> {
        let read = async |name: &Name| {
            let (target, kind, name) = match name {
                Name::Configuration(name) => {
                    let found = self.configurations.get(name).await?;
                    (
                        found.map(|found| Target::Configuration(Box::new(found))),
                        "ValidatingWebhookConfiguration",
                        name,
                    )
                }
                Name::Definition(name) => {
                    let found = self.definitions.get(name).await?;
                    (
                        found.map(|found| Target::Definition(Box::new(found))),
                        "CustomResourceDefinition",
                        name,
                    )
                }
            };
            target.ok_or_else(|| InjectError::Missing(format!("{kind} {name}")))
        };
        futures::future::join_all(self.names.iter().map(read)).await
    }

    /// Writes the bundle to a target, unless it has it already. Returns whether there was something
    /// to write.
    pub(super) async fn inject(&self, target: &Target, bundle: &[u8]) -> Result<bool, CallError> {
        match target {
            Target::Configuration(found) => {
                write(
                    &self.configurations,
                    found.as_ref(),
                    self.missing(target, bundle),
                )
                .await
            }
            Target::Definition(found) => {
                write(
                    &self.definitions,
                    found.as_ref(),
                    self.missing(target, bundle),
                )
                .await
            }
        }
    }

    /// The operations that set the bundle in a target.
    fn missing(&self, target: &Target, bundle: &[u8]) -> Vec<PatchOperation> {
        let is_ours = |webhook: &WebhookRef<'_>| {
            let Service { namespace, name } = &self.service;
            webhook.has_url || webhook.service == Some((namespace, name))
        };
        let lacks_bundle =
            |webhook: &WebhookRef<'_>| webhook.bundle.is_none_or(|present| present.0 != bundle);
        let operation = |webhook: WebhookRef<'_>| {
            let path: Vec<&str> = webhook.path.iter().map(String::as_str).collect();
            set(&path, json!(ByteString(bundle.to_vec())))
        };
        target
            .webhooks()
            .into_iter()
            .filter(|webhook| is_ours(webhook) && lacks_bundle(webhook))
            .map(operation)
            .collect()
    }
}

impl Target {
    /// Kind and name for logs.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Configuration(found) => {
                format!("ValidatingWebhookConfiguration {}", found.name_any())
            }
            Self::Definition(found) => format!("CustomResourceDefinition {}", found.name_any()),
        }
    }

    /// Whether cert-manager injects the CA bundle here.
    pub(super) fn is_managed_by_cert_manager(&self) -> bool {
        let annotations = match self {
            Self::Configuration(found) => found.annotations(),
            Self::Definition(found) => found.annotations(),
        };
        annotations
            .keys()
            .any(|annotation| annotation.starts_with(CERT_MANAGER_PREFIX))
    }

    fn webhooks(&self) -> Vec<WebhookRef<'_>> {
        let owned = |path: &[&str]| path.iter().map(|&part| part.to_owned()).collect();
        match self {
            Self::Configuration(found) => {
                let webhooks = found.webhooks.iter().flatten().enumerate();
                let refs = webhooks.map(|(index, webhook)| {
                    let config = &webhook.client_config;
                    WebhookRef {
                        path: owned(&["webhooks", &index.to_string(), "clientConfig", "caBundle"]),
                        service: config
                            .service
                            .as_ref()
                            .map(|to| (to.namespace.as_str(), to.name.as_str())),
                        has_url: config.url.is_some(),
                        bundle: config.ca_bundle.as_ref(),
                    }
                });
                refs.collect()
            }
            Self::Definition(found) => {
                let webhook = found
                    .spec
                    .conversion
                    .as_ref()
                    .and_then(|conversion| conversion.webhook.as_ref());
                let config = webhook.and_then(|webhook| webhook.client_config.as_ref());
                let webhook_ref = config.map(|config| WebhookRef {
                    path: owned(&["spec", "conversion", "webhook", "clientConfig", "caBundle"]),
                    service: config
                        .service
                        .as_ref()
                        .map(|to| (to.namespace.as_str(), to.name.as_str())),
                    has_url: config.url.is_some(),
                    bundle: config.ca_bundle.as_ref(),
                });
                webhook_ref.into_iter().collect()
            }
        }
    }
}

async fn write<K>(
    calls: &ResourceClient<K>,
    found: &K,
    operations: Vec<PatchOperation>,
) -> Result<bool, CallError>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    if operations.is_empty() {
        return Ok(false);
    }
    calls
        .patch(&found.name_any(), with_preconditions(found, operations))
        .await
        .map(|_| true)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn missing(target: &Target) -> Value {
        let config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let service = Service {
            namespace: "system".to_owned(),
            name: "webhooks".to_owned(),
        };
        let targets = Targets::new(&client, service, "all", &["things.example.com".to_owned()]);
        serde_json::to_value(targets.missing(target, b"new")).unwrap()
    }

    fn service(namespace: &str, name: &str, bundle: &str) -> Value {
        let mut config = json!({ "service": { "namespace": namespace, "name": name } });
        if !bundle.is_empty() {
            config["caBundle"] = json!(ByteString(bundle.as_bytes().to_vec()));
        }
        config
    }

    fn configuration(configs: &[Value]) -> Target {
        let webhooks = configs.iter().map(|config| {
            json!({ "name": "w", "clientConfig": config, "admissionReviewVersions": ["v1"], "sideEffects": "None" })
        });
        let found =
            json!({ "metadata": { "name": "all" }, "webhooks": webhooks.collect::<Vec<_>>() });
        Target::Configuration(serde_json::from_value(found).unwrap())
    }

    fn definition(conversion: &Value) -> Target {
        let names = json!({ "kind": "Thing", "plural": "things" });
        let spec = json!({
            "group": "example.com", "names": names, "scope": "Cluster", "versions": [], "conversion": conversion,
        });
        Target::Definition(
            serde_json::from_value(json!({ "metadata": { "name": "t" }, "spec": spec })).unwrap(),
        )
    }

    #[tokio::test]
    async fn own_webhooks_without_the_bundle_are_written() {
        let value = "bmV3";
        let at = |path: &str| json!({ "op": "add", "path": path, "value": value });
        let target = configuration(&[
            service("system", "webhooks", ""),
            service("system", "webhooks", "old"),
            service("system", "webhooks", "new"),
            service("system", "others", ""),
            service("others", "webhooks", "old"),
            json!({ "url": "https://127.0.0.1/x" }),
        ]);
        let expected =
            [0, 1, 5].map(|index| at(&format!("/webhooks/{index}/clientConfig/caBundle")));
        assert_eq!(missing(&target), json!(expected));
        assert_eq!(missing(&configuration(&[])), json!([]));
    }

    #[tokio::test]
    async fn definitions_with_our_conversion_webhook_are_written() {
        let webhook = |config: Value| {
            let webhook = json!({ "clientConfig": config, "conversionReviewVersions": ["v1"] });
            json!({ "strategy": "Webhook", "webhook": webhook })
        };
        let path = "/spec/conversion/webhook/clientConfig/caBundle";
        let expected = json!([{ "op": "add", "path": path, "value": "bmV3" }]);
        assert_eq!(
            missing(&definition(&webhook(service("system", "webhooks", "")))),
            expected
        );
        assert_eq!(
            missing(&definition(&webhook(
                json!({ "url": "https://127.0.0.1/x" })
            ))),
            expected
        );
        assert_eq!(
            missing(&definition(&webhook(service("system", "webhooks", "new")))),
            json!([])
        );
        assert_eq!(
            missing(&definition(&webhook(service("other", "webhooks", "")))),
            json!([])
        );
        assert_eq!(
            missing(&definition(&json!({ "strategy": "None" }))),
            json!([])
        );
        assert_eq!(missing(&definition(&Value::Null)), json!([]));
    }

    #[test]
    fn targets_of_cert_manager_are_recognized() {
        let target = |annotation: &str| {
            let metadata = json!({ "name": "all", "annotations": { annotation: "x" } });
            Target::Configuration(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
        };
        assert!(target("cert-manager.io/inject-ca-from").is_managed_by_cert_manager());
        assert!(target("cert-manager.io/inject-ca-from-secret").is_managed_by_cert_manager());
        assert!(!target("cert-manager.io/other").is_managed_by_cert_manager());
        assert!(!configuration(&[]).is_managed_by_cert_manager());
    }
}
