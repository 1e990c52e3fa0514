//! Errors of the program, and its exit codes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// The exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The command succeeded.
    Ok = 0,
    /// `doctor`, `status` or `registry check` has errors or warnings, `plan` finds a pool short of
    /// addresses, or `convert` has problems.
    Findings = 1,
    /// The command line is invalid.
    Usage = 2,
    /// The cluster is not configured or does not respond.
    Unreachable = 3,
    /// The caller lacks a permission, or the output is incomplete because of it.
    Forbidden = 4,
    /// A CustomResourceDefinition is missing, or is not served in a supported version.
    NoDefinition = 5,
    /// The pool does not exist, or no pool contains the address.
    NotFound = 6,
    /// Another failure.
    Failed = 7,
    /// `export`, `adopt` or `convert --from` has left objects or fields out.
    Incomplete = 8,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Why a command fails. The text is one line that names what is missing and how to get it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no kubeconfig.
    #[error("no cluster is configured: set --kubeconfig or KUBECONFIG, or create ~/.kube/config")]
    NotConfigured,
    /// The kubeconfig has no entry that a flag, or another entry, names.
    #[error("{entry} \"{name}\" does not exist in the kubeconfig; see kubectl config view")]
    NoEntry {
        /// What is named: `context`, `cluster` or `user`.
        entry: &'static str,
        /// The name.
        name: String,
    },
    /// The kubeconfig cannot be used.
    #[error("{reason}")]
    Kubeconfig {
        /// What is wrong.
        reason: String,
    },
    /// The API server does not respond.
    #[error(
        "cannot reach the API server {server}: {reason}; check the cluster and the context (--context)"
    )]
    Unreachable {
        /// URL of the API server.
        server: String,
        /// The error of the connection.
        reason: String,
    },
    /// The API server does not accept the credentials.
    #[error("the API server {server} rejects the credentials of the kubeconfig; log in again")]
    Unauthenticated {
        /// URL of the API server.
        server: String,
    },
    /// A permission is missing.
    #[error("{0}")]
    Forbidden(MissingRight),
    /// A permission is missing without which the answer is unknown.
    #[error("{what} is unknown: {}", sentences(missing).join("; "))]
    Unknown {
        /// What is unknown, such as `the next address of InClusterIPPool a/b`.
        what: String,
        /// The permissions.
        missing: Vec<MissingRight>,
    },
    /// A kind is not served.
    #[error(
        "the CustomResourceDefinition {plural}.{group} is not installed: run clusterctl init --ipam in-cluster, or \
         clusterctl init (claims and addresses); if the provider is installed, apply its manifest again"
    )]
    NotInstalled {
        /// Plural of the kind.
        plural: String,
        /// API group.
        group: String,
    },
    /// A kind of another project is not served.
    #[error(
        "the API server does not serve {resource}: its CustomResourceDefinition is not installed"
    )]
    NotServed {
        /// Plural and API group of the kind.
        resource: String,
    },
    /// A kind is served in other versions only.
    #[error(
        "{plural}.{group} is served in {served} only; this program reads {supported}: upgrade the provider"
    )]
    OtherVersion {
        /// Plural of the kind.
        plural: String,
        /// API group.
        group: String,
        /// The served versions.
        served: String,
        /// The supported versions.
        supported: String,
    },
    /// The API server rejects a request.
    #[error("cannot {operation}: {reason}")]
    Request {
        /// The operation, such as `list ipaddresses`.
        operation: String,
        /// The response of the API server.
        reason: String,
    },
    /// The pool does not exist.
    #[error("pool {name} does not exist in {place}; list the pools with: kubectl ipam pools -A")]
    NoPool {
        /// The name as written.
        name: String,
        /// Where it was searched.
        place: String,
    },
    /// The namespace does not exist.
    #[error(
        "namespace {name} does not exist{}; list them with: kubectl get namespaces",
        similar.as_ref().map(|similar| format!("; did you mean {similar}?")).unwrap_or_default()
    )]
    NoNamespace {
        /// The name as written.
        name: String,
        /// One with nearly the same name.
        similar: Option<String>,
    },
    /// The network does not exist.
    #[error("network {name} does not exist; list the networks with: kubectl ipam networks")]
    NoNetwork {
        /// The name as written.
        name: String,
    },
    /// The registry does not exist.
    #[error("registry {name} does not exist; list the registries with: kubectl ipam registry")]
    NoRegistry {
        /// The name as written.
        name: String,
    },
    /// The identity of this management cluster is unknown.
    #[error(
        "the identity of this management cluster in IPRegistry {registry} is unknown: set spec.clusterID, or ask for the \
         permission to list namespaces"
    )]
    NoIdentity {
        /// The name of the registry.
        registry: String,
    },
    /// The UID of the cluster is unknown.
    #[error(
        "the UID of namespace kube-system, which identifies this cluster, is unknown: ask for the permission to list \
         namespaces"
    )]
    NoClusterUid,
    /// A registry cannot be read or written.
    #[error("cannot {operation} IPRegistry {registry}: {reason}")]
    Registry {
        /// The operation, such as `read`.
        operation: String,
        /// The name of the registry.
        registry: String,
        /// What is wrong.
        reason: String,
    },
    /// Another object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Another failure.
    #[error("{0}")]
    Failed(String),
    /// No claim, machine or Cluster has the name.
    #[error(
        "no claim, machine or Cluster is named {name} in {place}; -A searches all namespaces, and an address is written \
         as 10.0.0.7"
    )]
    NoClaim {
        /// The name as written.
        name: String,
        /// Where it was searched.
        place: String,
    },
    /// Several pools have the name.
    #[error("several pools are named {name}: write {choices}")]
    AmbiguousPool {
        /// The name as written.
        name: String,
        /// The unambiguous names.
        choices: String,
    },
    /// No pool contains the address.
    #[error("no pool contains {address}, and nothing holds it")]
    NoHolder {
        /// The address as written.
        address: String,
    },
    /// An address is held.
    #[error("{slot} is {holder}")]
    Held {
        /// The address and its pool or network.
        slot: String,
        /// Who holds it.
        holder: String,
    },
    /// Somebody else created an object at the same time.
    #[error("{object} was created by somebody else in the meantime; try again")]
    Changed {
        /// Kind and name.
        object: String,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}")]
    File {
        /// The path.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// An argument is invalid.
    #[error("{0}")]
    Argument(String),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(String),
}

