//! The objects installed in a control plane: the CRDs of Cluster API, and those of the provider.

use std::fs;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::Value;

use super::options::Installation;
use super::programs::ensure;

/// The CRDs of Cluster API that providers use.
const CLUSTER_API_CRDS: [&str; 4] = [
    "cluster.x-k8s.io_clusters.yaml",
    "cluster.x-k8s.io_machines.yaml",
    "ipam.cluster.x-k8s.io_ipaddressclaims.yaml",
    "ipam.cluster.x-k8s.io_ipaddresses.yaml",
];

/// The media type of the list of all kinds that the API server serves.
pub(super) const ALL_KINDS: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A served kind that has a CRD.
#[derive(Debug)]
pub(super) struct ServedKind {
    /// Such as `/apis/ipam.cluster.x-k8s.io/v1beta2/ipaddresses`.
    pub(super) path: String,
    /// In lower case.
    pub(super) plural: String,
}

/// The files with the CRDs of Cluster API.
pub(super) fn cluster_api_crds() -> &'static [PathBuf] {
    static CRDS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    CRDS.get_or_init(|| {
        let folder = PathBuf::from(ensure(&["crds"]));
        CLUSTER_API_CRDS.map(|name| folder.join(name)).into()
    })
}

/// Hashes everything that is installed.
pub(super) fn hash_installed(installation: &Installation, hasher: &mut impl std::hash::Hasher) {
    let entries = installation.kustomizations.iter().flat_map(|folder| {
        fs::read_dir(folder)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()))
    });
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    files.sort();
    files.extend_from_slice(cluster_api_crds());
    for file in files.iter().filter(|file| file.is_file()) {
        fs::read(file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
            .hash(hasher);
    }
    installation.objects.hash(hasher);
}

/// The kinds of the installed CRDs.
pub(super) fn installed_kinds(installation: &Installation) -> Vec<ServedKind> {
    let files = cluster_api_crds()
        .iter()
        .map(|file| fs::read_to_string(file).expect("the CRDs can be read"));
    let texts = files.chain([installation.objects.clone()]);
    texts
        .flat_map(|text| definitions_in(&text))
        .flat_map(|definition| kinds_of(&definition))
        .collect()
}

/// The CRDs in YAML documents.
///
/// # Panics
/// When a CRD is not YAML.
pub fn definitions_in(yaml: &str) -> Vec<Value> {
    let documents = yaml
        .split("\n---\n")
        .filter(|document| document.contains("kind: CustomResourceDefinition"));
    documents
        .map(|document| serde_saphyr::from_str(document).expect("the definitions are YAML"))
        .collect()
}

/// The kinds that the API server serves for a CRD.
fn kinds_of(definition: &Value) -> Vec<ServedKind> {
    let text = |value: &Value| value.as_str().expect("the definition is valid").to_owned();
    let (group, plural) = (
        text(&definition["spec"]["group"]),
        text(&definition["spec"]["names"]["plural"]),
    );
    let versions = definition["spec"]["versions"]
        .as_array()
        .expect("the definition has versions")
        .iter();
    let served = versions
        .filter(|version| version["served"] == true)
        .map(|version| text(&version["name"]));
    served
        .map(|version| ServedKind {
            path: format!("/apis/{group}/{version}/{plural}"),
            plural: plural.clone(),
        })
        .collect()
}
