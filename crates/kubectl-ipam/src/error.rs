//! Errors of the program, and its exit codes.

use std::process::ExitCode;

/// The exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The command succeeded.
    Ok = 0,
    /// `doctor` or `status` has errors or warnings, or `import` has problems.
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
    /// `export` has left objects or fields out.
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
    /// There is no usable kubeconfig.
    #[error("no cluster is configured: {reason}; set --kubeconfig, --context or KUBECONFIG")]
    NotConfigured {
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
    #[error("{what} is unknown: {}", sentences(missing))]
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
    /// A pool has no address to reserve.
    #[error("{pool} has no free address")]
    NoFree {
        /// Kind, namespace and name.
        pool: String,
    },
    /// An address has no reservation.
    #[error("{slot} is not reserved")]
    NotReserved {
        /// The address and its pool or network.
        slot: String,
    },
    /// A change was not confirmed.
    #[error("{warning}; confirm it with --yes")]
    NotConfirmed {
        /// What the change affects.
        warning: String,
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
#[error("you may not {verb} {resource} {}: ask for the verb {verb} on {resource}{}", place(namespace.as_deref()),
        scope(namespace.as_deref()))]
pub struct MissingRight {
    /// The verb, such as `list`.
    pub verb: &'static str,
    /// The plural and the group, such as `ipreservations.ipam.cluster.x-k8s.io`.
    pub resource: String,
    /// The namespace; `None` for the whole cluster.
    pub namespace: Option<String>,
}

/// The sentences about missing permissions.
pub(crate) fn sentences(missing: &[MissingRight]) -> String {
    let texts: Vec<String> = missing.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "in the whole cluster".to_owned(),
        |name| format!("in the namespace {name}"),
    )
}

fn scope(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || " (ClusterRole)".to_owned(),
        |name| format!(" in {name} (Role)"),
    )
}

impl Error {
    /// The exit code.
    pub fn code(&self) -> Code {
        match self {
            Self::NotConfigured { .. } | Self::Unreachable { .. } => Code::Unreachable,
            Self::Unauthenticated { .. } | Self::Forbidden(_) | Self::Unknown { .. } => {
                Code::Forbidden
            }
            Self::NotInstalled { .. } | Self::OtherVersion { .. } => Code::NoDefinition,
            Self::NoPool { .. }
            | Self::NoClaim { .. }
            | Self::NoHolder { .. }
            | Self::NotReserved { .. } => Code::NotFound,
            Self::AmbiguousPool { .. } | Self::Argument(_) | Self::NotConfirmed { .. } => {
                Code::Usage
            }
            Self::Held { .. }
            | Self::Changed { .. }
            | Self::NoFree { .. }
            | Self::File { .. }
            | Self::Request { .. }
            | Self::Output(_) => Code::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_right_names_verb_resource_and_namespace() {
        let mut right = MissingRight {
            verb: "list",
            resource: "ipaddresses.x".to_owned(),
            namespace: None,
        };
        assert_eq!(
            right.to_string(),
            "you may not list ipaddresses.x in the whole cluster: ask for the verb list on ipaddresses.x (ClusterRole)"
        );
        right.namespace = Some("team-a".to_owned());
        assert!(
            right
                .to_string()
                .ends_with("ask for the verb list on ipaddresses.x in team-a (Role)"),
            "{right}"
        );
    }
}
