//! The commands and objects in README.md and docs, run unchanged: installation, takeover, upgrade
//! and uninstallation; pools, claims and reservations.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use support::{
    clusterctl::{
        CLUSTER_API, CORE, Releases, VERSION, clusterctl, documents, install_cert_manager_stub,
        install_stub, manifest,
    },
    prelude::*,
};

use crate::{installed, markdown::blocks};

/// The clusterctl configuration that `make release` writes.
const CONFIGURATION: &str = "target/release-files/clusterctl.yaml";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The shell commands in a section of a page, block by block.
fn commands<const N: usize>(page: &str, heading: &str) -> [String; N] {
    let found = blocks(page, Some(heading), "sh");
    found.try_into().unwrap_or_else(|found: Vec<_>| {
        panic!("{page}, {heading}: {N} blocks expected: {found:#?}")
    })
}

/// The page on installing.
const INSTALL: &str = "docs/install.md";
/// The page on upgrading and uninstalling.
const UPGRADE: &str = "docs/upgrade-and-move.md";

/// An operator with a shell, kubectl, clusterctl, and a cluster that has Cluster API without a
/// running core manager.
struct Operator {
    plane: ControlPlane,
    releases: Releases,
    programs: PathBuf,
}

impl Operator {
    /// Installs Cluster API and, if there is one, a release of this provider.
    fn start(release: Option<(&str, &str)>) -> Self {
        let plane = ControlPlane::start(Options {
            bare: true,
            controller_manager: true,
            ..Options::default()
        });
        let programs = plane.folder().join("bin");
        fs::create_dir(&programs).expect("a folder can be created");
        symlink(plane.kubectl_program(), programs.join("kubectl")).expect("a link can be created");
        symlink(clusterctl(), programs.join("clusterctl")).expect("a link can be created");
        install_cert_manager_stub(&plane);
        let releases = Releases::write();
        let core = format!("{CORE}:{CLUSTER_API}");
        let mut flags = vec![
            "init",
            "--core",
            &core,
            "--bootstrap",
            "-",
            "--control-plane",
            "-",
        ];
        let ipam = release.map(|(version, _)| format!("in-cluster:{version}"));
        if let Some((version, components)) = release {
            releases.add(version, components);
            flags.extend(["--ipam", ipam.as_deref().unwrap_or_default()]);
        }
        releases
            .clusterctl(&plane, &flags)
            .unwrap_or_else(|error| panic!("{error}"));
        let selector = format!("--selector=cluster.x-k8s.io/provider={CORE}");
        for kind in [
            "validatingwebhookconfiguration",
            "mutatingwebhookconfiguration",
        ] {
            plane.kubectl(&["delete", kind, &selector]);
        }
        Self {
            plane,
            releases,
            programs,
        }
    }

