//! clusterctl, with releases from a folder of this machine, and Cluster API's own manager.
//!
//! `hack/control-plane/ensure.sh` finds or builds the two programs. cert-manager is a stand-in: its kinds are there, and
//! no certificate is ever made.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{json, Value};

use super::control_plane::{ControlPlane, ensure};
use super::manager::Manager;
use super::process::TemporaryFolder;
use super::webhooks::Webhooks;

/// The version of Cluster API that is there.
pub const CLUSTER_API: &str = "v1.14.2";
/// The version of this provider that is released from this tree.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// The value of the label that clusterctl tells our objects from others by.
pub const PROVIDER: &str = "ipam-in-cluster";
/// The same of Cluster API's own.
pub const CORE: &str = "cluster-api";

/// Kinds of cert-manager, without a schema. clusterctl takes it for installed by somebody else.
const CERT_MANAGER: [(&str, &str); 2] = [("certificates", "Certificate"), ("issuers", "Issuer")];

/// A folder of releases, and a configuration of clusterctl that knows of no others.
pub struct Releases {
    folder: TemporaryFolder,
}

impl Releases {
    /// Cluster API, and this provider as it is released from this tree.
    pub fn new() -> Self {
        let releases = Self { folder: TemporaryFolder::new("capi-ipam-releases-") };
        let core = releases.folder.path().join(CORE).join(CLUSTER_API);
        let source = cluster_api_source();
        fs::create_dir_all(&core).expect("a folder can be made");
        fs::copy(source.join("metadata.yaml"), core.join("metadata.yaml")).expect("the module has metadata");
        fs::write(core.join("core-components.yaml"), core_components(&source)).expect("a file can be written");
        releases.add(VERSION, &manifest("ipam-components.yaml"));
        let own = releases.folder.path().join(format!("{PROVIDER}/{VERSION}/ipam-components.yaml"));
        let own = json!({ "name": "in-cluster", "type": "IPAMProvider", "url": own });
        releases.write_configuration(&releases.configuration(), &own);
        releases
    }

    fn write_configuration(&self, file: &Path, own: &Value) {
        let core = self.folder.path().join(format!("{CORE}/{CLUSTER_API}/core-components.yaml"));
        let core = json!({ "name": "cluster-api", "type": "CoreProvider", "url": core });
        fs::write(file, json!({ "providers": [core, own] }).to_string()).expect("a file can be written");
    }

    /// A configuration with the one provider of another, and Cluster API. The same again when there is no other yet.
    ///
    /// # Panics
    /// When the other is no configuration.
    pub fn with_core_beside(&self, other: &Path) -> PathBuf {
        let Ok(text) = fs::read_to_string(other) else { return self.configuration() };
        let other: Value = serde_saphyr::from_str(&text).expect("a configuration is YAML");
        let file = self.folder.path().join("beside.json");
        self.write_configuration(&file, &other["providers"][0]);
        file
    }

    /// Adds a release of this provider.
    pub fn add(&self, version: &str, components: &str) {
        let folder = self.folder.path().join(PROVIDER).join(version);
        fs::create_dir_all(&folder).expect("a folder can be made");
        fs::write(folder.join("ipam-components.yaml"), components).expect("a file can be written");
        fs::write(folder.join("metadata.yaml"), manifest("metadata.yaml")).expect("a file can be written");
    }

    /// The file that tells clusterctl where releases are.
    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("clusterctl.json")
    }

    /// Where clusterctl keeps what it has learned.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// Runs clusterctl against a control plane; what it printed, or what it says is wrong.
    pub fn clusterctl(&self, plane: &ControlPlane, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(arguments);
        let output = command.env("KUBECONFIG", plane.kubeconfig()).output().expect("clusterctl can be started");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("clusterctl {}: {said}", arguments.join(" "))) }
    }

    /// clusterctl, yet to be told which cluster.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(clusterctl());
        command
            .args(arguments)
            .arg("--config")
            .arg(self.configuration())
            // It keeps what it has learned there.
            .env("XDG_CONFIG_HOME", self.folder.path())
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        command
    }

    /// Installs Cluster API and this provider in an empty control plane.
    ///
    /// # Panics
    /// When clusterctl fails.
    pub fn init(&self, plane: &ControlPlane) -> String {
        stand_in_for_cert_manager(plane);
        let core = format!("{CORE}:{CLUSTER_API}");
        let ipam = format!("in-cluster:{VERSION}");
        let flags = ["init", "--core", &core, "--bootstrap", "-", "--control-plane", "-", "--ipam", &ipam];
        self.clusterctl(plane, &flags).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Makes the kinds of cert-manager.
///
/// # Panics
/// When kubectl fails.
pub fn stand_in_for_cert_manager(plane: &ControlPlane) {
    CERT_MANAGER.iter().for_each(|(plural, kind)| stand_in(plane, "cert-manager.io", "v1", plural, kind));
}

/// Makes the kind of infrastructure that [`super::consumer::Consumer::cluster`] names: without it Cluster API cannot read
/// a Cluster in its old version.
///
/// # Panics
/// When kubectl fails.
pub fn stand_in_for_infrastructure(plane: &ControlPlane) {
    stand_in(plane, "infrastructure.cluster.x-k8s.io", "v1beta2", "anies", "Any");
}

/// Makes a kind without a schema, for both versions of Cluster API's contract.
fn stand_in(plane: &ControlPlane, group: &str, version: &str, plural: &str, kind: &str) {
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

/// Starts Cluster API's own manager and has the API server ask its webhooks: the admission and the conversion of claims,
/// addresses and Clusters.
pub fn start_core(plane: &ControlPlane) -> (Manager, Webhooks) {
    let webhooks = Webhooks::new(plane);
    let [port, certificate] = webhooks.flags();
    let probes = super::ports::free_port();
    let arguments = [
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        "--diagnostics-address=127.0.0.1:0".to_owned(),
        "--insecure-diagnostics=true".to_owned(),
        format!("--health-addr=127.0.0.1:{probes}"),
        port,
        certificate,
    ];
    let program = programs().join("core");
    // It changes its definitions when it starts.
    webhooks.wire_installed(plane, CORE, true);
    let manager = Manager::other(plane, &program, &arguments, probes);
    manager.wait_until_ready();
    (manager, webhooks)
}

/// One of the files in `manifests`.
pub fn manifest(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(name);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
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

/// The program clusterctl.
pub fn clusterctl() -> PathBuf {
    programs().join("clusterctl")
}

fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| PathBuf::from(ensure(&["cluster-api"])))
}

/// The folder of Cluster API's module.
fn cluster_api_source() -> PathBuf {
    let definitions = PathBuf::from(ensure(&["crds"]));
    definitions.ancestors().nth(4).expect("they lie in core/config/crd/bases").to_owned()
}

fn core_components(source: &Path) -> String {
    static RENDERED: OnceLock<String> = OnceLock::new();
    let render = || super::control_plane::kustomize(&source.join("core/config/default"));
    RENDERED.get_or_init(render).clone()
}
