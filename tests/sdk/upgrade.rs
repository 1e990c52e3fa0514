//! Upgrade steps.

use capi_ipam_controller::upgrade::{self, Step, StoredVersions, UpgradeError};
use kube::{Client, api::DynamicObject, core::ApiResource};
use support::prelude::*;

use crate::{
    control_plane,
    interrupt::{Kill, run_until_killed},
    patching::client,
    program::Program,
};

const OBJECTS: usize = 3;

/// The writes of a step: one for each object, and the status of the definition.
const WRITES: usize = OBJECTS + 1;

/// Applies the definition `<plural>.example.com` with these versions, of which `storage` is the
/// storage version.
pub(crate) fn define(plural: &str, versions: &[&str], storage: &str) -> Result<String, String> {
    define_kind(plural, plural, versions, storage, &json!({}))
}

/// Like [`define`], with another name of the kind, and with subresources.
pub(crate) fn define_kind(
    kind: &str,
    plural: &str,
    versions: &[&str],
    storage: &str,
    subresources: &Value,
) -> Result<String, String> {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": *name == storage, "subresources": subresources,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
        })
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": versions.iter().map(version).collect::<Vec<_>>()},
    });
    let file = control_plane().folder().join(format!("{plural}.json"));
    std::fs::write(&file, definition.to_string()).expect("the file can be written");
    control_plane().try_kubectl(&[
        "apply",
        "--server-side",
        "--filename",
        &file.display().to_string(),
    ])
}

/// A definition with objects that are stored in the version v1, while v2 is the storage version.
struct Outdated {
    plural: &'static str,
    client: Client,
}

impl Outdated {
    async fn new(plural: &'static str) -> Self {
        let outdated = Self {
            plural,
            client: client().await,
        };
        outdated.reset(true);
        for number in 0..OBJECTS {
            let thing = json!({"apiVersion": "example.com/v1", "kind": plural,
                "metadata": {"name": format!("thing-{number}")}, "spec": {"number": number}});
            outdated
                .objects("v1")
                .create(&object(thing))
                .await
                .expect("it can be created");
        }
        outdated.reset(false);
        outdated
    }

    /// Makes v1 or v2 the storage version.
    fn reset(&self, old: bool) {
        define(self.plural, &["v1", "v2"], if old { "v1" } else { "v2" })
            .expect("it can be applied");
        control_plane().wait_until_served(&format!("{}.example.com", self.plural));
    }

    fn objects(&self, version: &str) -> ResourceClient<DynamicObject> {
        let resource = ApiResource {
            group: "example.com".to_owned(),
            version: version.to_owned(),
            api_version: format!("example.com/{version}"),
            kind: self.plural.to_owned(),
            plural: self.plural.to_owned(),
        };
        ResourceClient::new(
            Api::default_namespaced_with(self.client.clone(), &resource),
            &resource,
        )
    }

    fn step(&self, client: Client) -> StoredVersions {
        let mut step = StoredVersions::new(client, format!("{}.example.com", self.plural));
        step.propagation_delay = Duration::ZERO;
        step
    }

    fn stored_versions(&self) -> String {
        let name = format!("{}.example.com", self.plural);
        control_plane().kubectl(&[
            "get",
            "crd",
            &name,
            "--output=jsonpath={.status.storedVersions}",
        ])
    }

    /// Asserts that the old version can be removed, which the API server permits only if
    /// `storedVersions` does not contain it, and that all objects can be read then.
    async fn assert_old_version_can_be_removed(&self, specs: &[(Option<i64>, Value)]) {
        define(self.plural, &["v2"], "v2").expect("the old version can be removed");
        control_plane().wait_until_served(&format!("{}.example.com", self.plural));
        assert_eq!(self.specs().await, specs, "no spec changes");
    }

    /// Generation and spec of all objects.
    async fn specs(&self) -> Vec<(Option<i64>, Value)> {
        let all = self
            .objects("v2")
            .list()
            .await
            .expect("the objects can be read");
        all.iter()
            .map(|object| (object.metadata.generation, object.data["spec"].clone()))
            .collect()
    }
}

#[tokio::test]
async fn old_version_can_be_removed_after_the_step() {
    let outdated = Outdated::new("gears").await;
    assert_eq!(outdated.stored_versions(), r#"["v1","v2"]"#);
    assert!(
        define("gears", &["v2"], "v2").is_err(),
        "the API server refuses it"
    );
    outdated.reset(false);
    let specs = outdated.specs().await;
    assert_eq!(specs.len(), OBJECTS);
    let program = Program::start(async move |manager| {
        let mut step = StoredVersions::new(manager.client.clone(), "gears.example.com");
        step.propagation_delay = Duration::ZERO;
        manager.upgrade(&step).await?;
        Ok(())
    });
    program.stop();
    assert_eq!(outdated.stored_versions(), r#"["v2"]"#);
    let (needed, writes) = run_until_killed(&outdated.client, None, async |client| {
        outdated
            .step(client)
            .is_needed()
            .await
            .expect("the definition can be read")
    })
    .await;
    assert_eq!((needed, writes), (Some(false), 0));
    outdated.assert_old_version_can_be_removed(&specs).await;
}

#[tokio::test]
async fn step_killed_at_any_write_is_completed_by_the_next_start() {
    let outdated = Outdated::new("wheels").await;
    for kill in Kill::at_each_of(WRITES) {
        outdated.reset(true);
        for number in 0..OBJECTS {
            let all = outdated.objects("v1");
            let name = format!("thing-{number}");
            let mut thing = read(&all, &name).await;
            thing
                .annotations_mut()
                .insert("example.com/kill".to_owned(), format!("{kill:?}"));
            all.replace(&thing).await.expect("it can be written");
        }
        outdated.reset(false);
        let specs = outdated.specs().await;
        let run = async |client| upgrade::run(&outdated.step(client)).await;
        let (result, _) = run_until_killed(&outdated.client, Some(kill), run).await;
        assert!(result.is_none(), "{kill:?}");
        let finished = kill == Kill::After(WRITES - 1);
        assert_eq!(
            outdated.stored_versions() == r#"["v2"]"#,
            finished,
            "{kill:?}"
        );
        let (result, writes) = run_until_killed(&outdated.client, None, run).await;
        result
            .expect("it is not killed")
            .expect("the step succeeds");
        assert_eq!(writes, if finished { 0 } else { WRITES }, "{kill:?}");
        assert_eq!(outdated.stored_versions(), r#"["v2"]"#, "{kill:?}");
        outdated.assert_old_version_can_be_removed(&specs).await;
    }
}

#[tokio::test]
async fn upgrade_after_controllers_is_an_error() {
    let (sender, error) = std::sync::mpsc::channel();
    let program = Program::start(async move |manager| {
        manager.add("controller of gears", std::future::pending());
        let step = StoredVersions::new(manager.client.clone(), "gears.example.com");
        let error = manager.upgrade(&step).await.expect_err("it is late");
        sender.send(error).expect("the test waits");
        Ok(())
    });
    let error = error.recv().expect("the setup sends it");
    assert!(matches!(error, UpgradeError::Late { .. }));
    let text = "upgrade step stored-versions of gears.example.com must run before controller of gears is added to the \
                manager";
    assert_eq!(error.to_string(), text);
    drop(program);
}

#[tokio::test]
async fn definition_that_does_not_exist_needs_no_step() {
    let step = StoredVersions::new(client().await, "nothing.example.com");
    assert!(!step.is_needed().await.expect("the definition can be read"));
}
