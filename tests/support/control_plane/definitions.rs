//! The objects installed in a control plane: CRDs, and the service account of the provider.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::process::TemporaryFolder;
use super::{ControlPlane, Options, ensure};

/// The CRDs of Cluster API that the product uses.
const CLUSTER_API_CRDS: [&str; 3] = [
    "cluster.x-k8s.io_clusters.yaml",
    "ipam.cluster.x-k8s.io_ipaddressclaims.yaml",
    "ipam.cluster.x-k8s.io_ipaddresses.yaml",
];

/// The folders of `config` that are installed beside the CRDs.
const INSTALLED: [&str; 2] = ["namespace", "rbac"];

/// The media type of the list of all kinds that the API server serves.
const ALL_KINDS: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A served kind that has a CRD.
struct ServedKind {
    /// Such as `/apis/ipam.cluster.x-k8s.io/v1beta2/ipaddresses`.
    path: String,
    plural: String,
}

impl ControlPlane {
    /// Starts a control plane and installs what [`ControlPlane::start`] promises.
    pub(super) fn install(options: Options) -> Self {
        let plane = Self::launch(options, TemporaryFolder::new("capi-ipam-control-plane-"));
        let files: Vec<_> = crds().iter().map(|crd| format!("--filename={}", crd.display())).collect();
        let files = files.iter().map(String::as_str);
        let apply: Vec<_> = ["apply", "--server-side"].into_iter().chain(files.clone()).collect();
        plane.kubectl(&apply);
        let wait: Vec<_> = ["wait", "--for=condition=Established", "--timeout=60s"].into_iter().chain(files).collect();
        plane.kubectl_until_done(&wait);
        for folder in INSTALLED.map(config) {
            plane.kubectl(&["apply", "--server-side", "--kustomize", &folder.display().to_string()]);
        }
        plane
    }

    /// Waits until the API server serves all kinds of the installed CRDs. After a start it takes a moment.
    pub(super) fn wait_for_kinds(&self) {
        let is_served = || {
            let listed = self.endpoint().get("/apis", ALL_KINDS)?;
            for kind in installed_kinds() {
                self.endpoint().get(&format!("{}?limit=1", kind.path), "application/json")?;
                if !listed.contains(&format!("\"resource\":\"{}\"", kind.plural)) {
                    return Err(format!("{} is not listed: {listed}", kind.plural));
                }
            }
            Ok(())
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        while let Err(error) = is_served() {
            assert!(Instant::now() < deadline, "{error}");
            sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the API server serves the kind of a CRD, for example `machines.cluster.x-k8s.io`. It does so shortly
    /// after it reports the CRD as established.
    ///
    /// # Panics
    /// When it is not served within a minute.
    pub fn wait_until_served(&self, definition: &str) {
        let established = "--for=condition=Established";
        self.kubectl_until_done(&["wait", established, "--timeout=60s", &format!("crd/{definition}")]);
        self.kubectl_until_done(&["get", definition, "--all-namespaces"]);
    }

    /// Runs kubectl until it succeeds. A single `kubectl wait` is not enough for a CRD: it fails for one without
    /// conditions.
    fn kubectl_until_done(&self, arguments: &[&str]) {
        let deadline = Instant::now() + Duration::from_mins(1);
        while let Err(error) = self.try_kubectl(arguments) {
            assert!(Instant::now() < deadline, "{error}");
            sleep(Duration::from_millis(50));
        }
    }

    /// Removes the validation rules and limits from the CRDs of pools, as in releases without rules.
    ///
    /// # Panics
    /// When the CRDs cannot be read or applied.
    pub fn drop_rules(&self) {
        for file in own_crds() {
            for mut definition in definitions_in(&file) {
                if definition["spec"]["names"]["kind"].as_str().is_some_and(|kind| kind.ends_with("Pool")) {
                    without_rules(&mut definition["spec"]["versions"]);
                    self.kubectl_with_input(&["replace", "--filename=-"], &definition.to_string())
                        .unwrap_or_else(|error| panic!("{error}"));
                }
            }
        }
    }
}

/// The files that [`ControlPlane::install`] applies.
pub(super) fn installed_files() -> Vec<PathBuf> {
    let entries = INSTALLED.iter().flat_map(|folder| fs::read_dir(config(folder)).expect("config can be read"));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("config can be read").path()).collect();
    files.sort();
    files.extend_from_slice(crds());
    files
}

/// A folder of `config`.
fn config(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(folder)
}

/// The files with the installed CRDs.
fn crds() -> &'static [PathBuf] {
    static CRDS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    CRDS.get_or_init(|| {
        let cluster_api = PathBuf::from(ensure(&["crds"]));
        CLUSTER_API_CRDS.iter().map(|name| cluster_api.join(name)).chain(own_crds()).collect()
    })
}

/// The kinds of the installed CRDs.
fn installed_kinds() -> &'static [ServedKind] {
    static KINDS: OnceLock<Vec<ServedKind>> = OnceLock::new();
    KINDS.get_or_init(|| crds().iter().flat_map(|file| kinds_in(file)).collect())
}

/// The CRDs in a file.
fn definitions_in(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("the definitions can be read");
    let documents = text.split("\n---\n").filter(|document| document.contains("kind: CustomResourceDefinition"));
    documents.map(|document| serde_saphyr::from_str(document).expect("the definitions are YAML")).collect()
}

/// The kinds that the API server serves for the CRDs in a file.
fn kinds_in(file: &Path) -> Vec<ServedKind> {
    let kinds = |definition: &Value| {
        let text = |value: &Value| value.as_str().expect("the definition is valid").to_owned();
        let (group, plural) = (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["plural"]));
        let versions = definition["spec"]["versions"].as_array().expect("the definition has versions").iter();
        let served = versions.filter(|version| version["served"] == true).map(|version| text(&version["name"]));
        served
            .map(|version| ServedKind { path: format!("/apis/{group}/{version}/{plural}"), plural: plural.clone() })
            .collect::<Vec<_>>()
    };
    definitions_in(file).iter().flat_map(kinds).collect()
}

/// The files in `config/crd` and `config/crd/bases` that contain CRDs, without the kustomizations.
fn own_crds() -> Vec<PathBuf> {
    let folder = config("crd");
    let entries = [folder.join("bases"), folder].into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.expect("config/crd can be read").path()).collect();
    files.retain(|file| {
        file.extension().is_some_and(|extension| extension == "yaml")
            && fs::read_to_string(file)
                .is_ok_and(|text| text.lines().any(|line| line == "kind: CustomResourceDefinition"))
    });
    files.sort();
    files
}

/// Removes everything but types from schemas.
fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for rule in ["x-kubernetes-validations", "maxItems", "minItems", "maxLength", "minLength", "pattern"] {
                fields.remove(rule);
            }
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}
