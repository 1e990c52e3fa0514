use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tracing::info;

use super::{Progress, Step};
use crate::client::{CallError, ResourceClient};
use crate::clock;
use crate::error::BoxError;
use crate::patch;

/// Number of objects that are written concurrently.
const CONCURRENCY: usize = 8;

/// Time between a change of a CustomResourceDefinition and the first write. In a cluster with
/// several API servers each of them may store the previous version until it has noticed the change.
const PROPAGATION_DELAY: Duration = Duration::from_secs(10);

/// Stores all objects of a CustomResourceDefinition in its storage version, and then removes the
/// other versions from `status.storedVersions`. The API server allows to remove a version from the
/// definition only after that.
///
/// An object is rewritten by a patch that contains only its uid and its resourceVersion: the API
/// server stores it in the storage version, and no field changes. If an object has changed since it
/// was listed, that write has stored it in the storage version already. A definition that does not
/// exist needs no upgrade.
///
/// Needs `get` on `customresourcedefinitions` and `patch` on `customresourcedefinitions/status` in
/// `apiextensions.k8s.io`, and `list` and `patch` on the objects.
///
/// ```no_run
/// use capi_ipam_controller::manager::{self, Identity};
/// use capi_ipam_controller::upgrade::StoredVersions;
///
/// fn main() -> std::process::ExitCode {
///     manager::main(Identity::new("my-provider", env!("CARGO_PKG_VERSION")), async |manager| {
///         let step = StoredVersions::new(manager.client.clone(), "things.example.com");
///         manager.upgrade(&step).await?;
///         Ok(())
///     })
/// }
/// ```
pub struct StoredVersions {
    client: Client,
    definitions: ResourceClient<CustomResourceDefinition>,
    definition: String,
    /// The time between a change of the definition and the first write; 10 s by default. It can be
    /// zero in a cluster with one API server.
    pub propagation_delay: Duration,
}

impl StoredVersions {
    /// The step for the CustomResourceDefinition of that name, such as `things.example.com`.
    pub fn new(client: Client, definition: impl Into<String>) -> Self {
        let definitions = ResourceClient::new(Api::all(client.clone()), &());
        Self {
            client,
            definitions,
            definition: definition.into(),
            propagation_delay: PROPAGATION_DELAY,
        }
    }

    /// Reads the definition; `None` if all objects are stored in the storage version.
    async fn outdated(&self) -> Result<Option<CustomResourceDefinition>, CallError> {
        let found = self.definitions.get(&self.definition).await?;
        Ok(found.filter(|definition| !unwanted(definition).is_empty()))
    }

    /// Stores an object in the storage version.
    async fn rewrite(
        &self,
        resource: &ApiResource,
        object: DynamicObject,
    ) -> Result<(), CallError> {
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        };
        let unchanged = patch::with_preconditions(&object, Vec::new());
        match ResourceClient::new(api, resource)
            .patch(&object.name_any(), unchanged)
            .await
        {
            // Deleted, or written by another client.
            Err(error) if error.has_changed() => Ok(()),
            written => written.map(drop),
        }
    }
}

impl Step for StoredVersions {
    fn id(&self) -> String {
        format!("stored-versions of {}", self.definition)
    }

    async fn is_needed(&self) -> Result<bool, BoxError> {
        Ok(self.outdated().await?.is_some())
    }

