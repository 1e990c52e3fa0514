//! clusterctl, with releases from a local folder, and the core manager of Cluster API.
//!
//! `hack/control-plane/ensure.sh` finds or builds the two programs. cert-manager is a stub: its
//! kinds are installed, and no certificate is ever issued.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::control_plane::{ControlPlane, ensure};
use super::manager::Manager;
use super::process::TemporaryFolder;
use super::repository::in_repository;
use super::webhooks::Webhooks;

/// The version of Cluster API in the tests.
pub const CLUSTER_API: &str = "v1.14.2";
/// The version of this provider in this tree.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// The value of the clusterctl provider label on the objects of this provider.
pub const PROVIDER: &str = "ipam-in-cluster";
/// The value of the same label on the objects of Cluster API.
pub const CORE: &str = "cluster-api";

/// Kinds of cert-manager, without a schema. With them clusterctl assumes that cert-manager is
/// installed.
const CERT_MANAGER: [(&str, &str); 2] = [("certificates", "Certificate"), ("issuers", "Issuer")];

/// A folder of releases, and a clusterctl configuration with only these releases.
pub struct Releases {
    folder: TemporaryFolder,
}

impl Releases {
    /// Writes Cluster API, and this provider as released from this tree.
    pub fn write() -> Self {
        let releases = Self {
            folder: TemporaryFolder::new("capi-ipam-releases-"),
        };
        let core = releases.folder.path().join(CORE).join(CLUSTER_API);
        let source = cluster_api_source();
        fs::create_dir_all(&core).expect("the folder can be created");
        fs::copy(source.join("metadata.yaml"), core.join("metadata.yaml"))
            .expect("the module has metadata");
        fs::write(core.join("core-components.yaml"), core_components(&source))
            .expect("a file can be written");
        releases.add(VERSION, &manifest("ipam-components.yaml"));
        let own = releases
            .folder
            .path()
            .join(format!("{PROVIDER}/{VERSION}/ipam-components.yaml"));
        let own = json!({ "name": "in-cluster", "type": "IPAMProvider", "url": own });
        releases.write_configuration(&releases.configuration(), &own);
        releases
    }

    fn write_configuration(&self, file: &Path, own: &Value) {
        let core = self
            .folder
            .path()
            .join(format!("{CORE}/{CLUSTER_API}/core-components.yaml"));
        let core = json!({ "name": "cluster-api", "type": "CoreProvider", "url": core });
        fs::write(file, json!({ "providers": [core, own] }).to_string())
            .expect("a file can be written");
    }

    /// A configuration with the provider of another configuration, and Cluster API. The default one
    /// when there is no other yet.
    ///
    /// # Panics
    /// When the other file is no configuration.
    pub fn with_core_beside(&self, other: &Path) -> PathBuf {
        let Ok(text) = fs::read_to_string(other) else {
            return self.configuration();
        };
        let other: Value = serde_saphyr::from_str(&text).expect("a configuration is YAML");
        let file = self.folder.path().join("beside.json");
        self.write_configuration(&file, &other["providers"][0]);
        file
    }

    /// Adds a release of this provider.
    pub fn add(&self, version: &str, components: &str) {
        let folder = self.folder.path().join(PROVIDER).join(version);
        fs::create_dir_all(&folder).expect("the folder can be created");
        fs::write(folder.join("ipam-components.yaml"), components).expect("a file can be written");
        fs::write(folder.join("metadata.yaml"), manifest("metadata.yaml"))
            .expect("a file can be written");
    }

