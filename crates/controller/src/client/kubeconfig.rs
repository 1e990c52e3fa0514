//! What the content of a kubeconfig may contain that somebody else has written, and what an error
//! may show of it.

use kube::config::{AuthInfo, Cluster, Kubeconfig};

use super::ClientError;

const EMBED: &str = "embed the data in base64";

/// Why a kubeconfig cannot be used. Its text, and that of its sources, does not contain the text of
/// the kubeconfig, which has credentials.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The text is not YAML, or a field has another type. The error of the parser is not a source:
    /// it shows an excerpt of the text.
    #[error("it is not valid YAML of a kubeconfig{position}")]
    Yaml {
        /// Where the parser stopped, such as ` (line 3, column 5)`. Empty if this is not known.
        position: String,
    },
    /// It is incomplete, or a value in it cannot be used.
    #[error(transparent)]
    Other(kube::config::KubeconfigError),
}

impl From<kube::config::KubeconfigError> for KubeconfigError {
    fn from(error: kube::config::KubeconfigError) -> Self {
        let kube::config::KubeconfigError::Parse(error) = error else {
            return Self::Other(error);
        };
        let position = match error.location() {
            Some(at) => format!(" (line {}, column {})", at.line(), at.column()),
            None => String::new(),
        };
        Self::Yaml { position }
    }
}

/// Checks that a kubeconfig names no file and no program, and verifies the server.
///
/// # Errors
/// [`ClientError::NotAllowed`] with the field.
pub(super) fn check(kubeconfig: &Kubeconfig) -> Result<(), ClientError> {
    let clusters = kubeconfig.clusters.iter();
    let clusters = clusters.filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter();
    let users = users.filter_map(|named| named.auth_info.as_ref());
    let fields = clusters.flat_map(of_cluster).chain(users.flat_map(of_user));
    for (is_set, field, advice) in fields {
        if is_set {
            return Err(ClientError::NotAllowed { field, advice });
        }
    }
    Ok(())
}

/// A field that must not be set, whether it is, and what to write instead.
type Forbidden = (bool, &'static str, &'static str);

fn of_cluster(cluster: &Cluster) -> [Forbidden; 2] {
    let is_unverified = cluster.insecure_skip_tls_verify == Some(true);
    let authority = cluster.certificate_authority.is_some();
    [
        (
            is_unverified,
            "insecure-skip-tls-verify",
            "set certificate-authority-data",
        ),
        (authority, "certificate-authority", EMBED),
    ]
}

fn of_user(user: &AuthInfo) -> [Forbidden; 5] {
    let with_token = "use a token or a client certificate";
    [
        (user.exec.is_some(), "exec", with_token),
        (user.auth_provider.is_some(), "auth-provider", with_token),
        (user.token_file.is_some(), "tokenFile", "set token"),
        (
            user.client_certificate.is_some(),
            "client-certificate",
            EMBED,
        ),
        (user.client_key.is_some(), "client-key", EMBED),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> Kubeconfig {
        let text = format!(
            "clusters: [{{name: a, cluster: {{server: 'https://hub', {cluster}}}}}]\n\
             users: [{{name: a, user: {{{user}}}}}]"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[test]
    fn files_and_programs_are_refused() {
        for (cluster, user, expected) in [
            (
                "insecure-skip-tls-verify: true",
                "",
                "insecure-skip-tls-verify",
            ),
            (
                "certificate-authority: /etc/ca",
                "",
                "certificate-authority",
            ),
            ("", "exec: {command: sh}", "exec"),
            ("", "auth-provider: {name: a, config: {}}", "auth-provider"),
            ("", "tokenFile: /token", "tokenFile"),
            ("", "client-certificate: /crt", "client-certificate"),
            ("", "client-key: /key", "client-key"),
        ] {
            let error = check(&kubeconfig(cluster, user)).unwrap_err();
            let is_named =
                matches!(error, ClientError::NotAllowed { field, .. } if field == expected);
            assert!(is_named, "{error}");
        }
    }

    #[test]
    fn embedded_data_is_accepted() {
        let embedded = kubeconfig("certificate-authority-data: YQ==", "token: a");
        assert!(check(&embedded).is_ok());
    }
}