    /// Runs a block of commands in the root of the repository.
    ///
    /// clusterctl reads the releases of Cluster API from this machine.
    fn run(&self, block: &str) {
        let configuration = self.releases.with_core_beside(&root().join(CONFIGURATION));
        let block = &block.replace(CONFIGURATION, &configuration.display().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", block])
            .current_dir(root())
            .env("PATH", format!("{}:{path}", self.programs.display()))
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("XDG_CONFIG_HOME", self.releases.home())
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .output()
            .expect("bash can be started");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{block}\n{text}");
    }

    fn version(&self) -> String {
        let what = [
            "--namespace",
            NAMESPACE,
            "get",
            "provider",
            "ipam-in-cluster",
            "--output=jsonpath={.version}",
        ];
        self.plane.kubectl(&what)
    }
}

async fn assert_pool_allocates(consumer: &Consumer, pool: &str, claim: &str) {
    consumer.create_pool(pool, "10.0.0.10-10.0.0.19").await;
    consumer.bind_to(claim, pool, "10.0.0.10").await;
}

/// The components of this tree, with `version` as their version.
fn earlier(version: &str) -> String {
    manifest("ipam-components.yaml").replace(VERSION, version)
}

#[tokio::test(flavor = "multi_thread")]
async fn clusterctl_installs_upgrades_and_uninstalls() {
    let [install] = &commands(INSTALL, "clusterctl");
    assert_eq!(
        &commands::<1>("README.md", "Installation"),
        std::array::from_ref(install)
    );
    let [upgrade, _] = &commands(UPGRADE, "Upgrade");
    let [uninstall, ..] = &commands::<4>(UPGRADE, "Uninstallation");
    let before = "v2.0.0-alpha.0";
    let operator = Operator::start(Some((before, &earlier(before))));
    let consumer = Consumer::new(&operator.plane).await;
    {
        let _running = installed::start(&operator.plane, &[]);
        assert_pool_allocates(&consumer, "web", "a").await;
    }
    Webhooks::restore_services(&operator.plane);
    assert_eq!(operator.version(), before);
    operator.run("make release");
    operator.run(upgrade);
    assert_eq!(operator.version(), VERSION);
    let address = consumer.the_address("a").await;
    {
        let (running, _webhooks) = installed::start(&operator.plane, &[]);
        // Its roles are deleted before the manager.
        let _running = running.may_lack_permissions();
        consumer.bind_to("b", "web", "10.0.0.11").await;
        let now = consumer
            .addresses()
            .get("a")
            .await
            .expect("addresses can be read");
        assert_eq!(now.as_ref(), Some(&address), "it is not even written");
        for name in ["a", "b"] {
            consumer.release(name).await;
        }
        operator.run(uninstall);
        operator.wait_until_uninstalled().await;
    }
    // And a new installation.
    operator.run(install);
    let _running = installed::start(&operator.plane, &[]);
    assert_pool_allocates(&Consumer::new(&operator.plane).await, "web", "a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_installs_upgrades_and_uninstalls() {
    let [install] = &commands(INSTALL, "kubectl");
    let [_, upgrade] = &commands(UPGRADE, "Upgrade");
    let [_, uninstall, ..] = &commands::<4>(UPGRADE, "Uninstallation");
    let [stored_versions] = &commands(UPGRADE, "Stored versions");
    let operator = Operator::start(None);
    operator.run(install);
    // GitOps tools apply the files repeatedly.
    let version = || {
        operator.plane.kubectl(&[
            "get",
            "deployments",
            "-A",
            "--output=jsonpath={.items[*].metadata.generation}",
        ])
    };
    let before = version();
    operator.run(upgrade);
    assert_eq!(version(), before);
    let (running, _webhooks) = installed::start(&operator.plane, &[]);
    let _running = running.may_lack_permissions();
    operator.run(stored_versions);
    let consumer = Consumer::new(&operator.plane).await;
    assert_pool_allocates(&consumer, "web", "a").await;
    consumer.release("a").await;
    consumer.delete_unused_pool(&consumer.pools(), "web").await;
    operator.run(uninstall);
    operator.wait_until_uninstalled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_works_without_cert_manager() {
    let [install] = &commands(INSTALL, "Installation without cert-manager");
    let [_, _, uninstall, _] = &commands(UPGRADE, "Uninstallation");
    let operator = Operator::start(None);
    operator.run(install);
    let (running, _webhooks) = installed::start_self_managed(&operator.plane);
    // Its roles are deleted before the manager.
    let _running = running.may_lack_permissions();
    let consumer = Consumer::new(&operator.plane).await;
    assert_pool_allocates(&consumer, "web", "a").await;
    consumer.release("a").await;
    consumer.delete_unused_pool(&consumer.pools(), "web").await;
    operator.run(uninstall);
    operator.wait_until_uninstalled().await;
}

impl Operator {
    /// Waits until no object of the provider exists.
    async fn wait_until_uninstalled(&self) {
        eventually_within(Duration::from_mins(2), "no object of the provider exists", || async {
            let kinds =
                "customresourcedefinitions,clusterroles,clusterrolebindings,validatingwebhookconfigurations,namespaces";
            let selector = "--selector=cluster.x-k8s.io/provider=ipam-in-cluster";
            let left = self.plane.kubectl(&["get", kinds, selector, "--output=name"]);
            left.is_empty().then_some(())
        })
        .await;
    }
}

/// The components of the Go provider: other objects with the same names, no reservations.
fn go_provider_components() -> String {
    let mut objects = documents(&manifest("install.yaml").replace(VERSION, "v1.1.0"));
    objects.retain(|object| object["metadata"]["name"] != "ipreservations.ipam.cluster.x-k8s.io");
    for object in &mut objects {
        match object["kind"].as_str() {
            Some("Deployment") => {
                object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] =
                    json!("500m");
            }
            Some("ValidatingWebhookConfiguration") => {
                object["webhooks"][0]["name"] = json!("validation.of-old.ipam.cluster.x-k8s.io");
            }
            _ => {}
        }
    }
    objects.push(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {
            "name": "capi-ipam-in-cluster-mutating-webhook-configuration",
            "labels": {"cluster.x-k8s.io/provider": "ipam-in-cluster"},
        },
        "webhooks": [{
            "name": "default.inclusterippool.ipam.cluster.x-k8s.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {
                "namespace": NAMESPACE, "name": "capi-ipam-in-cluster-webhook-service",
                "path": "/mutate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool"}},
            "rules": [{"apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["v1alpha2"], "operations": ["CREATE"],
                       "resources": ["inclusterippools"]}],
        }],
    }));
    objects
        .iter()
        .map(Value::to_string)
        .collect::<Vec<_>>()
        .join("\n---\n")
}