    /// The configuration file of clusterctl.
    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("clusterctl.json")
    }

    /// The configuration folder of clusterctl.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Runs clusterctl against a control plane and returns its output, as an error when it fails.
    pub fn clusterctl(&self, plane: &ControlPlane, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(arguments);
        let output = command
            .env("KUBECONFIG", plane.kubeconfig())
            .output()
            .expect("clusterctl can be started");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() {
            Ok(text)
        } else {
            Err(format!("clusterctl {}: {text}", arguments.join(" ")))
        }
    }

    /// A clusterctl command without a kubeconfig.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(clusterctl());
        command
            .args(arguments)
            .arg("--config")
            .arg(self.configuration())
            // Its cache.
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command
    }

    /// Installs Cluster API and this provider in an empty control plane, and returns the output.
    ///
    /// # Panics
    /// When clusterctl fails.
    pub fn init(&self, plane: &ControlPlane) -> String {
        install_cert_manager_stub(plane);
        let core = format!("{CORE}:{CLUSTER_API}");
        let ipam = format!("in-cluster:{VERSION}");
        let flags = [
            "init",
            "--core",
            &core,
            "--bootstrap",
            "-",
            "--control-plane",
            "-",
            "--ipam",
            &ipam,
        ];
        self.clusterctl(plane, &flags)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Installs the kinds of cert-manager.
///
/// # Panics
/// When kubectl fails.
pub fn install_cert_manager_stub(plane: &ControlPlane) {
    CERT_MANAGER
        .iter()
        .for_each(|(plural, kind)| install_stub(plane, "cert-manager.io", "v1", plural, kind));
}

/// Installs the infrastructure kind that `Consumer::create_cluster` names.
/// Cluster API needs it to convert a Cluster to its old version.
///
/// # Panics
/// When kubectl fails.
pub fn install_infrastructure_stub(plane: &ControlPlane) {
    install_stub(
        plane,
        "infrastructure.cluster.x-k8s.io",
        "v1beta2",
        "anies",
        "Any",
    );
}

/// Installs a kind without a schema, for both versions of the Cluster API contract.
pub fn install_stub(plane: &ControlPlane, group: &str, version: &str, plural: &str, kind: &str) {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let name = format!("{plural}.{group}");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": name, "labels": {
            "cluster.x-k8s.io/v1beta1": version, "cluster.x-k8s.io/v1beta2": version,
        }},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind },
            "versions": [{ "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    });
    plane.kubectl_apply(&definition.to_string());
    plane.wait_until_served(&name);
}

/// Starts the core manager of Cluster API and configures the API server to call its webhooks:
/// admission and conversion of claims, addresses and Clusters.
pub fn start_core(plane: &ControlPlane) -> (Manager, Webhooks) {
    start_core_with(plane, &[])
}

/// Like [`start_core`], with further flags.
pub fn start_core_with(plane: &ControlPlane, flags: &[&str]) -> (Manager, Webhooks) {
    let webhooks = Webhooks::new(plane);
    let [port, certificate] = webhooks.flags();
    let probes = super::ports::free_port();
    let mut arguments = vec![
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        "--diagnostics-address=127.0.0.1:0".to_owned(),
        "--insecure-diagnostics=true".to_owned(),
        format!("--health-addr=127.0.0.1:{probes}"),
        port,
        certificate,
    ];
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    let program = programs().join("core");
    // It changes its CRDs when it starts.
    webhooks.redirect_installed(plane, CORE, true);
    let manager = Manager::other(plane, &program, &arguments, probes);
    manager.wait_until_ready();
    (manager, webhooks)
}

/// The content of a file in `manifests`.
pub fn manifest(name: &str) -> String {
    let file = in_repository("manifests").join(name);
    fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
}

/// The objects of a file with several documents.
///
/// # Panics
/// When it is not YAML.
pub fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n").map(|document| {
        let read = serde_saphyr::from_str::<Option<Value>>(document);
        read.unwrap_or_else(|error| panic!("this is not YAML: {error}\n{document}"))
    });
    documents.flatten().collect()
}

/// The path of clusterctl.
pub fn clusterctl() -> PathBuf {
    programs().join("clusterctl")
}

fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| PathBuf::from(ensure(&["cluster-api"])))
}

/// The folder of the Cluster API module.
fn cluster_api_source() -> PathBuf {
    let definitions = PathBuf::from(ensure(&["crds"]));
    definitions
        .ancestors()
        .nth(4)
        .expect("the CRDs are in core/config/crd/bases")
        .to_owned()
}

fn core_components(source: &Path) -> String {
    static RENDERED: OnceLock<String> = OnceLock::new();
    let render = || super::control_plane::kustomize(&source.join("core/config/default"));
    RENDERED.get_or_init(render).clone()
}