/// A permission that the caller lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", sentence(verb, resource, namespace.as_deref()))]
pub struct MissingRight {
    /// The verb, such as `list`.
    pub verb: &'static str,
    /// The plural and the group, such as `ipreservations.ipam.cluster.x-k8s.io`.
    pub resource: String,
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
}

/// The sentences about missing permissions: one for each verb and place.
pub(crate) fn sentences(missing: &[MissingRight]) -> Vec<String> {
    let mut resources: BTreeMap<(Option<&str>, &str), BTreeSet<&str>> = BTreeMap::new();
    for right in missing {
        let place = (right.namespace.as_deref(), right.verb);
        resources.entry(place).or_default().insert(&right.resource);
    }
    // Who gets a permission for all namespaces needs none for one of them.
    let of_all = resources.clone();
    let mut texts = Vec::new();
    for ((namespace, verb), mut names) in resources {
        let in_all = of_all.get(&(None, verb));
        if let Some(in_all) = in_all.filter(|_| namespace.is_some()) {
            names.retain(|name| !in_all.contains(name));
        }
        if !names.is_empty() {
            texts.push(sentence(verb, &by_group(&names), namespace));
        }
    }
    texts
}

/// Resources, each API group once: `ipaddresses, ipreservations (ipam.cluster.x-k8s.io)`.
fn by_group(resources: &BTreeSet<&str>) -> String {
    if let [one] = resources.iter().collect::<Vec<_>>().as_slice() {
        return (**one).to_owned();
    }
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in resources {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        groups.entry(group).or_default().push(plural);
    }
    let mut texts = Vec::new();
    for (group, plurals) in groups {
        let plurals = plurals.join(", ");
        texts.push(if group.is_empty() {
            plurals
        } else {
            format!("{plurals} ({group})")
        });
    }
    texts.join(", ")
}

fn sentence(verb: &str, resources: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(name) => {
            format!(
                "you may not {verb} {resources} in the namespace {name}: ask for a Role that allows it"
            )
        }
        None => {
            format!(
                "you may not {verb} {resources} in all namespaces: ask for a ClusterRole that allows it"
            )
        }
    }
}

impl Error {
    /// The exit code.
    pub fn code(&self) -> Code {
        match self {
            Self::NotConfigured
            | Self::NoEntry { .. }
            | Self::Kubeconfig { .. }
            | Self::Unreachable { .. } => Code::Unreachable,
            Self::Unauthenticated { .. }
            | Self::Forbidden(_)
            | Self::Unknown { .. }
            | Self::NoIdentity { .. }
            | Self::NoClusterUid => Code::Forbidden,
            Self::NotInstalled { .. } | Self::NotServed { .. } | Self::OtherVersion { .. } => {
                Code::NoDefinition
            }
            Self::NoPool { .. }
            | Self::NoNamespace { .. }
            | Self::NoNetwork { .. }
            | Self::NoRegistry { .. }
            | Self::NotFound(_)
            | Self::NoClaim { .. }
            | Self::NoHolder { .. } => Code::NotFound,
            Self::AmbiguousPool { .. } | Self::Argument(_) => Code::Usage,
            Self::Held { .. }
            | Self::Changed { .. }
            | Self::File { .. }
            | Self::Registry { .. }
            | Self::Failed(_)
            | Self::Request { .. }
            | Self::Output(_) => Code::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(resource: &str, namespace: Option<&str>) -> MissingRight {
        MissingRight {
            verb: "list",
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
        }
    }

    #[test]
    fn missing_right_names_verb_resource_and_namespace() {
        assert_eq!(
            right("ipaddresses.x", None).to_string(),
            "you may not list ipaddresses.x in all namespaces: ask for a ClusterRole that allows it"
        );
        assert_eq!(
            right("ipaddresses.x", Some("team-a")).to_string(),
            "you may not list ipaddresses.x in the namespace team-a: ask for a Role that allows it"
        );
    }

    #[test]
    fn missing_rights_of_a_place_are_one_sentence() {
        let rights = [
            right("ipslices.x", None),
            right("ipaddresses.x", Some("lab")),
            right("leases.y", None),
            right("ipaddresses.x", None),
            right("secrets", Some("lab")),
        ];
        assert_eq!(
            sentences(&rights),
            [
                "you may not list ipaddresses, ipslices (x), leases (y) in all namespaces: ask for a ClusterRole that \
                 allows it",
                "you may not list secrets in the namespace lab: ask for a Role that allows it",
            ]
        );
    }
}