/// Binds a claim as the Go provider does.
async fn bind_with_the_go_provider(operator: &Operator, consumer: &Consumer) {
    let selector = "--selector=cluster.x-k8s.io/provider=ipam-in-cluster";
    for kind in [
        "validatingwebhookconfiguration",
        "mutatingwebhookconfiguration",
    ] {
        // They would call the Go provider.
        operator.plane.kubectl(&[
            "patch",
            kind,
            "--type=json",
            "--patch",
            r#"[{"op": "remove", "path": "/webhooks"}]"#,
            &operator.plane.kubectl(&[
                "get",
                kind,
                selector,
                "--output=jsonpath={.items[0].metadata.name}",
            ]),
        ]);
    }
    let pool = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
        "metadata": {"name": "web", "namespace": consumer.namespace},
        "spec": {"addresses": ["10.0.0.10-10.0.0.19"], "prefix": 24},
    }));
    let pool = eventually("no webhook is called", || async {
        consumer.pools().create(&pool).await.ok()
    })
    .await;
    let finalizers = |name: &str| json!([format!("ipam.cluster.x-k8s.io/{name}")]);
    let claim = consumer
        .create_claim_with_metadata(
            "a",
            "web",
            json!({"finalizers": finalizers("ReleaseAddress")}),
        )
        .await;
    let owner = |kind: &str, name: &str, version: &str, uid: Option<String>, controller: bool| {
        json!({"apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": kind, "name": name, "uid": uid,
               "controller": controller, "blockOwnerDeletion": true})
    };
    let address: Value = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "a", "namespace": consumer.namespace, "finalizers": finalizers("ProtectAddress"),
            "ownerReferences": [owner("IPAddressClaim", "a", "v1beta2", claim.uid(), true),
                                owner("InClusterIPPool", "web", "v1alpha2", pool.uid(), false)]},
        "spec": {"claimRef": {"name": "a"}, "address": "10.0.0.15", "prefix": 24,
                 "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"}},
    });
    consumer
        .addresses()
        .create(&object(address))
        .await
        .expect("it can be created");
    let namespace = format!("--namespace={}", consumer.namespace);
    let bound = r#"{"status": {"addressRef": {"name": "a"}}}"#;
    operator.plane.kubectl(&[
        "patch",
        "ipaddressclaim",
        "a",
        &namespace,
        "--subresource=status",
        "--type=merge",
        "--patch",
        bound,
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_replace_the_go_provider() {
    for take_over in &commands::<2>("docs/take-over.md", "Replacing the Go provider") {
        let operator = Operator::start(Some(("v1.1.0", &go_provider_components())));
        let consumer = Consumer::new(&operator.plane).await;
        bind_with_the_go_provider(&operator, &consumer).await;
        let before = consumer
            .claims()
            .get("a")
            .await
            .expect("claims can be read");
        operator.run("make release");
        operator.run(take_over);
        let container =
            &installed::deployment(&operator.plane)["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], format!("localhost/capi-ipam:{VERSION}"));
        assert!(
            container["resources"]["limits"].get("cpu").is_none(),
            "{container}"
        );
        let webhooks =
            operator
                .plane
                .kubectl(&["get", "validatingwebhookconfigurations", "--output=yaml"]);
        assert!(!webhooks.contains("of-old"), "{webhooks}");
        assert_eq!(
            operator
                .plane
                .kubectl(&["get", "mutatingwebhookconfigurations", "--output=name"]),
            ""
        );
        let _running = installed::start(&operator.plane, &[]);
        eventually("the address is reserved", || async {
            consumer.reservation("web", "10.0.0.15").await
        })
        .await;
        assert_eq!(
            consumer
                .claims()
                .get("a")
                .await
                .expect("claims can be read"),
            before,
            "it sees no change"
        );
        consumer.bind_to("b", "web", "10.0.0.10").await;
    }
}

/// README.md and all pages of docs, except for the guides for authors: the packages of their examples
/// test them.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("docs can be read");
    let paths = entries.map(|entry| entry.expect("docs can be read").path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let names = pages.filter_map(|path| Some(format!("docs/{}", path.file_name()?.to_str()?)));
    let is_guide =
        |page: &String| page == "docs/write-a-provider.md" || page == "docs/write-a-controller.md";
    let names = names.filter(|page| !is_guide(page));
    names.chain(["README.md".to_owned()]).collect()
}

#[test]
fn documented_objects_are_accepted_and_become_ready() {
    let text = |object: &Value, pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let objects: Vec<Value> = pages()
        .iter()
        .flat_map(|page| blocks(page, None, "yaml"))
        .flat_map(|block| documents(&block))
        .collect();
    // An excerpt of a configuration file has no kind; a kustomization is no object.
    let objects = objects
        .into_iter()
        .filter(|object| !["", "Kustomization"].contains(&text(object, "/kind").as_str()));
    // A quota without a status admits nothing.
    let (quotas, objects): (Vec<_>, Vec<_>) =
        objects.partition(|object| object["kind"] == "ResourceQuota");
    let plane = ControlPlane::new();
    install_stub(
        &plane,
        "addons.cluster.x-k8s.io",
        "v1beta2",
        "clusterresourcesets",
        "ClusterResourceSet",
    );
    let _manager = Manager::start(&plane, &[]);
    objects
        .iter()
        .for_each(|object| drop(plane.kubectl_apply(&object.to_string())));
    let mut pools = 0;
    let is_ours = |object: &&Value| {
        // There is no server of the registries here. Addresses of Clusters have a test of their
        // documentation.
        let becomes_ready = ![
            "IPRegistry",
            "IPReservation",
            "IPSlice",
            "ClusterAddressing",
        ]
        .contains(&text(object, "/kind").as_str());
        text(object, "/apiVersion").starts_with("ipam.cluster.x-k8s.io/") && becomes_ready
    };
    for object in objects.iter().filter(is_ours) {
        let name = format!(
            "{}/{}",
            text(object, "/kind"),
            text(object, "/metadata/name")
        );
        plane.kubectl(&[
            "wait",
            "--namespace=default",
            "--timeout=120s",
            "--for=condition=Ready",
            &name,
        ]);
        pools += usize::from(text(object, "/kind").ends_with("Pool"));
    }
    assert!(pools >= 5, "the pages show pools");
    quotas
        .iter()
        .for_each(|quota| drop(plane.kubectl_apply(&quota.to_string())));
}
