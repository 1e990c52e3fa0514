//! Writes the CA bundle to the objects from which API servers read it: the
//! webhook configurations, and the CustomResourceDefinitions with a conversion webhook.
//!
//! The bundle is read from the Secret *after* the target object, and the write has the
//! resourceVersion of the target as a precondition. So a slow replica never overwrites a newer
//! bundle with an older one.

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::patch::{set, with_preconditions};
use json_patch::PatchOperation;
use k8s_openapi::ByteString;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Names;

/// Prefix of the annotations that make cert-manager inject the CA bundle.
const CERT_MANAGER_PREFIX: &str = "cert-manager.io/inject-";

/// The group of webhook configurations.
const ADMISSION: &str = "admissionregistration.k8s.io";
/// The kind that is optional.
const MUTATING: &str = "MutatingWebhookConfiguration";

/// The Service of the webhooks.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The objects that refer to the webhooks.
pub(super) struct Targets {
    service: Service,
    all: Vec<TargetName>,
}

struct TargetName {
    client: ResourceClient<DynamicObject>,
    name: String,
    /// Whether it need not exist.
    is_optional: bool,
}

/// A target that was read.
pub(super) struct Target {
    client: ResourceClient<DynamicObject>,
    object: DynamicObject,
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

impl Targets {
    /// The targets of these names. Only webhooks that refer to `service` or to a URL are written.
    pub(super) fn new(client: &Client, service: Service, names: &Names) -> Self {
        let target = |group, kind, name: &String| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            TargetName {
                client: ResourceClient::new(Api::all_with(client.clone(), &resource), &resource),
                name: name.clone(),
                is_optional: kind == MUTATING,
            }
        };
        let validating = target(
            ADMISSION,
            "ValidatingWebhookConfiguration",
            &names.configuration,
        );
        let mut all = vec![validating];
        let mutating = names.mutating_configuration.iter();
        all.extend(mutating.map(|name| target(ADMISSION, MUTATING, name)));
        let definitions = names.definitions.iter();
        let group = "apiextensions.k8s.io";
        all.extend(definitions.map(|name| target(group, "CustomResourceDefinition", name)));
        Self { service, all }
    }

    /// Reads all targets, apart from optional ones that do not exist.
    pub(super) async fn read(&self) -> Vec<Result<Target, InjectError>> {
        let read = async |target: &TargetName| {
            let client = target.client.clone();
            match client.get(&target.name).await {
                Ok(Some(object)) => Some(Ok(Target { client, object })),
                Ok(None) if target.is_optional => None,
                Ok(None) => {
                    let text = format!("{} {}", client.kind(), target.name);
                    Some(Err(InjectError::Missing(text)))
                }
                Err(error) => Some(Err(error.into())),
            }
        };
        let found = futures::future::join_all(self.all.iter().map(read)).await;
        found.into_iter().flatten().collect()
    }

    /// Writes the bundle to a target, unless it has it already. Returns whether there was something
    /// to write.
    pub(super) async fn inject(&self, target: &Target, bundle: &[u8]) -> Result<bool, CallError> {
        let object = &target.object;
        let operations = missing(object, &self.service, bundle);
        if operations.is_empty() {
            return Ok(false);
        }
        let patch = with_preconditions(object, operations);
        target.client.patch(&object.name_any(), patch).await?;
        Ok(true)
    }
}

impl Target {
    /// Kind and name for logs.
    pub(super) fn describe(&self) -> String {
        format!("{} {}", self.client.kind(), self.object.name_any())
    }

    /// Whether cert-manager injects the CA bundle here.
    pub(super) fn is_managed_by_cert_manager(&self) -> bool {
        is_managed_by_cert_manager(&self.object)
    }
}

fn is_managed_by_cert_manager(object: &DynamicObject) -> bool {
    let mut annotations = object.annotations().keys();
    annotations.any(|annotation| annotation.starts_with(CERT_MANAGER_PREFIX))
}

/// The operations that set the bundle in the webhooks of an object.
fn missing(object: &DynamicObject, service: &Service, bundle: &[u8]) -> Vec<PatchOperation> {
    let webhooks = object.data.get("webhooks").and_then(Value::as_array);
    let count = webhooks.map_or(0, Vec::len);
    let of_configuration = (0..count).map(|index| format!("webhooks/{index}/clientConfig"));
    let of_definition = "spec/conversion/webhook/clientConfig".to_owned();
    let bundle = json!(ByteString(bundle.to_vec()));
    let mut operations = Vec::new();
    for path in of_configuration.chain([of_definition]) {
        let Some(config) = object.data.pointer(&format!("/{path}")) else {
            continue;
        };
        let refers_to = |field: &str, name: &str| {
            config.pointer(&format!("/service/{field}")) == Some(&json!(name))
        };
        let is_ours = config.get("url").is_some()
            || refers_to("namespace", &service.namespace) && refers_to("name", &service.name);
        if is_ours && config.get("caBundle") != Some(&bundle) {
            let path = format!("{path}/caBundle");
            let parts: Vec<&str> = path.split('/').collect();
            operations.push(set(&parts, bundle.clone()));
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(target: &DynamicObject) -> Value {
        let service = Service {
            namespace: "system".to_owned(),
            name: "webhooks".to_owned(),
        };
        json!(super::missing(target, &service, b"new"))
    }

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn service(namespace: &str, name: &str, bundle: &str) -> Value {
        let mut config = json!({ "service": { "namespace": namespace, "name": name } });
        if !bundle.is_empty() {
            config["caBundle"] = json!(ByteString(bundle.as_bytes().to_vec()));
        }
        config
    }

    fn configuration(configs: &[Value]) -> DynamicObject {
        let webhooks = configs.iter().map(|config| {
            json!({ "name": "w", "clientConfig": config, "admissionReviewVersions": ["v1"], "sideEffects": "None" })
        });
        let found =
            json!({ "metadata": { "name": "all" }, "webhooks": webhooks.collect::<Vec<_>>() });
        object(found)
    }

    fn definition(conversion: &Value) -> DynamicObject {
        let names = json!({ "kind": "Thing", "plural": "things" });
        let spec = json!({
            "group": "example.com", "names": names, "scope": "Cluster", "versions": [], "conversion": conversion,
        });
        object(json!({ "metadata": { "name": "t" }, "spec": spec }))
    }

    #[test]
    fn own_webhooks_without_the_bundle_are_written() {
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

    #[test]
    fn definitions_with_our_conversion_webhook_are_written() {
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
            is_managed_by_cert_manager(&object(json!({ "metadata": metadata })))
        };
        assert!(target("cert-manager.io/inject-ca-from"));
        assert!(target("cert-manager.io/inject-ca-from-secret"));
        assert!(!target("cert-manager.io/other"));
        assert!(!is_managed_by_cert_manager(&configuration(&[])));
    }
}