    async fn run(&self, progress: &Progress) -> Result<(), BoxError> {
        let Some(definition) = self.outdated().await? else {
            return Ok(());
        };
        let Some(version) = storage_version(&definition) else {
            return Ok(());
        };
        let (definition_name, names) = (&self.definition, &definition.spec.names);
        info!(definition = definition_name, version, from = ?unwanted(&definition), "storing all objects again");
        tokio::time::sleep(
            self.propagation_delay
                .saturating_sub(age(&definition, clock::now().0)),
        )
        .await;
        let resource = ApiResource {
            group: definition.spec.group.clone(),
            version: version.to_owned(),
            api_version: format!("{}/{version}", definition.spec.group),
            kind: names.kind.clone(),
            plural: names.plural.clone(),
        };
        let all = ResourceClient::<DynamicObject>::new(
            Api::all_with(self.client.clone(), &resource),
            &resource,
        );
        let mut objects = Vec::new();
        // Every object decodes as a dynamic one: the step must not leave one out.
        objects.extend(all.list().await?.into_iter().map(identity));
        stream::iter(objects)
            .map(|object| self.rewrite(&resource, object))
            .buffer_unordered(CONCURRENCY)
            .try_for_each(async |()| {
                progress.add(1);
                Ok(())
            })
            .await?;
        // A conflict means that the definition has changed, possibly its storage version. The next
        // start repeats it.
        let stored = patch::set(&["status", "storedVersions"], json!([version]));
        self.definitions
            .patch_status(
                definition_name,
                patch::with_preconditions(&definition, vec![stored]),
            )
            .await?;
        Ok(())
    }
}

/// Keeps what identifies an object and its version.
fn identity(mut object: DynamicObject) -> DynamicObject {
    object.data = serde_json::Value::Null;
    let metadata = std::mem::take(&mut object.metadata);
    object.metadata.name = metadata.name;
    object.metadata.namespace = metadata.namespace;
    object.metadata.uid = metadata.uid;
    object.metadata.resource_version = metadata.resource_version;
    object
}

fn storage_version(definition: &CustomResourceDefinition) -> Option<&str> {
    definition
        .spec
        .versions
        .iter()
        .find(|version| version.storage)
        .map(|version| version.name.as_str())
}

/// The versions in which objects may be stored, apart from the storage version.
fn unwanted(definition: &CustomResourceDefinition) -> Vec<&str> {
    let storage = storage_version(definition);
    let stored = definition
        .status
        .as_ref()
        .and_then(|status| status.stored_versions.as_ref());
    stored
        .into_iter()
        .flatten()
        .map(String::as_str)
        .filter(|version| Some(*version) != storage)
        .collect()
}

/// The time since the last change of the definition, apart from its status.
fn age(definition: &CustomResourceDefinition, now: Timestamp) -> Duration {
    let entries = definition.metadata.managed_fields.iter().flatten();
    let newest = entries
        .filter(|entry| entry.subresource.is_none())
        .filter_map(|entry| entry.time.as_ref())
        .max();
    newest.map_or(Duration::MAX, |time| {
        now.duration_since(time.0).try_into().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(stored: &[&str]) -> CustomResourceDefinition {
        let version =
            |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage});
        serde_json::from_value(json!({
            "metadata": {"name": "things.example.com", "managedFields": [
                {"manager": "a", "operation": "Apply", "time": "2026-01-01T00:00:00Z"},
                {"manager": "b", "operation": "Update", "time": "2026-01-01T00:00:05Z"},
                {"manager": "c", "operation": "Update", "time": "2026-01-01T00:00:09Z", "subresource": "status"},
            ]},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
                "versions": [version("v1", false), version("v2", true)]},
            "status": {"storedVersions": stored},
        }))
        .unwrap()
    }

    #[test]
    fn other_versions_than_the_storage_version_are_unwanted() {
        assert_eq!(unwanted(&definition(&["v1", "v2"])), ["v1"]);
        assert!(unwanted(&definition(&["v2"])).is_empty());
        let unknown: CustomResourceDefinition = CustomResourceDefinition {
            status: None,
            ..definition(&[])
        };
        assert!(unwanted(&unknown).is_empty());
    }

    #[test]
    fn age_is_the_time_since_the_last_change_of_the_spec() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let definition = definition(&["v1"]);
        assert_eq!(
            age(&definition, at("2026-01-01T00:00:08Z")),
            Duration::from_secs(3)
        );
        assert_eq!(
            age(&definition, at("2025-01-01T00:00:00Z")),
            Duration::ZERO,
            "the clocks differ"
        );
        let unknown = CustomResourceDefinition::default();
        assert_eq!(age(&unknown, at("2026-01-01T00:00:08Z")), Duration::MAX);
    }
}
