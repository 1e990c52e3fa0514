//! The objects installed in a control plane: CRDs, and the service account of the provider.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{ACCOUNT, ControlPlane, NAMESPACE, ensure};

/// The CRDs of Cluster API that the product uses.
const CLUSTER_API_CRDS: [&str; 3] = [
    "cluster.x-k8s.io_clusters.yaml",
    "ipam.cluster.x-k8s.io_ipaddressclaims.yaml",
    "ipam.cluster.x-k8s.io_ipaddresses.yaml",
];

impl ControlPlane {
    pub(super) fn install_crds(&self) {
        let cluster_api = PathBuf::from(ensure(&["crds"]));
        let crds = CLUSTER_API_CRDS.iter().map(|name| cluster_api.join(name)).chain(own_crds());
        let files: Vec<_> = crds.map(|crd| format!("--filename={}", crd.display())).collect();
        let files = files.iter().map(String::as_str);
        let apply: Vec<_> = ["apply", "--server-side"].into_iter().chain(files.clone()).collect();
        self.kubectl(&apply);
        let wait: Vec<_> = ["wait", "--for=condition=Established", "--timeout=60s"].into_iter().chain(files).collect();
        self.kubectl_until_done(&wait);
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

    pub(super) fn install_account(&mut self) {
        for part in ["namespace", "rbac"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(part);
            self.kubectl(&["apply", "--server-side", "--kustomize", &folder.display().to_string()]);
        }
        self.provider_kubeconfig = self.kubeconfig_of_account(NAMESPACE, ACCOUNT);
    }

    /// Removes the validation rules and limits from the CRDs of pools, as in releases without rules.
    ///
    /// # Panics
    /// When the CRDs cannot be read or applied.
    pub fn drop_rules(&self) {
        for file in own_crds() {
            let text = fs::read_to_string(&file).expect("the definitions can be read");
            for document in text.split("\n---\n").filter(|document| document.contains("kind: CustomResourceDefinition"))
            {
                let mut definition: Value = serde_saphyr::from_str(document).expect("the definitions are YAML");
                if definition["spec"]["names"]["kind"].as_str().is_some_and(|kind| kind.ends_with("Pool")) {
                    without_rules(&mut definition["spec"]["versions"]);
                    self.kubectl_with_input(&["replace", "--filename=-"], &definition.to_string())
                        .unwrap_or_else(|error| panic!("{error}"));
                }
            }
        }
    }
}

/// The files in `config/crd` and `config/crd/bases` that contain CRDs, without the kustomizations.
fn own_crds() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crd");
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
