//! A control plane with the CRDs of this product, and the service account of the provider with the
//! roles of `config/rbac`.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::OnceLock;

use capi_ipam_api::names::IN_CLUSTER_LEASE;
use capi_ipam_testing::control_plane as generic;
pub use capi_ipam_testing::control_plane::{
    AccessRequest, Options, ProviderRequest, RequestKey, ensure, kustomize,
};
use capi_ipam_testing::control_plane::{Installation, ServiceAccount, definitions_in};
use serde_json::Value;

use super::repository::in_repository;

/// The namespace of the provider.
pub const NAMESPACE: &str = "capi-ipam-in-cluster-system";
/// The service account of the provider.
pub const ACCOUNT: &str = "capi-ipam-in-cluster-controller-manager";

/// The folders of `config` that are installed in addition to the CRDs.
const INSTALLED: [&str; 2] = ["namespace", "rbac"];

/// A running control plane, see [`generic::ControlPlane`].
#[derive(Debug)]
pub struct ControlPlane(generic::ControlPlane);

impl Deref for ControlPlane {
    type Target = generic::ControlPlane;

    fn deref(&self) -> &generic::ControlPlane {
        &self.0
    }
}

impl DerefMut for ControlPlane {
    fn deref_mut(&mut self) -> &mut generic::ControlPlane {
        &mut self.0
    }
}

impl Default for ControlPlane {
    fn default() -> Self {
        Self::new()
    }
}

impl ControlPlane {
    /// Starts a control plane with the usual options.
    pub fn new() -> Self {
        Self::start(Options::default())
    }

    /// Starts a control plane with everything that the provider needs, see [`installation`].
    pub fn start(options: Options) -> Self {
        Self(generic::ControlPlane::start(options, installation()))
    }

    /// Grants the permissions of a component, a folder of `config`.
    pub fn permit(&self, component: &str) {
        let folder = config(component);
        for file in ["role.yaml", "role_binding.yaml"] {
            self.kubectl(&["apply", "-f", &folder.join(file).display().to_string()]);
        }
    }

    /// The manager that leads, or an empty text.
    pub fn lease_holder(&self) -> String {
        let lease = format!("lease/{IN_CLUSTER_LEASE}");
        let field = "-o=jsonpath={.spec.holderIdentity}";
        self.try_kubectl(&["-n", NAMESPACE, "get", &lease, field])
            .unwrap_or_default()
    }

    /// Removes the validation rules and limits from the CRDs of pools, as in releases without
    /// rules.
    ///
    /// # Panics
    /// When the CRDs cannot be read or applied.
    pub fn drop_rules(&self) {
        for mut definition in definitions_in(&installation().objects) {
            if definition["spec"]["names"]["kind"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("Pool") || kind.ends_with("PoolSet"))
            {
                without_rules(&mut definition["spec"]["versions"]);
                self.kubectl_replace(&definition.to_string());
            }
        }
    }
}

/// The CRDs in `config/crd`, and the service account of the provider.
pub fn installation() -> &'static Installation {
    static INSTALLATION: OnceLock<Installation> = OnceLock::new();
    INSTALLATION.get_or_init(|| Installation {
        objects: own_crds().join("\n---\n"),
        kustomizations: INSTALLED.map(config).into(),
        account: Some(ServiceAccount {
            namespace: NAMESPACE.to_owned(),
            name: ACCOUNT.to_owned(),
        }),
    })
}

/// A folder of `config`.
fn config(folder: &str) -> PathBuf {
    in_repository("config").join(folder)
}

/// The content of the files in `config/crd` and `config/crd/bases` that contain CRDs, without the
/// kustomizations.
fn own_crds() -> Vec<String> {
    let folder = config("crd");
    let entries = [folder.join("bases"), folder]
        .into_iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("config/crd can be read").path())
        .collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    texts
        .filter(|text| {
            text.lines()
                .any(|line| line == "kind: CustomResourceDefinition")
        })
        .collect()
}

/// Removes everything but types from schemas.
fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for rule in [
                "x-kubernetes-validations",
                "maxItems",
                "minItems",
                "maxLength",
                "minLength",
                "pattern",
            ] {
                fields.remove(rule);
            }
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}
